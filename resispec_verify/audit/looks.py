"""What rejected tokens look like: the fault whose law explains them best, in a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from resispec_verify.audit.interface import Engine, EngineError, Prompt, Sampling
from resispec_verify.audit.laws import BeyondReported, coarse_law
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
    onto,
)
from resispec_verify.evidence.coarse_laws import own_bets

__all__ = ["looks_like"]

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
# Draws that are explained, the latest, and those for which one more law is asked.
MOST = 4000
ASKED = 160
# Evidence, in nats, that one place in a round alone must have to be named.
ALONE = 7.0
# Nats by which an explanation must be ahead of the next one to stand alone.
AHEAD = 3.0


Law = Callable[[Draw], "np.ndarray | None"]


class _Look(NamedTuple):
    gain: float
    sentence: str
    law: Law


def looks_like(stream: Stream, reference: Engine, prompts: Sequence[Prompt], sampling: Sampling) -> str:
    """The best explanation, by the likelihood of the tokens; two where they are close.

    Each is the law with a part of the draws, the best of a few, taken from the fault's law. That is no test:
    the verdict does not depend on it.
    """
    place = _place(stream)
    draws = [draw for draw in stream.draws if place is None or _in(draw, place)][-MOST:]
    found = sorted(_all(stream, draws), key=lambda look: -look.gain)
    found += _next_row(draws, stream, reference, prompts, sampling, found[0])
    found.sort(key=lambda look: -look.gain)
    if found[0].gain < math.log(100.0):
        return "like none of the faults that are known here"
    close = [look.sentence for look in found[:2] if look.gain > found[0].gain - AHEAD]
    where = "" if place is None else f"; most of it at place {PLACES[place]} of a round"
    return ", or ".join(close) + where


def _all(stream: Stream, draws: Sequence[Draw]) -> list[_Look]:
    def of(sentence: Callable[[float], str], law: Law, parts: Sequence[float] = PARTS) -> _Look:
        gain, part = _gain(draws, law, parts)
        return _Look(gain, sentence(part), law)

    found = [
        max(
            of(lambda part, ratio=ratio: _temperature(ratio), _tempered(1 / ratio), (1.0,))
            for ratio in TEMPERATURES
        )
    ]
    for i, name in enumerate(own_bets(np.array([0.75, 0.25]))[0]):
        if not name.startswith("temperature"):
            found.append(
                of(lambda part, name=name: _own(name, part), lambda draw, i=i: own_bets(draw.law.law)[1][i])
            )
    for i, name in enumerate(stream.names):
        if name in _SENTENCES:
            found.append(
                of(
                    lambda part, name=name: _SENTENCES[name].format(part=f"{part:.0%}"),
                    lambda draw, i=i: draw.others[i],
                )
            )
    return found


def _gain(draws: Sequence[Draw], law_of: Law, parts: Sequence[float] = PARTS) -> tuple[float, float]:
    """Log-likelihood that is gained with the best part of the draws from a law, and that part."""
    ratios = []
    for draw in draws:
        law, due = law_of(draw), draw.law.law[draw.cell]
        ratios.append(1.0 if law is None or due <= 0 else float(law[draw.cell] / due))
    ratio = np.array(ratios)
    with np.errstate(divide="ignore"):
        logs = [float(np.log1p(part * (ratio - 1.0)).sum()) for part in parts]
    best = int(np.argmax(logs))
    return logs[best], parts[best]


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


def _next_row(
    draws: Sequence[Draw],
    stream: Stream,
    reference: Engine,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    best: _Look,
) -> list[_Look]:
    """Whether a token after a rejection is drawn one row too late: asks for more laws.

    The rejected token is not known; the most probable one stands for it. On the draws for which that was
    asked it is compared with the best of the others.
    """
    draws = draws[-ASKED:]
    laws: dict[int, np.ndarray] = {}
    try:
        for draw in draws:
            prompt, tokens = stream.completions[draw.request]
            likely = draw.law.tokens[int(np.argmax(draw.law.law[:-1]))]
            text = [*tokens[: draw.index], likely, likely]
            raw = reference.laws(prompts[prompt], text, len(draw.law.tokens))[-1]
            with suppress(BeyondReported):
                laws[id(draw)] = onto(draw.law, coarse_law(raw, sampling, reference.vocab))
    except EngineError:
        return []
    gain, part = _gain(draws, lambda draw: laws.get(id(draw)))
    ahead = gain - _gain(draws, best.law)[0]
    sentence = (
        f"the next row: as if {part:.0%} of the tokens were drawn from the law after the rejected token"
    )
    return [_Look(best.gain + ahead, sentence, best.law)]


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
