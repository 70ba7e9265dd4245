"""ResiSpec's paths followed one by one, depth first, with all that is light merged into grids.

The recursion is that of `kernels.paths.shaped`, the grids are those of `kernels.paths.grids`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.elementwise.ratio_order import RatioOrder, rank_of
from resispec_verify.kernels.elementwise.water_level import level_of
from resispec_verify.kernels.jit import inline, jit
from resispec_verify.kernels.paths.grids import (
    HOLE,
    NEXT,
    SHARE,
    T_SUM,
    W_SUM,
    cell_or_bare,
    mixed,
    rejected_next,
    remembered,
)
from resispec_verify.kernels.paths.knots import look_up, put

__all__ = ["Path", "new_path", "walk_paths"]

_FRAME = np.dtype(
    [
        ("weight", np.float64),  # the path has the probability weight t
        ("t", np.float64),
        ("c", np.float64),  # share of the residual before in its own residual
        ("share", np.float64),  # coefficient of its U in what is placed after n rejections
        ("own_p", np.float64),  # p of the token rejected last, 0 if it was a hole before
        ("rank", np.int64),  # rank of t: how many tokens can be rejected next
        ("cursor", np.int64),  # how many of them have been
        ("own", np.int64),  # the token rejected last
        ("holes", np.int64),
        ("set", np.int64),  # which hole a grid would remember
    ]
)


class Path(NamedTuple):
    """The current path of one walk, in rank order."""

    limits: NDArray[np.float64]  # (3,) theta, the paths to evaluate at most, and the least first budget
    p_free: NDArray[np.float64]  # (V,) p, but zero on the holes of the current path
    frames: NDArray[np.void]  # (n + 1,) _FRAME: one record a rejection
    hole_rank: NDArray[np.int64]  # (n + 1,)
    holes: NDArray[np.float64]  # (n + 1, 3) q and p of each hole, and the mass to subtract there


def new_path(order: RatioOrder, n: int, limits: NDArray[np.float64]) -> Path:
    """The empty path."""
    return Path(limits, order.p.copy(), np.zeros(n + 1, _FRAME), np.full(n + 1, -1), np.zeros((n + 1, 3)))


@inline
def _on_holes(t, holes, hole):
    """``sum min(t q, p)`` over the holes."""
    total = 0.0
    for h in range(holes):
        total += min(t * hole[h, 0], hole[h, 1])
    return total


@inline
def _place_on_holes(w, t, holes, hole):
    """Count what an atom puts on the holes, to be subtracted there."""
    for h in range(holes):
        hole[h, 2] += w * min(t * hole[h, 0], hole[h, 1])


@inline
def _hole(h, holes, hole):
    """Its (q, p); 0 where there are not so many."""
    return (hole[h, 0], hole[h, 1]) if h < holes else (0.0, 0.0)


@jit(_nrt=False)
def _reject_last(level, order, levels, knots, path, sums):
    """All rejections of the last candidate after the path at ``level``.

    This is where the time goes (up to billions of iterations), hence plain local arrays and loops.
    """
    ratio, q, prefix, table = order.ratio, order.q, order.prefix, order.table
    p_free, hole_rank, hole = path.p_free, path.hole_rank, path.holes
    atoms, correction, at_knots, law = sums.atoms, sums.correction, sums.knots, (ratio, table, prefix, knots)
    frame = path.frames[level]
    weight, t_parent, rank, holes = frame.weight, frame.t, frame.rank, frame.holes
    share, spilled, on_first, on_second, paths = 0.0, 0.0, 0.0, 0.0, 0
    # Entries in memory would wait for themselves: what is put on two holes, mostly all, is summed here.
    (q_first, p_first), (q_second, p_second) = _hole(0, holes, hole), _hole(1, holes, hole)
    if levels is not None:
        filled, fill_table, suffix = levels.filled, levels.table, levels.suffix
        ends = levels.top, levels.finite, levels.outside
    for i in range(rank + holes):
        j = i
        if i >= rank:  # a hole can be rejected again even where p/q >= t
            j = hole_rank[i - rank]
            if j < rank:
                continue
        free = p_free[j]
        t = t_parent * q[j] - free
        if t <= 0.0:
            continue
        paths += 1
        if levels is None:
            l, c, own = t, 0.0, min(t * q[j], free)
            r, d, _, _, _ = look_up(t, law)
            d += own + (min(t * q_first, p_first) + min(t * q_second, p_second))
            for h in range(2, holes):
                d += min(t * hole[h, 0], hole[h, 1])
            if d > 0.0:
                c = weight * d / (t_parent * (1.0 - q[j]) + d)
            w = weight - c
            share += c
            correction[j] += w * own + c * free
            put(w, t, r, atoms, at_knots)
        else:
            l, r, _, spill = level_of(
                t, (j, q[j], free), holes, hole, hole_rank, ends,
                ratio, table, prefix, q, filled, fill_table, suffix,
            )  # fmt: skip
            w = weight
            spilled += w * spill
            correction[j] += w * min(l * q[j], free)
            atoms[r, 0] += w * l
            atoms[r, 1] += w
        on_first += w * min(l * q_first, p_first)
        on_second += w * min(l * q_second, p_second)
        for h in range(2, holes):
            hole[h, 2] += w * min(l * hole[h, 0], hole[h, 1])
    if holes > 0:
        hole[0, 2] += on_first
    if holes > 1:
        hole[1, 2] += on_second
    frame.share += share
    sums.spilled[0] += spilled
    sums.paths[0] += paths


@inline
def _lost_by_merging(merged, d, own, value, loss, kept, hole_rank, hole):
    """What merging a rejection is expected to lose: in its cell, and by forgetting holes.

    ``merged``: its token's rank, its q and the p left of it, weight and t of the path, the cell, which
    part goes to the upper end, the set of the grid, and how many holes there were before.
    """
    j, q, free, _, t, cell, up, s, holes = merged
    t_sum, w_sum = mixed(value, cell, up, T_SUM), mixed(value, cell, up, W_SUM)
    lost = loss[cell] * d
    if kept[s] != j:  # a forgotten hole loses its term in D, and what is taken off there
        lost += own + min(t_sum * q, w_sum * free)
    for h in range(holes):
        if kept[s] != hole_rank[h]:
            lost += min(t * hole[h, 0], hole[h, 1]) + min(t_sum * hole[h, 0], w_sum * hole[h, 1])
    return lost


@inline
def _handed_on(weight, cell, up, value):
    """What a merged rejection hands on: coefficient of U, sums of w t' and w, mass on its set's hole."""
    if cell < 0:
        return 0.0, 0.0, 0.0, 0.0
    return (
        weight * mixed(value, cell, up, SHARE),
        weight * mixed(value, cell, up, T_SUM),
        weight * mixed(value, cell, up, W_SUM),
        weight * mixed(value, cell, up, HOLE),
    )


@inline
def _take_off(w, t, handed, remembers, holes, hole_rank, hole):
    """What a rejection puts on the holes: (on the first one, what of it is by forgetting them).

    Those after the first are counted here. The first one's is not: a sum in memory would wait for itself.
    """
    _, t_sum, w_sum, known = handed
    first = forgotten = 0.0
    for h in range(holes):
        hole_q, hole_p = hole[h, 0], hole[h, 1]
        taken = known
        if remembers != hole_rank[h]:
            taken = min(t_sum * hole_q, w_sum * hole_p)
            forgotten += taken
        taken += w * min(t * hole_q, hole_p)
        if h == 0:
            first = taken
        else:
            hole[h, 2] += taken
    return first, forgotten


@inline
def _with_budget(budget, room, t):
    """(weight, room, t) of a first rejection with a budget above the local one."""
    return t / budget, max(room - (budget - t), 0.0), budget


@jit(_nrt=False)
def _reject_next(level, step, order, grids, path, sums):
    """Reject the tokens that remain to be rejected after the path at ``level``, one after the other.

    Stops with True at a path that is followed (left in ``frames[level + 1]``), to be called again
    afterwards; False when all are done. The others are merged into the grids, or left.
    """
    law, hole, frame = (order.ratio, order.table, order.prefix, grids.knots), path.holes, path.frames[level]
    atoms, at_knots, most_left = sums.atoms, sums.knots, order.prefix[-1, 1]
    q_all, p_free, hole_rank, low, per_width = (
        order.q,
        path.p_free,
        path.hole_rank,
        grids.low,
        grids.per_width,
    )
    value, kept, correction, deposits = grids.value, grids.hole, sums.correction, sums.deposits
    theta, most, floor = path.limits
    t_parent, rank, holes = frame.t, frame.rank, frame.holes
    last, opened = level + 2 == path.frames.shape[0] - 1, False
    share = accepted = unexpanded = overcount = on_first = 0.0
    paths, end = 0, rank + holes
    for i in range(frame.cursor, end, step):
        j = i if i < rank else hole_rank[i - rank]
        if i >= rank and j < rank:
            continue
        free, q = p_free[j], q_all[j]
        t = t_parent * q - free
        if t <= 0.0:
            continue
        paths += 1
        weight, room = frame.weight, t_parent * (1.0 - q)
        if level == 0 and t < floor:  # Eq. 13, cut to what is left off the token
            weight, room, t = _with_budget(max(min(floor, most_left - free), t), room, t)
        place, own, _, d, _, above, r = rejected_next(t, q, free, 0.0, 0.0, law)
        on_holes = _on_holes(t, holes, hole)
        d += on_holes
        accepted += weight * max(t - above - on_holes, 0.0)
        c, cell, s, up, left = 0.0, -1, 0, 0.0, weight * d
        if d > 0.0:
            c, lost, s = d / (room + d), d, remembered(frame.set, grids.set_of[j])
            cell, s = cell_or_bare(t, level + 1, s, grids.first, grids.bits)
            up = (t - low[cell]) * per_width[cell] if last and cell >= 0 else 0.0
            merged = (j, q, free, weight, t, cell, up, s, holes)
            if cell >= 0:
                lost = _lost_by_merging(merged, d, own, value, grids.loss, kept, hole_rank, hole)
            cost = r + holes + 1
            if weight * lost >= theta * cost and sums.paths[0] + paths + cost <= most:
                _open(level + 1, (j, weight, t, rank_of(t, order.ratio, order.table), c), order, grids, path)
                opened, end = True, i + step  # its own t, d and acceptance were counted
                break
        handed = _handed_on(weight, cell, up, value)
        remembers = kept[s] if cell >= 0 else -1
        w, carried = weight + (1.0 - c) * handed[0], c * handed[0]
        taken, forgotten = _take_off(w, t, handed, remembers, holes, hole_rank, hole)
        here = handed[3]
        if remembers != j or free <= 0.0:
            here = min(handed[1] * q, handed[2] * free)
            forgotten += here
        if cell >= 0:
            deposits[cell, 0] += weight * (1.0 - up)
            deposits[cell, 1] += weight * up
            left = forgotten + (0.0 if last else weight * (d - value[cell, 0, NEXT]))
        share += carried
        overcount += forgotten
        unexpanded += left
        on_first += taken
        put(w, t, place, atoms, at_knots)
        correction[j] += w * own + (carried * free + here)
    if holes > 0:
        hole[0, 2] += on_first
    frame.cursor = end
    frame.share += share
    sums.acceptance[level + 1] += accepted
    sums.overcount[level + 1] += overcount
    sums.unexpanded[level + 2] += unexpanded  # D counts the next rejection too
    sums.paths[0] += paths
    return opened


@jit(_nrt=False)
def _open(level, rejection, order, grids, path):
    """Push the path that ends in a rejection: (rank, weight, t, rank of t, c). Its token becomes a hole."""
    j, weight, t, rank, c = rejection
    frame, parent = path.frames[level], path.frames[level - 1]
    holes = parent.holes
    frame.weight, frame.t, frame.c, frame.share, frame.own_p = weight, t, c, 0.0, path.p_free[j]
    frame.rank, frame.cursor, frame.own, frame.holes = rank, 0, j, holes
    frame.set = remembered(parent.set, grids.set_of[j])
    if frame.own_p > 0.0:  # a token with p = 0, or one rejected before, leaves nothing to subtract
        path.hole_rank[holes], path.p_free[j] = j, 0.0
        path.holes[holes, 0], path.holes[holes, 1], path.holes[holes, 2] = order.q[j], frame.own_p, 0.0
        frame.holes = holes + 1


@jit(_nrt=False)
def _close(level, order, path, sums):
    """Pop a path whose children are done: place what it emits itself, and its part of what they leave."""
    frame, parent = path.frames[level], path.frames[level - 1]
    j, w = frame.own, frame.weight + frame.share * (1.0 - frame.c)
    if frame.own_p > 0.0:
        path.p_free[j] = frame.own_p
        sums.correction[j] += path.holes[parent.holes, 2]
    parent.share += frame.share * frame.c
    sums.atoms[frame.rank, 0] += w * frame.t
    sums.atoms[frame.rank, 1] += w
    sums.correction[j] += w * min(frame.t * order.q[j], frame.own_p) + frame.share * frame.c * frame.own_p
    _place_on_holes(w, frame.t, parent.holes, path.holes)


@jit(_nrt=False)
def walk_paths(part, order, levels, grids, path, sums):
    """Depth-first over the paths that are followed; returns the coefficient of ``U_0 = p``.

    ``part`` is the token to reject first, and the step to the next one that is.
    """
    chunk, chunks = part
    depth = path.frames.shape[0] - 1
    root = path.frames[0]
    root.rank = rank_of(1.0, order.ratio, order.table)
    root.weight, root.t, root.share, root.cursor, root.holes, root.set = 1.0, 1.0, 0.0, chunk, 0, 0
    d = max(order.prefix[root.rank, 0] - order.prefix[root.rank, 1], 0.0)
    if chunk == 0:
        sums.acceptance[0] += 1.0 - d
        sums.atoms[root.rank, 0] += 1.0
        sums.atoms[root.rank, 1] += 1.0
    level = 0 if d > 0.0 else -1
    while level >= 0:
        if level == depth - 1:
            _reject_last(level, order, levels, grids.knots, path, sums)
        elif _reject_next(level, chunks if level == 0 else 1, order, grids, path, sums):
            level += 1
            continue
        if level > 0:
            _close(level, order, path, sums)
        level -= 1
    return root.share
