"""An anytime-valid test of tokens from laws that are known coarsely, and not better than to a band.

An engine is asked which law it has after a text, and tells its k most probable tokens; the cells of a draw
are these and, last, all others together. Asked twice it does not say the same: arithmetic depends on what
else is computed at the time. So the law of a draw is any within total variation `band` of one that lies in
the bounds ``[low, high]`` of the cells, and the test errs with probability at most alpha under all of these.

Bets
    With a bet ``g = 1 + share d`` under such a law,
    ``E[d] <= sum max(d high, d low) + band (max d - min d)``. The gain is divided by 1 plus share times that,
    and the product over the draws is a supermartingale; so is an average of such products (Ville 1939). A
    bet is made where it gains if its own law is true.
Cuts
    Tokens in order of probability are laid out on [0, 1], each as wide as it is probable. The share x of a
    drawn token that lies below c has expectation c, and at most ``b = c + band`` under the null. For every
    theta above b the product of ``(theta / b)**x ((1 - theta) / (1 - b))**(1 - x)`` is a supermartingale: it
    is at most ``x theta / b + (1 - x) (1 - theta) / (1 - b)``, whose expectation grows with that of x and is
    1 at b. So is its mixture over the part above b of a Beta(1/2, 1/2) law, and that has a closed form;
    likewise for less than ``c - band``. It grows with the sum of x alone, so that what it is sure to find
    is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import betaincc, betaln

from resispec_verify.evidence.eprocess import SHRINKAGE

__all__ = ["CUTS", "CoarseTest", "Cut", "own_bets"]

#: Where the laws are cut, most probable tokens first.
CUTS = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 15 / 16, 0.97, 0.99, 0.999)
#: The law to this power is the same logits at the reciprocal temperature.
POWERS = (0.5, 0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0)
#: Laws that end where this much mass is reached.
DEPTHS = (0.8, 0.9, 0.95, 0.99)
# Draws that are tried to say how many are enough.
MOST_DRAWS = 1 << 20
# A fault in some draws only, and laws known to a band: a bet is made with all of the wealth and with parts.
SHARES = np.array([1.0, 0.25, 0.0625])
# First ranks of the groups of tokens whose weights are learned.
RANKS = np.array([0, 1, 2, 3, 5, 9, 17, 33])


class Cut(NamedTuple):
    """What moved, or would have been found to move, across a cut.

    Attributes
    ----------
    at : float
        Of the tokens in order of probability, those with this mass lie below.
    seen : float
        What the draws had there.
    detectable : float
        A difference of this size would have been found, in the direction where that is harder.
    """

    at: float
    seen: float
    detectable: float


def own_bets(law: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Names, and laws ``(bets, k + 1)``, of the bets that need only the law of the cells ``(k + 1,)``."""
    k = len(law) - 1
    last = max(k - 1, 0)
    scale = np.append(law[:k], law[last] if k else 1.0)
    names, laws = [], []
    for power in POWERS:
        # The others are taken to be as probable as the last that is known.
        weights = law * np.where(scale > 0, scale / scale.max(), 1.0) ** (power - 1.0)
        names.append(f"temperature x {1 / power:.3g}")
        laws.append(weights / weights.sum())
    greedy = np.zeros_like(law)
    greedy[int(np.argmax(law[:k])) if k else 0] = 1.0
    names.append("the most probable token")
    laws.append(greedy)
    before = np.concatenate(([0.0], np.cumsum(law)[:-1]))
    for depth in DEPTHS:
        kept = np.where(before < depth, law, 0.0)
        names.append(f"no tokens beyond mass {depth:g}")
        laws.append(kept / kept.sum())
    return tuple(names), np.array(laws)


OWN = own_bets(np.array([0.75, 0.25]))[0]


