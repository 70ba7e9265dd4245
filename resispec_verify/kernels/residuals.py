"""Residuals after a rejection: the standard one, and ResiSpec's shaped one through its proxy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.kernels import compiled
from resispec_verify.kernels.probabilities import at

__all__ = ["Proxy", "accept_ratio", "density_ratio", "normalize", "proxy", "standard_residual"]


def accept_ratio(current: Any, draft: Any) -> Any:
    """``min(1, R(x) / q(x))`` for every token ``(..., V)``; 1 where q = 0 < R, 0 where both are 0."""
    if compiled.compilable(current, draft):
        return compiled.accept_ratio(current, draft)
    xp = array_namespace(current, draft)
    over = draft > current
    ratio = xp.where(over, current, 0.0) / xp.where(over, draft, 1.0)
    return xp.where(over, ratio, xp.astype(current > 0, current.dtype))


def density_ratio(current: Any, draft: Any) -> Any:
    """``R / q`` elementwise; inf where q = 0, and where the quotient overflows."""
    xp = array_namespace(current, draft)
    with np.errstate(over="ignore"):
        return xp.where(draft > 0, current / xp.where(draft > 0, draft, 1.0), xp.inf)


def normalize(mass: Any, fallback: Any) -> Any:
    """Divide rows ``(..., V)`` by their sum; a row without mass becomes ``fallback``.

    A residual without mass belongs to a rejection of probability 0, which only rounding can reach (p = q,
    say); falling back to the current target emits what is right there, and never NaN.
    """
    xp = array_namespace(mass)
    total = xp.sum(mass, axis=-1, keepdims=True)
    return xp.where(total > 0, mass / xp.where(total > 0, total, 1.0), fallback)


def standard_residual(current: Any, draft: Any) -> Any:
    """``norm((R - q)_+)``, rows ``(..., V)`` (Eq. 1-2 of ResiSpec; speculative sampling, SpecInfer)."""
    if compiled.compilable(current, draft):
        return compiled.subtract(current, draft)
    xp = array_namespace(current, draft)
    return normalize(xp.clip(current - draft, 0.0, None), current)


class Proxy(NamedTuple):
    """What ResiSpec's GetProxy constructs for each rejected token (Definition 1, Algorithm 1).

    Attributes
    ----------
    r, s, k : array (..., m, V)
        Reserved residual mass, slack, and the proxy ``k = R - r + s`` with ``k(x0) = q(x0)``.
    Z, Delta : array (..., m)
        The budget and the part of it that clipping at R leaves to redistribute.
    capped : bool array (..., m)
        Whether the budget had to be cut to what is left off the rejected token.
    """

    r: Any
    s: Any
    k: Any
    Z: Any
    Delta: Any
    capped: Any


def proxy(current: Any, draft: Any, rejected: Any, *, redistribution: str, budget: str, hole: str) -> Proxy:
    """GetProxy for a batch of rejected tokens: lines 17-23 of ResiSpec's Algorithm 1.

    Parameters
    ----------
    current, draft : array (..., V)
        The current target R and the draft q.
    rejected : integer array (..., m)
        The tokens ``x0``.
    redistribution : {"proportional", "water-filling"}
        How the clipped mass is spread over the remaining capacity.
    budget : {"local", "floor"}
        ``Z = |q(x0) - R(x0)|``, or Eq. 13's ``max(Z*, |q(x0) - R(x0)|)``; cut to the mass off ``x0``.
    hole : {"excluded", "literal"}
        Whether the capacity leaves ``x0`` out (so that ``r(x0) = 0`` survives) or includes it, as line 21
        reads.

    Returns
    -------
    Proxy
        Where ``Z`` exceeds the local gap the slack has no token to live on (Eq. 4), and k is not normalised.
    """
    xp = array_namespace(current, draft, rejected)
    R, q = current[..., None, :], draft[..., None, :]
    tokens = xp.arange(current.shape[-1], dtype=rejected.dtype, device=rejected.device)
    here = tokens == rejected[..., None]
    R0, q0 = at(current, rejected), at(draft, rejected)
    gap = xp.abs(q0 - R0)
    wanted = gap
    if budget == "floor":
        ratio = density_ratio(current, draft)
        wanted = xp.maximum(xp.min(ratio, axis=-1)[..., None], gap)
    available = xp.sum(xp.where(here, 0.0, R), axis=-1)
    Z = xp.minimum(wanted, available)
    r = xp.where(here, 0.0, xp.minimum(Z[..., None] * q, R))
    Delta = xp.clip(Z - xp.sum(r, axis=-1), 0.0, None)
    if redistribution == "proportional":
        capacity = R - r if hole == "literal" else xp.where(here, 0.0, R - r)
        room = xp.sum(capacity, axis=-1)
        share = xp.where(room > 0, Delta / xp.where(room > 0, room, 1.0), 0.0)
        r = r + xp.clip(share, None, 1.0)[..., None] * capacity
    else:
        r = _raise_level(R, q, current, draft, Z, here, R0, q0, hole)
    k = xp.where(here, q0[..., None], R - r)
    s = xp.where(here, q0[..., None] - R + r, 0.0)
    return Proxy(r, s, k, Z, Delta, wanted > available)


def _raise_level(
    R: Any, q: Any, current: Any, draft: Any, Z: Any, here: Any, R0: Any, q0: Any, hole: str
) -> Any:
    """Water-filling: ``r = min(level q, R)`` with total Z; what is left goes where q = 0."""
    xp = array_namespace(R)
    out = hole == "excluded"
    level = _water_level(current, draft, Z, R0, q0, exclude=out)
    r = xp.minimum(xp.where(q > 0, level[..., None] * xp.where(q > 0, q, 1.0), 0.0), R)
    if out:
        r = xp.where(here, 0.0, r)
    free = xp.where((q > 0) | (here if out else here & ~here), 0.0, R)
    room = xp.sum(free, axis=-1)
    rest = xp.clip(Z - xp.sum(r, axis=-1), 0.0, None)
    # Only where every token with q > 0 is full is there a rest; below that it is rounding, and stays out.
    spill = xp.where(xp.isinf(level) & (room > 0), rest / xp.where(room > 0, room, 1.0), 0.0)
    return r + xp.clip(spill, None, 1.0)[..., None] * free


def _water_level(current: Any, draft: Any, Z: Any, R0: Any, q0: Any, *, exclude: bool) -> Any:
    """Solve ``sum_x min(level q, R) = Z`` for each of ``(..., m)``; inf where all full is too little.

    The sum is piecewise linear with kinks at the sorted R/q, shared by all rejected tokens; the rejected
    token's own term is taken out when it is excluded. Bisection over the kinks, then one linear equation.
    """
    xp = array_namespace(current)
    vocab = current.shape[-1]
    ratio = density_ratio(current, draft)
    order = xp.argsort(ratio, axis=-1)
    ratio = xp.take_along_axis(ratio, order, axis=-1)
    R_sorted = xp.take_along_axis(current, order, axis=-1)
    q_sorted = xp.take_along_axis(draft, order, axis=-1)
    # Of the ranks below j the sum holds all of R, of those from j on a multiple of q.
    full = xp.cumulative_sum(R_sorted, axis=-1, include_initial=True)[..., :-1]
    slope = xp.flip(xp.cumulative_sum(xp.flip(q_sorted, axis=-1), axis=-1), axis=-1)
    own_ratio = density_ratio(R0, q0)

    def total(j: Any) -> Any:
        """The sum at level ``ratio[j]``."""
        kink = at(ratio, j)
        finite = xp.where(xp.isinf(kink), 0.0, kink)
        value = at(full, j) + finite * at(slope, j)
        return value - xp.minimum(finite * q0, R0) if exclude else value

    last = xp.sum(xp.astype(draft > 0, R0.dtype), axis=-1)[..., None] - 1.0
    top = xp.astype(xp.broadcast_to(xp.clip(last, 0.0, None), Z.shape), order.dtype)
    reached = total(top) >= Z
    low, high = xp.zeros_like(top), top
    for _ in range(max(vocab - 1, 1).bit_length()):  # smallest j with total(j) >= Z
        middle = (low + high) // 2
        above = total(middle) >= Z
        low, high = xp.where(above, low, middle + 1), xp.where(above, middle, high)
        low = xp.minimum(low, high)
    own_is_full = own_ratio < at(ratio, high)
    base, rate = at(full, high), at(slope, high)
    if exclude:
        base = base - xp.where(own_is_full, R0, 0.0)
        rate = rate - xp.where(own_is_full, 0.0, q0)
    level = xp.where(rate > 0, (Z - base) / xp.where(rate > 0, rate, 1.0), at(ratio, high))
    level = xp.minimum(xp.clip(level, 0.0, None), at(ratio, high))
    return xp.where(reached, level, xp.inf)
