"""What rejected tokens look like: the fault whose law explains them best, in a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from resispec_verify.audit.interface import Engine, EngineError, Prompt, Sampling, Token
from resispec_verify.audit.laws import MOST_TOKENS, BeyondReported, CoarseLaw, coarse_law
from resispec_verify.audit.stream import (
    BEFORE,
    DRAFTED,
    GREEDY_DRAFT,
    PLACES,
    REDRAWN,
    REPEATED,
    SHARED,
    Draw,
    Stream,
)
from resispec_verify.evidence.coarse_laws import own_bets

__all__ = ["looks_like", "resemblance"]

TEMPERATURES = (
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.75,
    0.8,
    0.85,
    0.9,
    0.95,
    1.05,
    1.1,
    1.15,
    1.25,
    1.4,
    1.6,
    2.0,
    3.0,
)
# Shares of the draws that a fault may concern.
PARTS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95, 0.99)
# A part from which tokens that came before are called repeated.
WHOLE = 0.85
# Draws that are explained, the latest, and those for which more laws are asked.
MOST = 4000
ASKED = 60
# Tokens that may have been rejected: so many laws are asked for each of those draws.
LIKELY = 4
# Evidence, in nats, that one place in a round alone must have to be named.
ALONE = 7.0
# Nats by which an explanation must be ahead of the next one to stand alone.
AHEAD = 3.0


Law = Callable[[Draw], "np.ndarray | None"]


class _Look(NamedTuple):
    """An explanation.

    Attributes
    ----------
    gain : float
        Logarithm of the likelihood that it gains.
    sentence : str
    ratio : float64 array (draws,)
        Likelihood of each token in the fault's law, over that in its own.
    """

    gain: float
    sentence: str
    ratio: np.ndarray


def looks_like(stream: Stream, reference: Engine, prompts: Sequence[Prompt], sampling: Sampling) -> str:
    """The best explanation, by the likelihood of the tokens; two where they are close.

    Each is the law with a part of the draws, the best of a few, taken from the fault's law. That is no test:
    the verdict does not depend on it.
    """
    place = _place(stream)
    draws = [draw for draw in stream.draws if place is None or _in(draw, place)][-MOST:]
    vocab = reference.vocab or MOST_TOKENS
    found = sorted([*_all(stream, draws), _row_before(stream, draws, vocab)], key=lambda look: -look.gain)
    found += _next_row(draws, stream, reference, prompts, sampling, found[0])
    found.sort(key=lambda look: -look.gain)
    if found[0].gain < math.log(100.0):
        return (
            "like none of the faults that are known here; one that depends on the draft may be named with "
            "--draft-url, and a reference of another model looks like this too"
        )
    close = [look.sentence for look in found[:2] if look.gain > found[0].gain - AHEAD]
    return _at(place) + ", or ".join(close)


def resemblance(looks: str) -> str:
    """What `looks_like` says, as a resemblance and no diagnosis: it goes on from what the tokens are."""
    return f"they look {looks}" if looks.startswith("like ") else f"they look like this: {looks}"


def _at(place: int | None) -> str:
    """Where the draws are that were looked at, where one place stands out."""
    if place is None:
        return ""
    after = "at its beginning" if place == 0 else f"after {place} accepted draft token{'s' * (place > 1)}"
    after = after if place < len(PLACES) - 1 else "late in a round"
    return f"at place {PLACES[place]} of a round ({after}), "


def _all(stream: Stream, draws: Sequence[Draw]) -> list[_Look]:
    def of(sentence: Callable[[float], str], law: Law, parts: Sequence[float] = PARTS) -> _Look:
        ratio = np.array([_cell_ratio(draw, law(draw)) for draw in draws])
        gain, part = _best(ratio, parts)
        return _Look(gain, sentence(part), ratio)

    tempered = [
        of(lambda part, ratio=ratio: _temperature(ratio), _tempered(1 / ratio), (1.0,))
        for ratio in TEMPERATURES
    ]
    found = [max(tempered, key=lambda look: look.gain)]
    for i, name in enumerate(own_bets(np.array([0.75, 0.25]))[0]):
        if not name.startswith("temperature"):
            found.append(
                of(lambda part, name=name: _own(name, part), lambda draw, i=i: own_bets(draw.law.law)[1][i])
            )
    for i, name in enumerate(stream.names):
        if name in _SENTENCES and name != BEFORE:
            found.append(
                of(
                    lambda part, name=name: _SENTENCES[name].format(part=f"{part:.0%}"),
                    lambda draw, i=i: draw.others[i],
                    # What came before also resembles any law that is not the reference's.
                    tuple(part for part in PARTS if part >= WHOLE) if name == REPEATED else PARTS,
                )
            )
    return found


def _cell_ratio(draw: Draw, law: np.ndarray | None) -> float:
    due = draw.law.law[draw.cell]
    return 1.0 if law is None or due <= 0 else float(law[draw.cell] / due)


def _best(ratio: np.ndarray, parts: Sequence[float] = PARTS) -> tuple[float, float]:
    """Log-likelihood that is gained with the best part of the draws from a law, and that part."""
    with np.errstate(divide="ignore"):
        logs = [float(np.log1p(part * (ratio - 1.0)).sum()) for part in parts]
    best = int(np.argmax(logs))
    return logs[best], parts[best]


def _row_ratio(row: CoarseLaw | None, draw: Draw, token: Token, vocab: int) -> float:
    """Likelihood of a token in the law of another row, over that in its own.

    A law of another row has most of its mass on tokens that are not reported here, as has any that is wrong;
    so it is the token that counts and not its cell, and those that neither reports are alike.
    """
    if row is None:
        return 1.0
    due = _mass(draw.law, token, vocab)
    return _mass(row, token, vocab) / due if due > 0 else 1.0


def _mass(law: CoarseLaw, token: Token, vocab: int) -> float:
    masses, cell = law.law, law.cell(token)
    others = max(1, vocab - len(law.tokens)) if cell == len(law.tokens) else 1
    return float(masses[cell]) / others


def _tempered(power: float) -> Law:
    def law_of(draw: Draw) -> np.ndarray:
        law = draw.law.law
        scale = law.copy()
        scale[-1] = law[-2] if len(law) > 1 else 1.0
        weights = law * np.where(scale > 0, scale / max(scale.max(), 1e-300), 1.0) ** (power - 1.0)
        return weights / weights.sum()

    return law_of


def _temperature(ratio: float) -> str:
    how = "too cold" if ratio < 1 else "too hot"
    return f"{how}: as if drawn at {ratio:g} times the temperature that was asked for"


def _own(name: str, part: float) -> str:
    if name == "the most probable token":
        return f"too greedy: as if {part:.0%} of the tokens were the most probable one, and not drawn"
    return f"the tail is cut: {name.removeprefix('no ')} do not come as they should ({part:.0%} of the draws)"


_SENTENCES = {
    REPEATED: "repeated seeds: as if {part} of the tokens were those that came before after the same text, "
    "though every request has a seed of its own",
    SHARED: "shared randomness: as if {part} of the tokens used the random numbers of the request before",
    BEFORE: "the row before: as if {part} of the tokens came from the law of the token before",
    DRAFTED: "the draft's law: as if {part} of the tokens were the draft's, accepted whatever p says",
    REDRAWN: "no residual: as if, in {part} of the draws, a token after a rejection came from the target's "
    "whole law",
    GREEDY_DRAFT: "a greedy draft: as if, in {part} of the draws, the draft's most probable token were "
    "accepted with p/q, which is right only for tokens drawn from q",
}


def _row_before(stream: Stream, draws: Sequence[Draw], vocab: int) -> _Look:
    """Whether tokens are drawn from the row before."""
    rows = {(draw.request, draw.index): draw.law for draw in stream.draws}
    ratios = [
        _row_ratio(rows.get((draw.request, draw.index - 1)), draw, _token(stream, draw), vocab)
        for draw in draws
    ]
    gain, part = _best(np.array(ratios))
    return _Look(gain, _SENTENCES[BEFORE].format(part=f"{part:.0%}"), np.array(ratios))


def _next_row(
    draws: Sequence[Draw],
    stream: Stream,
    reference: Engine,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    best: _Look,
) -> list[_Look]:
    """Whether a token after a rejection is drawn one row too late: asks for more laws.

    The rejected token is not known; the most probable ones stand for it. On the draws for which that was
    asked it is compared with the best of the others.
    """
    asked = draws[-ASKED:]
    ratios = []
    try:
        for draw in asked:
            ratio, token = 0.0, _token(stream, draw)
            for rejected, share in _rejected(draw, stream):
                prompt, tokens = stream.completions[draw.request]
                row = _after(reference, prompts[prompt], [*tokens[: draw.index], rejected], draw, sampling)
                ratio += share * _row_ratio(row, draw, token, reference.vocab or MOST_TOKENS)
            ratios.append(ratio)
    except EngineError:
        return []
    gain, part = _best(np.array(ratios))
    if gain < AHEAD:
        return []
    ahead = gain - _best(best.ratio[-ASKED:])[0]
    sentence = (
        f"the next row: as if {part:.0%} of the tokens were drawn from the law after the rejected token"
    )
    return [_Look(best.gain + ahead, sentence, best.ratio)]


def _rejected(draw: Draw, stream: Stream) -> list[tuple[Token, float]]:
    """Tokens that were likely rejected, with their shares: by (q - p)+ where the draft's law is known."""
    law = draw.law.law[:-1]
    draft = draw.others[stream.names.index(DRAFTED)] if DRAFTED in stream.names else None
    weights = law if draft is None or not (draft[:-1] > law).any() else np.maximum(draft[:-1] - law, 0.0)
    best = np.argsort(-weights, kind="stable")[:LIKELY]
    shares = weights[best] / weights[best].sum()
    return [(draw.law.tokens[i], float(x)) for i, x in zip(best, shares, strict=True) if x > 0]