class CoarseTest:
    """Are tokens from the laws that are given with them?

    Parameters
    ----------
    names : sequence of str
        Of the laws that the caller bets on besides.
    band : float
        Total variation up to which the given laws are known, in [0, 1).
    slack : float
        A law whose bounds leave open more than this total variation is not cut.

    Attributes
    ----------
    draws, cut_draws : int
        All, and those whose law was cut.
    impossible : int
        Draws that no law of the null can give; the evidence is infinite.
    log_evidence : float
        Logarithm of the evidence.
    """

    def __init__(self, names: Sequence[str] = (), *, band: float = 0.0, slack: float = 1e-3) -> None:
        self.names = (*OWN, *names, "tokens by rank")
        self.band, self.slack = band, slack
        self.draws = self.cut_draws = self.impossible = 0
        self._wealth = np.zeros((len(self.names), len(SHARES)))
        self._below, self._open = np.zeros(len(CUTS)), 0.0
        self._seen, self._expected = np.zeros(len(RANKS) + 1), np.zeros(len(RANKS) + 1)
        self.log_evidence = 0.0
        self._path: list[float] = []

    def add(
        self, low: np.ndarray, high: np.ndarray, cell: int, others: Sequence[np.ndarray | None] = ()
    ) -> None:
        """Add one draw.

        Parameters
        ----------
        low, high : float64 array (k + 1,)
            Bounds of the mass of each cell, most probable first, all others last.
        cell : int
            The one that was drawn.
        others : sequence of float64 arrays (k + 1,), or None
            The laws that the caller bets on, in the order of their names; None where there is none at this
            draw. They must not depend on the draw.
        """
        if cell == len(high) - 1 and high[cell] == 0 and self.band == 0:
            self.impossible += 1
        law = 0.5 * (low + high)
        # What is bet on may be any law; what is cut must be within the band of the draw's.
        self._cut(law / law.sum(), 0.5 * float((high - low).sum()), cell)
        law[-1] = max(law[-1], self.band)
        self._bet(law / law.sum(), low, high, cell, others)
        self.draws += 1
        self.log_evidence = self._evidence()
        self._path.append(self.log_evidence)

    def _bet(
        self,
        law: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        cell: int,
        others: Sequence[np.ndarray | None],
    ) -> None:
        groups = np.searchsorted(RANKS, np.arange(len(law)), side="right") - 1
        groups[-1] = len(RANKS)
        weighted = law * ((self._seen + SHRINKAGE) / (self._expected + SHRINKAGE))[groups]
        given = [law if other is None else other for other in others]
        laws = np.vstack([own_bets(law)[1], *given, weighted / weighted.sum()])
        possible = law > 0
        d = np.where(possible, laws / np.where(possible, law, 1.0), 1.0) - 1.0
        moved = np.maximum(d * high, d * low).sum(axis=-1)
        moved = np.maximum(moved + self.band * (d.max(axis=-1) - d.min(axis=-1)), 0.0)
        price = np.log1p(SHARES * moved[:, None])
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.log1p(SHARES[:, None] * d[:, None, :])
            hoped = np.where(laws[:, None, :] > 0, laws[:, None, :] * gains, 0.0).sum(axis=-1)
        self._wealth += np.where(hoped > price, gains[:, :, cell] - price, 0.0)
        self._seen[groups[cell]] += 1.0
        np.add.at(self._expected, groups, law)

    def _cut(self, law: np.ndarray, open_mass: float, cell: int) -> None:
        if open_mass > self.slack:
            return
        end = np.cumsum(law)
        start, width = float(end[cell] - law[cell]), float(law[cell])
        cuts = np.array(CUTS)
        self._below += np.clip((cuts - start) / width, 0.0, 1.0) if width > 1e-12 else cuts > start
        self.cut_draws += 1
        self._open += open_mass

    @property
    def _room(self) -> float:
        """By how much the null may move the mass across a cut."""
        return self.band + self.slack

    def _evidence(self) -> float:
        """Logarithm of the evidence: half of it bets, half of it cuts."""
        if self.impossible:
            return math.inf
        n, room = float(self.cut_draws), self._room
        cuts = np.array(CUTS)
        up = _beyond(self._below, n, cuts + room)
        down = _beyond(n - self._below, n, 1.0 - cuts + room)
        halves = [_log_mean(self._wealth.ravel()), _log_mean(np.concatenate([up, down]))]
        return _log_mean(np.array(halves))

    @property
    def trajectory(self) -> np.ndarray:
        """Logarithm of the evidence after each draw, ``(draws,)``."""
        return np.array(self._path)

    @property
    def strongest(self) -> float:
        """The largest logarithm of the evidence so far, at least 0: Ville's inequality bounds it as well."""
        return float(self.trajectory.max(initial=0.0))

    def found_at(self, alpha: float) -> int | None:
        """The number of draws after which the evidence first reached ``1 / alpha``."""
        above = np.flatnonzero(self.trajectory >= -math.log(alpha))
        return int(above[0]) + 1 if above.size else None

    @property
    def leading(self) -> tuple[str, float]:
        """The bet that has gained most and the logarithm of its gain."""
        best = self._wealth.max(axis=-1)
        return self.names[int(np.argmax(best))], float(best.max())

    def cuts(self, alpha: float, power: float) -> list[Cut]:
        """What was seen at each cut, and what would have been found there.

        The evidence of a cut grows with what was seen below it, so that it reaches ``1 / alpha``, shared
        with all other bets, at a frequency that bisection finds. Draws whose expectations average to more
        than that by ``sqrt(log(1 / (1 - power)) / (2 n))`` have it with probability ``power`` (Hoeffding,
        Azuma). What the laws leave open comes on top: a cut is at the middle of the bounds.
        """
        n = self.cut_draws
        if not n:
            return [Cut(at, math.nan, 1.0) for at in CUTS]
        threshold = -math.log(alpha) + math.log(4 * len(CUTS))
        luck = math.sqrt(-math.log1p(-power) / (2 * n)) + self._open / n
        found = []
        for at, below in zip(CUTS, self._below, strict=True):
            up = _found(n, at + self._room, threshold) - at
            down = _found(n, 1.0 - at + self._room, threshold) - (1.0 - at)
            found.append(Cut(at, float(below) / n, min(1.0, max(up, down) + luck)))
        return found

    def detectable(self, alpha: float, power: float) -> float:
        """Had this much of the mass moved across any of the cuts, up or down, it would have been found.

        It is on the average of the draws' laws, and at least as small as the total variation needed for a
        fault that goes the same way everywhere (too cold, too greedy, without a tail).
        Cuts from 1/16 to 15/16, which all can move by so much.
        """
        found = [cut.detectable for cut in self.cuts(alpha, power) if 1 / 16 <= cut.at <= 15 / 16]
        return max(found)

    def enough(self, alpha: float, power: float) -> int | None:
        """The fewest draws with such laws of which `detectable` is below 1; None where a million are not."""
        if not self.cut_draws:
            return None
        other = CoarseTest(band=self.band, slack=self.slack)

        def too_few(draws: int) -> bool:
            other.cut_draws, other._open = draws, self._open * draws / self.cut_draws
            return other.detectable(alpha, power) >= 1.0

        few, many = 0, 128
        while too_few(many):
            few, many = many, 2 * many
            if many > MOST_DRAWS:
                return None
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (middle, many) if too_few(middle) else (few, middle)
        return many


