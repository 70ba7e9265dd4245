"""The optimal sequential rule in exact rationals, against the sequential linear program and by hand."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction as F

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.oracle import (
    limit_by_prefixes,
    marginal,
    normalise,
    sequential_limit,
    sequential_limit_by_program,
    sequential_times,
)
from resispec_verify.oracle.shipped.optimal_sequential import covered

P, Q = (F(3, 10), F(4, 10), F(3, 10)), (F(6, 10), F(3, 10), F(1, 10))


def f(*values):
    return tuple(F(value) for value in values)


@st.composite
def pairs(draw, max_size=6):
    size = draw(st.integers(1, max_size))
    weights = st.one_of(st.integers(0, 3), st.integers(0, 1000))
    entries = st.lists(weights, min_size=size, max_size=size).filter(any)
    return tuple(normalise([F(count) for count in draw(entries)]) for _ in range(2))


@pytest.mark.parametrize(
    ("n", "times", "accepted"),
    [
        (1, f(1, 0), f("7/10")),
        (2, f("12/7", "5/7", 0), f("2/7", "41/70")),
        (3, f("87/35", "52/35", "41/70", 0), f("1/10", "11/35", "187/350")),
        (4, f(3, 2, "11/10", "9/25", 0), f("1/10", "4/25", "19/50", "9/25")),
    ],
)
def test_worked_table(n, times, accepted):
    assert sequential_times(P, Q, n) == times
    result = marginal("optimal-sequential", P, Q, n)
    assert (result.law, result.acceptance) == (P, accepted)
    assert sequential_limit_by_program(P, Q, n) == pytest.approx(float(sum(accepted)), abs=1e-12)


def random_pair(rng, kind, size):
    weights = {
        "random": lambda: rng.randint(1, 1000),
        "tied": lambda: rng.randint(1, 2),
        "zero": lambda: rng.choice((0, 0, 1, 3, 7)),
        "wide": lambda: rng.choice((1, 30, 1000, 10**6)),
    }[kind]
    laws = []
    for _ in range(2):
        row = [weights() for _ in range(size)]
        row[rng.randrange(size)] += not any(row)
        laws.append(normalise([F(w) for w in row]))
    return laws


@pytest.mark.parametrize("kind", ["random", "tied", "zero", "wide"])
def test_equal_to_the_linear_program(kind):
    rng = random.Random(kind)
    for _ in range(60):
        p, q = random_pair(rng, kind, rng.randint(1, 6))
        n = rng.randint(1, 4)
        assert sequential_limit_by_program(p, q, n) == pytest.approx(
            float(sequential_limit(p, q, n)), abs=1e-9
        )


@pytest.mark.parametrize(
    ("target", "draft", "limit"),
    [
        (f(1, 0), f("1/2", "1/2"), (F(1, 2), F(3, 4), F(7, 8))),  # one-hot target: 1 - (1 - q)^n
        (f("1/2", "1/2"), f(1, 0), (F(1, 2), F(1, 2), F(1, 2))),  # one-hot draft
        (f(1, 0), f(0, 1), (0, 0, 0)),  # disjoint
        (f("1/3", "2/3"), f("1/3", "2/3"), (1, 1, 1)),  # p == q
        (f(1), f(1), (1, 1, 1)),
        (f("1/2", "1/2", 0, 0), f(0, 0, "1/2", "1/2"), (0, 0, 0)),
    ],
)
def test_edges(target, draft, limit):
    for n, wanted in enumerate(limit, start=1):
        assert sequential_limit(target, draft, n) == wanted
        assert sequential_limit_by_program(target, draft, n) == pytest.approx(float(wanted), abs=1e-12)
        result = marginal("optimal-sequential", target, draft, n)
        assert (result.law, sum(result.acceptance)) == (target, wanted)
    assert sequential_limit(target, draft, 0) == 0


@settings(max_examples=60, deadline=None)
@given(pairs(), st.integers(1, 4))
def test_the_times_solve_the_recursion(laws, n):
    p, q = laws
    times = sequential_times(p, q, n)
    missed = 1 - covered(p, q, times[0])
    assert 1 <= times[0] <= n
    assert times[-1] == 0
    for before, after in itertools.pairwise(times):
        assert before - after == missed + covered(p, q, before) >= 0
    assert sequential_limit(p, q, n) <= limit_by_prefixes(p, q, n)


@settings(max_examples=30, deadline=None)
@given(pairs(max_size=4), st.integers(1, 3))
def test_the_rule_is_the_clip_of_the_theorem_and_at_least_specinfer(laws, n):
    p, q = laws
    result = marginal("optimal-sequential", p, q, n)
    assert result.law == p
    assert sum(result.acceptance) == sequential_limit(p, q, n)
    assert sum(result.acceptance) >= sum(marginal("specinfer", p, q, n).acceptance)
    times = sequential_times(p, q, n)
    for k in range(n):
        width = times[k] - times[k + 1]
        clipped = [
            min(max(a / b - times[k + 1], F(0)), width) * b for a, b in zip(p, q, strict=True) if b > 0
        ]
        assert result.acceptance[k] == sum(clipped)


@settings(max_examples=15, deadline=None)
@given(pairs(max_size=4), st.lists(st.fractions(0, 3, max_denominator=7), min_size=4, max_size=4))
def test_times_from_a_solver_that_has_not_converged_cost_acceptance_and_not_exactness(laws, times):
    p, q = laws
    result = marginal("optimal-sequential", p, q, 3, times=sorted(times, reverse=True))
    assert result.law == p
    assert sum(result.acceptance) <= sequential_limit(p, q, 3)


def test_the_smallest_of_several_roots():
    """p == q: every T_1 in [1, 2] solves it; 1 looks at one candidate."""
    assert sequential_times(P, P, 3)[:2] == (1, 0)


def test_bad_input():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        sequential_times(P, Q, 0)
    with pytest.raises(ValueError, match="at least 0, got -1"):
        sequential_limit_by_program(P, Q, -1)
