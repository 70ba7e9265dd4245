"""Candidates without replacement and from different laws: programs against each other, prices and by hand."""

from __future__ import annotations

import itertools
from fractions import Fraction as F

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.oracle import (
    limit_by_subsets,
    limit_of_tuples,
    limit_without_replacement,
    marginal,
    sequential_limit,
    sequential_optimum_by_histories,
)
from resispec_verify.oracle.different_drafts import (
    drafts_limit,
    drafts_limit_by_prefixes,
    drafts_optimum,
    drafts_optimum_by_program,
    drafts_times,
)
from resispec_verify.oracle.distinct import (
    most_at_prices,
    most_by_places,
    optimum_by_places,
    optimum_by_sets,
    policy_masses,
)

HIGHS = 1e-6  # feasibility of HiGHS is 1e-7 a row, and an optimum adds up a few rows
BISECTION = 2.0**-39


def law(*weights):
    return tuple(F(weight, sum(weights)) for weight in weights)


@st.composite
def some_laws(draw, count, most=4):
    size = draw(st.integers(1, most))
    weights = st.lists(st.integers(0, 9), min_size=size, max_size=size).filter(any)
    return [law(*draw(weights)) for _ in range(count)]


@settings(max_examples=30)
@given(some_laws(2), st.integers(0, 4))
def test_sets_are_enough_and_places_are_between(pair, n):
    p, q = pair
    best, policy, prices = optimum_by_sets(p, q, n)
    assert best == pytest.approx(
        sequential_optimum_by_histories(p, q, n, distinct=True) if n else 0, abs=HIGHS
    )
    assert best <= float(limit_without_replacement(p, q, n)) + HIGHS
    masses = policy_masses(q, n, lambda s, x: F(min(1.0, max(0.0, policy.get((s, x), 0.0)))))
    assert all(float(m - a) <= HIGHS for m, a in zip(masses, p, strict=True))
    assert float(sum(masses)) == pytest.approx(best, abs=HIGHS)
    exact = [F(max(0.0, price)) for price in prices]
    bound = sum(a * y for a, y in zip(p, exact, strict=True)) + most_at_prices(q, n, exact)
    assert float(bound) == pytest.approx(best, abs=HIGHS)
    if n and len(p) * (n - 1) <= 8:
        places = optimum_by_places(p, q, n)
        assert float(sum(marginal("specinfer", p, q, 1).acceptance)) - HIGHS <= places <= best + HIGHS
        assert most_by_places(q, n, exact) <= most_at_prices(q, n, exact)
        if n <= 2:  # the last test needs no memory
            assert places == pytest.approx(best, abs=HIGHS)


def test_a_gap_between_places_and_sets_by_hand():
    p, q = law(4, 1, 1, 0), law(1, 1, 1, 3)
    assert optimum_by_sets(p, q, 3)[0] == pytest.approx(1, abs=HIGHS)
    assert optimum_by_places(p, q, 3) == pytest.approx(27 / 28, abs=HIGHS)
    assert sum(marginal("sequoia", p, q, 3).acceptance) < F(27, 28)


@settings(max_examples=30)
@given(some_laws(4), st.integers(0, 3))
def test_different_drafts(laws, n):
    p, *drafts = laws
    drafts = drafts[:n]
    low, high = drafts_optimum(p, drafts)
    assert float(low) == pytest.approx(drafts_optimum_by_program(p, drafts), abs=HIGHS)
    limit = drafts_limit(p, drafts)
    assert low <= limit
    tuples = {}
    for tokens in itertools.product(range(len(p)), repeat=n):
        weight = F(1)
        for q, x in zip(drafts, tokens, strict=True):
            weight *= q[x]
        tuples[tokens] = weight
    assert limit == limit_of_tuples(p, tuples)
    # At the least set the weights of its own cut sort it to the front.
    own = min(
        drafts_limit_by_prefixes(p, drafts, weights)
        for chosen in range(2 ** len(p))
        for weights in [_weights(drafts, [x for x in range(len(p)) if chosen >> x & 1])]
    )
    assert own == limit
    assert high - low <= BISECTION


