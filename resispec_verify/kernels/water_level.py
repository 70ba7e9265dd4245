"""The water level: the number ``l`` with ``sum min(l q, p) = t`` over some tokens, by one look-up.

Over all tokens with q > 0 the sum at the sorted p/q is a table (`Levels`). A few tokens may be left out:
holes. A hole is *full* if p_h <= l q_h, which the sum at ``l = p_h / q_h`` tells. So the full ones come back
as a constant beside t; those that are not full lower the slope, and a few steps of Newton find the rank.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.jit import jit
from resispec_verify.kernels.ratio_order import RatioOrder, bucket_table, rank_of

__all__ = ["Levels", "level_of", "levels_of"]

_HIGHEST = 2.0**960  # above that p/q counts as infinite, so that sums of levels stay finite


class Levels(NamedTuple):
    """``sum min(l q, p)`` as a function of l.

    Attributes
    ----------
    filled : float64 (V,)
        The sum at ``l = ratio``, by rank: ascending; inf where the ratio is.
    table : int32 (buckets + 1,)
        Of ``filled``, see `RatioOrder`.
    suffix : float64 (V + 1,)
        Sums of q from a rank on: a difference of prefix sums would cancel.
    finite : int
        Tokens that can be filled.
    outside : float
        What p holds elsewhere.
    """

    filled: NDArray[np.float64]
    table: NDArray[np.int32]
    suffix: NDArray[np.float64]
    finite: int
    outside: float


def levels_of(order: RatioOrder) -> Levels:
    """Tabulate the sum."""
    vocab = order.p.shape[0]
    finite = int(np.searchsorted(order.ratio, _HIGHEST))
    suffix = np.append(np.cumsum(order.q[::-1])[::-1], 0.0)
    filled = np.full(vocab, np.inf)
    filled[:finite] = order.prefix[:finite, 1] + order.ratio[:finite] * suffix[:finite]
    filled = np.maximum.accumulate(filled)  # ties stand in either order
    return Levels(
        filled,
        bucket_table(filled),
        suffix,
        finite,
        float(order.p[finite:].sum()),
    )


@jit(forceinline=True)
def level_of(
    t, j, q, p, holes, hole, hole_rank, ratio, table, prefix, filled, fill_table, suffix, finite, outside
):
    """The level with total ``t`` off the token at rank ``j`` and off the holes: (level, rank, slope, spill).

    ``q`` and ``p`` are those of ``j``; ``p = 0`` leaves nothing out. ``hole[h]`` starts with q and p of the
    hole at ``hole_rank[h]``. ``slope`` is at least the derivative of the sum at the level. Where all are full
    the rank is ``finite``, and ``spill`` is the share of p that tokens with q = 0 get.
    """
    base, part, stop = t, 0.0, finite
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
            part += own_q
            stop = min(stop, at)
    rank, level, above, spill = rank_of(base, filled, fill_table), ratio[finite - 1], 0.0, 0.0
    while rank < finite:  # Newton's method: the sum is concave, so that no step goes too far
        slope, level = suffix[rank] - part, ratio[rank]
        if slope > 0.0:
            level = max((base - prefix[rank, 1]) / slope, 0.0)
        if level <= ratio[rank] or rank >= stop:
            level = min(level, ratio[rank])
            above = suffix[rank] * (1.0 + 2.3e-16 * ratio.shape[0]) - part  # above all rounding of its sum
            break
        rank = min(max(rank_of(level, ratio, table), rank + 1), stop)
    if rank >= finite and outside > 0.0:
        spill = min(max((base - prefix[finite, 1]) / outside, 0.0), 1.0)
    return level, rank, above, spill
