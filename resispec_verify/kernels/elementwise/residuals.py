"""Residuals after a rejection: the standard one, and ResiSpec's shaped one through its proxy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise import compiled
from resispec_verify.kernels.elementwise.probabilities import at
from resispec_verify.kernels.elementwise.water_level import reach

__all__ = [
    "ALL",
    "Proxy",
    "accept_ratio",
    "density_ratio",
    "normalize",
    "positive_part_condition",
    "proxy",
    "ratio_or_all",
    "share_of",
    "standard_residual",
]

ALL = 2.0**53  # a rounding magnified by it can move all there is


def accept_ratio(current: Array, draft: Array) -> Array:
    """``min(1, R(x) / q(x))`` for every token ``(..., V)``; 1 where q = 0 < R, 0 where both are 0."""
    if compiled.compilable(current, draft):
        return compiled.accept_ratio(current, draft)
    return share_of(current, draft)


def share_of(taken: Array, offered: Array) -> Array:
    """``min(taken / offered, 1)``: 1 where as much is taken as is offered, 0 where nothing is taken."""
    xp = array_namespace(taken, offered)
    more = offered > taken
    share = xp.where(more, taken, 0.0) / xp.where(more, offered, 1.0)
    return xp.where(more, share, xp.astype(taken > 0, taken.dtype))


def density_ratio(current: Array, draft: Array) -> Array:
    """``R / q`` elementwise; inf where q = 0, and where the quotient overflows."""
    xp = array_namespace(current, draft)
    with np.errstate(over="ignore"):
        return xp.where(draft > 0, current / xp.where(draft > 0, draft, 1.0), xp.inf)


def normalize(mass: Array, fallback: Array) -> Array:
    """Divide rows ``(..., V)`` by their sum; a row without mass becomes ``fallback``.

    A residual without mass belongs to a rejection of probability 0, which only rounding can reach (p = q,
    say); falling back to the current target emits what is right there, and never NaN.
    """
    xp = array_namespace(mass)
    total = xp.sum(mass, axis=-1, keepdims=True)
    return xp.where(total > 0, mass / xp.where(total > 0, total, 1.0), fallback)


def standard_residual(current: Array, draft: Array) -> Array:
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


def proxy(
    current: Array, draft: Array, rejected: Array, *, redistribution: str, budget: str, hole: str
) -> Proxy:
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
        r = r + share_of(Delta, room)[..., None] * capacity
    else:
        among = xp.ones_like(here) if hole == "literal" else ~here
        r = _raise_level(R, q, Z, among)
    k = xp.where(here, q0[..., None], R - r)
    s = xp.where(here, q0[..., None] - R + r, 0.0)
    return Proxy(r, s, k, Z, Delta, wanted > available)


def _raise_level(R: Array, q: Array, Z: Array, among: Array) -> Array:
    """Water-filling: ``r = min(level q, R)`` with total Z ``(..., m)`` over some tokens ``(..., m, V)``.

    Once all other tokens are full, the level of those whose q is faint (`water_level`) has a scale of its
    own; when they are full too, tokens with q = 0 get the rest in proportion to R.
    """
    xp = array_namespace(R)
    highest, scale = reach(xp.finfo(R.dtype))
    faint = among & (q > 0) & (q <= R / highest)
    plain = among & (q > 0) & ~faint
    level, full = _level(R, q, Z, plain, highest)
    r = xp.where(full, R, xp.where(among, level * q, 0.0))
    if bool(xp.any(faint)):
        own, own_full = _level(R, q * scale, _rest(Z, r, R, plain), faint, highest)
        alone = faint & xp.all(~plain | full, axis=-1)[..., None]
        r = xp.where(alone, xp.where(own_full, R, own * xp.where(faint, q * scale, 0.0)), r)
    free = xp.where(among & (q <= 0), R, 0.0)
    return r + share_of(_rest(Z, r, R, among & (q > 0)), xp.sum(free, axis=-1))[..., None] * free


def _rest(Z: Array, r: Array, R: Array, among: Array) -> Array:
    """What is left of Z where r fills these tokens; 0 elsewhere, where a difference would be rounding."""
    xp = array_namespace(R)
    full = xp.all(~among | (r >= R), axis=-1)
    return xp.where(full, xp.clip(Z - xp.sum(xp.where(among, r, 0.0), axis=-1), 0.0, None), 0.0)


def _level(R: Array, q: Array, Z: Array, among: Array, highest: float) -> tuple[Array, Array]:
    """The level ``(..., m, 1)`` at which ``min(level q, R)`` sums to Z over these tokens, and which are full.

    Newton's method from the left. The sum is concave in the level and linear between the tokens' R/q, so the
    steps never go too far, and end once no further token is full. Sums run over the tokens themselves: a
    difference of prefix sums would cancel.
    """
    xp = array_namespace(R)
    full, own = xp.zeros_like(among), xp.where(among, q, 0.0)
    while True:
        rate = xp.sum(xp.where(full, 0.0, own), axis=-1)
        left = xp.clip(Z - xp.sum(xp.where(full, R, 0.0), axis=-1), 0.0, None)
        within = left < rate * highest  # above the highest level all are full
        level = xp.where(within, left / xp.where(within, rate, 1.0), highest)[..., None]
        reached = full | (among & (level * own >= R))
        if bool(xp.all(reached == full)):
            return level, full
        full = reached


def positive_part_condition(current: Array, draft: Array) -> Array:
    """How much ``norm((R - q)_+)`` magnifies relative errors of R: ``(..., 1)``, for rows ``(..., V)``.

    The reciprocal of its sum; `ALL` where that is 0.
    """
    xp = array_namespace(current, draft)
    left = xp.sum(xp.clip(current - draft, 0.0, None), axis=-1, keepdims=True)
    return ratio_or_all(xp.ones_like(left), left)


def ratio_or_all(whole: Array, left: Array) -> Array:
    """``whole / left``, no more than `ALL`; so where ``left`` is 0."""
    xp = array_namespace(whole, left)
    some = left * ALL > whole
    return xp.where(some, whole / xp.where(some, left, 1.0), ALL)
