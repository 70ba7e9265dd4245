"""Distances of a marginal from its target, and what an unplaced rest can still make of them.

``KL(marginal || target)`` is summed in its termwise non-negative form ``x log(x/y) - x + y``, so rounding
never makes it negative, and identical rows give exactly 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise import compiled
from resispec_verify.kernels.elementwise.emitted import MOST_NAMED, Emitted, emitted

__all__ = [
    "Bounds",
    "distances",
    "divergence_bounds",
    "emitted_beside",
    "kl_terms",
    "kullback_leibler",
    "placed_excess",
    "total_variation",
]


class Bounds(NamedTuple):
    """Certified intervals by row, ``(...,)`` each: whatever the unplaced mass does, the value lies inside."""

    tv_low: Any
    tv_high: Any
    kl_low: Any
    kl_high: Any


def total_variation(marginal: Array, target: Array) -> Array:
    """``1/2 sum |marginal - target|`` by row, ``(..., V) -> (...,)``."""
    xp = array_namespace(marginal, target)
    return 0.5 * xp.sum(xp.abs(marginal - target), axis=-1)


def placed_excess(placed: Array, target: Array) -> Array:
    """``sum (placed - target)_+``: mass above the target, which no later path takes back."""
    xp = array_namespace(placed, target)
    return xp.sum(xp.clip(placed - target, 0.0, None), axis=-1)


def kl_terms(marginal: Array, target: Array) -> Array:
    """``x log(x/y) - x + y`` by token; y where x = 0, inf where x > 0 = y.

    Near x = y the three terms cancel, so there it is the series of ``y ((1+t) log(1+t) - t)`` in
    ``t = (x - y) / y``, cut where the rest is below rounding (``t^5 / 21 < 2^-53`` for ``|t| < 1e-3``).
    """
    xp = array_namespace(marginal, target)
    inside = (marginal > 0) & (target > 0)
    x, y = xp.where(inside, marginal, 1.0), xp.where(inside, target, 1.0)
    d = x - y
    near = xp.abs(d) < 1e-3 * y
    t = xp.where(near, d / xp.where(near, y, 1.0), 0.0)
    series = d * t * (0.5 - t * (1 / 6 - t * (1 / 12 - t * (1 / 20 - t / 30))))
    with np.errstate(over="ignore"):  # over a denormal target the ratio overflows; its logarithm does not
        ratio = x / y
    close = xp.abs(d) < 0.5 * y
    log_ratio = xp.where(xp.isinf(ratio), xp.log(x) - xp.log(y), xp.log(ratio))
    log_ratio = xp.where(close, xp.log1p(xp.where(close, d / xp.where(close, y, 1.0), 0.0)), log_ratio)
    terms = xp.where(near, series, xp.clip(x * log_ratio - d, 0.0, None))
    return xp.where(inside, terms, xp.where(marginal > 0, xp.inf, target))


def kullback_leibler(marginal: Array, target: Array) -> Array:
    """``KL(marginal || target)`` by row, in nats; inf where the marginal leaves the target's support."""
    xp = array_namespace(marginal, target)
    return xp.sum(kl_terms(marginal, target), axis=-1)


def printed_kl(marginal: Array, target: Array) -> Array:
    """``sum x log(x/y)`` by row, in the precision of the arrays: Eq. 28 of the paper as it is printed.

    Its first-order terms only cancel when both rows sum to 1 exactly, so rounding leaves noise of the order
    of the precision, of either sign.
    """
    xp = array_namespace(marginal, target)
    inside = (marginal > 0) & (target > 0)
    ratio = xp.where(inside, marginal, 1.0) / xp.where(inside, target, 1.0)
    return xp.sum(xp.where(inside, marginal * xp.log(ratio), 0.0), axis=-1)


def distances(marginal: Array, target: Array) -> tuple[Array, Array]:
    """``(total_variation, kullback_leibler)``, in one pass where that is possible."""
    if compiled.compilable(marginal, target) and marginal.dtype == np.float64:
        return emitted(marginal, target)[:2]
    return total_variation(marginal, target), kullback_leibler(marginal, target)