def _log_mean(logs: np.ndarray) -> float:
    return float(np.logaddexp.reduce(logs)) - math.log(len(logs))


def _beyond(seen: np.ndarray, n: float, bound: np.ndarray) -> np.ndarray:
    """Log of the mixture over theta above ``bound`` of ``(theta / bound)**seen`` and the rest; 0 at 1."""
    b = np.minimum(bound, 1.0)
    inside = b < 1.0
    b = np.where(inside, b, 0.5)
    with np.errstate(divide="ignore"):
        log = betaln(seen + 0.5, n - seen + 0.5) + np.log(betaincc(seen + 0.5, n - seen + 0.5, b))
        log -= betaln(0.5, 0.5) + np.log(betaincc(0.5, 0.5, b))
        log -= seen * np.log(b) + (n - seen) * np.log1p(-b)
    return np.where(inside, log, 0.0)


@lru_cache(maxsize=1 << 12)
def _found(n: int, bound: float, threshold: float) -> float:
    """The least frequency beyond ``bound`` at which the evidence reaches the threshold; 2 if none does."""
    if bound >= 1.0 or _beyond(np.array(float(n)), n, np.array(bound)) < threshold:
        return 2.0
    low, high = bound, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        if _beyond(np.array(middle * n), n, np.array(bound)) < threshold:
            low = middle
        else:
            high = middle
    return high
