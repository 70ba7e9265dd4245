"""Wider vocabularies in floats: the scalar recursion against full enumeration, and its sorted table."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from strategies import EPS, EVERYTHING, OPTIONS, Enumerated, General

from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.kernels.elementwise.ratio_order import TIE, rank_of, ratio_order
from resispec_verify.kernels.optimal.transport import transport_limit
from resispec_verify.rules import ResiSpec, SpecInfer
from resispec_verify.verdict import Verdict, judge

TINY, HUGE = 5e-324, 1.7e308


def normalised(weights: np.ndarray) -> np.ndarray:
    return (weights / weights.sum())[None, :]


def pair_of(kind: str, vocab: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng((seed, vocab))
    p, q = rng.dirichlet(np.full(vocab, 0.3), size=2)
    if kind == "peaked":
        p, q = np.exp(12 * rng.standard_normal((2, vocab)))
    if kind == "near":
        q = p * (1 + 1e-13 * rng.standard_normal(vocab))
    if kind == "zeros":
        p, q = np.where(rng.random(vocab) < 0.5, 0, p), np.where(rng.random(vocab) < 0.3, 0, q)
        p[0] += 1e-3  # not a row of zeros
        q[-1] += 1e-3
    if kind == "ties":
        p, q = rng.integers(1, 4, size=(2, vocab)).astype(float)
    if kind == "equal":
        q = p
    if kind == "outside":  # what is drafted holds little of the target, and the draft is peaked
        inside = np.arange(vocab) < (vocab + 1) // 2
        p, q = np.where(inside, 0.1 * p, p), np.where(inside, q**3, 0.0)
    return normalised(p), normalised(q)


KINDS = ["flat", "peaked", "near", "zeros", "ties", "equal", "outside"]


def compare(rule, other, p, q, n) -> None:
    fast = operational_marginals(rule, p, q, n, budget=EVERYTHING)
    slow = operational_marginals(other, p, q, n, budget=EVERYTHING)
    rounding = float(fast.rounding[0] + slow.rounding[0])
    assert float(fast.gap[0]) == float(slow.gap[0]) == 0.0
    assert 0.5 * np.abs(fast.placed - slow.placed).sum() <= rounding
    assert np.abs(fast.acceptance - slow.acceptance).max() <= rounding


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocab", [1, 2, 7, 60, 300])
def test_the_scalar_recursion_with_one_candidate(kind, vocab):
    compare(ResiSpec(), Enumerated(), *pair_of(kind, vocab, 1), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_scalar_recursion_with_two_candidates(kind):
    compare(ResiSpec(), Enumerated(), *pair_of(kind, 60, 2), 2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_scalar_recursion_with_three_candidates(kind):
    # The closed last round is compared with enumeration below; it makes n = 3 affordable here.
    compare(ResiSpec(), General(), *pair_of(kind, 24, 3), 3)


@pytest.mark.parametrize("options", OPTIONS, ids=",".join)
@pytest.mark.parametrize("kind", KINDS)
def test_the_closed_last_round(options, kind):
    compare(General(*options), Enumerated(*options), *pair_of(kind, 200, 4), 1)
    compare(General(*options), Enumerated(*options), *pair_of(kind, 20, 5), 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocab", [2, 300, 5000])
def test_specinfer_is_found_exact(kind, vocab):
    p, q = pair_of(kind, vocab, 6)
    marginals = operational_marginals(SpecInfer(), p, q, 3)
    low, high = tv_interval(marginals, p)
    assert judge(float(low[0]), float(high[0]), float(marginals.rounding[0])) is Verdict.EXACT
    limit = float(transport_limit(p, q, 3)[0])
    # Prefix sums are sequential: V roundings each.
    assert float(marginals.acceptance.sum()) <= limit + 2 * float(marginals.rounding[0]) + 2 * vocab * EPS


# The order by p/q and the table of ranks


def rank(order, t: float) -> int:
    """Number of tokens with p/q < t, through the table."""
    return int(rank_of(t, order.ratio, order.table))


def check(p: np.ndarray, q: np.ndarray) -> None:
    """The order is NumPy's sort of the ratios, and ranks are its bisection: but for ties, of relative TIE."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ratio = np.where(q > 0, p / q, np.inf)
    order = ratio_order(p, q)
    assert sorted(order.order.tolist()) == list(range(p.size))
    np.testing.assert_array_equal(ratio[order.order], order.ratio)
    np.testing.assert_array_equal(order.p, p[order.order])
    np.testing.assert_array_equal(order.q, q[order.order])
    sums = np.concatenate([[0.0], np.cumsum(order.q)]), np.concatenate([[0.0], np.cumsum(order.p)])
    np.testing.assert_array_equal(order.prefix, np.stack(sums, axis=-1))
    below = np.maximum.accumulate(np.concatenate([[0.0], order.ratio]))  # largest ratio of each prefix
    above = np.minimum.accumulate(np.concatenate([[np.inf], order.ratio[::-1]]))[::-1]  # least of the others
    assert (below <= above * (1 + TIE)).all()
    finite = np.sort(ratio[np.isfinite(ratio)])
    levels = [0.0, TINY, 1e-300, 1e-30, 0.5, 1.0, 2.0, 1e4, HUGE, *finite[:: max(1, finite.size // 50)]]
    for level in levels:
        for t in (np.nextafter(level, 0.0), level, np.nextafter(level, math.inf)):
            if np.isfinite(t):
                r = rank(order, float(t))
                assert r == 0 or below[r] < t * (1 + TIE) or below[r] < t
                assert above[r] >= t * (1 - TIE)


SPREAD = np.exp(np.linspace(-700, 700, 400))
ADVERSARIAL = {
    "one token": ([1.0], [1.0]),
    "one token that is not drafted": ([1.0], [0.0]),
    "one token that is only drafted": ([0.0], [1.0]),
    "nothing at all": ([0.0] * 4, [0.0] * 4),
    "all equal": ([0.01] * 100, [0.01] * 100),
    "all equal, not 1": ([0.02] * 100, [0.01] * 100),
    "nearly equal": (0.01 * (1 + 1e-13 * np.random.default_rng(1).standard_normal(200)), [0.01] * 200),
    "in one bucket, descending": (1.0 + 1e-13 * np.arange(200)[::-1], np.ones(200)),
    "denormals": ([TINY, 2 * TINY, 0.0, 3 * TINY, 0.5], [2 * TINY, TINY, TINY, 0.0, 0.5]),
    "ratio inf": ([0.1, 0.2, 0.3, 0.4], [0.0, 0.5, 0.0, 0.5]),
    "ratio 0": ([0.0, 0.5, 0.0, 0.5], [0.25] * 4),
    "overflow": ([0.5, 0.25, 0.25], [TINY, 1e-320, 0.5]),
    "underflow": ([TINY, 1e-310, 0.5], [0.9, 0.05, 0.05]),
    "every exponent": (SPREAD, np.ones(400)),
    "every exponent, descending": (np.ones(400), SPREAD),
    "last bits": (1.0 + EPS * np.arange(60)[::-1], np.ones(60)),
    "negative zero": ([-0.0, 0.5, 0.5], [0.5, 0.5, 0.0]),
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_the_order_on_adversarial_ratios(name):
    p, q = (np.array(values, np.float64) for values in ADVERSARIAL[name])
    check(p, q)


@settings(max_examples=100)
@given(st.integers(1, 70).flatmap(lambda v: arrays(np.float64, (2, v), elements=st.floats(0.0, 1.0))))
def test_the_order_on_any_floats(rows):
    check(*rows)


@settings(max_examples=60)
@given(
    st.integers(1, 40).flatmap(
        lambda v: arrays(
            np.float64, v, elements=st.sampled_from([1 - EPS / 2, 1.0, 1 + EPS, 1 + 1e-13, 1 - 1e-13])
        )
    )
)
def test_the_order_on_nearly_equal_ratios(ratios):
    check(ratios, np.ones_like(ratios))


EXTREME = {
    "denormal draft": ([0.5, 0.5, 0.0], [TINY, 0.5, 0.5]),
    "denormal target": ([TINY, 0.5, 0.5], [0.5, 0.5, 0.0]),
    "denormal both": ([TINY, 1e-310, 1.0], [1e-310, TINY, 1.0]),
    "tiny overlap": ([1.0, 1e-300], [1e-300, 1.0]),
    "disjoint": ([1.0, 0.0], [0.0, 1.0]),
    "last bit": ([0.5 + EPS / 2, 0.5 - EPS / 2], [0.5, 0.5]),
}


@pytest.mark.parametrize("rule", [SpecInfer(), ResiSpec(), *(General(*o) for o in OPTIONS)], ids=str)
@pytest.mark.parametrize("name", EXTREME)
@pytest.mark.parametrize("n", [1, 3])
def test_extreme_pairs_give_laws_and_no_warning(rule, name, n):
    # A NaN, a lost token or a floating-point warning (an error here) would be a fault of the arithmetic.
    p, q = (np.array([values]) for values in EXTREME[name])
    marginals = operational_marginals(rule, p, q, n, budget=EVERYTHING)
    assert (marginals.placed >= 0).all()
    assert abs(float(marginals.placed.sum()) - 1.0) <= 2 * float(marginals.rounding[0])
    if isinstance(rule, SpecInfer):
        assert 0.5 * np.abs(marginals.placed - p).sum() <= float(marginals.rounding[0])
    transport_limit(p, q, n)
