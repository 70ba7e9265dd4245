"""Merged rejection paths: a lower bound for every token, and the mass that is missing is the gap."""

from __future__ import annotations

from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import EPS, pairs, row
from test_wide import KINDS, pair_of

from resispec_verify.evidence.marginal import rounding_bound
from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.paths import grids as path_grids
from resispec_verify.kernels.paths import plan as path_plan
from resispec_verify.kernels.paths import shaped as shaped_paths
from resispec_verify.kernels.paths.grids import HOLE, OCTAVES, SHARE, T_SUM, W_SUM, build_grids
from resispec_verify.kernels.paths.knots import NO_KNOTS, knots_of
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.kernels.paths.plan import Plan, no_grids
from resispec_verify.kernels.paths.shaped import run_plan, shape_of, shaped_marginal
from resispec_verify.oracle import marginal
from resispec_verify.threads import at_most

INF = float("inf")
SHAPES = [(r, b) for r in ("proportional", "water-filling") for b in ("local", "floor")]
PRINTED = SHAPES[0]


def named(shape: tuple[str, str]) -> dict[str, str]:
    return {"redistribution": shape[0], "budget": shape[1]}


def oracle(pair, n: int, shape: tuple[str, str]):
    target, draft = pair
    return marginal("resispec", target, draft, n, redistribution=shape[0], budget=shape[1])


def no_knots(_order) -> np.ndarray:
    return NO_KNOTS


def forced(
    p, q, n: int, bits: int, holes: int, theta: float, change=None, shape=PRINTED, look=no_knots
) -> PathSum:
    """Merge whatever loses less than ``theta`` a path, on grids that cover everything."""
    order = ratio_order(p, q)
    ranks = [r for r in np.argsort(-order.q, kind="stable") if order.p[r] > 0][:holes]
    resolution = np.full((n, len(ranks) + 1, OCTAVES), bits)
    resolution[0] = -1
    grids = build_grids(order, resolution, np.array(ranks, np.int64), look(order))
    plan = Plan(change(grids) if change else grids, theta, 0.0, 0.0)
    return run_plan(order, n, plan, INF, shape_of(order, *shape))[0]


def rounding(p, q, n: int, *found: PathSum) -> float:
    """As the engine has it for path sums."""
    paths = sum(one.paths for one in found)
    own = sum(one.rounding for one in found)
    return float(rounding_bound(p, q, n, 3.0 * p.size + paths + 24, EPS)) + own


def check(found: PathSum, law, acceptance, slack: float) -> None:
    assert min(found.mass) >= 0.0
    over = max(F(float(m)) - x for m, x in zip(found.mass, law, strict=True))
    assert over <= slack
    assert max(F(float(a)) - x for a, x in zip(found.acceptance, acceptance, strict=True)) <= slack
    assert abs(found.mass.sum() + found.unexpanded.sum() - 1.0) <= slack
    assert min(found.unexpanded) >= 0.0


@pytest.mark.parametrize("shape", SHAPES, ids=",".join)
@settings(max_examples=60)
@given(
    pair=pairs(max_size=4),
    n=st.integers(2, 4),
    bits=st.integers(0, 3),
    holes=st.integers(0, 3),
    theta=st.sampled_from([0.0, 1e-6, 1e-3, 1e-2, INF]),
)
def test_merged_paths_are_a_lower_bound_for_every_token(shape, pair, n, bits, holes, theta):
    p, q = row(pair[0])[0], row(pair[1])[0]
    right = oracle(pair, n, shape)
    found = forced(p, q, n, bits, holes, theta, shape=shape)
    check(found, right.law, right.acceptance, rounding(p, q, n, found))


@settings(max_examples=60)
@given(
    pair=pairs(max_size=4),
    n=st.integers(2, 4),
    bits=st.integers(-1, 3),
    holes=st.integers(0, 3),
    theta=st.sampled_from([0.0, 1e-3, INF]),
    budget=st.sampled_from(["local", "floor"]),
)
def test_so_are_paths_that_look_up_knots(pair, n, bits, holes, theta, budget):
    p, q = row(pair[0])[0], row(pair[1])[0]
    shape = ("proportional", budget)
    right = oracle(pair, n, shape)
    found = forced(p, q, n, bits, holes, theta, shape=shape, look=knots_of)
    check(found, right.law, right.acceptance, rounding(p, q, n, found))
    # What knots lose beside ranks: of second order in 2**-8 a rejection, and bounded by what follows it.
    ranks = forced(p, q, n, bits, holes, theta, shape=shape)
    assert found.unexpanded.sum() - ranks.unexpanded.sum() <= n * 2.0**-12


