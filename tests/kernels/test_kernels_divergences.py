"""Divergences, their bounds and the acceptance limit, on values worked out by hand."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resispec_verify.evidence.marginal import Marginals, summation_error, tv_interval
from resispec_verify.kernels.elementwise.divergences import (
    distances,
    divergence_bounds,
    kl_terms,
    kullback_leibler,
    placed_excess,
    total_variation,
)
from resispec_verify.kernels.optimal.transport import transport_limit

EPS = float(np.finfo(np.float64).eps)
FOUR_DIGITS = 0.5e-4  # half a unit of the last digit that a report gives
# Near x = y the terms of x log(x/y) - x + y cancel: the rounding of x/y alone leaves eps/2 of x, against a
# term of half of (x/y - 1)^2 y, which is least at |x/y - 1| = 1e-3, where a series takes over. Twice that.
CANCELLATION = 2 * EPS / 1e-3**2


def rows(*values):
    return np.array([values], np.float64)


def exactly(marginal, target) -> float:
    """The sum of ``x log(x/y) - x + y`` with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        total = Decimal(0)
        for x, y in zip(map(Decimal, marginal.tolist()), map(Decimal, target.tolist()), strict=True):
            if x > 0 and y == 0:
                return math.inf
            total += (x * (x / y).ln() if x > 0 else 0) - x + y
        return float(total)


def both(marginal, target):
    """KL by the array function and by the single pass."""
    return float(kullback_leibler(marginal, target)[0]), float(distances(marginal, target)[1][0])


def test_the_direction_of_the_divergence():
    # trl#4935: .9 log(9/5) + .1 log(1/5) one way, .5 log(5/9) + .5 log 5 the other.
    a, b = rows(0.9, 0.1), rows(0.5, 0.5)
    forward = 0.9 * math.log(1.8) + 0.1 * math.log(0.2)
    backward = 0.5 * math.log(5 / 9) + 0.5 * math.log(5)
    assert abs(forward - 0.3681) <= FOUR_DIGITS
    assert abs(backward - 0.5108) <= FOUR_DIGITS
    for computed in both(a, b):
        assert abs(computed - forward) <= 8 * EPS  # eight operations on numbers below 1
    for computed in both(b, a):
        assert abs(computed - backward) <= 8 * EPS


@given(st.integers(0, 1000), st.integers(1, 200))
def test_identical_rows_have_divergence_exactly_0(seed, vocab):
    law = np.random.default_rng(seed).dirichlet(np.full(vocab, 0.2))[None, :]
    assert both(law, law.copy()) == (0.0, 0.0)
    assert float(total_variation(law, law.copy())[0]) == 0.0


def test_leaving_the_support_is_infinite_and_staying_is_not():
    p, m = rows(1.0, 0.0), rows(0.5, 0.5)
    assert both(m, p) == (math.inf, math.inf)
    for computed in both(p, m):
        assert abs(computed - math.log(2)) <= 4 * EPS
    assert kl_terms(m, p).tolist() == [[pytest.approx(0.5 * math.log(0.5) + 0.5, abs=4 * EPS), math.inf]]


def test_no_term_is_negative_where_the_rows_nearly_agree():
    # pytorch#32520: rounding must not make a divergence negative.
    p = np.random.default_rng(3).dirichlet(np.ones(1000))[None, :]
    for size in (1e-16, 1e-14, 1e-9, 1e-4, 1e-2):
        m = p * (1 + size * np.random.default_rng(4).standard_normal(1000))
        assert (kl_terms(m, p) >= 0).all()
        right = exactly(m[0], p[0])
        for computed in both(m, p):
            assert abs(computed - right) <= right * (CANCELLATION + summation_error(1000) * EPS)


@given(
    st.integers(0, 10**6),
    st.integers(1, 30),
    st.sampled_from([1e-12, 1e-6, 0.99e-3, 1.01e-3, 0.1, 1.0, 10.0]),
)
def test_divergences_to_their_last_digits(seed, vocab, size):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(vocab))[None, :]
    m = p * np.exp(size * rng.uniform(-1, 1, vocab))
    right = exactly(m[0], p[0])
    for computed in both(m, p):
        assert abs(computed - right) <= right * (CANCELLATION + summation_error(vocab) * EPS)


@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 2.3e-308])
def test_a_denormal_target_is_still_in_the_support(tiny):
    # Finite: .5 log(.5 / tiny) + .5 log .5 + tiny - ..., although .5 / 5e-324 overflows.
    m, p = rows(0.5, 0.5), rows(tiny, 1.0)
    right = exactly(m[0], p[0])
    assert math.isfinite(right)
    for computed in both(m, p):
        assert abs(computed - right) <= right * 8 * EPS


def test_total_variation_and_placed_excess():
    # Base pair: |.5-.6| + 0 + |.2-.1| = .2, half of it .1; above the target only token 0.
    p, q = rows(0.5, 0.3, 0.2), rows(0.6, 0.3, 0.1)
    assert abs(float(total_variation(q, p)[0]) - 0.1) <= 4 * EPS
    assert abs(float(placed_excess(q, p)[0]) - 0.1) <= 4 * EPS
    assert abs(float(distances(q, p)[0][0]) - 0.1) <= 4 * EPS
    assert float(placed_excess(rows(0.1, 0.3, 0.1), p)[0]) == 0.0


# Bounds


def bounds(placed, target, gap, allowed):
    return [
        float(value[0]) for value in divergence_bounds(placed, target, np.array([gap]), np.array([allowed]))
    ]


