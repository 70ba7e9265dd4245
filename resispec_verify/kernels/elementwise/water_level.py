"""The water level: the number ``l`` with ``sum min(l q, p) = t`` over some tokens, by one look-up.

Over all tokens with q > 0 the sum at the sorted p/q is a table (`Levels`). A few tokens may be left out:
holes. A hole is *full* if p_h <= l q_h, which the sum at ``l = p_h / q_h`` tells. So the full ones come back
as a constant beside t; those that are not full lower the slope, and a few steps of Newton find the rank.

Tokens whose q is positive and whose p/q exceeds 2**960 are *faint*. They are filled when all others are full,
at levels that may exceed the range of float64. `level_of` knows no faint tokens, its callers do.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.ratio_order import RatioOrder, bucket_table, rank_of
from resispec_verify.kernels.jit import jit

__all__ = ["FAINT_SCALE", "HIGHEST", "Levels", "level_of", "levels_of", "reach", "sum_without"]


def reach(info: Array) -> tuple[float, float]:
    """The largest p/q of a token that is not faint, and what to scale the q of faint ones by, of a dtype.

    Sums of levels stay below the dtype's largest number, and scaled q in its range: in float64 the levels
    up to 2**960, and faint q times 2**600, from 2**-474 to 2**-360.
    """
    exponent = math.frexp(float(info.max))[1]
    return 2.0 ** (exponent * 15 // 16), 2.0 ** (exponent * 75 // 128)


HIGHEST, FAINT_SCALE = reach(np.finfo(np.float64))
_CANCELS = 2.0**-16  # share of a sum below which what is left of it is summed anew


class Levels(NamedTuple):
    """``sum min(l q, p)`` as a function of l.

    Attributes
    ----------
    filled : float64 (V,)
        The sum at ``l = ratio``, by rank: ascending; inf where the ratio is above `HIGHEST`.
    table : int32 (buckets + 1,)
        Of ``filled``, see `RatioOrder`.
    suffix : float64 (V + 1, 2)
        Sums of q from a rank on, since a difference of prefix sums would cancel: of all tokens, and of all
        but the one with the largest q, which would cancel too where that one is a hole.
    top : int
        Its rank.
    finite : int
        Tokens that are not faint and have q > 0.
    drafted : int
        Tokens with q > 0.
    outside : float
        What p holds elsewhere.
    """

    filled: NDArray[np.float64]
    table: NDArray[np.int32]
    suffix: NDArray[np.float64]
    top: int
    finite: int
    drafted: int
    outside: float


def levels_of(order: RatioOrder, *, tabulated: bool = True) -> Levels:
    """Tabulate the sum; or, for sums of q alone, leave out all but the first of ``suffix``."""
    vocab = order.p.shape[0]
    finite, drafted = int(np.searchsorted(order.ratio, HIGHEST)), int(np.count_nonzero(order.q))
    suffix = np.zeros((vocab + 1, 2))
    suffix[:-1, 0] = np.cumsum(order.q[::-1])[::-1]
    filled, table, top = np.empty(0), np.empty(0, np.int32), int(np.argmax(order.q))
    if tabulated:
        others = order.q.copy()
        others[top] = 0.0
        suffix[:-1, 1] = np.cumsum(others[::-1])[::-1]
        filled = np.full(vocab, np.inf)
        filled[:finite] = order.prefix[:finite, 1] + order.ratio[:finite] * suffix[:finite, 0]
        filled = np.maximum.accumulate(filled)  # ties stand in either order
        table = bucket_table(filled)
    return Levels(filled, table, suffix, top, finite, drafted, float(order.p[drafted:].sum()))


@jit(forceinline=True)
def sum_without(values, first, last, whole, left_out):
    """``whole``, the sum of ``values[first:last]``, without the entry at ``left_out``.

    By subtraction, unless so little is left that it would cancel: then summed anew.
    """
    if not first <= left_out < last:
        return whole
    rest = whole - values[left_out]
    if rest >= 0.25 * whole:
        return rest
    rest = 0.0
    for x in range(first, last):
        rest += 0.0 if x == left_out else values[x]
    return rest


@jit()
def _partial_slope(rank, j, p, holes, hole_rank, stop, q_all):
    """The q of all tokens from ``rank`` on but those left out: summed one by one."""
    total = 0.0
    for x in range(rank, stop):
        left_out = p > 0.0 and x == j
        for h in range(holes):
            left_out = left_out or x == hole_rank[h]
        total += 0.0 if left_out else q_all[x]
    return total


@jit(forceinline=True)
def level_of(
    t, token, holes, hole, hole_rank, ends, ratio, table, prefix, q_all, filled, fill_table, suffix
):  # fmt: skip
    """The level with total ``t`` off a token and off the holes: (level, rank, slope, spill).

    ``token`` is its rank, q and p; ``p = 0`` leaves nothing out. ``hole[h]`` starts with q and p of the hole
    at ``hole_rank[h]``. ``ends`` are top, finite and outside of `Levels`. ``slope`` is at least the
    derivative of the sum at the level. Where all are full the rank is ``finite``, and ``spill`` is the share
    of p that tokens with q = 0 get. There must be no faint tokens.

    So many parameters because arrays come one by one: taken out of a tuple here, each would be counted at
    each call, which makes a walk over paths take twice the time.
    """
    j, q, p = token
    top, finite, outside = ends
    base, part, stop, which = t, 0.0, finite, 0
    for g in range(-1 if p > 0.0 else 0, holes):
        at = j if g < 0 else hole_rank[g]
        own_q = q if g < 0 else hole[g, 0]
        own_p = p if g < 0 else hole[g, 1]
        total = filled[at] - own_p
        if g >= 0 and p > 0.0:
            total -= min(ratio[at] * q, p)
        for h in range(holes):
            if h != g:
                total -= min(ratio[at] * hole[h, 0], hole[h, 1])
        if total <= t:
            base += own_p
        else:
            if at == top:
                which = 1
            else:
                part += own_q
            stop = min(stop, at)
    rank, level, above, spill = rank_of(base, filled, fill_table), ratio[finite - 1], 0.0, 0.0
    while rank < finite:  # Newton's method: the sum is concave, so that no step goes too far
        slope, level = suffix[rank, which] - part, ratio[rank]
        if slope <= _CANCELS * suffix[rank, which]:
            slope = _partial_slope(rank, j, p, holes, hole_rank, finite, q_all)
        if slope > 0.0:
            level = max((base - prefix[rank, 1]) / slope, 0.0)
        if level <= ratio[rank] or rank >= stop:
            level = min(level, ratio[rank])
            above = slope + suffix[rank, 0] * 2.3e-16 * ratio.shape[0]  # above all rounding of its sum
            break
        rank = min(max(rank_of(level, ratio, table), rank + 1), stop)
    if rank >= finite:
        level = ratio[finite - 1]
        if outside > 0.0:
            spill = min(max((base - prefix[finite, 1]) / outside, 0.0), 1.0)
    return level, rank, above, spill