def test_knots_rounded_up_are_noticed():
    def upwards(order):
        knots = knots_of(order)
        return np.append(knots[1:], knots[-1:], axis=0)  # each the next: above t, where f is larger

    p, q = wide_pair(60)
    order = ratio_order(p, q)
    plan = no_grids(order, 3, 0.0)._replace(work=0.0)
    whole = run_plan(order, 3, plan, INF)[0]
    over = []
    for look in (knots_of, upwards):
        found = forced(p, q, 3, 6, 3, 0.0, look=look)
        over.append(np.max(found.mass - whole.mass) - rounding(p, q, 3, found, whole))
    assert over[0] <= 0.0 < over[1]


def misses(found: PathSum, right, slack: float) -> bool:
    return any(
        abs(F(float(a)) - b) > slack
        for ours, exact in ((found.mass, right.law), (found.acceptance, right.acceptance))
        for a, b in zip(ours, exact, strict=True)
    )


@pytest.mark.parametrize("shape", SHAPES, ids=",".join)
@settings(max_examples=30)
@given(pair=pairs(max_size=4), n=st.integers(1, 4))
def test_following_everything_is_exact(shape, pair, n):
    p, q = row(pair[0])[0], row(pair[1])[0]
    right = oracle(pair, n, shape)
    found = shaped_marginal(ratio_order(p, q), n, 0.0, INF, **named(shape))
    slack = rounding(p, q, n, found)
    assert found.unexpanded.sum() == 0.0
    assert not misses(found, right, slack)