def _after(
    reference: Engine, prompt: Prompt, tokens: list[Token], draw: Draw, sampling: Sampling
) -> CoarseLaw | None:
    """The law after these tokens, as many as the draw's law has; None where it is not known."""
    if not isinstance(prompt, str):  # else a server computes, or is asked for, the laws before as well
        prompt, tokens = (*prompt, *(int(token) for token in tokens)), []
    raw = reference.laws(prompt, [*tokens, draw.law.tokens[0]], len(draw.law.tokens))[-1]
    try:
        return coarse_law(raw, sampling, reference.vocab)
    except BeyondReported:
        return None


def _token(stream: Stream, draw: Draw) -> Token:
    return stream.completions[draw.request][1][draw.index]


def _in(draw: Draw, place: int) -> bool:
    return draw.place is not None and draw.index > 0 and min(draw.place, len(PLACES) - 1) == place


def _place(stream: Stream) -> int | None:
    """The place in a round on which there is most evidence, where one stands out."""
    logs = [one.log_evidence for one in stream.by_place]
    seen = [i for i, one in enumerate(stream.by_place) if one.draws]
    if len(seen) < 2 or not all(map(math.isfinite, logs)):
        return None
    first, second = sorted(seen, key=lambda i: -logs[i])[:2]
    return first if logs[first] > max(ALONE, 3.0 * logs[second]) else None
