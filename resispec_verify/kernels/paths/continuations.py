"""What paths that lie on grids reject next: summed up for each cell, or placed as often as it was laid on.

Bounds and proofs are at the head of `kernels.paths.grids`.
"""

from __future__ import annotations

from resispec_verify.kernels.elementwise.ratio_order import rank_of
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
from resispec_verify.kernels.paths.knots import put

__all__ = ["evaluate_chunk", "place_chunk"]


@inline
def _hand_on(values, cell, end, c, l, at_hole):
    """Add a last rejection to what an end of a cell hands on; no hole has p/q >= 1."""
    values[cell, end, SHARE] += c
    values[cell, end, T_SUM] += (1.0 - c) * min(l, 1.0)
    values[cell, end, W_SUM] += 1.0 - c
    values[cell, end, HOLE] += (1.0 - c) * at_hole


@jit(forceinline=True, _nrt=False)
def _proportional_leaf(token, holes, order, grids, values, deposits, sums):
    """Reject one token last, after all paths of the cells from ``begin`` to ``stop``; returns how many."""
    law, low, high = (order.ratio, order.table, order.prefix, grids.knots), grids.low, grids.high
    atoms, at_knots = sums.atoms, sums.knots
    j, q, free, begin, stop = token
    hole_q, hole_p = holes[1][0, 0], holes[1][0, 1]
    correction, paths, known = 0.0, 0, False
    r_a, t_a, own_a, hole_a, d_a, slope_a = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(begin, stop):
        if deposits is not None and deposits[k, 0] == 0.0 and deposits[k, 1] == 0.0:
            known = False
            continue
        if not known:
            t_a = low[k] * q - free
            if t_a <= 0.0:
                continue
            r_a, own_a, hole_a, d_a, slope_a, _, _ = rejected_next(t_a, q, free, hole_q, hole_p, law)
        t_b = high[k] * q - free
        r_b, own_b, hole_b, d_b, slope_b, _, _ = rejected_next(t_b, q, free, hole_q, hole_p, law)
        tangent = d_a + slope_a * (t_b - t_a)
        c_a = d_a / (low[k] * (1.0 - q) + d_a) if d_a > 0.0 else 0.0
        c_b = tangent / (high[k] * (1.0 - q) + tangent) if tangent > 0.0 else 0.0
        if deposits is None:
            _hand_on(values, k, 0, c_a, t_a, hole_a)
            _hand_on(values, k, 1, c_b, t_b, hole_b)
        else:
            w_a, w_b = (1.0 - c_a) * deposits[k, 0], (1.0 - c_b) * deposits[k, 1]
            put(w_a, t_a, r_a, atoms, at_knots)
            put(w_b, t_b, r_b, atoms, at_knots)
            correction += w_a * own_a + w_b * own_b
            correction += (deposits[k, 0] * c_a + deposits[k, 1] * c_b) * free
        paths += 2
        known = k + 1 < stop and low[k + 1] == high[k]
        r_a, t_a, own_a, hole_a, d_a, slope_a = r_b, t_b, own_b, hole_b, d_b, slope_b
    sums.correction[j] += correction
    return paths


@jit(forceinline=True, _nrt=False)
def _water_leaf(token, holes, order, levels, grids, values, deposits, sums):
    """The same by water-filling."""
    ratio, table, prefix, q_all = order.ratio, order.table, order.prefix, order.q
    filled, fill_table, suffix = levels.filled, levels.table, levels.suffix
    low, high, atoms = grids.low, grids.high, sums.atoms
    ends = levels.top, levels.finite, levels.outside
    _, finite, outside = ends
    count, hole, hole_rank = holes
    j, q, free, begin, stop = token
    hole_q, hole_p = hole[0, 0], hole[0, 1]
    correction, spilled, paths = 0.0, 0.0, 0
    for k in range(begin, stop):
        t_a, t_b = low[k] * q - free, high[k] * q - free
        if t_a <= 0.0 or (deposits is not None and deposits[k, 0] == 0.0 and deposits[k, 1] == 0.0):
            continue
        l_a, r_a, slope, spill_a = level_of(
            t_a, (j, q, free), count, hole, hole_rank, ends,
            ratio, table, prefix, q_all, filled, fill_table, suffix,
        )  # fmt: skip
        l_b, r_b, spill_b = l_a, r_a, spill_a
        if r_a < finite:
            l_b = min(l_a + (t_b - t_a) / slope, ratio[finite - 1])
            r_b = rank_of(l_b, ratio, table)
        elif outside > 0.0:
            spill_b = min(spill_a + (t_b - t_a) / outside, 1.0)
        if deposits is None:
            _hand_on(values, k, 0, 0.0, l_a, min(l_a * hole_q, hole_p))
            _hand_on(values, k, 1, 0.0, l_b, min(l_b * hole_q, hole_p))
        else:
            w_a, w_b = deposits[k, 0], deposits[k, 1]
            atoms[r_a, 0] += w_a * l_a
            atoms[r_a, 1] += w_a
            atoms[r_b, 0] += w_b * l_b
            atoms[r_b, 1] += w_b
            correction += w_a * min(l_a * q, free) + w_b * min(l_b * q, free)
            spilled += w_a * spill_a + w_b * spill_b
        paths += 2
    sums.spilled[0] += spilled
    sums.correction[j] += correction
    return paths


