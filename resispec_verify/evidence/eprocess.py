"""Anytime-valid tests of draws: processes of non-negative evidence with expectation at most 1 under the null.

Such a process may be looked at after every draw and stopped for any reason: by Ville's inequality it ever
reaches ``1 / alpha`` with probability at most ``alpha`` if the null is true. Averages of such processes over
the same draws are again such processes, which is how several alternatives are bet on at once.

* `FitTest`: the draws are i.i.d. from a *known* law. Evidence is the likelihood ratio of a mixture of
  Dirichlet laws over groups of tokens to that law.
* `SwapTest`: pairs ``(x, y)`` are independent and alike, from *any* law. Of two pairs, the second entries
  are swapped; under the null both arrangements are equally likely, and the test bets on the one it saw.

References
----------
Ville 1939; Krichevsky and Trofimov 1981 (the mixture with parameter 1/2, and its regret); Ramdas, Grunwald,
Vovk and Shafer 2023, "Game-theoretic statistics and safe anytime-valid inference"; Podkopaev, Blobaum,
Kasiviswanathan and Ramdas 2023, "Sequential kernelized independence testing" (swaps).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["FitTest", "Grouping", "SwapTest", "detectable_tv", "mixture", "regret"]

# A Dirichlet prior c * law bets on deviations of about 1 / sqrt(c): a geometric grid covers all sizes.
CONCENTRATIONS = (16.0, 256.0, 4096.0, 65536.0)
# Log odds of bets on equal entries, in the swap test.
EQUALITY_BETS = (math.log(64.0), math.log(2.0), -math.log(2.0))
# Pairs that each cell of the learned association is taken to have seen, as many as independence says.
SHRINKAGE = 5.0


def gammaln(x: float | np.ndarray) -> Any:
    """SciPy's, which takes a third of a second to import: no command but those that test draws needs it."""
    from scipy.special import gammaln

    return gammaln(x)


@dataclass(frozen=True)
class Grouping:
    """Tokens merged into cells.

    Attributes
    ----------
    name : str
    cell : array of integers (V,)
        The cell of each token; what stands at tokens of probability 0 does not matter.
    law : float64 array (K,)
        Probability of each cell, all positive.
    tail : bool
        Whether it has two cells, the most probable tokens and the others.
    """

    name: str
    cell: np.ndarray
    law: np.ndarray
    tail: bool = False

    @classmethod
    def of(cls, name: str, cell: np.ndarray, law: np.ndarray) -> Grouping:
        """The grouping with these cells, numbered without holes; cells of probability 0 are dropped."""
        support = law > 0
        _, numbered = np.unique(cell[support], return_inverse=True)
        whole = np.zeros(len(law), dtype=np.int64)
        whole[support] = numbered
        return cls(name, whole, np.bincount(numbered, weights=law[support]))

    @property
    def cells(self) -> int:
        """How many there are."""
        return len(self.law)


class FitTest:
    """Are draws i.i.d. from ``law``?

    Parameters
    ----------
    law : float64 array (V,)
        Non-negative, summing to 1 up to rounding; normalised here.
    groupings : sequence of Grouping
        Each is bet on alike.

    Attributes
    ----------
    counts : int64 array (V,)
    draws : int
    """

    def __init__(self, law: np.ndarray, groupings: Sequence[Grouping]) -> None:
        self.law = np.asarray(law, np.float64) / np.sum(law, dtype=np.float64)
        self.groupings = tuple(groupings)
        self.counts = np.zeros(len(law), dtype=np.int64)
        self.draws = 0

    def update(self, tokens: np.ndarray) -> None:
        """Add draws, integers ``(n,)`` in ``[0, V)``."""
        self.counts += np.bincount(tokens, minlength=len(self.counts))
        self.draws += len(tokens)

    @property
    def impossible(self) -> int | None:
        """The first token that was drawn although its probability is 0."""
        found = np.flatnonzero((self.counts > 0) & (self.law == 0))
        return int(found[0]) if len(found) else None

    @property
    def log_evidence(self) -> float:
        """Logarithm of the mixture likelihood ratio; infinite after an impossible draw."""
        if self.impossible is not None:
            return math.inf
        if self.draws == 0:
            return 0.0
        return _log_mean([term for grouping in self.groupings for term in self._terms(grouping)])

    def _terms(self, grouping: Grouping) -> list[float]:
        seen = np.flatnonzero(self.counts)
        counts = np.bincount(grouping.cell[seen], weights=self.counts[seen], minlength=grouping.cells)
        return _log_ratios(counts, grouping.law)

    @property
    def strongest(self) -> Grouping:
        """The grouping with most evidence: where a law is rejected, the one that rejects it."""
        return max(self.groupings, key=lambda grouping: _log_mean(self._terms(grouping)))

    @property
    def bets(self) -> int:
        """Number of mixtures averaged."""
        return len(self.groupings) * (1 + len(CONCENTRATIONS))