# Off the holes the rest of the target cannot hold the budget; a floor that exceeds every local gap but one;
# a floor that is cut to the mass off the rejected token.
TELLING = [
    ((1, 2, 1, 28), (12, 16, 4, 0)),
    ((8, 2, 6, 16), (14, 3, 7, 8)),
    ((8, 7, 9, 8), (9, 7, 8, 8)),
    ((31, 1, 0, 0), (30, 1, 1, 0)),
    ((15, 17, 0, 0), (16, 16, 0, 0)),
]
WRONG = {
    "a floor too low": ("proportional", "floor", lambda s: s._replace(floor=0.75 * s.floor)),
    "a floor in every reading": ("water-filling", "local", lambda s: s._replace(floor=0.5)),
    "levels of another slope": (
        "water-filling",
        "local",
        lambda s: s._replace(levels=s.levels._replace(suffix=1.01 * s.levels.suffix)),
    ),
    "half of what spills over": (
        "water-filling",
        "local",
        lambda s: s._replace(levels=s.levels._replace(outside=2 * s.levels.outside)),
    ),
    "the other redistribution": ("water-filling", "local", lambda s: s._replace(levels=None)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_shape_is_noticed(name):
    redistribution, budget, change = WRONG[name]
    wrong = 0
    for target, draft in TELLING:
        pair = tuple(tuple(F(x, 32) for x in law) for law in (target, draft))
        p, q = row(pair[0])[0], row(pair[1])[0]
        order = ratio_order(p, q)
        shape, plan = shape_of(order, redistribution, budget), no_grids(order, 2, 0.0)._replace(work=0.0)
        right = oracle(pair, 2, (redistribution, budget))
        found = run_plan(order, 2, plan, INF, shape)[0]
        slack = rounding(p, q, 2, found)
        assert not misses(found, right, slack)
        wrong += misses(run_plan(order, 2, plan, INF, change(shape))[0], right, slack)
    assert wrong > 0


def wide_pair(vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """Nearly everything can be rejected, and no hole weighs much."""
    rng = np.random.default_rng(7)
    q = rng.dirichlet(np.full(vocab, 5.0))
    p = q * np.exp(3 * rng.standard_normal(vocab)) * 1e-5
    p[0] += 1.0 - p.sum()
    return p, q


def violations(change, n: int, bits: int, holes: int, shape=PRINTED) -> int:
    """On how many of some fixed pairs a token gets more than by following everything."""
    rng = np.random.default_rng(3)
    few = [rng.dirichlet(np.full(5, concentration), 2) for concentration in (0.4, 0.4, 0.4, 1.0, 1.0, 1.0)]
    count = 0
    for p, q in (*few, wide_pair(100)):
        whole = shaped_marginal(ratio_order(p, q), n, 0.0, INF, **named(shape))
        found = forced(p, q, n, bits, holes, INF, change, shape)
        count += bool(np.max(found.mass - whole.mass) > rounding(p, q, n, found, whole))
    return count


def upwards(grids):
    """Paths with two rejections to come move to the upper end of their cells."""
    start, stop = grids.span[1, 0, 0], grids.span[1, -1, 1]
    low = grids.low.copy()
    low[start:stop] = grids.high[start:stop]
    return grids._replace(low=low)


def evaluated(**columns: float):
    """A twin that gets some of what a cell hands on wrong, by a factor."""
    true = shaped_paths.evaluate_chunk

    def evaluate(level, part, order, levels, grids, values, sums):
        true(level, part, order, levels, grids, values, sums)
        for name, factor in columns.items():
            values[..., getattr(path_grids, name)] *= factor

    return evaluate


MUTANTS = {
    "forgotten holes keep what was placed on them": ({"T_SUM": 0.0, "W_SUM": 0.0}, None, 0),
    "the remembered hole keeps what was placed on it": ({"HOLE": 0.0}, None, 2),
    "one part in 20 too much of the residual before": ({"SHARE": 1.05}, None, 0),
    "t moves up": ({}, upwards, 0),
}


@pytest.mark.parametrize("shape", SHAPES, ids=",".join)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_bound_is_noticed(shape, name, monkeypatch):
    columns, change, holes = MUTANTS[name]
    if "SHARE" in columns and shape[0] == "water-filling":
        pytest.skip("a level does not depend on the residual before")
    bits = 0 if change else 4
    assert violations(None, 3, bits, holes, shape) == 0
    monkeypatch.setattr(shaped_paths, "evaluate_chunk", evaluated(**columns))
    assert violations(change, 3, bits, holes, shape) > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=",".join)
@pytest.mark.parametrize(
    ("n", "vocab", "gap"), [(2, 300, 1e-2), (2, 300, 1e-4), (3, 60, 1e-2), (4, 20, 1e-2)]
)
def test_planned_runs_lie_below_the_whole_sum(shape, kind, n, vocab, gap, monkeypatch):
    monkeypatch.setattr(shaped_paths, "_EXACT_TRIAL", 0)  # else all of it is followed
    p, q = (x[0] for x in pair_of(kind, vocab, 5))
    order = ratio_order(p, q)
    plan = no_grids(order, n, 0.0)._replace(work=0.0)
    whole = run_plan(order, n, plan, INF, shape_of(order, *shape))[0]
    found = shaped_marginal(order, n, gap, 1e8, **named(shape))
    slack = rounding(p, q, n, found, whole)
    assert found.unexpanded.sum() <= gap
    assert np.max(found.mass - whole.mass) <= slack
    assert np.max(found.acceptance - whole.acceptance) <= slack
    assert abs(np.abs(found.mass - whole.mass).sum() - found.unexpanded.sum()) <= 2 * slack


@pytest.mark.parametrize("theta", [0.0, 1e-6, INF])
def test_the_number_of_threads_does_not_show(theta, monkeypatch):
    p, q = (x[0] for x in pair_of("flat", 100, 6))
    monkeypatch.setattr(shaped_paths, "_CHUNK_WORK", -1.0)
    found = []
    for threads in (1, 3):
        with at_most(threads):
            found.append(forced(p, q, 3, 2, 2, theta))
    for one, other in zip(*(vars(one).values() for one in found), strict=True):
        assert np.array_equal(one, other)


def test_a_finer_grid_loses_less_by_the_expected_order():
    # Halving the cells quarters the loss, down to what forgetting the holes costs.
    p, q = wide_pair(3000)
    gaps = [forced(p, q, 2, bits, 0, INF).unexpanded.sum() for bits in (0, 1, 2)]
    assert gaps[0] > 2.5 * gaps[1] > 6 * gaps[2]


def test_the_budget_holds(monkeypatch):
    p, q = (x[0] for x in pair_of("flat", 300, 8))
    order = ratio_order(p, q)
    for n in (2, 3, 4):
        for budget in (2e3, 2e4, 2e5):
            found = shaped_marginal(order, n, 0.0, budget)
            assert found.paths <= 3 * budget
            assert found.mass.sum() + found.unexpanded.sum() == pytest.approx(1.0, abs=1e-9)


def test_octaves_and_cells():
    order = ratio_order(np.array([0.5, 0.5]), np.array([0.5, 0.5]))
    grids = build_grids(
        order, np.array([[[-1] * OCTAVES], [[2] * (OCTAVES - 1) + [-1]]]), np.zeros(0, np.int64)
    )
    for t in (1.0, 0.999, 0.5, 0.3, 2.0**-40, 2.0 ** (1 - OCTAVES), 2.0**-OCTAVES, 5e-324):
        cell = path_grids.cell_of(t, 1, 0, grids.first, grids.bits)
        if 2.0 ** (1 - OCTAVES) <= t < 1.0:
            assert grids.low[cell] <= t < grids.high[cell]
        else:
            assert cell == -1
    assert path_plan.survey(order, 3, 1e-3).pairs == 0.0
    assert {SHARE, T_SUM, W_SUM, HOLE} < set(range(5))
