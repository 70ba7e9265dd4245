"""The sequential optimum for two candidates without replacement."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.kernels.optimal.candidate_limits import without_replacement_limit
from resispec_verify.kernels.optimal.two_distinct import after_first, two_distinct
from resispec_verify.oracle import marginal
from resispec_verify.oracle.programs import sequential_limit_by_program, sequential_optimum_by_histories
from resispec_verify.oracle.shipped.optimal_sequential import covered
from resispec_verify.oracle.shipped.optimal_without_replacement import best_first
from resispec_verify.rules import Iid, OptimalWithoutReplacement, Sequoia

EPS = float(np.finfo(np.float64).eps)
EVERYTHING = Budget(gap=0.0, most_paths=1e9, most_states=1e9, until_decided=False)
HIGHS = 1e-6  # feasibility of HiGHS is 1e-7 a row, and an optimum adds up a few rows


@st.composite
def laws(draw, most=6):
    vocab = draw(st.integers(1, most))
    weights = st.lists(st.integers(0, 9), min_size=vocab, max_size=vocab).filter(any)
    p = draw(weights)
    q = p if draw(st.integers(0, 5)) == 0 else draw(weights)
    return tuple(Fraction(k, sum(p)) for k in p), tuple(Fraction(k, sum(q)) for k in q)


def row(law):
    return np.array([law], np.float64)


def test_worked_value():
    """p = (3, 4, 3)/10, q = (6, 3, 1)/10: by hand from the root of sum s = B."""
    p, q = (tuple(Fraction(k, 10) for k in law) for law in ((3, 4, 3), (6, 3, 1)))
    first = best_first(p, q)
    B = sum((q[x] - first[x]) / (1 - q[x]) for x in range(3))
    total = sum(marginal("optimal-without-replacement", p, q, 2).acceptance)
    assert total == covered(p, q, 1 + B)
    found = operational_marginals(OptimalWithoutReplacement(), row(p), row(q), 2)
    assert found.acceptance.sum() == pytest.approx(float(total), abs=16 * EPS)


@settings(max_examples=60)
@given(laws())
def test_it_is_the_optimum_of_the_program_over_histories(pair):
    optimum = sequential_optimum_by_histories(*pair, 2, distinct=True)
    exact = marginal("optimal-without-replacement", *pair, 2)
    assert exact.law == pair[0]
    assert float(sum(exact.acceptance)) == pytest.approx(optimum, abs=HIGHS)


@given(laws())
def test_it_agrees_with_its_transcription(pair):
    p, q = map(row, pair)
    masses = two_distinct(p[0], q[0])
    right = marginal("optimal-without-replacement", *pair, 2)
    total = float((masses.first + masses.second).sum())
    assert total == pytest.approx(float(sum(right.acceptance)), abs=16 * EPS * len(pair[0]))
    assert total <= without_replacement_limit(p, q, 2)[0] + 4 * EPS * len(pair[0])


@given(laws(), st.lists(st.floats(0, 1), min_size=6, max_size=6))
def test_any_first_mass_is_exact(pair, shares):
    """An unconverged search costs acceptance and never exactness."""
    p, q = map(row, pair)

    class Arbitrary(OptimalWithoutReplacement):
        def _masses(self, target, draft, candidates):
            return after_first(target, draft, np.minimum(target, draft) * shares[: len(target)])

    found = operational_marginals(Arbitrary(), p, q, 2, budget=EVERYTHING)
    assert tv_interval(found, p)[1][0] <= found.rounding[0]


@given(laws(), st.integers(0, 2))
def test_the_closed_form_is_what_enumeration_gives(pair, n):
    p, q = map(row, pair)
    rule = OptimalWithoutReplacement()
    drawn = operational_marginals(rule, p, q, n, drawn_from=q, budget=EVERYTHING)  # not the rule's own sums
    closed = operational_marginals(rule, p, q, n, budget=EVERYTHING)
    np.testing.assert_allclose(closed.placed, drawn.placed, rtol=0, atol=float(drawn.rounding[0]))
    np.testing.assert_allclose(closed.acceptance, drawn.acceptance, rtol=0, atol=float(drawn.rounding[0]))


@settings(max_examples=40)
@given(laws())
def test_it_accepts_at_least_as_often_as_sequoia(pair):
    p, q = map(row, pair)
    best = operational_marginals(OptimalWithoutReplacement(), p, q, 2, budget=EVERYTHING)
    sequoia = operational_marginals(Sequoia(), p, q, 2, budget=EVERYTHING)
    assert best.acceptance.sum() >= sequoia.acceptance.sum() - float(sequoia.rounding[0])


def test_with_replacement_it_is_the_wrong_rule():
    """The twin that must fail: the same tests on independent candidates."""
    p, q = row([0.1, 0.2, 0.3, 0.4]), row([0.4, 0.3, 0.2, 0.1])
    found = operational_marginals(OptimalWithoutReplacement(), p, q, 2, proposal=Iid())
    assert tv_interval(found, p)[0][0] > 1e-3


def test_histories_do_not_help_independent_candidates():
    p, q = (tuple(Fraction(k, 20) for k in law) for law in ((2, 3, 7, 8), (9, 6, 4, 1)))
    for n in (1, 2, 3):
        tree = sequential_optimum_by_histories(p, q, n)
        assert tree == pytest.approx(sequential_limit_by_program(p, q, n), abs=HIGHS)


def test_large_vocabulary():
    rng = np.random.default_rng(3)
    p, q = (rng.dirichlet(np.full(50_000, 0.2))[None, :] for _ in range(2))
    found = operational_marginals(OptimalWithoutReplacement(), p, q, 2)
    assert tv_interval(found, p)[1][0] <= found.rounding[0]
    assert found.acceptance.sum() <= without_replacement_limit(p, q, 2)[0]
