"""The tokens of one engine against the reference's laws, as evidence, and what is kept to explain it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from resispec_verify.audit.interface import Token
from resispec_verify.audit.laws import CoarseLaw
from resispec_verify.evidence.coarse_laws import CoarseTest
from resispec_verify.evidence.eprocess import SHRINKAGE

__all__ = ["BETS", "DRAFT_BETS", "PLACES", "Draw", "Stream", "onto"]

#: Places in a round that are tested by themselves; the last is that one and all later.
PLACES = ("1", "2", "3", "4", "5 or later")
# Tokens after a prompt that come often enough to learn what follows them.
TEXTS = 4
# Below this mass of a token nothing is learned of it.
LEAST = 0.005
BY_TOKEN = "how often each token came so far"
BY_LAST = "how often each token came so far after the same token"
BY_TEXT = "how often each token came so far after the same text"
REPEATED = "a token that came before after the same text"
SHARED = "the place in the law that the request before had at this token"
BEFORE = "the law of the token before"
LEARNED = (BY_TOKEN, BY_LAST, BY_TEXT)
BETS = (*LEARNED, REPEATED, SHARED, BEFORE)
DRAFTED = "the draft's law"
REDRAWN = "the target's law, drawn from anew after a rejection"
GREEDY_DRAFT = "the most probable draft token, accepted with p/q"
DRAFT_BETS = (DRAFTED, REDRAWN, GREEDY_DRAFT)


Text = tuple[int, tuple[Token, ...]]


class Draw(NamedTuple):
    """One token and its law.

    Attributes
    ----------
    law : CoarseLaw
    cell : int
    others : list of (k + 1,) arrays or None
        Laws bet on, in the order of the stream's names.
    request, index : int
        Where it was drawn.
    place : int or None
        In its round, from 0.
    """

    law: CoarseLaw
    cell: int
    others: list[np.ndarray | None]
    request: int
    index: int
    place: int | None


def onto(law: CoarseLaw, other: CoarseLaw) -> np.ndarray:
    """Masses of ``other`` on the cells of ``law``, ``(k + 1,)``; what it does not report is with the rest."""
    mass = dict(zip(other.tokens, other.law[:-1], strict=True))
    known = np.array([mass.get(token, 0.0) for token in law.tokens])
    return np.append(known, max(0.0, 1.0 - float(known.sum())))


class _Weights:
    """Tokens weighted by how often they came so far, over how often they should have, in each context."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Any, Token], list[float]] = {}

    def law(self, law: CoarseLaw, context: Any) -> np.ndarray | None:
        """The law with these weights, ``(k + 1,)``; None where nothing is known."""
        weights = np.ones(len(law.low))
        for i, token in enumerate(law.tokens):
            if (found := self._counts.get((context, token))) is not None:
                weights[i] = (found[0] + SHRINKAGE) / (found[1] + SHRINKAGE)
        weighted = law.law * weights
        return weighted / weighted.sum()

    def add(self, law: CoarseLaw, context: Any, token: Token) -> None:
        """Learn of a draw."""
        for one, p in zip(law.tokens, law.law[:-1], strict=True):
            if p >= LEAST:
                counts = self._counts.setdefault((context, one), [0.0, 0.0])
                counts[0] += one == token
                counts[1] += float(p)


