"""How far the emitted law is from the target: an interval that holds at all numbers of draws at once."""

from __future__ import annotations

import math

import numpy as np

from resispec_verify.evidence.eprocess import FitTest, Grouping, mixture

__all__ = ["cells_of", "tv_in_grouping", "tv_interval"]


def tv_interval(test: FitTest, error: float) -> tuple[float, float]:
    """Total variation between the law that draws come from and the law of the test.

    Let the draws be i.i.d. from any law ``r``, and ``f`` their frequencies over the K cells of a grouping.
    The likelihood ratio of a mixture of Dirichlet laws to ``r`` has expectation 1, so that by
    Ville's inequality it stays below ``1 / a`` at all n at once with probability at least ``1 - a``. Its
    logarithm is ``n KL(f || r)`` less what the mixture loses against ``f``, so that then

    ``KL(f || r) <= e = (log(1 / a) + loss) / n``,

    with the loss itself, which is known, in place of its bound `regret`. The mixture is that of the test,
    over all its priors, so that a law rejected by this grouping at level a is itself no such r. Then

    * from below: the least ``TV(r, p)`` over all such r, p the target, which is a convex program with a
      solution in closed form (`_nearest`). Merging tokens only makes TV smaller, so that the best of all
      groupings counts, each with ``a = error / groupings``.
    * from above, over single tokens: ``TV(r, p) <= TV(f, p) + TV(f, r)``, and by Pinsker ``TV(f, r)`` is at
      most ``sqrt(e / 2)``. Between two cells, the ends of the Bernoulli interval themselves.

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
    found = [tv_in_grouping(test, grouping, error) for grouping in test.groupings]
    return max(low for low, _ in found), found[0][1]


def tv_in_grouping(test: FitTest, grouping: Grouping, error: float) -> tuple[float, float]:
    """The same interval between the cells of one grouping; `tv_interval` has its derivation.

    Parameters
    ----------
    test : FitTest
    grouping : Grouping
        One of the test's.
    error : float
        Probability that an interval fails, over all groupings of the test.
    """
    if test.draws == 0:
        return 0.0, 1.0
    counts, law = cells_of(test, grouping)
    seen = counts / test.draws
    best = float(np.sum(counts[counts > 0] * np.log(seen[counts > 0])))
    share = -math.log(error / len(test.groupings))
    divergence = max(0.0, share + best - mixture(counts, grouping.law)) / test.draws
    high = 0.5 * float(np.abs(seen - law).sum()) + math.sqrt(0.5 * divergence)
    if len(law) == 2:
        # One of the two has less than its due, and each has at least so much.
        high = min(high, max(float(p) - _least(float(f), divergence) for f, p in zip(seen, law, strict=True)))
    return _nearest(seen, law, divergence), min(1.0, high)


def cells_of(test: FitTest, grouping: Grouping) -> tuple[np.ndarray, np.ndarray]:
    """Counts and law of the cells of a grouping; impossible tokens are one more, where there are any."""
    possible = test.law > 0
    counts = np.bincount(grouping.cell[possible], weights=test.counts[possible], minlength=grouping.cells)
    if possible.all():
        return counts, grouping.law
    return np.append(counts, float(test.counts[~possible].sum())), np.append(grouping.law, 0.0)


def _nearest(seen: np.ndarray, law: np.ndarray, divergence: float) -> float:
    """The least ``TV(r, law)`` over laws r with ``KL(seen || r) <= divergence``, from below.

    Of all r within total variation t of the law, ``KL(seen || r)`` is least at the one that is ``seen / a``
    where ``seen / law > a``, ``seen / b`` where ``seen / law < b``, and the law elsewhere, with a and b such
    that t is moved (the Kuhn-Tucker conditions). It falls with t, and t is found by bisection.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(law > 0, seen / law, np.where(seen > 0, np.inf, 1.0))
    order = np.argsort(-ratio, kind="stable")
    f, p, ratio = seen[order], law[order], ratio[order]
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = np.where(f > 0, f * np.log(ratio), 0.0)
    f_up, p_up, f_down, p_down = (np.cumsum(x) for x in (f, p, f[::-1], p[::-1]))
    # What is moved once the bound has come down, or up, to each ratio.
    with np.errstate(divide="ignore", invalid="ignore"):
        moved_up = f_up / ratio - p_up
        moved_down = np.where(f_down > 0, p_down - f_down / ratio[::-1], p_down)

    def least(t: float) -> float:
        up = max(1, int(np.searchsorted(moved_up, t, side="right")))
        down = max(1, int(np.searchsorted(moved_down, t, side="right")))
        a = f_up[up - 1] / (p_up[up - 1] + t)
        found = f_up[up - 1] * math.log(a) + float(cost[up : len(f) - down].sum())
        if f_down[down - 1] > 0 and p_down[down - 1] > t:
            found += f_down[down - 1] * math.log(f_down[down - 1] / (p_down[down - 1] - t))
        return found

    low, high = 0.0, 0.5 * float(np.abs(seen - law).sum())
    for _ in range(50):
        middle = 0.5 * (low + high)
        if middle > 0 and least(middle) > divergence:
            low = middle
        else:
            high = middle
    return low


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
