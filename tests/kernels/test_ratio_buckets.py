"""Buckets of p/q, and what is found with them: the limit against a sort, levels against reductions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from resispec_verify.kernels.elementwise.compiled import compilable
from resispec_verify.kernels.elementwise.ratio_buckets import (
    Inside,
    edges,
    filled_and_open,
    looked_into,
    ratio_buckets,
)
from resispec_verify.kernels.elementwise.residuals import density_ratio
from resispec_verify.kernels.optimal.reserved import reserve, taken_share
from resispec_verify.kernels.optimal.sequential import levels, levels_by_reductions, overlap
from resispec_verify.kernels.optimal.transport import transport_limit, transport_limit_by_sorting

EPS = float(np.finfo(np.float64).eps)
SIZES = [1, 2, 7, 300, 5000, 20_000]  # from one bucket an octave to many


def softmax(logits):
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _flat(rng, size):
    return softmax(rng.standard_normal((2, size)))


def _far(rng, size):
    """From subnormal numbers to 1: ratios that overflow."""
    return softmax(rng.uniform(-744.0, 0.0, (2, size)))


def _coarse(rng, size):
    """Logits in quarters: a few ratios, each of many tokens."""
    return softmax(np.round(4.0 * rng.standard_normal((2, size))) / 4.0)


def _half(rng, size):
    """Logits logged in 16 bits, as in dumps."""
    return softmax((3.0 * rng.standard_normal((2, size))).astype(np.float16).astype(np.float64))


def _zeros(rng, size):
    """Zeros on either side, on both, and where the other is positive."""
    counts = rng.integers(0, 3, (2, size)).astype(np.float64)
    counts[:, rng.integers(size)] += 1.0
    return counts / counts.sum(axis=-1, keepdims=True)


def _near(rng, size):
    """All ratios within a percent of 1: one bucket or two hold all tokens."""
    logits = rng.standard_normal(size)
    return softmax(logits + 1e-3 * rng.standard_normal((2, size)))


def _equal(rng, size):
    p = rng.dirichlet(np.ones(size))
    return np.stack([p, p])


def _apart(rng, size):
    """Supports that do not meet, but for a law of one token."""
    p, q = np.zeros((2, size))
    p[: (size + 1) // 2], q[size // 2 :] = 1.0, 1.0
    return np.stack([p / p.sum(), q / q.sum()])


ROWS = [_flat, _far, _coarse, _half, _zeros, _near, _equal, _apart]


@pytest.fixture(params=ROWS, ids=lambda rows: rows.__name__.strip("_"))
def make(request):
    return request.param


@pytest.fixture(params=SIZES)
def pair(request, make):
    return make(np.random.default_rng(request.param), request.param)


def slack(vocab, n):
    """What the limit is rounded up by, and what the value at a prefix can err."""
    return ((n + 1) * vocab + n + 2) * EPS / 2


@pytest.mark.parametrize("n", [1, 2, 3, 8, 40])
def test_the_limit_with_a_sort_and_without(pair, n):
    found, right = transport_limit(*pair, n), transport_limit_by_sorting(*pair, n)
    assert abs(float(found) - float(right)) <= 2 * slack(pair.shape[-1], n)


def test_the_limit_of_many_candidates_is_rounded_up():
    # By hand: 1 - q(H)^n at H = {1}. That n - 1 products err was not counted.
    rng = np.random.default_rng(3)
    for _ in range(200):
        half = float(rng.uniform(0.985, 0.999))
        p, q = np.array([1.0, 0.0]), np.array([1.0 - half, half])
        assert Fraction(float(transport_limit(p, q, 64))) >= 1 - Fraction(half) ** 64


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_limit_of_narrow_rows_is_rounded_up(make, dtype):
    p, q = make(np.random.default_rng(5), 300).astype(dtype)
    found = transport_limit(p, q, 3)
    wide = float(transport_limit(p.astype(np.float64), q.astype(np.float64), 3))
    assert found.dtype == dtype
    assert wide <= float(found) <= min(wide * (1 + 2 * float(np.finfo(dtype).eps)), 1.0)


def test_the_limit_of_torch_rows_is_that_of_numpy(pair):
    found = transport_limit(*map(torch.from_numpy, pair), 3)
    assert float(found) == float(transport_limit(*pair, 3))


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_levels_with_buckets_and_by_reductions(pair, n):
    p, q = pair
    T, right = levels(p, q, n), levels_by_reductions(p[None], q[None], n)[0]
    # An end of the search may cost 4 n V eps of acceptance, the margin of its steps as much, on each side.
    tolerance = 16 * n * max(len(p), 4) * EPS
    assert abs(overlap(p, q, T[0]) - overlap(p, q, right[0])) <= tolerance
    assert (np.diff(T) <= 0).all()
    assert T[-1] == 0
    # The band, in which every rule is exact.
    z = max(1.0 - overlap(p, q, T[0]), 0.0)
    steps = [z + overlap(p, q, T[k]) for k in range(n)]
    assert (-np.diff(T) <= np.array(steps) + 8 * EPS).all()


def test_sums_at_any_level(pair):
    p, q = pair
    buckets = ratio_buckets(p, q, 3)
    inside = Inside(p, q, *looked_into(p.size, buckets))
    ratio = density_ratio(p, q)
    among = ratio[(ratio > 0) & (ratio < 3)]
    for t in (-1.0, 0.0, 5e-324, 1e-300, 1.0, 3.0, *among[:3], *np.nextafter(among[:3], 0.0)):
        filled, still_open = filled_and_open(t, buckets, inside, False)
        right = np.minimum(p, t * q).sum()
        assert filled + t * still_open == pytest.approx(right, rel=len(p) * EPS, abs=1e-307)


def test_buckets_are_in_the_order_of_the_ratio(pair):
    p, q = pair
    buckets = ratio_buckets(p, q, 3)
    least, ratio = edges(buckets), density_ratio(p, q)
    assert (least[buckets.keys] <= ratio).all()
    assert (ratio < np.append(least[1:], np.inf)[buckets.keys])[np.isfinite(ratio)].all()
    assert (buckets.keys[q == 0] == len(least) - 1).all()
    assert buckets.below[-1] == pytest.approx([p.sum(), q.sum()], rel=len(p) * EPS)
    assert buckets.above[0] == pytest.approx(q.sum(), rel=len(p) * EPS)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounds_by_loops_and_with_arrays(pair, dtype):
    """A leading axis keeps arrays from the loops."""
    p, q = (row[None].astype(dtype) for row in pair)
    assert compilable(p, q)
    upper, lower, weight = (np.array([[value]], dtype) for value in (1.75, 0.5, 0.875))
    share = taken_share(p, q, upper, lower, weight)
    assert share.dtype == dtype
    np.testing.assert_array_equal(share, taken_share(p[None], q[None], upper, lower, weight)[0])
    loops, mass = reserve(p, q, upper, lower, q)
    arrays, right = reserve(p[None], q[None], upper, lower, q[None])
    assert loops.dtype == mass.dtype == dtype
    # Sums over blocks of 128 and over these, on the other side pairwise; then a division.
    tolerance = (128 + p.shape[-1] / 128 + 20) * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(mass, right[0], rtol=tolerance)
    np.testing.assert_allclose(
        loops, arrays[0], rtol=tolerance, atol=float(np.finfo(dtype).smallest_subnormal)
    )


def test_nothing_reserved_falls_back():
    p, q = np.array([[0.5, 0.5]]), np.array([[0.5, 0.5]])
    one, nothing = np.ones((1, 1)), np.zeros((1, 1))
    residual, mass = reserve(p, q, one, nothing, np.array([[0.25, 0.75]]))
    assert mass.tolist() == [[0.0]]
    assert residual.tolist() == [[0.25, 0.75]]


def test_overlaps_of_rows_and_of_one_row(pair):
    p, q = pair
    t = np.float64(1.25)
    right = np.minimum(p, t * q).sum()
    assert overlap(p, q, t) == pytest.approx(right, rel=len(p) * EPS)
    many = overlap(np.stack([p, p]), np.stack([q, q]), np.array([1.25, 0.0]))
    assert many.tolist() == [overlap(p, q, t), 0.0]
