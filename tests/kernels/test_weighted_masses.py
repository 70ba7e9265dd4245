"""The masses of the greatest value, against the definition as a linear program and greedy in fractions."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resispec_verify.errors import InputError
from resispec_verify.kernels.optimal.layouts import best_layout, race_law
from resispec_verify.kernels.optimal.transport import transport_limit
from resispec_verify.kernels.optimal.weighted import longest_layout, weighted_masses
from resispec_verify.oracle import enumerate_rule, limit_by_program
from resispec_verify.oracle.shipped.optimal_joint import optimal_joint

EPS = float(np.finfo(np.float64).eps)


@st.composite
def nodes(draw, most=6):
    """Rational laws and whole values, with zeros and ties among them."""
    vocab = draw(st.integers(1, most))
    weights = st.lists(st.integers(0, 7), min_size=vocab, max_size=vocab)
    p, q = draw(weights.filter(any)), draw(weights.filter(any))
    values = draw(st.lists(st.integers(0, 5), min_size=vocab, max_size=vocab))
    return tuple(Fraction(k, sum(p)) for k in p), tuple(Fraction(k, sum(q)) for k in q), values


def floats(law):
    return np.array([float(x) for x in law])


def greedy(p, q, values, n):
    """By descending value, each token takes what all sets of the tokens before it leave; in fractions."""
    masses, taken = {}, []
    for x in sorted(range(len(p)), key=lambda x: -values[x]):
        left = [p[x]]
        for size in range(len(taken) + 1):
            for chosen in itertools.combinations(taken, size):
                room = 1 - (1 - q[x] - sum(q[y] for y in chosen)) ** n
                left.append(room - sum(masses[y] for y in chosen))
        masses[x] = min(left)
        taken.append(x)
    return [masses[x] for x in range(len(p))]


@given(nodes(), st.integers(1, 4))
def test_they_are_the_greedy_rules_in_fractions_and_feasible(node, n):
    p, q, values = node
    found = weighted_masses(floats(p), floats(q), floats(values), n)
    # Each mass is a difference of sums of at most V terms, n of them multiplied.
    slack = 16 * n * len(p) * EPS
    exact = greedy(p, q, values, n)
    total = float(sum(v * m for v, m in zip(values, exact, strict=True)))
    assert abs(found @ floats(values) - total) <= 5 * slack
    assert (found >= 0).all()
    assert (found <= floats(p)).all()
    for size in range(1, len(p) + 1):
        for chosen in map(list, itertools.combinations(range(len(p)), size)):
            assert found[chosen].sum() <= float(1 - (1 - sum(q[x] for x in chosen)) ** n) + slack


@given(nodes(5), st.integers(1, 3))
def test_no_coupling_of_candidates_and_token_is_worth_more(node, n):
    p, q, values = node
    found = weighted_masses(floats(p), floats(q), floats(values), n) @ floats(values)
    assert found == pytest.approx(limit_by_program(p, q, n, values=values), abs=1e-7)


@given(nodes(), st.integers(1, 4))
def test_the_race_accepts_as_much(node, n):
    p, q, values = (floats(x) for x in node)
    masses = weighted_masses(p, q, values, n)
    won = race_law(longest_layout(values)(p, q, n), q, q, n)
    assert np.minimum(p, won) @ values == pytest.approx(masses @ values, abs=5 * 32 * n * len(p) * EPS)


@given(nodes(4), st.integers(1, 3))
def test_the_race_is_exact_in_fractions(node, n):
    """The pieces of the layout, read as fractions: cuts that rounding moved cost no exactness."""
    p, q, values = node
    layout = longest_layout(floats(values))(floats(p), floats(q), n)
    sizes = [Fraction(float(size)) for size in layout.length]
    own = {x: sum(s for t, s in zip(layout.token, sizes, strict=True) if t == x) for x in set(layout.token)}
    pieces = [(int(x), s / own[x] * q[x]) for x, s in zip(layout.token, sizes, strict=True)]
    assert enumerate_rule(optimal_joint(n, pieces), p, q, n).law == p


@pytest.mark.parametrize("vocab", [60, 400])
@pytest.mark.parametrize("n", [2, 5])
def test_blocks_leave_nothing_out(vocab, n):
    """The same without blocks: every prefix of the tokens that hold their p, at every token."""
    rng = np.random.default_rng(vocab + n)
    for concentration in (0.1, 1.0, 10.0):
        p, q = rng.dirichlet(np.full(vocab, concentration)), rng.dirichlet(np.full(vocab, concentration))
        p = 0.9 * q + 0.1 * p if concentration == 1.0 else p
        values = rng.random(vocab)
        expected, held, full = np.zeros(vocab), [], 0.0
        for x in np.argsort(-values):
            held.sort(key=lambda y: -p[y] / q[y])
            ends = full + np.append(0.0, np.cumsum(q[held]))
            wins = 1 - (1 - full) ** n + np.append(0.0, np.cumsum(p[held]))
            left = 1 - (1 - ends - q[x]).clip(0) ** n - wins
            k = int(np.argmin(left))
            expected[x] = max(min(left[k], p[x]), 0.0)
            if left[k] < p[x]:
                full += q[x] + q[held[:k]].sum()
                held = held[k:]
            else:
                held.append(x)
        found = weighted_masses(p, q, values, n)
        np.testing.assert_allclose(found, expected, rtol=0, atol=16 * n * vocab * EPS)


def test_equal_values_attain_the_limit():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(500)), rng.dirichlet(np.ones(500))
    found = weighted_masses(p, q, np.ones(500), 3)
    assert found.sum() == pytest.approx(float(transport_limit(p, q, 3)), abs=16 * 3 * 500 * EPS)


def test_worked_value():
    """Token 0 is worth two: it takes 1 - .8**2, token 1 its p, and token 2 what 1 - .6**2 leaves of two."""
    p, q, values = np.array([0.4, 0.1, 0.5]), np.array([0.2, 0.6, 0.2]), np.array([2.0, 1.0, 1.0])
    assert weighted_masses(p, q, values, 2) == pytest.approx([0.36, 0.1, 0.28], abs=4 * EPS)
    without = np.minimum(p, race_law(best_layout(p, q, 2), q, q, 2))
    assert without == pytest.approx([0.28, 0.1, 0.36], abs=4 * EPS)  # as often, and worth 1.02 for 1.1


def test_values_that_are_none_are_refused():
    p = np.array([0.5, 0.5])
    for values in ([1.0], [1.0, -1.0], [1.0, np.nan], [1.0, np.inf]):
        with pytest.raises(InputError, match=r"must be 2 numbers, one a token, finite and not negative"):
            weighted_masses(p, p, np.array(values), 2)