def _log_mean(logs: Sequence[float] | np.ndarray) -> float:
    return float(np.logaddexp.reduce(np.asarray(logs))) - math.log(len(logs))


def _log_ratios(counts: np.ndarray, law: np.ndarray) -> list[float]:
    """``log int prod_x (theta_x / p_x)^{n_x} dPrior(theta)`` for each prior of one grouping."""
    seen = counts > 0
    n, k = counts[seen], law[seen]
    null = float(np.sum(n * np.log(k)))
    priors = [(0.5 * len(law), np.full(len(k), 0.5)), *((c, c * k) for c in CONCENTRATIONS)]
    total = float(np.sum(n))
    return [
        float(gammaln(whole) - gammaln(whole + total) + np.sum(gammaln(a + n) - gammaln(a))) - null
        for whole, a in priors
    ]


def mixture(counts: np.ndarray, law: np.ndarray) -> float:
    """Log probability of these counts under the average of all priors of one grouping.

    Parameters
    ----------
    counts : float64 array (K,) or (K + 1,)
        One more: draws of probability 0, which none of the priors but the first, with one more cell, has.
    law : float64 array (K,)
    """
    k, n = len(law), float(counts.sum())
    seen = counts > 0
    whole = 0.5 * len(counts)
    logs = [float(gammaln(whole) - gammaln(whole + n) + np.sum(gammaln(0.5 + counts[seen]) - gammaln(0.5)))]
    logs += [-math.inf] * len(CONCENTRATIONS)
    if not counts[k:].any():
        within = counts[:k] > 0
        m = counts[:k][within]
        for i, c in enumerate(CONCENTRATIONS, 1):
            a = c * law[within]
            logs[i] = float(gammaln(c) - gammaln(c + n) + np.sum(gammaln(a + m) - gammaln(a)))
    return _log_mean(logs)


def regret(draws: int, cells: int) -> float:
    """What the mixture with parameter 1/2 loses at most against the best fit, in nats.

    ``log ratio >= n KL(frequencies || law) - regret``, whatever the counts: the loss is largest when all
    draws fall into one cell, where it is ``log[G(n + K/2) G(1/2) / (G(K/2) G(n + 1/2))]``.
    """
    half = 0.5 * cells
    return float(gammaln(draws + half) + gammaln(0.5) - gammaln(half) - gammaln(draws + 0.5))


@lru_cache(maxsize=1 << 14)
def detectable_tv(draws: int, cells: int, bets: int, alpha: float, power: float) -> float:
    """The smallest total variation between cells that a `FitTest` is sure to find with this power.

    With ``T = log(1 / alpha) + log(bets) + regret`` the evidence has reached ``1 / alpha`` as soon as
    ``n KL(f || p) >= T`` for the frequencies ``f`` of the cells. ``KL >= 2 TV^2`` (Pinsker), and for draws
    from ``m`` the set ``A = {m > p}`` has ``f(A) >= m(A) - sqrt(log(1 / (1 - power)) / (2 n))`` with
    probability at least ``power`` (Hoeffding), so that

    ``TV(m, p) >= sqrt(T / (2 n)) + sqrt(log(1 / (1 - power)) / (2 n))``

    is found with at least that power. An upper bound: smaller faults are often found. Where one cell, a
    single token, has all the probability, all that can be wrong is mass ``TV`` on impossible tokens; one draw
    of those is enough, and it is missed with probability ``(1 - TV)^n``.

    Returns
    -------
    float
        At most 1, where nothing is sure to be found.
    """
    if draws == 0:
        return 1.0
    if cells == 1:
        return -math.expm1(math.log1p(-power) / draws)
    threshold = -math.log(alpha) + math.log(bets) + regret(draws, cells)
    luck = -math.log1p(-power)
    return min(1.0, (math.sqrt(threshold) + math.sqrt(luck)) / math.sqrt(2.0 * draws))


