"""How far the emitted law is from the target: an interval that holds at all numbers of draws at once."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from resispec_verify.evidence.eprocess import FitTest

__all__ = ["tv_interval"]


def tv_interval(test: FitTest, error: float) -> tuple[float, float]:
    """Total variation between the law that draws come from and the law of the test.

    Let the draws be i.i.d. from any law ``r``, and ``f`` their frequencies over the K cells of a grouping.
    The likelihood ratio of the Dirichlet mixture with parameter 1/2 to ``r`` has expectation 1, so that by
    Ville's inequality it stays below ``1 / a`` at all n at once with probability at least ``1 - a``. Its
    logarithm is ``n KL(f || r)`` less what the mixture loses against ``f``, so that then

    ``KL(f || r) <= e = (log(1 / a) + loss) / n``,

    with the loss itself, which is known, in place of its bound `regret`. This holds for r merged into any set
    A of cells as well (data processing), also one chosen after the draws. With ``A = {f > p}``, p the target:

    * from below: ``TV(r, p) >= r(A) - p(A)``, and r(A) is at least the least x with
      ``KL(Bernoulli(f(A)) || Bernoulli(x)) <= e``. Merging tokens only makes TV smaller, so that the best of
      all groupings counts, each with ``a = error / groupings``.
    * from above, over single tokens: ``TV(r, p) <= TV(f, p) + TV(f, r)``, and by Pinsker ``TV(f, r)`` is at
      most ``sqrt(e / 2)``.

    Tokens of target probability 0 are one more cell in each grouping; that changes no TV of single tokens.

    Parameters
    ----------
    test : FitTest
        Its first grouping is that of single tokens.
    error : float
        Probability that the interval fails, at any number of draws.

    Returns
    -------
    low, high : float
        ``(0, 1)`` without draws.
    """
    if test.draws == 0:
        return 0.0, 1.0
    share = -math.log(error / len(test.groupings))
    possible = test.law > 0
    odd = float(test.counts[~possible].sum())
    lows, highs = [], []
    for grouping in test.groupings:
        counts = np.bincount(grouping.cell[possible], weights=test.counts[possible], minlength=grouping.cells)
        law = grouping.law
        if not possible.all():
            counts, law = np.append(counts, odd), np.append(law, 0.0)
        seen = counts / test.draws
        divergence = (share + _loss(counts)) / test.draws
        above = seen > law
        lows.append(_least(float(seen[above].sum()), divergence) - float(law[above].sum()))
        highs.append(0.5 * float(np.abs(seen - law).sum()) + math.sqrt(0.5 * divergence))
    return max(0.0, *lows), min(1.0, highs[0])


def _loss(counts: np.ndarray) -> float:
    """What the mixture with parameter 1/2 loses against the frequencies of these counts, in nats."""
    seen = counts[counts > 0]
    total, whole = float(seen.sum()), 0.5 * len(counts)
    best = float(np.sum(seen * np.log(seen / total)))
    mixture = gammaln(whole) - gammaln(whole + total) + np.sum(gammaln(seen + 0.5) - gammaln(0.5))
    return best - float(mixture)


def _least(seen: float, divergence: float) -> float:
    """The least x with ``KL(Bernoulli(seen) || Bernoulli(x)) <= divergence``, from below, by bisection."""
    seen = min(1.0, seen)
    low, high = 0.0, seen
    for _ in range(60):
        middle = 0.5 * (low + high)
        if _bernoulli(seen, middle) > divergence:
            low = middle
        else:
            high = middle
    return low


def _bernoulli(p: float, x: float) -> float:
    if x <= 0.0 or x >= 1.0:
        return 0.0 if p == x else math.inf
    first = p * math.log(p / x) if p > 0 else 0.0
    return first + ((1.0 - p) * math.log((1.0 - p) / (1.0 - x)) if p < 1 else 0.0)
