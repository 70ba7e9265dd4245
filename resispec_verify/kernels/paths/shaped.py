"""Every rejection path of ResiSpec as one scalar: its operational marginal at full vocabulary.

Hole excluded, candidates i.i.d. from the draft. By proportional redistribution of the local budget: with
``t_0 = 1`` and ``U_0 = p``, a path of rejected tokens ``x_1..x_i`` is described by

    t_i = t_{i-1} q(x_i) - p(x_i)                  (no p(x_i) if x_i was rejected before: a "hole"),
    D_i = sum (t_i q - p)_+ + sum_{holes h} min(t_i q_h, p_h),
    c_i = D_i / (t_{i-1} (1 - q(x_i)) + D_i),
    U_i = (1 - c_i) min(t_i q, p) + c_i U_{i-1},   zero on the holes,

where ``t_i > 0`` is the probability of the path, ``U_i / t_i`` its residual and ``D_i`` the probability
that the path happens and the next candidate is rejected too. So the marginal is a sum of atoms
``w min(t q, p)``: each is one entry of a histogram over the rank of ``t`` among the sorted p/q, the
holes are subtracted in a correction array, and one pass at the end adds everything up.

**Water-filling** changes only ``U_i``: it is ``min(l q, p)`` off the holes, with the level l such that
the sum is ``t_i``; if all tokens with q > 0 are full, what is missing goes to tokens with q = 0 in
proportion to p. So it does not depend on ``U_{i-1}``, and what is drawn in the end is one atom
(`water_level`).

**Eq. 13's budget** can exceed the local one after the first rejection only: later on R/q is 0 at the
hole. With ``Z = min(max(min p/q, t_1), 1 - p(x_1))`` in the place of ``t_1``, and ``1 - p(x_1) - Z`` in
that of ``1 - q(x_1)``, the recursion goes on as before; the path's weight is ``t_1 / Z``. Proofs:
docs/exactness.md.

Paths that weigh little are not followed one by one but merged (`path_grids`): a lower bound of what they
place. Which paths are followed is a matter of cost (`path_plan`): those where the loss of merging them
exceeds ``theta`` times the paths it takes to follow them.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.elementwise.ratio_order import RatioOrder, rank_of
from resispec_verify.kernels.elementwise.water_level import Levels, level_of, levels_of
from resispec_verify.kernels.jit import jit
from resispec_verify.kernels.paths.grids import (
    HOLE,
    NEXT,
    SHARE,
    T_SUM,
    W_SUM,
    Sums,
    cell_of,
    evaluate_chunk,
    new_sums,
    place_chunk,
    remembered,
)
from resispec_verify.kernels.paths.last_round import collect, last_round, last_roundings
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.kernels.paths.plan import Plan, learn, make_plan, no_grids, survey

__all__ = ["Shape", "run_plan", "shape_of", "shaped_marginal", "single_round"]

# Paths that are tried exactly before anything is planned; work below which more threads do not pay.
_EXACT_TRIAL = 2e6
_CHUNK_WORK = 4e6
_CHUNKS = 8


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


class _Path(NamedTuple):
    """The current path of one walk, in rank order."""

    limits: NDArray[np.float64]  # (3,) theta, the paths to evaluate at most, and the least first budget
    p_free: NDArray[np.float64]  # (V,) p, but zero on the holes of the current path
    frames: NDArray[np.void]  # (n + 1,) _FRAME: one record a rejection
    hole_rank: NDArray[np.int64]  # (n + 1,)
    holes: NDArray[np.float64]  # (n + 1, 3) q and p of each hole, and the mass to subtract there


@jit()
def _reject_last(level, order, levels, path, sums):
    """All rejections of the last candidate after the path at ``level``.

    This is where the time goes (up to billions of iterations), hence plain local arrays.
    """
    ratio, q, prefix, table = order.ratio, order.q, order.prefix, order.table
    p_free, hole_rank, hole = path.p_free, path.hole_rank, path.holes
    atoms, correction = sums.atoms, sums.correction
    frame = path.frames[level]
    weight, t_parent, rank, holes = frame.weight, frame.t, frame.rank, frame.holes
    share, spilled, paths = 0.0, 0.0, 0
    if levels is not None:
        filled, fill_table, suffix = levels.filled, levels.table, levels.suffix
        top, finite, outside = levels.top, levels.finite, levels.outside
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
            l, r, c = t, rank_of(t, ratio, table), 0.0
            own = min(t * q[j], free)
            d = max(t * prefix[r, 0] - prefix[r, 1], 0.0) + own
            for h in range(holes):
                d += min(t * hole[h, 0], hole[h, 1])
            if d > 0.0:
                c = weight * d / (t_parent * (1.0 - q[j]) + d)
            w = weight - c
            share += c
            correction[j] += w * own + c * free
        else:
            l, r, _, spill = level_of(
                t, j, q[j], free, holes, hole, hole_rank, ratio, table, prefix, q, filled, fill_table, suffix,
                top, finite, outside,
            )  # fmt: skip
            w = weight
            spilled += w * spill
            correction[j] += w * min(l * q[j], free)
        atoms[r, 0] += w * l
        atoms[r, 1] += w
        for h in range(holes):
            hole[h, 2] += w * min(l * hole[h, 0], hole[h, 1])
    frame.share += share
    sums.spilled[0] += spilled
    sums.paths[0] += paths


@jit()
def _reject_next(level, step, order, grids, path, sums):
    """Reject the tokens that remain to be rejected after the path at ``level``, one after the other.

    Stops with True at a path that is followed (left in ``frames[level + 1]``), to be called again
    afterwards; False when all are done. The others are merged into the grids, or left.
    """
    q, prefix, hole, value = order.q, order.prefix, path.holes, grids.value
    theta, most, floor = path.limits
    frame = path.frames[level]
    t_parent, rank, holes = frame.t, frame.rank, frame.holes
    last = level + 2 == path.frames.shape[0] - 1
    share = accepted = unexpanded = overcount = 0.0
    paths, stop_at = 0, -1
    for i in range(frame.cursor, rank + holes, step):
        j = i
        if i >= rank:
            j = path.hole_rank[i - rank]
            if j < rank:
                continue
        free = path.p_free[j]
        t = t_parent * q[j] - free
        if t <= 0.0:
            continue
        paths += 1
        weight, room = frame.weight, t_parent * (1.0 - q[j])
        if level == 0 and t < floor:  # Eq. 13, cut to what is left off the token
            budget = max(min(floor, prefix[-1, 1] - free), t)
            weight, room, t = t / budget, max(room - (budget - t), 0.0), budget
        r = rank_of(t, order.ratio, order.table)
        own = min(t * q[j], free)
        d = max(t * prefix[r, 0] - prefix[r, 1], 0.0) + own
        for h in range(holes):
            d += min(t * hole[h, 0], hole[h, 1])
        accepted += weight * (t - d)
        w, c, cell, s = weight, 0.0, -1, 0
        up = t_sum = w_sum = 0.0
        if d > 0.0:
            c = d / (room + d)
            s = remembered(frame.set, grids.set_of[j])
            cell = cell_of(t, level + 1, s, grids.first, grids.bits)
            if cell < 0 and s > 0:
                s = 0
                cell = cell_of(t, level + 1, 0, grids.first, grids.bits)
            lost, cost = d, r + holes + 1
            if cell >= 0:  # a forgotten hole loses its term in D, and what is taken off there
                lost = grids.loss[cell] * d
                up = (t - grids.low[cell]) / (grids.high[cell] - grids.low[cell]) if last else 0.0
                t_sum = (1.0 - up) * value[cell, 0, T_SUM] + up * value[cell, 1, T_SUM]
                w_sum = (1.0 - up) * value[cell, 0, W_SUM] + up * value[cell, 1, W_SUM]
                if grids.hole[s] != j:
                    lost += own + min(t_sum * q[j], w_sum * free)
                for h in range(holes):
                    if grids.hole[s] != path.hole_rank[h]:
                        lost += min(t * hole[h, 0], hole[h, 1]) + min(t_sum * hole[h, 0], w_sum * hole[h, 1])
            if weight * lost >= theta * cost and sums.paths[0] + paths + cost <= most:
                _open(level + 1, j, weight, t, r, c, order, grids, path)
                stop_at = i
                break
        if cell >= 0:
            carried = weight * c * ((1.0 - up) * value[cell, 0, SHARE] + up * value[cell, 1, SHARE])
            share += carried
            w += (1.0 - c) / c * carried
            known = weight * ((1.0 - up) * value[cell, 0, HOLE] + up * value[cell, 1, HOLE])
            forgotten = 0.0
            sums.correction[j] += carried * free
            if grids.hole[s] == j and free > 0.0:
                sums.correction[j] += known
            else:
                forgotten = weight * min(t_sum * q[j], w_sum * free)
                sums.correction[j] += forgotten
            for h in range(holes):
                if grids.hole[s] == path.hole_rank[h]:
                    hole[h, 2] += known
                else:
                    taken = weight * min(t_sum * hole[h, 0], w_sum * hole[h, 1])
                    hole[h, 2] += taken
                    forgotten += taken
            sums.deposits[cell, 0] += weight * (1.0 - up)
            sums.deposits[cell, 1] += weight * up
            overcount += forgotten
            unexpanded += forgotten + (0.0 if last else weight * (d - value[cell, 0, NEXT]))
        else:
            unexpanded += weight * d
        sums.atoms[r, 0] += w * t
        sums.atoms[r, 1] += w
        sums.correction[j] += w * own
        for h in range(holes):
            hole[h, 2] += w * min(t * hole[h, 0], hole[h, 1])
    if stop_at >= 0:  # its own t, d and acceptance were counted
        frame.cursor = stop_at + step
    else:
        frame.cursor = rank + holes
    frame.share += share
    sums.acceptance[level + 1] += accepted
    sums.overcount[level + 1] += overcount
    sums.unexpanded[level + 2] += unexpanded  # D counts the next rejection too
    sums.paths[0] += paths
    return stop_at >= 0


@jit()
def _open(level, j, weight, t, rank, c, order, grids, path):
    """Push the path that ends in the rejection of rank ``j``; its token becomes a hole."""
    frame, parent = path.frames[level], path.frames[level - 1]
    holes = parent.holes
    frame.weight, frame.t, frame.c, frame.share, frame.own_p = weight, t, c, 0.0, path.p_free[j]
    frame.rank, frame.cursor, frame.own, frame.holes = rank, 0, j, holes
    frame.set = remembered(parent.set, grids.set_of[j])
    if frame.own_p > 0.0:  # a token with p = 0, or one rejected before, leaves nothing to subtract
        path.hole_rank[holes], path.p_free[j] = j, 0.0
        path.holes[holes, 0], path.holes[holes, 1], path.holes[holes, 2] = order.q[j], frame.own_p, 0.0
        frame.holes = holes + 1


@jit()
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
    for h in range(parent.holes):
        path.holes[h, 2] += w * min(frame.t * path.holes[h, 0], path.holes[h, 1])


@jit()
def _walk(chunk, chunks, order, levels, grids, path, sums):
    """Depth-first over the paths that are followed; returns the coefficient of ``U_0 = p``.

    Every ``chunks``-th token is the first to be rejected, from ``chunk`` on.
    """
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
            _reject_last(level, order, levels, path, sums)
        elif _reject_next(level, chunks if level == 0 else 1, order, grids, path, sums):
            level += 1
            continue
        if level > 0:
            _close(level, order, path, sums)
        level -= 1
    return root.share


class Shape(NamedTuple):
    """The reading of GetProxy."""

    levels: Levels | None  # of water-filling; None where the rest is spread in proportion
    floor: float  # the least first budget


PRINTED = Shape(None, 0.0)


def shape_of(order: RatioOrder, redistribution: str, budget: str) -> Shape:
    """The options of ResiSpec as numbers; the hole is excluded."""
    return Shape(
        levels_of(order) if redistribution == "water-filling" else None,
        float(order.ratio[0]) if budget == "floor" else 0.0,
    )


def run_plan(
    order: RatioOrder, n: int, plan: Plan, most: float, shape: Shape = PRINTED
) -> tuple[PathSum, NDArray[np.float64]]:
    """Follow, merge and place by plan, for ``n >= 2``; also returns what was deposited on the grids.

    Each worker follows at most twice its part of ``most`` paths. The number of workers depends on the plan
    alone, and their sums are added in order: the number of threads does not show.
    """
    chunks = _CHUNKS if plan.work > _CHUNK_WORK else 1
    vocab, grids = order.p.shape[0], plan.grids
    cells = grids.low.shape[0]
    sums = [new_sums(vocab, n, cells) for _ in range(chunks)]

    def walk(chunk: int) -> float:
        limit = 2.0 * most / chunks + sums[chunk].paths[0]
        path = _Path(
            np.array([plan.theta, limit, shape.floor]),
            order.p.copy(),
            np.zeros(n + 1, _FRAME),
            np.full(n + 1, -1),
            np.zeros((n + 1, 3)),
        )
        return _walk(chunk, chunks, order, shape.levels, grids, path, sums[chunk])

    def evaluate(level: int, chunk: int) -> NDArray[np.float64]:
        values = np.zeros_like(grids.value)
        evaluate_chunk(level, chunk, chunks, order, shape.levels, grids, values, sums[chunk])
        return values

    levels = range(1, n)
    with ThreadPoolExecutor(max_workers=min(chunks, os.cpu_count() or 1)) as pool:
        for level in reversed(levels):
            for values in pool.map(partial(evaluate, level), range(chunks)):
                grids.value[...] += values
        share = sum(pool.map(walk, range(chunks)))
        for level in levels:
            deposits = sum((one.deposits for one in sums), np.zeros((cells, 2)))
            for _ in pool.map(
                lambda c, level=level, deposits=deposits: place_chunk(
                    level, c, chunks, order, shape.levels, grids, deposits, sums[c]
                ),
                range(chunks),
            ):
                pass
    return _total(order, n, share, sums, shape), sum((one.deposits for one in sums), np.zeros((cells, 2)))


def _total(order: RatioOrder, n: int, share: float, sums: list[Sums], shape: Shape) -> PathSum:
    """Add the workers up, and measure what was lost."""
    total = Sums(*(np.sum(parts, axis=0) for parts in zip(*sums, strict=True)))
    levels, vocab = shape.levels, order.p.shape[0]
    drafted, spilled = (vocab, 0.0) if levels is None else (levels.drafted, float(total.spilled[0]))
    mass = collect(order, total.atoms, total.correction, share, share + spilled, drafted, drafted)
    acceptance, unexpanded = total.acceptance[:n], total.unexpanded[: n + 1]
    if total.deposits.size:
        # What later acceptances were counted too much, at most; all losses that are not known by level.
        acceptance = np.clip(acceptance - np.append(0.0, np.cumsum(total.overcount[: n - 1])), 0.0, None)
        gap, known = max(1.0 - float(mass.sum()), 0.0), float(unexpanded.sum())
        if known > gap:
            unexpanded = unexpanded * (gap / known)
        else:
            unexpanded[n] += gap - known
    paths, rounding = int(total.paths[0]), 0.0
    if levels is not None:
        placed = 1.0 + float(total.correction.sum())  # more than 1: holes are filled, and emptied again
        rounding = float(0.5 * np.finfo(np.float64).eps) * (6.0 * vocab + paths + 32.0) * placed
    return PathSum(mass, acceptance, unexpanded, paths, rounding)


def shaped_marginal(
    order: RatioOrder,
    candidates: int,
    gap: float,
    most_paths: float,
    *,
    redistribution: str = "proportional",
    budget: str = "local",
) -> PathSum | None:
    """The operational marginal with at most ``gap`` left unexpanded, if ``most_paths`` evaluations allow it.

    None for two candidates and more by water-filling where tokens are faint (`water_level`).

    Parameters
    ----------
    order : RatioOrder
        The position's target and draft.
    candidates : int
        ``n >= 0``.
    gap : float
        Mass that may stay unexpanded; 0 expands everything.
    most_paths : float
        Budget of path evaluations.
    redistribution, budget
        ResiSpec's options.
    """
    if candidates == 0:
        p = np.empty_like(order.p)
        p[order.order] = order.p
        return PathSum(p, np.zeros(0), np.zeros(1), 0)
    if candidates == 1:
        return single_round(order, redistribution=redistribution, budget=budget, hole="excluded")
    shape = shape_of(order, redistribution, budget)
    if shape.levels is not None and shape.levels.finite < shape.levels.drafted:
        return None
    once = _first_round_only(order, candidates)
    first = int(np.searchsorted(order.ratio, 1.0))  # tokens that the first candidate can be rejected at
    if candidates * first > most_paths or float(once.unexpanded.sum()) <= gap:
        return once
    return _within(order, candidates, gap, most_paths, shape)


def _within(order: RatioOrder, n: int, gap: float, most_paths: float, shape: Shape) -> PathSum:
    """All paths where that is cheap or asked for; else plans, coarse ones first, until the gap is reached."""
    seen = survey(order, n, gap or 1e-3, shape.floor, shape.levels)
    spent, best = 0, None
    trial = most_paths if gap == 0.0 else min(_EXACT_TRIAL, most_paths)
    if seen.pairs <= trial:
        exact = no_grids(order, n, 0.0)._replace(work=seen.pairs)
        # With three candidates and more the work is not known before: half of the budget may be lost on it.
        found, _ = run_plan(order, n, exact, np.inf if n == 2 else 0.25 * trial, shape)
        if float(found.unexpanded.sum()) <= gap:
            return found
        spent, best = found.paths, found
    goal = gap or 1e-9  # what is expected is a guess: too low with two candidates, too high with more
    goal, price = 0.3 * goal if n == 2 else min(16.0 * goal, 0.2), 2.0
    while True:
        plan = make_plan(order, seen, goal, 0.7 * (most_paths - spent), 0.5 * price)
        if best is not None and plan.theta > 0.6 * price:  # nothing better can be afforded
            return replace(best, paths=spent)
        price = plan.theta
        found, deposits = run_plan(order, n, plan, most_paths - spent, shape)
        spent += found.paths
        left = float(found.unexpanded.sum())
        if best is None or left < float(best.unexpanded.sum()):
            best = found
        if left <= gap or spent >= most_paths:
            return replace(best, paths=spent)
        seen, expected = learn(seen, order, plan, deposits)
        goal = min((0.75 if n == 2 else 0.35) * gap * expected / left, 0.5 * expected)


def single_round(order: RatioOrder, *, redistribution: str, budget: str, hole: str) -> PathSum:
    """One candidate, in closed form for every option of ResiSpec."""
    once = _first_round_only(order, 1)
    last = last_round(order, redistribution=redistribution, budget=budget, hole=hole)
    vocab = last.mass.size
    rounding = 0.5 * float(np.finfo(np.float64).eps) * last_roundings(vocab) * last.magnified
    # Two additions a token more than a path sum makes.
    return PathSum(once.mass + last.mass, once.acceptance, np.zeros(2), 2 * vocab, rounding)


def _first_round_only(order: RatioOrder, candidates: int) -> PathSum:
    """What accepting the first candidate places, and nothing after its rejection."""
    mass = np.empty_like(order.p)
    mass[order.order] = np.minimum(order.p, order.q)
    acceptance, unexpanded = np.zeros(candidates), np.zeros(candidates + 1)
    unexpanded[1] = np.sum(np.clip(order.q - order.p, 0.0, None))
    acceptance[0] = 1.0 - unexpanded[1]
    return PathSum(mass, acceptance, unexpanded, 0)
