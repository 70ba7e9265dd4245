"""The acceptance limit: subsets, prefixes and the linear program agree; exact rules stay below it."""

from __future__ import annotations

from fractions import Fraction as F

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.oracle import (
    limit_by_prefixes,
    limit_by_program,
    limit_by_subsets,
    marginal,
    normalise,
    total_variation,
    without_replacement,
)

P = (F(3, 10), F(4, 10), F(3, 10))
Q = (F(6, 10), F(3, 10), F(1, 10))
HIGHS_TOLERANCE = 1e-7  # HiGHS's default feasibility and optimality tolerance


@st.composite
def pairs(draw, max_size):
    size = draw(st.integers(1, max_size))
    entries = st.lists(st.integers(0, 5), min_size=size, max_size=size).filter(any)
    return tuple(normalise([F(count) for count in draw(entries)]) for _ in range(2))


def test_worked_pair():
    assert [limit_by_subsets(P, Q, n) for n in range(4)] == [0, F(7, 10), F(89, 100), F(971, 1000)]


@settings(max_examples=80, deadline=None)
@given(pairs(max_size=6), st.integers(0, 4))
def test_a_prefix_attains_the_minimum_over_subsets(laws, n):
    assert limit_by_prefixes(*laws, n) == limit_by_subsets(*laws, n)


@settings(max_examples=40, deadline=None)
@given(pairs(max_size=4), st.integers(0, 3))
def test_the_linear_program_agrees(laws, n):
    assert limit_by_program(*laws, n) == pytest.approx(float(limit_by_subsets(*laws, n)), abs=HIGHS_TOLERANCE)


@settings(max_examples=40, deadline=None)
@given(pairs(max_size=4), st.integers(0, 3))
def test_an_exact_rule_stays_below_the_limit(laws, n):
    accepted = sum(marginal("specinfer", *laws, n).acceptance)
    limit = limit_by_subsets(*laws, n)
    assert accepted <= limit
    if n == 1:
        assert accepted == limit == 1 - total_variation(*laws)


def test_resispec_exceeds_the_limit():
    """So it is inexact, with no enumeration of what it emits."""
    target, draft = (F(3, 5), F(1, 5), F(1, 5)), (F(0), F(2, 5), F(3, 5))
    limit = limit_by_subsets(target, draft, 3)
    assert limit == F(2, 5)
    assert sum(marginal("resispec", target, draft, 3).acceptance) == F(103, 125)
    assert sum(marginal("specinfer", target, draft, 3).acceptance) <= limit


def test_limit_without_replacement_is_at_least_the_one_with():
    value = limit_by_program(P, Q, 2, tuples=without_replacement(Q, 2))
    assert value >= float(limit_by_subsets(P, Q, 2)) - HIGHS_TOLERANCE
    # with distinct candidates only the set {0, 1} or less can lie inside H = {0, 1}
    inside = sum(w for t, w in without_replacement(Q, 2).items() if set(t) <= {0, 1})
    assert value <= float(1 + P[0] + P[1] - inside) + HIGHS_TOLERANCE


def test_bad_inputs_are_refused():
    with pytest.raises(ValueError, match="same length, got 3 and 2"):
        limit_by_subsets(P, [1, 0], 1)
    with pytest.raises(ValueError, match="at least 0, got -1"):
        limit_by_prefixes(P, Q, -1)
