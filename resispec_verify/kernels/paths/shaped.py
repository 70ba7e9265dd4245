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
docs/explanation/exactness.md.

Paths that weigh little are not followed one by one but merged (`path_grids`): a lower bound of what they
place. Which paths are followed is a matter of cost (`path_plan`): those where the loss of merging them
exceeds ``theta`` times the paths it takes to follow them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.elementwise.ratio_order import RatioOrder
from resispec_verify.kernels.elementwise.water_level import Levels, levels_of
from resispec_verify.kernels.paths.continuations import evaluate_chunk, place_chunk
from resispec_verify.kernels.paths.grids import Sums, new_sums
from resispec_verify.kernels.paths.knots import NO_KNOTS, atoms_at, knots_of
from resispec_verify.kernels.paths.last_round import collect, last_round, last_roundings
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.kernels.paths.plan import Plan, learn, make_plan, no_grids, paths_up_to, survey
from resispec_verify.kernels.paths.walk import new_path, walk_paths
from resispec_verify.threads import in_threads

__all__ = ["Shape", "run_plan", "shape_of", "shaped_marginal", "single_round"]

# Paths that are tried exactly before anything is planned; work below which more threads do not pay.
_EXACT_TRIAL = 2e6
_CHUNK_WORK = 4e6
_CHUNKS = 8
_LEAST_AT_KNOTS = 1e-4  # gaps that have room for what knots lose
_COARSE = 0.02  # a gap that two acceptances may reach


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
    sums = [new_sums(vocab, n, cells, grids.knots.shape[0]) for _ in range(chunks)]

    def walk(chunk: int) -> float:
        limit = 2.0 * most / chunks + sums[chunk].paths[0]
        path = new_path(order, n, np.array([plan.theta, limit, shape.floor]))
        return walk_paths((chunk, chunks), order, shape.levels, grids, path, sums[chunk])

    def evaluate(level: int, chunk: int) -> NDArray[np.float64]:
        values = np.zeros_like(grids.value)
        evaluate_chunk(level, (chunk, chunks), order, shape.levels, grids, values, sums[chunk])
        return values

    def place(level: int, deposits: NDArray[np.float64], chunk: int) -> None:
        place_chunk(level, (chunk, chunks), order, shape.levels, grids, deposits, sums[chunk])

    levels = range(1, n)
    for level in reversed(levels):
        for values in in_threads(partial(evaluate, level), range(chunks)):
            grids.value[...] += values
    share = sum(in_threads(walk, range(chunks)))
    for level in levels:
        deposits = sum((one.deposits for one in sums), np.zeros((cells, 2)))
        in_threads(partial(place, level, deposits), range(chunks))
    return _total(order, n, share, sums, plan, shape), sum(
        (one.deposits for one in sums), np.zeros((cells, 2))
    )


def _total(order: RatioOrder, n: int, share: float, sums: list[Sums], plan: Plan, shape: Shape) -> PathSum:
    """Add the workers up, and measure what was lost."""
    total = Sums(*(np.sum(parts, axis=0) for parts in zip(*sums, strict=True)))
    levels, vocab = shape.levels, order.p.shape[0]
    atoms_at(plan.grids.knots, total.knots, total.atoms)
    drafted, spilled = (vocab, 0.0) if levels is None else (levels.drafted, float(total.spilled[0]))
    mass = collect(order, total.atoms, total.correction, share, share + spilled, drafted, drafted)
    acceptance, unexpanded = total.acceptance[:n], total.unexpanded[: n + 1]
    if total.deposits.size or total.knots.size:
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
    if gap >= _COARSE:
        nothing = no_grids(order, candidates, np.inf)._replace(work=0.0)
        twice, _ = run_plan(order, candidates, nothing, 0.0, shape)
        if float(twice.unexpanded.sum()) <= gap:
            return twice
    return _within(order, candidates, gap, most_paths, shape)


def _within(order: RatioOrder, n: int, gap: float, most_paths: float, shape: Shape) -> PathSum:
    """All paths where that is cheap or asked for; else plans, coarse ones first, until the gap is reached."""
    seen = survey(order, n, gap or 1e-3, shape.floor, shape.levels)
    spent, best = 0, None
    trial = most_paths if gap == 0.0 else min(_EXACT_TRIAL, most_paths)
    most = np.inf if n == 2 else 0.25 * trial
    easy = seen.pairs <= trial
    if easy and gap > 0.0 and n > 2:
        easy = paths_up_to(2.0 * most, shape.floor, order) <= 2.0 * most
    if easy:
        exact = no_grids(order, n, 0.0)._replace(work=seen.pairs)
        # With four candidates and more the work is not known before: half of the budget may be lost on it.
        found, _ = run_plan(order, n, exact, most, shape)
        if float(found.unexpanded.sum()) <= gap:
            return found
        spent, best = found.paths, found
    knots = knots_of(order) if shape.levels is None and gap >= _LEAST_AT_KNOTS else NO_KNOTS
    goal = gap or 1e-9  # what is expected is a guess: too low with two candidates, too high with more
    goal, price = 0.3 * goal if n == 2 else min(16.0 * goal, 0.2), 2.0
    while True:
        plan = make_plan(order, seen, goal, 0.7 * (most_paths - spent), 0.5 * price, knots)
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