def test_bounds_of_a_rest_that_may_complete_the_target():
    # .2 is missing: best on token 2 (KL 0), worst on token 1: .5 log(.5/.3).
    tv_low, tv_high, kl_low, kl_high = bounds(rows(0.5, 0.3, 0.0), rows(0.5, 0.3, 0.2), 0.2, [True] * 3)
    assert tv_low == 0.0
    assert abs(tv_high - 0.2) <= 4 * EPS
    assert abs(kl_low) <= 8 * EPS
    assert abs(kl_high - 0.5 * math.log(5 / 3)) <= 8 * EPS


def test_bounds_of_a_rest_that_can_only_go_to_one_place():
    # Only token 0: the law is (.7, .3, 0), so both ends are .7 log(7/5).
    _, _, kl_low, kl_high = bounds(rows(0.5, 0.3, 0.0), rows(0.5, 0.3, 0.2), 0.2, [True, False, False])
    assert abs(kl_low - 0.7 * math.log(1.4)) <= 8 * EPS
    assert abs(kl_high - 0.7 * math.log(1.4)) <= 8 * EPS


def test_bounds_without_a_gap_are_the_value():
    p, q = rows(0.5, 0.3, 0.2), rows(0.6, 0.3, 0.1)
    tv_low, tv_high, kl_low, kl_high = bounds(q, p, 0.0, [True] * 3)
    assert tv_low == tv_high
    right = 0.6 * math.log(1.2) + 0.1 * math.log(0.5)
    for end in (kl_low, kl_high):
        assert abs(end - right) <= 8 * EPS


def test_bounds_off_the_support():
    p = rows(0.5, 0.5, 0.0)
    # Mass is already outside: infinite at both ends.
    assert bounds(rows(0.5, 0.0, 0.25), p, 0.25, [True, True, False])[2:] == [math.inf, math.inf]
    # The rest may leave the support: infinite at the top; token 1 takes it all at the bottom.
    low, high = bounds(rows(0.5, 0.25, 0.0), p, 0.25, [True] * 3)[2:]
    assert abs(low) <= 8 * EPS
    assert high == math.inf
    # It has nowhere else to go.
    assert bounds(rows(0.5, 0.25, 0.0), p, 0.25, [False, False, True])[2:] == [math.inf, math.inf]


@pytest.mark.parametrize("tiny", [5e-324, 1e-310])
def test_bounds_with_a_denormal_target(tiny):
    # All of the gap on token 0 is the worst: .5 log(.5 / tiny) + .5 log .5, finite.
    p = rows(tiny, 1.0)
    low, high = bounds(rows(0.0, 0.5), p, 0.5, [True, True])[2:]
    right = exactly(rows(0.5, 0.5)[0], p[0])
    assert abs(low) <= 8 * EPS
    assert abs(high - right) <= right * 8 * EPS


# The interval on the total variation


def interval(placed, unexpanded, target):
    none = np.zeros((1, 1))
    marginals = Marginals(rows(*placed), none, rows(*unexpanded), none, none[0], [0], [False])
    return tuple(float(end[0]) for end in tv_interval(marginals, rows(*target)))


@pytest.mark.parametrize(
    ("placed", "unexpanded", "interval_of"),
    [
        # Nothing missing: the total variation itself, .25.
        ((0.75, 0.25), (0.0,), (0.25, 0.25)),
        # .25 above the target, .25 to come: it may land on the other token, or make it .5.
        ((0.75, 0.0), (0.0, 0.25), (0.25, 0.5)),
        # Below the target everywhere: the rest may complete it, or miss it by its own size.
        ((0.25, 0.5), (0.25,), (0.0, 0.25)),
        # A quarter of the mass is lost, and nothing is to come: half the sum of |differences|, 1/8.
        ((0.25, 0.5), (0.0,), (0.125, 0.125)),
        # The same with a gap of an eighth: an eighth is missing whatever happens, or a quarter and an
        # eighth too much where the gap lands on the other token.
        ((0.25, 0.5), (0.125,), (0.0625, 0.1875)),
    ],
)
def test_the_interval_on_the_total_variation(placed, unexpanded, interval_of):
    assert interval(placed, unexpanded, (0.5, 0.5)) == interval_of


# The limit


def test_the_limit_on_the_worked_pair():
    # By hand: 1 + p(H) - q(H)^n at H = {0}: 1 + .3 - .6^n while that is the least; by the
    # rational oracle 7/10, 89/100, 971/1000.
    p, q = rows(0.3, 0.4, 0.3), rows(0.6, 0.3, 0.1)
    for n, right in enumerate([0.0, 0.7, 0.89, 0.971]):
        assert abs(float(transport_limit(p, q, n)[0]) - right) <= (6 + n + 2) * EPS


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_limit_at_its_ends(n):
    p = rows(0.5, 0.25, 0.25, 0.0)
    assert float(transport_limit(p, p, n)[0]) == 1.0
    # Rounded up, by V additions in p(H) and in each of n factors q(H), n - 1 products and three more:
    # acceptance above the limit is called proof.
    limit = float(transport_limit(p, rows(0.0, 0.0, 0.0, 1.0), n)[0])
    assert 0.0 <= limit <= ((n + 1) * 4 + n + 2) * EPS / 2


def test_the_limit_of_a_batch_and_of_one_token():
    rng = np.random.default_rng(8)
    p, q = rng.dirichlet(np.ones(5), size=(2, 3)), rng.dirichlet(np.ones(5), size=(2, 3))
    batch = transport_limit(p, q, 2)
    assert batch.shape == (2, 3)
    for i in np.ndindex(2, 3):
        assert batch[i] == transport_limit(p[i][None, :], q[i][None, :], 2)[0]
    assert float(transport_limit(np.ones((1, 1)), np.ones((1, 1)), 3)[0]) == 1.0