def emitted_beside(marginal: Array, target: Array) -> Emitted:
    """Distances in float64, and where a marginal leaves the target's support or lacks a token of it.

    Parameters
    ----------
    marginal, target : array (B, V)
    """
    if compiled.compilable(marginal, target):
        return emitted(marginal, target)
    xp = array_namespace(marginal, target)
    m, p = (xp.astype(a, xp.float64, copy=False) for a in (marginal, target))
    off = xp.where(p > 0, 0.0, m)
    silent = (p > 0) & (m == 0)
    tokens = xp.arange(p.shape[-1], dtype=xp.int64, device=p.device)
    beyond = xp.full((*p.shape[:-1], MOST_NAMED), p.shape[-1], dtype=xp.int64, device=p.device)
    listed = xp.concat([xp.where(silent, tokens, p.shape[-1]), beyond], axis=-1)
    first = xp.sort(listed, axis=-1)[..., :MOST_NAMED]
    return Emitted(
        total_variation(m, p),
        kullback_leibler(m, p),
        xp.sum(off, axis=-1),
        xp.argmax(off, axis=-1),
        xp.sum(xp.where(silent, p, 0.0), axis=-1),
        xp.where(first < p.shape[-1], first, -1),
    )


def divergence_bounds(placed: Array, target: Array, gap: Array, allowed: Array) -> Bounds:
    """Bounds on TV and KL when ``gap`` more mass is still to be placed on ``allowed`` tokens.

    Parameters
    ----------
    placed, target : array (..., V)
        Mass already placed, and the target.
    gap : array (...,)
        Mass not yet placed, ``>= 0``.
    allowed : bool array (..., V)
        Where it may go. A row without any allowed token must have gap 0.

    Notes
    -----
    TV lies in ``[a, a + gap]`` with ``a`` the placed excess. KL is convex in the rest: least when the rest
    raises the lowest ratios to one level, greatest when all of it lands on one token.
    """
    xp = array_namespace(placed, target, gap)
    excess = placed_excess(placed, target)
    tv_high = xp.clip(excess + gap, None, 1.0)
    if compiled.compilable(placed, target) and placed.dtype == np.float64:
        return Bounds(excess, tv_high, *compiled.kl_bounds(placed, target, gap, allowed))
    terms = kl_terms(placed, target)
    base = xp.sum(terms, axis=-1)
    g = gap[..., None]
    piled = kl_terms(placed + g, target) - xp.where(xp.isinf(terms), 0.0, terms)
    worst = xp.max(xp.where(allowed, piled, -xp.inf), axis=-1)
    kl_high = xp.where(gap > 0, base + worst, base)
    level = _fill_level(placed, xp.where(allowed, target, 0.0), gap)
    filled = xp.where(allowed, xp.maximum(placed, level[..., None] * target), placed)
    off_support = xp.any((placed > 0) & (target <= 0), axis=-1)
    kl_low = xp.where(gap > 0, xp.sum(kl_terms(filled, target), axis=-1), base)
    # With nothing to fill inside the target's support the rest has to leave it.
    nowhere = (gap > 0) & ~xp.any(allowed & (target > 0), axis=-1)
    kl_low = xp.where(off_support | nowhere, xp.inf, kl_low)
    return Bounds(excess, tv_high, xp.minimum(kl_low, kl_high), kl_high)


def _fill_level(placed: Array, target: Array, gap: Array) -> Array:
    """The level ``l`` with ``sum (l target - placed)_+ = gap``, by row.

    Newton's iteration from above on a convex piecewise linear function: it descends monotonically and ends
    on the exact segment after finitely many steps, in practice about ten.
    """
    xp = array_namespace(placed, target)
    inside = target > 0
    ratio = xp.where(inside, placed / xp.where(inside, target, 1.0), xp.inf)
    level = xp.full(gap.shape, xp.inf, dtype=target.dtype, device=target.device)
    for _ in range(200):
        below = ratio < level[..., None]
        room = xp.sum(xp.where(below, target, 0.0), axis=-1)
        held = xp.sum(xp.where(below, placed, 0.0), axis=-1)
        new = xp.where(room > 0, (gap + held) / xp.where(room > 0, room, 1.0), 0.0)
        if bool(xp.all(new >= level)):
            break
        level = xp.minimum(level, new)
    return level
