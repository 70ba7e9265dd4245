"""Optimal joint verification: it attains the limit, and is exact for any layout."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.kernels.elementwise.residuals import accept_ratio, standard_residual
from resispec_verify.kernels.optimal.layouts import Layout, best_layout, places, race_law, winning_shares
from resispec_verify.kernels.optimal.transport import transport_limit
from resispec_verify.oracle import limit_by_program, limit_by_subsets
from resispec_verify.oracle.engine import enumerate_rule, independent
from resispec_verify.oracle.shipped.optimal_joint import optimal_joint
from resispec_verify.rules.proposals import WithoutReplacement
from resispec_verify.rules.shipped.optimal_joint import OptimalJoint
from resispec_verify.samplers import verify_optimal_joint

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Listed:
    """i.i.d. candidates, but not by the class that has a closed form: every tuple is listed."""

    name: str = "iid, tuple by tuple"

    def next(self, draft, drawn):
        return draft


@st.composite
def laws(draw, most=5):
    """Rational pairs with zeros, ties, p = q and one-hots among them."""
    vocab = draw(st.integers(1, most))
    weights = st.lists(st.integers(0, 7), min_size=vocab, max_size=vocab).filter(any)
    p = draw(weights)
    q = p if draw(st.integers(0, 5)) == 0 else draw(weights)
    return tuple(Fraction(k, sum(p)) for k in p), tuple(Fraction(k, sum(q)) for k in q)


def row(law):
    return np.array([law], np.float64)


@st.composite
def layouts(draw, q):
    """Any layout of a draft: each token's length in up to three pieces, in any order."""
    pieces = []
    for token, mass in enumerate(q):
        shares = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
        pieces += [(token, mass * Fraction(k, sum(shares))) for k in shares if mass > 0]
    return draw(st.permutations(pieces))


def as_layout(pieces):
    return Layout(np.array([x for x, _ in pieces]), np.array([float(size) for _, size in pieces]))


def test_worked_value():
    found = operational_marginals(OptimalJoint(), row([0.3, 0.4, 0.3]), row([0.6, 0.3, 0.1]), 2)
    assert found.acceptance.sum() == pytest.approx(89 / 100, abs=8 * EPS)


@given(laws(), st.integers(1, 5))
def test_it_is_exact_and_attains_the_limit(pair, n):
    p, q = map(row, pair)
    found = operational_marginals(OptimalJoint(), p, q, n)
    assert tv_interval(found, p)[1][0] <= found.rounding[0]
    # Cuts are found to rounding; each of at most 3 V pieces moves by a few units in the last place, n times.
    assert abs(found.acceptance.sum() - float(limit_by_subsets(*pair, n))) <= 32 * n * len(pair[0]) * EPS


@given(laws(4), st.integers(1, 3))
def test_the_limit_is_that_of_the_linear_program(pair, n):
    found = operational_marginals(OptimalJoint(), *map(row, pair), n)
    assert found.acceptance.sum() == pytest.approx(limit_by_program(*pair, n), abs=1e-12)


@given(st.data(), laws(4), st.integers(1, 3))
def test_any_layout_is_exact_and_its_tuples_add_up_to_the_closed_form(data, pair, n):
    pieces = data.draw(layouts(pair[1]))
    rule = OptimalJoint(find_layout=lambda p, q, count: as_layout(pieces))
    p, q = map(row, pair)
    closed = operational_marginals(rule, p, q, n)
    listed = operational_marginals(rule, p, q, n, proposal=Listed())
    assert tv_interval(closed, p)[1][0] <= closed.rounding[0]
    assert tv_interval(listed, p)[1][0] <= listed.rounding[0]
    np.testing.assert_allclose(listed.acceptance, closed.acceptance, rtol=0, atol=closed.rounding[0])
    exact = enumerate_rule(optimal_joint(n, pieces), *pair, n)
    assert exact.law == pair[0]
    total = float(sum(exact.acceptance))
    assert closed.acceptance.sum() == pytest.approx(total, abs=float(closed.rounding[0]))


@given(st.data(), laws(4), st.integers(1, 3))
def test_what_each_tuple_emits(data, pair, n):
    pieces = data.draw(layouts(pair[1]))
    rule, oracle = OptimalJoint(lambda p, q, count: as_layout(pieces)), optimal_joint(n, pieces)
    state = rule.start(*(row(law)[0] for law in pair), n)
    tuples = list(independent(pair[1], n))
    emitted = rule.emitted(state, np.array(tuples))
    for tokens, chances in zip(tuples, emitted, strict=True):
        right = np.zeros(n)
        for _, place, chance in oracle(*pair, tokens):
            if place is not None:
                right[place] += float(chance)
        np.testing.assert_allclose(chances, right, rtol=0, atol=64 * EPS)


