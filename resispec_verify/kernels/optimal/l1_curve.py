"""Theorem 2 in closed form: how near the draft a residual of mass Z can be, at every Z at once.

A residual ``r / Z`` with ``0 <= r <= p`` and ``sum r = Z`` is at least

    L1_min(Z) = 2 sum_x (q(x) - p(x) / Z)_+

away from q, and the next candidate is then accepted with ``1 - L1 / 2``. Between the ratios p/q the sum runs
over one prefix of the tokens in ascending order of p/q, so one sort and two prefix sums give the curve
everywhere: ``2 (q(prefix) - p(prefix) / Z)``. Its derivative is ``2 p(prefix) / Z**2``: where the prefix is
not empty but has no target mass the curve is flat, and Theorem 2's strictness fails.

An exact round leaves at least ``(p - q)_+``, whatever the rejected token
(docs/explanation/optimal-rules.md), so not
every Z can be had: of those r with ``(p - q)_+ <= r <= p`` and ``sum r = Z`` the nearest is
``clip(lam q, (p - q)_+, p)``, and it is again made of prefixes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.elementwise.ratio_order import TIE, RatioOrder

__all__ = ["Breakpoints", "breakpoints", "exact_acceptance", "l1_at", "l1_with_hole"]

Floats = NDArray[np.float64]


class Breakpoints(NamedTuple):
    """The curve at its kinks.

    Attributes
    ----------
    Z : float64 (K,)
        The distinct p/q in (0, 1), ascending, and 1.
    l1 : float64 (K,)
        ``L1_min`` there.
    z_star : float
        ``min p/q`` over q > 0: the curve is 0 on (0, z_star].
    flat_until : float
        If ``z_star`` is 0, the curve is constant on (0, flat_until], at twice the draft's mass where p = 0;
        otherwise 0.
    """

    Z: Floats
    l1: Floats
    z_star: float
    flat_until: float


def l1_at(order: RatioOrder, Z: Floats) -> Floats:
    """``L1_min`` at any Z in (0, 1], ``(K,)``."""
    rank = np.searchsorted(order.ratio, Z)
    q_sum, p_sum = order.prefix[rank, 0], order.prefix[rank, 1]
    return np.clip(2.0 * (q_sum - p_sum / Z), 0.0, 2.0)


def breakpoints(order: RatioOrder) -> Breakpoints:
    """The curve at every p/q in (0, 1] and at 1."""
    inside = order.ratio[(order.ratio > 0.0) & (order.ratio < 1.0)]
    inside = np.unique(inside)
    apart = np.diff(inside, prepend=0.0) > TIE * inside  # ratios that differ by rounding are one kink
    Z = np.append(inside[apart & (inside < 1.0 - TIE)], 1.0)
    z_star = float(min(order.ratio[0], 1.0))
    return Breakpoints(Z, l1_at(order, Z), z_star, float(Z[0]) if z_star == 0.0 else 0.0)


def l1_with_hole(order: RatioOrder, token_rank: int, Z: Floats) -> Floats:
    """The same when the residual must be 0 at one token, at Z up to ``1 - p`` of that token; NaN beyond.

    ``2 [q(x0) + sum_{x != x0} (q - p/Z)_+]``.
    """
    p, q = order.p[token_rank], order.q[token_rank]
    with np.errstate(over="ignore"):
        l1 = l1_at(order, Z) + 2.0 * (q - np.clip(q - p / Z, 0.0, None))
    return np.where(1.0 - p >= Z, l1, np.nan)


def exact_acceptance(order: RatioOrder, Z: Floats) -> Floats:
    """The best acceptance of the next candidate after an exact round that leaves the mass Z.

    Parameters
    ----------
    order : RatioOrder
    Z : float64 (K,)
        In (0, 1].

    Returns
    -------
    float64 (K,)
        NaN where Z is below ``sum (p - q)_+``: no exact round leaves so little.
    """
    ratio, q_sum, p_sum = order.ratio, order.prefix[:, 0], order.prefix[:, 1]
    total_q, total_p = q_sum[-1], p_sum[-1]

    def left(lam: Floats) -> Floats:
        """``sum clip(lam q, (p - q)_+, p)``."""
        low, high = np.searchsorted(ratio, lam), np.searchsorted(ratio, lam + 1.0)
        beyond = (total_p - p_sum[high]) - (total_q - q_sum[high])
        return p_sum[low] + lam * (q_sum[high] - q_sum[low]) + beyond

    finite = ratio[np.isfinite(ratio)]
    kinks = np.unique(np.concatenate([[0.0], finite, finite[finite > 1.0] - 1.0]))
    mass = np.maximum.accumulate(left(kinks))
    # The mass is linear in lam between kinks.
    lam = np.interp(Z, mass, kinks)
    low, high, far = (np.searchsorted(ratio, v) for v in (lam, lam + 1.0, Z + 1.0))
    far = np.maximum(far, high)
    shaped = p_sum[low] + lam * (q_sum[high] - q_sum[low])
    reserved = (p_sum[far] - p_sum[high]) - (q_sum[far] - q_sum[high]) + Z * (total_q - q_sum[far])
    near = np.searchsorted(ratio, Z)
    overlap = p_sum[near] + Z * (total_q - q_sum[near])  # where lam > Z nothing binds from below
    accepted = np.where(lam <= Z, np.minimum(shaped + reserved, overlap), overlap)
    least = float(mass[0])
    slack = 4 * len(ratio) * np.finfo(np.float64).eps  # of the sums here and of the levels that ask
    return np.where(least - slack <= Z, np.clip(accepted / Z, 0.0, 1.0), np.nan)
