"""Siblings of unequal value: the optimum over all histories, exactness for any masses."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.errors import InputError
from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.kernels.optimal.sequential import levels, overlap
from resispec_verify.kernels.optimal.sibling_values import accepted_masses
from resispec_verify.oracle import marginal
from resispec_verify.oracle.programs import masses_by_program, sequential_optimum_by_histories
from resispec_verify.rules import OptimalSiblings, SpecInfer

HIGHS = 1e-6  # feasibility of HiGHS is 1e-7 a row, and an optimum adds up a few rows


@st.composite
def laws(draw, most=4):
    vocab = draw(st.integers(1, most))
    weights = st.lists(st.integers(0, 9), min_size=vocab, max_size=vocab).filter(any)
    p = draw(weights)
    q = p if draw(st.integers(0, 5)) == 0 else draw(weights)
    return tuple(Fraction(k, sum(p)) for k in p), tuple(Fraction(k, sum(q)) for k in q)


VALUES = st.lists(st.integers(1, 6), min_size=1, max_size=3)  # in any order


def row(law):
    return np.array([law], np.float64)


@settings(max_examples=60)
@given(laws(), VALUES)
def test_it_is_the_optimum_over_all_histories(pair, values):
    masses = accepted_masses(*(row(law)[0] for law in pair), values)
    best = sequential_optimum_by_histories(*pair, len(values), values=values)
    assert float(np.dot(values, masses.sum(axis=1))) == pytest.approx(best, abs=6 * HIGHS)
    averaged = masses_by_program(*pair, values)
    assert float(np.dot(values, averaged.sum(axis=1))) == pytest.approx(best, abs=6 * HIGHS)


@given(laws(6), VALUES)
def test_it_is_exact(pair, values):
    p, q = map(row, pair)
    found = operational_marginals(OptimalSiblings(tuple(values)), p, q, len(values))
    assert tv_interval(found, p)[1][0] <= found.rounding[0]
    masses = accepted_masses(p[0], q[0], values)
    np.testing.assert_allclose(found.acceptance[0], masses.sum(axis=1), rtol=0, atol=float(found.rounding[0]))


@settings(max_examples=40)
@given(laws(), st.integers(1, 3), st.lists(st.fractions(0, 1), min_size=12, max_size=12))
def test_any_masses_are_exact(pair, n, shares):
    """By the rational transcription: a solver that has not converged costs value and never exactness."""
    p, q = pair
    masses = [[share * mass for share, mass in zip(shares[4 * k :], p, strict=False)] for k in range(n)]
    assert marginal("optimal-siblings", p, q, n, values=[1] * n, masses=masses).law == p


@settings(max_examples=40)
@given(laws(6), st.integers(1, 4))
def test_equal_values_accept_as_often_as_the_optimal_sequential_rule(pair, n):
    p, q = map(row, pair)
    total = accepted_masses(p[0], q[0], [1.0] * n).sum()
    assert total == pytest.approx(overlap(p, q, levels(p, q, n)[:, 0])[0], abs=1e-8)


def test_steeply_falling_values_make_it_specinfer():
    """For n = 2: where v_1 / v_2 - 1 >= phi', here 0.4 around t = 1.3, the first is accepted at once."""
    p, q = row([0.3, 0.4, 0.3]), row([0.6, 0.3, 0.1])
    masses = accepted_masses(p[0], q[0], [1.5, 1.0])
    specinfer = operational_marginals(SpecInfer(), p, q, 2).acceptance[0]
    np.testing.assert_allclose(masses.sum(axis=1), specinfer, rtol=0, atol=1e-9)
    assert abs(accepted_masses(p[0], q[0], [1.2, 1.0]).sum(axis=1)[0] - specinfer[0]) > 0.01


def test_masses_beyond_what_is_offered_are_found_inexact(monkeypatch):
    """The twin that must fail: a second round that accepts more than it is offered."""
    p, q = row([0.3, 0.4, 0.3]), row([0.6, 0.3, 0.1])
    module = "resispec_verify.rules.shipped.optimal_siblings.accepted_masses"
    monkeypatch.setattr(module, lambda p, q, values: np.array([[0.3, 0.3, 0.1], [0.0, 0.1, 0.2]]))
    found = operational_marginals(OptimalSiblings((1.0, 1.0)), p, q, 2)
    assert tv_interval(found, p)[0][0] > 0.01


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "needs values"),
        ((1.0, -1.0), "must be positive"),
        ((1.0, float("nan")), "must be positive"),
        ((1.0,) * 7, "at most 6"),
    ],
)
def test_bad_values_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        OptimalSiblings(values)


def test_more_candidates_than_values_are_refused():
    with pytest.raises(InputError, match="give a value for each"):
        operational_marginals(OptimalSiblings((1.0,)), row([1.0]), row([1.0]), 2)