@given(laws(4), st.integers(1, 3), st.integers(0, 3))
def test_candidates_from_elsewhere(pair, n, seed):
    """The wrong proposal: closed form and tuples agree, tokens without draft never win."""
    p, q = map(row, pair)
    drawn = row(np.random.default_rng(seed).dirichlet(np.ones(len(pair[0]))))
    closed = operational_marginals(OptimalJoint(), p, q, n, drawn_from=drawn)
    listed = operational_marginals(OptimalJoint(), p, q, n, drawn_from=drawn, proposal=Listed())
    np.testing.assert_allclose(closed.placed, listed.placed, rtol=0, atol=float(listed.rounding[0]))
    np.testing.assert_allclose(closed.acceptance, listed.acceptance, rtol=0, atol=float(listed.rounding[0]))


class AgainstTheDraft(OptimalJoint):
    """The mistake to make: the winner is tested with the draft's law instead of the winner's."""

    def start(self, target, draft, candidates):
        state = super().start(target, draft, candidates)
        state.extra["accept"] = accept_ratio(target, draft)
        state.extra["winner"] = draft
        return state


def test_a_winner_tested_with_the_draft_is_inexact():
    p, q = row([0.3, 0.4, 0.3]), row([0.6, 0.3, 0.1])
    found = operational_marginals(AgainstTheDraft(), p, q, 2)
    # Best layout: the winner's law m = p + c q on segments; by hand from the law and the draft's test.
    m = race_law(best_layout(p[0], q[0], 2), q[0], q[0], 2)
    accepted = m * np.minimum(1, p[0] / q[0])
    right = accepted + (1 - accepted.sum()) * standard_residual(p, q)[0]
    np.testing.assert_allclose(found.placed[0], right, rtol=0, atol=8 * EPS)
    assert tv_interval(found, p)[0][0] > 0.01


def test_without_replacement_is_the_wrong_proposal():
    p, q = row([0.1, 0.2, 0.3, 0.4]), row([0.4, 0.3, 0.2, 0.1])
    found = operational_marginals(OptimalJoint(), p, q, 2, proposal=WithoutReplacement())
    assert tv_interval(found, p)[0][0] > 0.01


def test_edges():
    one = row([1.0])
    for n in (0, 1, 3):
        found = operational_marginals(OptimalJoint(), one, one, n)
        assert found.placed.tolist() == [[1.0]]
        assert found.acceptance.sum() == (n > 0)
    p, q = row([0.0, 1.0]), row([1.0, 0.0])  # disjoint
    found = operational_marginals(OptimalJoint(), p, q, 3)
    assert found.placed.tolist() == [[0.0, 1.0]]
    assert found.acceptance.sum() == 0.0


def test_the_shares_of_a_tuple_and_missing_candidates():
    layout = Layout(np.array([0, 1, 0]), np.array([0.25, 0.5, 0.25]))
    q = np.array([0.5, 0.5])
    shares = winning_shares(layout, q, np.array([[0, 1], [0, 0], [1, -1]]))
    np.testing.assert_allclose(shares, [[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]], rtol=0, atol=2 * EPS)


def test_places_lie_in_the_pieces_of_their_token():
    layout = Layout(np.array([0, 1, 0]), np.array([0.25, 0.5, 0.25]))
    found = places(layout, np.array([0, 0, 1, 1, 2]), np.array([0.0, 0.5, 0.0, 0.5, 0.3]))
    np.testing.assert_allclose(found, [0.0, 0.75, 0.25, 0.5, 1.0])


def test_large_vocabulary():
    rng = np.random.default_rng(5)
    p, q = (rng.dirichlet(np.full(50_000, 0.2))[None, :] for _ in range(2))
    for n in (2, 4):
        found = operational_marginals(OptimalJoint(), p, q, n)
        assert tv_interval(found, p)[1][0] <= found.rounding[0]
        slack = 4 * n * p.shape[1] * EPS  # prefix sums; the limit is rounded up by V eps
        assert abs(found.acceptance.sum() - transport_limit(p, q, n)[0]) <= slack


def test_the_sampler_emits_the_target():
    """That other libraries emit the same tokens is a row of ``tests/conformance/test_functions.py``."""
    rng = np.random.default_rng(11)
    p, q, rows, n = np.array([0.3, 0.4, 0.3, 0.0]), np.array([0.6, 0.25, 0.05, 0.1]), 20_000, 3
    candidates = rng.choice(4, size=(rows, n), p=q)
    inputs = (np.tile(p, (rows, 1)), np.tile(q, (rows, 1)), candidates, rng.random((rows, n + 2)))
    tokens, accepted = verify_optimal_joint(*inputs)
    counts = np.bincount(tokens, minlength=4)
    assert counts[3] == 0
    assert stats.chisquare(counts[:3], rows * p[:3]).pvalue > 1e-4
    limit = transport_limit(p[None], q[None], n)[0]
    assert stats.binomtest(int((accepted < n).sum()), rows, limit).pvalue > 1e-4
    taken = accepted < n
    assert (candidates[taken, accepted[taken]] == tokens[taken]).all()
