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
from resispec_verify.kernels import path_grids, path_plan, shaped_paths
from resispec_verify.kernels.path_grids import HOLE, OCTAVES, SHARE, T_SUM, W_SUM, build_grids
from resispec_verify.kernels.path_plan import Plan, no_grids
from resispec_verify.kernels.ratio_order import ratio_order
from resispec_verify.kernels.shaped_paths import PathSum, run_plan, shaped_marginal
from resispec_verify.oracle import marginal

INF = float("inf")


def forced(p, q, n: int, bits: int, holes: int, theta: float, change=None) -> PathSum:
    """Merge whatever loses less than ``theta`` a path, on grids that cover everything."""
    order = ratio_order(p, q)
    ranks = [r for r in np.argsort(-order.q, kind="stable") if order.p[r] > 0][:holes]
    resolution = np.full((n, len(ranks) + 1, OCTAVES), bits)
    resolution[0] = -1
    grids = build_grids(order, resolution, np.array(ranks, np.int64))
    return run_plan(order, n, Plan(change(grids) if change else grids, theta, 0.0, 0.0), INF)[0]


def rounding(p, q, n: int, paths: int) -> float:
    """As the engine has it for path sums."""
    return float(rounding_bound(p, q, n, 3.0 * p.size + paths + 24, EPS))


def check(found: PathSum, law, acceptance, slack: float) -> None:
    assert min(found.mass) >= 0.0
    over = max(F(float(m)) - x for m, x in zip(found.mass, law, strict=True))
    assert over <= slack
    assert max(F(float(a)) - x for a, x in zip(found.acceptance, acceptance, strict=True)) <= slack
    assert abs(found.mass.sum() + found.unexpanded.sum() - 1.0) <= slack
    assert min(found.unexpanded) >= 0.0


@settings(max_examples=80)
@given(
    pair=pairs(max_size=4),
    n=st.integers(1, 4),
    bits=st.integers(0, 3),
    holes=st.integers(0, 3),
    theta=st.sampled_from([0.0, 1e-6, 1e-3, 1e-2, INF]),
)
def test_merged_paths_are_a_lower_bound_for_every_token(pair, n, bits, holes, theta):
    p, q = row(pair[0])[0], row(pair[1])[0]
    right = marginal("resispec", *pair, n)
    found = forced(p, q, n, bits, holes, theta)
    check(found, right.law, right.acceptance, rounding(p, q, n, found.paths))


@settings(max_examples=30)
@given(pair=pairs(max_size=4), n=st.integers(1, 4))
def test_following_everything_is_exact(pair, n):
    p, q = row(pair[0])[0], row(pair[1])[0]
    right = marginal("resispec", *pair, n)
    found = shaped_marginal(ratio_order(p, q), n, 0.0, INF)
    slack = rounding(p, q, n, found.paths)
    assert found.unexpanded.sum() == 0.0
    assert max(abs(F(float(m)) - x) for m, x in zip(found.mass, right.law, strict=True)) <= slack
    assert max(abs(F(float(a)) - x) for a, x in zip(found.acceptance, right.acceptance, strict=True)) <= slack


def wide_pair(vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """Nearly everything can be rejected, and no hole weighs much."""
    rng = np.random.default_rng(7)
    q = rng.dirichlet(np.full(vocab, 5.0))
    p = q * np.exp(3 * rng.standard_normal(vocab)) * 1e-5
    p[0] += 1.0 - p.sum()
    return p, q


def violations(change, n: int, bits: int, holes: int) -> int:
    """On how many of some fixed pairs a token gets more than by following everything."""
    rng = np.random.default_rng(3)
    few = [rng.dirichlet(np.full(5, concentration), 2) for concentration in (0.4, 0.4, 0.4, 1.0, 1.0, 1.0)]
    count = 0
    for p, q in (*few, wide_pair(100)):
        whole = shaped_marginal(ratio_order(p, q), n, 0.0, INF)
        found = forced(p, q, n, bits, holes, INF, change)
        count += bool(np.max(found.mass - whole.mass) > rounding(p, q, n, found.paths + whole.paths))
    return count


def upwards(grids):
    """Paths with two rejections to come move to the upper end of their cells."""
    start, stop = grids.span[1, 0, 0], grids.span[1, -1, 1]
    low = grids.low.copy()
    low[start:stop] = grids.high[start:stop]
    return grids._replace(low=low)


def evaluated(**columns: float):
    """A twin that gets some of what a cell hands on wrong, by a factor."""
    true = path_grids.evaluate_chunk

    def evaluate(level, chunk, chunks, order, grids, values, sums):
        true(level, chunk, chunks, order, grids, values, sums)
        for name, factor in columns.items():
            values[..., getattr(path_grids, name)] *= factor

    return evaluate


MUTANTS = {
    "forgotten holes keep what was placed on them": ({"T_SUM": 0.0, "W_SUM": 0.0}, None, 0),
    "the remembered hole keeps what was placed on it": ({"HOLE": 0.0}, None, 2),
    "one part in 20 too much of the residual before": ({"SHARE": 1.05}, None, 0),
    "t moves up": ({}, upwards, 0),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_bound_is_noticed(name, monkeypatch):
    columns, change, holes = MUTANTS[name]
    bits = 0 if change else 4
    assert violations(None, 3, bits, holes) == 0
    monkeypatch.setattr(shaped_paths, "evaluate_chunk", evaluated(**columns))
    assert violations(change, 3, bits, holes) > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n", "vocab", "gap"), [(2, 300, 1e-2), (2, 300, 1e-4), (3, 60, 1e-2), (4, 20, 1e-2)]
)
def test_planned_runs_lie_below_the_whole_sum(kind, n, vocab, gap, monkeypatch):
    monkeypatch.setattr(shaped_paths, "_EXACT_TRIAL", 0)  # else all of it is followed
    p, q = (x[0] for x in pair_of(kind, vocab, 5))
    order = ratio_order(p, q)
    whole = run_plan(order, n, no_grids(order, n, 0.0)._replace(work=0.0), INF)[0]
    found = shaped_marginal(order, n, gap, 1e8)
    slack = rounding(p, q, n, found.paths + whole.paths)
    assert found.unexpanded.sum() <= gap
    assert np.max(found.mass - whole.mass) <= slack
    assert np.max(found.acceptance - whole.acceptance) <= slack
    assert abs(np.abs(found.mass - whole.mass).sum() - found.unexpanded.sum()) <= 2 * slack


@pytest.mark.parametrize("theta", [0.0, 1e-6, INF])
def test_the_number_of_threads_does_not_show(theta, monkeypatch):
    p, q = (x[0] for x in pair_of("flat", 100, 6))
    monkeypatch.setattr(shaped_paths, "_CHUNK_WORK", -1.0)
    found = []
    for cpus in (1, 3):
        monkeypatch.setattr(shaped_paths.os, "cpu_count", lambda cpus=cpus: cpus)
        found.append(forced(p, q, 3, 2, 2, theta))
    for one, other in zip(*found, strict=True):
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
