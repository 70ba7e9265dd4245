"""The acceptance limit: subsets, prefixes and the linear program agree; exact rules stay below it."""

from __future__ import annotations

import itertools
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.oracle import (
    fixed,
    hub_pairs,
    limit_by_prefixes,
    limit_by_program,
    limit_by_subsets,
    limit_fixed,
    limit_of_tuples,
    limit_pairs,
    limit_without_replacement,
    marginal,
    normalise,
    probability_inside,
    total_variation,
    without_replacement,
)

P = (F(3, 10), F(4, 10), F(3, 10))
Q = (F(6, 10), F(3, 10), F(1, 10))
HIGHS_TOLERANCE = 1e-12  # the simplex method ends at a vertex; its own tolerance would be 1e-7


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


@settings(max_examples=50, deadline=None)
@given(pairs(max_size=5), st.integers(0, 4))
def test_prefixes_of_p_over_q_attain_the_limit_without_replacement(laws, n):
    """Proved in candidate_limits; here against all sets, with ties, zeros and n above the support."""
    tuples = without_replacement(laws[1], n)
    limit = limit_without_replacement(*laws, n)
    assert limit == limit_of_tuples(laws[0], tuples)
    assert limit >= limit_by_prefixes(*laws, n)
    assert sum(marginal("sequoia", *laws, min(n, 3)).acceptance) <= limit_without_replacement(
        *laws, min(n, 3)
    )


@settings(max_examples=60, deadline=None)
@given(pairs(max_size=5), st.integers(0, 4), st.sets(st.integers(0, 4)))
def test_probability_inside(laws, n, chosen):
    _, q = laws
    inside = {x for x in chosen if x < len(q)}
    tuples = without_replacement(q, n)
    assert probability_inside(q, inside, n) == sum((w for t, w in tuples.items() if set(t) <= inside), F(0))


@settings(max_examples=25, deadline=None)
@given(pairs(max_size=5), st.integers(1, 4))
def test_what_makes_prefixes_enough(laws, n):
    """(f(H + x) - f(H)) / q(x) <= (f(H + x + y) - f(H + x)) / q(y)."""
    q = laws[1]
    support = [x for x, mass in enumerate(q) if mass > 0]

    def f(*parts):
        return probability_inside(q, itertools.chain(*parts), n)

    for x, y in itertools.permutations(support, 2):
        others = [z for z in support if z not in (x, y)]
        for size in range(len(others) + 1):
            for H in itertools.combinations(others, size):
                assert (f(H, [x]) - f(H)) / q[x] <= (f(H, [x, y]) - f(H, [x])) / q[y]


def test_two_candidates_without_replacement_by_prefix_sums():
    """f(H) = q(H) - (1 - q(H)) sum_H q / (1 - q)."""
    for H in ([0], [0, 1], [1, 2]):
        q_H = sum(Q[x] for x in H)
        assert probability_inside(Q, H, 2) == q_H - (1 - q_H) * sum(Q[x] / (1 - Q[x]) for x in H)
    assert (
        limit_without_replacement(P, Q, 2) == 1 + F(7, 10) - probability_inside(Q, [0, 1], 2) == F(139, 140)
    )


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    "draft",
    [Q, (1 - F(3, 10**9), *[F(1, 10**9)] * 3), (F(1, 10**6), F(1, 2), F(1, 2) - F(1, 10**6))],
)
def test_probability_inside_by_the_integral_over_ringing_clocks(draft, n):
    """The recipe for large vocabularies in candidate_limits: one scan for all prefixes."""
    s = np.arange(-5.0, 24.0, 0.2)
    t, weight = np.exp(s - np.exp(-s)), 0.2 * np.exp(s - np.exp(-s)) * (1 + np.exp(-s))
    rung = np.zeros((n, len(t)))  # P(j of the prefix have rung by t), j < n
    rung[0] = 1.0
    for size in range(len(draft)):
        outside = float(sum(draft[size:]))
        found = 1 - outside * np.sum(weight * np.exp(-outside * t) * rung.sum(axis=0))
        assert found == pytest.approx(float(probability_inside(draft, range(size), n)), abs=1e-14)
        silent = np.exp(-float(draft[size]) * t)
        rung[1:] = rung[1:] * silent + rung[:-1] * (1 - silent)
        rung[0] *= silent


@settings(max_examples=25, deadline=None)
@given(pairs(max_size=5), st.integers(0, 3))
def test_every_kind_of_candidates_against_the_linear_program(laws, n):
    p, q = laws
    kinds = [
        (limit_without_replacement(p, q, n), without_replacement(q, n)),
        (limit_fixed(p, next(iter(fixed(q, n)))), fixed(q, n)),
        (limit_pairs(p, q), hub_pairs(q)),
    ]
    for limit, tuples in kinds:
        assert limit == limit_of_tuples(p, tuples)
        width = max(map(len, tuples))
        assert limit_by_program(p, q, width, tuples=tuples) == pytest.approx(float(limit), abs=1e-12)


def test_bad_inputs_are_refused():
    with pytest.raises(ValueError, match="same length, got 3 and 2"):
        limit_by_subsets(P, [1, 0], 1)
    with pytest.raises(ValueError, match="at least 0, got -1"):
        limit_by_prefixes(P, Q, -1)