class SwapTest:
    """Are pairs ``(x, y)`` independent of each other and within themselves, and alike?

    Two pairs become ``(x, y'), (x', y)`` when their second entries are swapped. With a score ``f`` chosen
    before they were seen, ``2 f(x, y) f(x', y') / (f(x, y) f(x', y') + f(x, y') f(x', y))`` has expectation
    1 if the pairs are i.i.d. and independent within, whatever their law: a wrong law does not make this
    test reject. Bets: scores for equal entries, and the association seen in earlier draws.

    Parameters
    ----------
    cell : int64 array (V,)
        Cell of each token, for the learned association.

    Attributes
    ----------
    pairs, equal : int
        Pairs so far, and those whose entries are equal.
    """

    def __init__(self, cell: np.ndarray) -> None:
        self.cell = cell
        size = int(cell.max()) + 1
        self.seen = np.zeros((size, size))
        self.wealth = np.zeros(len(EQUALITY_BETS) + 1)
        self.pairs = self.equal = 0

    def update(self, x: np.ndarray, y: np.ndarray) -> None:
        """Add pairs, integers ``(n,)`` each; an odd one at the end is left out."""
        n = len(x) // 2 * 2
        if n == 0:
            return
        x, y = x[:n], y[:n]
        for i, bet in enumerate(EQUALITY_BETS):
            self.wealth[i] += _swap_evidence(
                bet * (x == y), bet * (x[0::2] == y[1::2]), bet * (x[1::2] == y[0::2])
            )
        a, b = self.cell[x], self.cell[y]
        score = self._association()
        self.wealth[-1] += _swap_evidence(score[a, b], score[a[0::2], b[1::2]], score[a[1::2], b[0::2]])
        np.add.at(self.seen, (a, b), 1.0)
        self.pairs += n
        self.equal += int(np.count_nonzero(x == y))

    def _association(self) -> np.ndarray:
        """Log of joint over product frequencies so far, shrunk towards independence."""
        rows, columns = self.seen.sum(axis=1), self.seen.sum(axis=0)
        total = self.seen.sum()
        if total == 0:
            return np.zeros_like(self.seen)
        product = np.outer(rows, columns) / total
        return np.log((self.seen + SHRINKAGE) / (product + SHRINKAGE))

    @property
    def by_equality(self) -> bool:
        """Whether the best bet is one on equal entries, and not the learned association."""
        return int(np.argmax(self.wealth)) < len(EQUALITY_BETS)

    def most_associated(self) -> tuple[int, int, float, float]:
        """The cells whose frequency as a pair differs most from the product of theirs, and both numbers."""
        total = max(1.0, float(self.seen.sum()))
        seen = self.seen / total
        product = np.outer(seen.sum(axis=1), seen.sum(axis=0))
        x, y = divmod(int(np.argmax(np.abs(seen - product))), len(seen))
        return x, y, float(seen[x, y]), float(product[x, y])

    @property
    def log_evidence(self) -> float:
        """Logarithm of the average wealth of the bets."""
        return _log_mean(self.wealth)


def _swap_evidence(score: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Sum of ``log 2 - log(1 + exp(swapped - seen))`` over consecutive pairs of pairs."""
    seen = score[0::2] + score[1::2]
    return float(np.sum(math.log(2.0) - np.logaddexp(0.0, first + second - seen)))