class Stream:
    """Evidence against tokens of one engine.

    Half of it bets on all tokens, half on those of each place in a round alone: the average is anytime-valid,
    as they are. Completions are added in the order in which they were asked for, not that of their arrival,
    which may depend on what was drawn.

    Parameters
    ----------
    band, slack : float
        See `CoarseTest`.
    drafts : bool
        Whether the draft's laws are known.

    Attributes
    ----------
    draws : list of Draw
    path : list of float
        Logarithm of the evidence after each.
    completions : dict
        By request, the index of its prompt and its tokens.
    """

    def __init__(self, band: float, slack: float, *, drafts: bool = False) -> None:
        self.names = BETS + (DRAFT_BETS if drafts else ())
        self.test = CoarseTest(self.names, band=band, slack=slack)
        self.by_place = [CoarseTest(self.names, band=band, slack=slack) for _ in PLACES]
        self.draws: list[Draw] = []
        self.path: list[float] = []
        self.completions: dict[int, tuple[int, list[Token]]] = {}
        self._by_token, self._by_last, self._by_text = _Weights(), _Weights(), _Weights()
        self._after: dict[Text, list[Token]] = defaultdict(list)
        self._before: list[float] = []  # middles of the last completion's tokens in their laws

    def add(
        self,
        request: int,
        prompt: int,
        tokens: Sequence[Token],
        laws: Sequence[CoarseLaw | None],
        starts: Sequence[int] | None = None,
        drafts: Sequence[CoarseLaw | None] | None = None,
    ) -> None:
        """Add a completion: its tokens, and the reference's law before each; None where that is not known,
        and the token is not tested.
        """
        middles: list[float] = []
        self.completions[request] = prompt, list(tokens)
        for index, (token, law) in enumerate(zip(tokens, laws, strict=True)):
            if law is None:
                middles.append(math.nan)
                continue
            text = (prompt, tuple(tokens[:index]))
            last = tokens[index - 1] if index else None
            row = laws[index - 1] if index else None
            others = [
                self._by_token.law(law, ""),
                self._by_last.law(law, last),
                self._by_text.law(law, text) if index < TEXTS else None,
                _points(law, self._after[text]),
                self._shared(law.law, index),
                None if row is None else onto(law, row),
                *_of_draft(law, None if drafts is None else drafts[index]),
            ][: len(self.names)]
            place = None if starts is None else index - max(start for start in starts if start <= index)
            self._draw(Draw(law, law.cell(token), others, request, index, place))
            self._learn(law, token, last, text)
            cell = law.cell(token)
            middles.append(float(law.law[:cell].sum() + 0.5 * law.law[cell]))
        self._before = middles

    def _draw(self, draw: Draw) -> None:
        self.draws.append(draw)
        self.test.add(draw.law.low, draw.law.high, draw.cell, draw.others)
        # The first token after a prompt is not speculative.
        if draw.place is not None and draw.index > 0:
            one = self.by_place[min(draw.place, len(PLACES) - 1)]
            one.add(draw.law.low, draw.law.high, draw.cell, draw.others)
        self.path.append(self.log_evidence)

    def _learn(self, law: CoarseLaw, token: Token, last: Token | None, text: Text) -> None:
        self._by_token.add(law, "", token)
        self._by_last.add(law, last, token)
        if len(text[1]) < TEXTS:
            self._by_text.add(law, text, token)
        self._after[text].append(token)

    def _shared(self, law: np.ndarray, index: int) -> np.ndarray | None:
        if index >= len(self._before) or math.isnan(self._before[index]):
            return None
        found = np.zeros_like(law)
        found[min(int(np.searchsorted(np.cumsum(law), self._before[index])), len(law) - 1)] = 1.0
        return found

    @property
    def log_evidence(self) -> float:
        """Logarithm of the evidence."""
        alone = np.logaddexp.reduce([one.log_evidence for one in self.by_place]) - math.log(len(PLACES))
        return float(np.logaddexp(self.test.log_evidence, alone)) - math.log(2.0)

    @property
    def strongest(self) -> float:
        """Logarithm of the largest evidence so far."""
        return max([0.0, *self.path])

    def found_at(self, alpha: float) -> int | None:
        """Tokens after which the evidence first reached ``1 / alpha``."""
        return next((i for i, log in enumerate(self.path, 1) if log >= -math.log(alpha)), None)

    def detectable(self, alpha: float, power: float) -> float:
        """See `CoarseTest.detectable`; of all tokens together."""
        return self.test.detectable(0.5 * alpha, power)

    def enough(self, alpha: float, power: float) -> int | None:
        """Tokens of which something is sure to be found, by tens; None where no number is known to be."""
        cut, draws = self.test.enough(0.5 * alpha, power), self.test.draws
        return None if cut is None else 10 * math.ceil(cut * draws / self.test.cut_draws / 10)

    def gain_by_prompt(self) -> dict[int, float]:
        """What the logarithm of the evidence grew by during the completions of each prompt."""
        gains: dict[int, float] = defaultdict(float)
        for draw, after, before in zip(self.draws, self.path, [0.0, *self.path], strict=False):
            if math.isfinite(after):
                gains[self.completions[draw.request][0]] += after - before
        return gains

    def places(self) -> list[dict[str, Any]]:
        """Evidence by place in a round, of those that were seen."""
        found = []
        for name, one in zip(PLACES, self.by_place, strict=True):
            if one.draws:
                bet, gain = one.leading
                found.append(
                    {
                        "place": name,
                        "tokens": one.draws,
                        "log10_evidence": _log10(one.log_evidence),
                        "leading": bet,
                        "log10_gain": gain / math.log(10),
                    }
                )
        return found

    def tokens_off(self, most: int = 8) -> list[dict[str, Any]]:
        """Tokens that came more, or less, often than they should, farthest first.

        ``z`` is the difference in standard deviations of a sum of independent draws: to look at, not a test.
        """
        seen: dict[Token, float] = defaultdict(float)
        due: dict[Token, float] = defaultdict(float)
        spread: dict[Token, float] = defaultdict(float)
        for draw in self.draws:
            for token, p in zip(draw.law.tokens, draw.law.law[:-1], strict=True):
                due[token] += float(p)
                spread[token] += float(p * (1 - p))
            if draw.cell < len(draw.law.tokens):
                seen[draw.law.tokens[draw.cell]] += 1.0
        z = {token: (seen[token] - due[token]) / math.sqrt(spread[token] + 1.0) for token in due}
        order = sorted(z, key=lambda token: -abs(z[token]))[:most]
        return [{"token": t, "seen": int(seen[t]), "due": due[t], "z": z[t]} for t in order]


def _points(law: CoarseLaw, tokens: Sequence[Token]) -> np.ndarray | None:
    if not tokens:
        return None
    found = np.zeros(len(law.low))
    for token in tokens:
        found[law.cell(token)] += 1.0 / len(tokens)
    return found


def _of_draft(law: CoarseLaw, draft: CoarseLaw | None) -> list[np.ndarray | None]:
    """The laws of a draft that is not corrected, or wrongly."""
    if draft is None:
        return [None] * len(DRAFT_BETS)
    p, q = law.law, onto(law, draft)
    q = q / q.sum()
    both = np.minimum(p, q)
    redrawn = both + (1.0 - both.sum()) * p
    best = int(np.argmax(q[:-1])) if len(q) > 1 else 0
    accepted = min(1.0, float(p[best] / q[best]))
    left = np.maximum(p - q, 0.0)
    greedy = (1.0 - accepted) * (left / left.sum() if left.sum() > 0 else p)
    greedy[best] += accepted
    return [q, redrawn, greedy]


def _log10(value: float) -> float | str:
    return value / math.log(10) if math.isfinite(value) else "inf"