def _weights(drafts, inside):
    missed = [1 - sum((q[x] for x in inside), F(0)) for q in drafts]
    found = []
    for i in range(len(drafts)):
        weight = F(1)
        for j, factor in enumerate(missed):
            weight *= factor if j != i else 1
        found.append(weight)
    return found


@settings(max_examples=30)
@given(some_laws(2, most=5), st.integers(1, 4))
def test_equal_drafts_are_independent_candidates_of_one_law(pair, n):
    p, q = pair
    assert float(drafts_optimum(p, [q] * n)[0]) == pytest.approx(
        float(sequential_limit(p, q, n)), abs=BISECTION
    )
    assert drafts_limit(p, [q] * n) == limit_by_subsets(p, q, n)


def test_priority_to_the_last_is_a_rule():
    """At a z where W_1 = 1 the masses are feasible, and add up to 1 - z."""
    p, drafts = law(3, 4, 3), [law(6, 3, 1), law(1, 1, 2)]
    low, high = drafts_optimum(p, drafts)
    W = drafts_times(p, drafts, 1 - low)
    assert W[0] == pytest.approx(1, abs=1e-9)
    offered = [[w * b for b in q] for w, q in zip(W, drafts, strict=True)]
    later, taken = [F(0)] * 3, []
    for row in reversed(offered):
        total = [a + b for a, b in zip(later, row, strict=True)]
        taken.append(
            [min(t, c) - min(t, b) for t, b, c in zip(p, later, total, strict=True)]
        )  # min(p, O_k) - min(p, O_{k+1})
        later = total
    for masses, row in zip(taken, reversed(offered), strict=True):
        assert all(0 <= m <= o for m, o in zip(masses, row, strict=True))
    assert float(sum(map(sum, taken))) == pytest.approx(float(high), abs=1e-9)


def test_their_order_matters():
    p, one, other = law(1, 0, 1), law(1, 1, 0), law(0, 0, 1)
    assert float(drafts_optimum(p, [one, other])[0]) == pytest.approx(1, abs=BISECTION)
    assert float(drafts_optimum(p, [other, one])[0]) == pytest.approx(3 / 4, abs=BISECTION)


def test_no_order_by_one_law_decides_the_limit():
    p, one, other = law(93, 4, 2, 1), law(9, 0, 1, 0), law(0, 3, 0, 7)
    assert drafts_limit(p, [one, other]) == F(96, 100)
    for weights in ((1, 0), (0, 1), (1, 1)):
        assert drafts_limit_by_prefixes(p, [one, other], weights) >= F(97, 100)
    assert drafts_limit_by_prefixes(p, [one, other], (F(7, 10), F(1, 10))) == F(96, 100)


def test_a_draft_of_another_vocabulary_is_refused():
    with pytest.raises(ValueError, match="3 tokens"):
        drafts_limit(law(1, 1, 1), [law(1, 1)])


def test_what_makes_no_sense_is_refused():
    q = law(1, 1)
    for n in (-1, 1.5):
        for ask in (
            lambda n: policy_masses(q, n, lambda s, x: 0),
            lambda n: most_at_prices(q, n, (0, 0)),
            lambda n: most_by_places(q, n, (0, 0)),
            lambda n: optimum_by_sets(q, q, n),
            lambda n: optimum_by_places(q, q, n),
        ):
            with pytest.raises(ValueError, match="at least 0"):
                ask(n)
    assert most_by_places(q, 0, (0, 0)) == most_at_prices(q, 0, (0, 0)) == 0
    for ask in (most_at_prices, most_by_places):
        for prices in ((0,), (0, -1)):
            with pytest.raises(ValueError, match="prices must be 2 numbers"):
                ask(q, 1, prices)
    with pytest.raises(ValueError, match="accept must be between 0 and 1"):
        policy_masses(q, 1, lambda s, x: 2)
    for z in (-1, 2):
        with pytest.raises(ValueError, match="from 0 to 1"):
            drafts_times(q, [q], z)
    with pytest.raises(ValueError, match="a weight for each of the 1 drafts"):
        drafts_limit_by_prefixes(q, [q], ())
