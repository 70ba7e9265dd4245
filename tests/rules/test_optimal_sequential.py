"""Optimal sequential verification: worked values, exactness for any levels, optimality, the sampler."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.kernels.optimal.sequential import levels, levels_by_reductions, overlap
from resispec_verify.kernels.optimal.transport import transport_limit
from resispec_verify.rules import SpecInfer
from resispec_verify.rules.shipped.optimal_sequential import OptimalSequential
from resispec_verify.samplers import verify_optimal_sequential, verify_specinfer

EPS = np.finfo(np.float64).eps
WORKED = np.array([[0.3, 0.4, 0.3]]), np.array([[0.6, 0.3, 0.1]])
# Worked values: levels T_1.., accepted mass by candidate, for p = (3, 4, 3)/10, q = (6, 3, 1)/10.
TABLE = {
    2: (("12/7", "5/7", "0"), ("2/7", "41/70")),
    3: (("87/35", "52/35", "41/70", "0"), ("1/10", "11/35", "187/350")),
    4: (("3", "2", "11/10", "9/25", "0"), ("1/10", "4/25", "19/50", "9/25")),
}


def numbers(fractions):
    return np.array([float(Fraction(f)) for f in fractions])


@st.composite
def pairs(draw, most=6):
    vocab = draw(st.integers(1, most))
    weights = st.lists(st.integers(0, 9), min_size=vocab, max_size=vocab).filter(any)
    p = np.array(draw(weights), float)
    q = p if draw(st.integers(0, 5)) == 0 else np.array(draw(weights), float)
    return (p / p.sum())[None, :], (q / q.sum())[None, :]


@pytest.mark.parametrize("n", TABLE)
def test_worked_values(n):
    T, accepted = map(numbers, TABLE[n])
    # The search leaves a margin of V eps a step, and the slope of the recursion is at most n.
    tolerance = 4 * n * n * 3 * EPS
    np.testing.assert_allclose(levels(*WORKED, n)[0], T, rtol=0, atol=tolerance)
    found = operational_marginals(OptimalSequential(), *WORKED, n)
    np.testing.assert_allclose(found.acceptance[0], accepted, rtol=0, atol=tolerance)


@given(pairs(), st.integers(1, 5))
def test_exact_at_least_specinfer_at_most_the_limit(pair, n):
    found = operational_marginals(OptimalSequential(), *pair, n)
    assert tv_interval(found, pair[0])[1][0] <= found.rounding[0]
    accepted = found.acceptance.sum()
    slack = found.rounding[0] + n * n * pair[0].shape[-1] * EPS
    assert accepted >= operational_marginals(SpecInfer(), *pair, n).acceptance.sum() - slack
    assert accepted <= transport_limit(*pair, n)[0] + slack
    assert abs(accepted - overlap(*pair, levels(*pair, n)[:, 0])[0]) <= slack


@given(pairs(), st.integers(1, 4), st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_any_levels_in_the_band_are_exact(pair, n, steps):
    """An unconverged search, or nonsense inside the band, costs acceptance and never exactness."""
    p, q = pair

    def arbitrary(target, draft, count):
        T = np.zeros(count + 1)
        # Downwards from any T_1: each step a fraction of what the band allows, the last one all that is left
        # where it allows that; else all levels from there on are 0 from the start.
        T[0] = steps[0] * min(count, 1.0)
        z = 1.0 - np.minimum(p, T[0] * q).sum()
        for k in range(count):
            allowed = z + np.minimum(p, T[k] * q).sum()
            T[k + 1] = max(T[k] - steps[1 + k] * allowed, 0.0)
        if T[count] > 0:  # not descended in time: stay where nothing is reserved beyond reach
            T[1:] = 0.0
            T[0] = min(T[0], 1.0)
        return np.array([T])

    found = operational_marginals(OptimalSequential(find_levels=arbitrary), p, q, n)
    assert tv_interval(found, p)[1][0] <= found.rounding[0]


@given(pairs(), st.integers(1, 5))
def test_with_a_sort_and_without(pair, n):
    """On the CPU they come from a sort, on a device from reductions: the same up to the recursion's slope.

    That other libraries find the same is a row of ``tests/conformance/test_functions.py``.
    """
    by_sort = levels(*pair, n)
    expected = overlap(*pair, by_sort[:, 0])
    found = np.asarray(levels_by_reductions(torch.from_numpy(pair[0]), torch.from_numpy(pair[1]), n))
    # Several T_1 can be optimal; the acceptance phi(T_1) is what they share.
    np.testing.assert_allclose(overlap(*pair, found[:, 0]), expected, rtol=0, atol=64 * n * n * EPS)
    assert (np.diff(found[0]) <= 0).all()
    assert found[0, -1] == 0


@pytest.mark.parametrize("verify", [verify_optimal_sequential, verify_specinfer])
def test_sampler_emits_the_target(verify):
    """200,000 rows with a fixed seed: a chi-square test at 1e-6, and the acceptance by its expectation.

    That other libraries emit the same tokens is a row of ``tests/conformance/test_functions.py``.
    """
    rows, n = 200_000, 3
    rng = np.random.default_rng(7)
    p, q = np.array([0.1, 0.2, 0.3, 0.4, 0.0]), np.array([0.4, 0.3, 0.2, 0.05, 0.05])
    candidates = rng.choice(5, size=(rows, n), p=q)
    uniforms = rng.random((rows, n + 1))
    target, draft = (np.tile(v, (rows, 1)) for v in (p, q))
    tokens, accepted = verify(target, draft, candidates, uniforms)
    counts = np.bincount(tokens, minlength=5)
    assert counts[4] == 0
    assert stats.chisquare(counts[:4], p[:4] * rows).pvalue > 1e-6
    rule = OptimalSequential() if verify is verify_optimal_sequential else SpecInfer()
    expected = operational_marginals(rule, p[None], q[None], n).acceptance.sum()
    hits = int((accepted < n).sum())
    assert stats.binomtest(hits, rows, expected).pvalue > 1e-6


def test_sampler_without_candidates_draws_from_the_target():
    tokens, accepted = verify_optimal_sequential(
        np.array([[0.25, 0.75]] * 2),
        np.array([[0.5, 0.5]] * 2),
        np.zeros((2, 0), int),
        np.array([[0.2], [0.3]]),
    )
    assert tokens.tolist() == [0, 1]
    assert accepted.tolist() == [0, 0]


def test_levels_outside_the_band_are_found_inexact():
    """The twin that must fail: a step of 3/2 is longer than W_1 = 1, and the rule is no longer exact."""

    def too_long(target, draft, count):
        return np.array([[1.5, 0.0]])

    p, q = WORKED
    found = operational_marginals(OptimalSequential(find_levels=too_long), p, q, 1)
    assert tv_interval(found, p)[0][0] > found.rounding[0]


def test_levels_where_only_subnormal_drafts_are_open():
    """A Newton step then overflows. The candidate is the second token, accepted with its probability."""
    p, q = np.array([[0.005, 0.995]]), np.array([[3e-312, 1.0]])
    for n in (2, 3, 8):
        for found in (levels_by_reductions(p, q, n), levels(p, q, n)):
            np.testing.assert_allclose(overlap(p, q, found[..., 0]), 0.995, rtol=1e-14)