@jit(_nrt=False)
def _leaves(s, part, order, levels, grids, values, deposits, sums):
    """All last rejections of the paths on the grid of set ``s``, interpolated in their cells.

    They are placed as often as ``deposits`` says; where that is None, summed up in ``values``. ``part`` is
    the first token to reject and the step to the next one.
    """
    low = grids.low
    start, stop = grids.span[-1, s, 0], grids.span[-1, s, 1]
    if start == stop:
        return
    hole = grids.hole[s]
    holes = (int(hole >= 0), grids.hole_law[s : s + 1], grids.hole[s : s + 1])
    extent = rank_of(low[stop - 1], order.ratio, order.table)
    alive, paths = start, 0
    for i in range(part[0], extent + 1, part[1]):
        j, begin = i, start
        if i == extent:  # the hole can be rejected again even where p/q >= t
            if hole < extent:
                continue
            j = hole
        q, free = order.q[j], order.p[j]
        if j == hole:
            free = 0.0
        else:
            while alive < stop and low[alive] * q <= free:
                alive += 1
            begin = alive
        token = (j, q, free, begin, stop)
        if levels is None:
            paths += _proportional_leaf(token, holes, order, grids, values, deposits, sums)
        else:
            paths += _water_leaf(token, holes, order, levels, grids, values, deposits, sums)
    sums.paths[0] += paths


@jit(_nrt=False)
def _inner(level, s, k, many, order, grids, values, sums):
    """All next rejections of a path at the lower end of cell ``k``, merged into the grids one level on.

    They are placed ``many`` times; with 0, summed up in ``values``.
    """
    # Arrays are taken out of their tuples here, not in the loop, where each would be counted every time.
    law, q_all, p_all = (order.ratio, order.table, order.prefix, grids.knots), order.q, order.p
    atoms, at_knots = sums.atoms, sums.knots
    low, per_width, value, deposits, set_of = (
        grids.low, grids.per_width, grids.value, sums.deposits, grids.set_of,
    )  # fmt: skip
    hole, place = grids.hole[s], many > 0.0
    t_parent, last = low[k], level + 1 == grids.first.shape[0] - 1
    hole_q, hole_p = (q_all[hole], p_all[hole]) if hole >= 0 else (0.0, 0.0)
    share = t_sum = w_sum = on_hole = after = accepted = unexpanded = overcount = 0.0
    extent = rank_of(t_parent, order.ratio, order.table)
    for i in range(extent + 1):
        if i == extent and hole < extent:
            continue
        j = hole if i == extent else i
        q, free = q_all[j], 0.0 if j == hole else p_all[j]
        t = t_parent * q - free
        if t <= 0.0:
            continue
        r, own, at_hole, d, _, above, _ = rejected_next(t, q, free, hole_q, hole_p, law)
        s_next = remembered(s, set_of[j])
        cell = -1
        if d > 0.0:
            cell, s_next = cell_or_bare(t, level + 1, s_next, grids.first, grids.bits)
        w, t_next, w_next, here, other, carried = 1.0, 0.0, 0.0, 0.0, 0.0, 0.0
        if cell >= 0:
            up = (t - low[cell]) * per_width[cell] if last else 0.0
            c = d / (t_parent * (1.0 - q) + d)
            handed = mixed(value, cell, up, SHARE)
            carried = c * handed
            w += (1.0 - c) * handed
            t_next, w_next = mixed(value, cell, up, T_SUM), mixed(value, cell, up, W_SUM)
            known, same = mixed(value, cell, up, HOLE), s_next == s
            here = min(t_next * q, w_next * free) if s_next == 0 or same else known
            other = known if s_next > 0 and same else min(t_next * hole_q, w_next * hole_p)
            if place:
                deposits[cell, 0] += many * (1.0 - up)
                deposits[cell, 1] += many * up
                forgotten = (here if s_next == 0 or same else 0.0) + (0.0 if same else other)
                overcount += forgotten
                unexpanded += forgotten + (0.0 if last else d - value[cell, 0, NEXT])
        else:
            unexpanded += d
        if place:
            put(many * w, t, r, atoms, at_knots)
            sums.correction[j] += many * (w * own + carried * free + here)
            accepted += max(t - above, 0.0)
        share, t_sum, w_sum = share + carried, t_sum + t_next + w * t, w_sum + w_next + w
        on_hole, after = on_hole + w * at_hole + other, after + t
    sums.paths[0] += extent
    if place:
        sums.acceptance[level + 1] += many * accepted
        sums.overcount[level + 1] += many * overcount
        sums.unexpanded[level + 2] += many * unexpanded
    else:
        values[k, 0, SHARE], values[k, 0, T_SUM], values[k, 0, W_SUM] = share, t_sum, w_sum
        values[k, 0, HOLE], values[k, 0, NEXT] = on_hole, after


@jit(_nrt=False)
def evaluate_chunk(level, part, order, levels, grids, values, sums):
    """Add to ``values`` a part of what paths at ``level`` hand on; that of later levels is known."""
    for s in range(grids.span.shape[1]):
        if level == grids.first.shape[0] - 1:
            _leaves(s, part, order, levels, grids, values, None, sums)
            continue
        for k in range(grids.span[level, s, 0] + part[0], grids.span[level, s, 1], part[1]):
            _inner(level, s, k, 0.0, order, grids, values, sums)


@jit(_nrt=False)
def place_chunk(level, part, order, levels, grids, deposits, sums):
    """Place a part of what the paths deposited at ``level`` reject next."""
    values = grids.value
    for s in range(grids.span.shape[1]):
        if level == grids.first.shape[0] - 1:
            _leaves(s, part, order, levels, grids, values, deposits, sums)
            continue
        for k in range(grids.span[level, s, 0] + part[0], grids.span[level, s, 1], part[1]):
            if deposits[k, 0] > 0.0:
                _inner(level, s, k, deposits[k, 0], order, grids, values, sums)
