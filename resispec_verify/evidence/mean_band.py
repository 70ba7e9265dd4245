"""Bands: of a mean acceptance that was seen at some prompts, and of how much of N drafts is then accepted.

**Of the mean.** Prompt i has ``n_i`` positions with the mean acceptance ``a_i`` in [0, 1]; prompts are drawn
independently from one population, positions of one may depend on each other in any way. Wanted is ``m = E[n
a] / E[n]``, the mean over positions. With ``w_i = n_i / max n`` and any t in [0, 1],

``1 + t w_i (a_i / m - 1) >= 0``   and   ``E[w_i (a_i - m)] = 0``,

so the product over the prompts has the mean 1, an average over several t too, and by Markov's inequality it
is above ``2 / alpha`` with probability at most ``alpha / 2``. It falls with m: all m below some point are
excluded. The same for ``1 - a`` gives the other end. This holds for any number of prompts, two included; that
no prompt has more positions than the largest seen is assumed.

**Of the share of N drafts.** Let ``X_t`` in [0, 1] be what is accepted of the t-th (a coin, or the accepted
share of a step), and ``r_t`` its mean given all before, of which ``(r_1 + ... + r_N) / N >= L``. For s < 0
the chord above ``exp(s x)`` gives ``E[exp(s X_t) | before] <= 1 + r_t (exp(s) - 1)``, so that ``exp(s S)``
over the product of these has a mean of at most 1; the logarithm is concave, so the product is at most ``(1 +
L (exp(s) - 1))**N``. With the best s, ``P(S <= x N) <= exp(-N kl(x, L))`` for x < L: Chernoff's bound of the
binomial law, though the drafts are neither alike nor independent. Likewise from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["mean_band", "share_band"]

Floats = NDArray[np.float64]
# How much is staked; small ones are for many prompts. Averaging over them costs at most log(24) in the bound.
_STAKES = 2.0 ** -np.arange(0.0, 12.0, 0.5)
_STEPS = 60


def mean_band(
    low: Sequence[float] | Floats, high: Sequence[float] | Floats, sizes: Sequence[int], alpha: float
) -> tuple[float, float]:
    """Where the mean over the population of prompts lies, with probability at least ``1 - alpha``.

    Parameters
    ----------
    low, high : sequence of float
        Bounds on the mean acceptance of each prompt, in [0, 1].
    sizes : sequence of int
        Positions of each prompt.
    alpha : float
        In (0, 1).
    """
    weights = np.asarray(sizes, np.float64) / max(sizes)
    least = _least(np.asarray(low, np.float64), weights, alpha)
    return least, 1.0 - _least(1.0 - np.asarray(high, np.float64), weights, alpha)


def _least(means: Floats, weights: Floats, alpha: float) -> float:
    """The means below this are excluded at ``alpha / 2``, from below."""

    def excluded(m: float) -> bool:
        with np.errstate(divide="ignore"):
            gains = np.log1p(_STAKES[:, None] * weights * (np.clip(means, 0.0, 1.0) / m - 1.0)).sum(axis=1)
        top = gains.max()
        return (
            bool(top + math.log(np.exp(gains - top).mean()) >= math.log(2.0 / alpha))
            if top > -math.inf
            else False
        )

    return _bisect(excluded, 0.0, 1.0)


def share_band(low: float, high: float, count: int, alpha: float) -> tuple[float, float]:
    """Where the accepted share of `count` drafts lies if their mean acceptance is in ``[low, high]``.

    Parameters
    ----------
    low, high : float
        In [0, 1]: of the mean over the drafts of the probability, or expected share, that is accepted.
    count : int
        Coins, or steps.
    alpha : float
        It lies outside with at most this probability.
    """
    most = math.log(2.0 / alpha) / count
    # Up to this share, or down to it, is surely too far; each is found from its far side.
    least = _bisect(lambda x: x < low and _kl(x, low) > most, 0.0, 1.0)
    greatest = 1.0 - _bisect(lambda x: 1.0 - x > high and _kl(1.0 - x, high) > most, 0.0, 1.0)
    return least, greatest


def _bisect(excluded: Callable[[float], bool], low: float, high: float) -> float:
    """The end of what is excluded, which begins at ``low``, from below; ``low`` if nothing is."""
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        if excluded(middle):
            low = middle
        else:
            high = middle
    return low


def _kl(x: float, p: float) -> float:
    """Of the coin with probability x from the one with probability p, in nats."""
    found = 0.0
    for a, b in ((x, p), (1.0 - x, 1.0 - p)):
        if a > 0:
            found += math.inf if b <= 0 else a * math.log(a / b)
    return max(found, 0.0)
