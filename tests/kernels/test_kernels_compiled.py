"""The single-pass loops against the array functions they stand for.

An extra leading axis keeps an array from the loops, so both ways run on the same numbers.
"""

from __future__ import annotations

import numpy as np
import pytest

from resispec_verify.evidence.marginal import summation_error
from resispec_verify.evidence.path_identity import draw_candidates, path_identity
from resispec_verify.kernels.elementwise import compiled
from resispec_verify.kernels.elementwise.divergences import distances, kullback_leibler, total_variation
from resispec_verify.kernels.elementwise.residuals import accept_ratio, standard_residual
from resispec_verify.rules import ResiSpec, SpecInfer

SIZES = [1, 2, 127, 128, 129, 1000]  # around the loops' block of 128


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    return request.param


@pytest.fixture(params=SIZES)
def rows(request, dtype):
    """Target, draft: zeros on either side, a row with p = q, a row where they do not meet."""
    vocab = request.param
    rng = np.random.default_rng(vocab)
    p, q = rng.dirichlet(np.full(vocab, 0.5), size=(2, 4))
    p[0, ::3], q[0, 1::3] = 0.0, 0.0
    p[0, -1] += 1.0
    q[0, 0] += 1.0
    q[1] = p[1]
    p[2], q[2] = 0.0, 0.0
    p[2, 0] = q[2, -1] = 1.0
    p, q = (law / law.sum(axis=-1, keepdims=True) for law in (p, q))
    return p.astype(dtype), q.astype(dtype)


def unit(dtype) -> float:
    return float(np.finfo(dtype).eps)


def bound(rows, dtype) -> float:
    """Relative error of a row sum and a division, on either side; entries are at most 1."""
    return unit(dtype) * (2 * summation_error(rows[0].shape[-1]) + 8)


def test_what_the_loops_take(rows):
    p, q = rows
    assert compiled.compilable(p, q)
    assert not compiled.compilable(p[None], q[None])
    assert not compiled.compilable(p, q.astype(np.float16))
    if p.shape[1] > 1:
        assert not compiled.compilable(np.asfortranarray(p), np.asfortranarray(q))
        assert not compiled.compilable(p[:, ::2])
    assert not compiled.compilable(p[:, :0])


def test_acceptance_ratios_are_the_same(rows):
    np.testing.assert_array_equal(accept_ratio(*rows), accept_ratio(*(r[None] for r in rows))[0])


def test_standard_residuals_are_the_same(rows, dtype):
    loop, arrays = standard_residual(*rows), standard_residual(*(r[None] for r in rows))[0]
    assert loop.dtype == rows[0].dtype
    assert float(np.abs(loop - arrays).max()) <= bound(rows, dtype)
    np.testing.assert_array_equal(loop[1], rows[0][1])  # p = q: the target, exactly


def test_divergences_are_the_same(rows, dtype):
    p, q = rows
    m = (p + q) / 2
    tv, kl = distances(m, p)
    right_tv, right_kl = total_variation(m[None], p[None])[0], kullback_leibler(m[None], p[None])[0]
    np.testing.assert_array_equal(np.isinf(kl), np.isinf(right_kl))
    finite = np.isfinite(right_kl)
    # Each term is at most log 2 of its mass, and loses digits near m = p; in absolute terms a few units.
    assert float(np.abs(tv - right_tv).max()) <= bound(rows, dtype)
    assert (np.abs(kl[finite] - right_kl[finite]) <= bound(rows, dtype)).all()
    same = distances(p, p.copy())
    assert (np.stack(same) == 0).all()


@pytest.mark.parametrize("rule", [SpecInfer(), ResiSpec()], ids=lambda rule: rule.name)
def test_the_path_identity_is_the_same(rows, dtype, rule):
    p, q = rows
    n = 3
    tokens = np.random.default_rng(1).integers(0, p.shape[1], size=(p.shape[0], n))
    emitted = path_identity(p, q, rule.proxy, tokens, n)
    # Both are the target up to rounding: n rounds, each a row sum and a division.
    off = (
        np.abs(1 - p.sum(axis=-1, dtype=np.float64)).max()
        + np.abs(1 - q.sum(axis=-1, dtype=np.float64)).max()
    )
    assert float(np.abs(emitted - p).sum(axis=-1).max()) <= 2 * (n + 1) * (bound(rows, dtype) + off)
    k = rule.proxy(p, q, tokens[:, 0])
    apart = [rule.proxy(p[i : i + 1][:, :], q[i : i + 1], tokens[i : i + 1, 0]) for i in range(p.shape[0])]
    np.testing.assert_array_equal(k, np.concatenate(apart))


def test_proxies_are_the_same(rows, dtype):
    p, q = rows
    tokens = np.argmax(q - p, axis=-1)
    loop = ResiSpec().proxy(p, q, tokens)
    arrays = np.stack([ResiSpec().proxy(a, b, t) for a, b, t in zip(p, q, tokens, strict=True)])
    assert float(np.abs(loop - arrays).max()) <= 2 * bound(rows, dtype)


def test_drawn_candidates_are_the_same(rows, dtype):
    p, q = (np.tile(r, (2, 1)) for r in rows)
    for u in (0.0, 0.125, 0.5, 0.99):
        uniforms = np.full((p.shape[0], 1), u)
        loop = draw_candidates(q, 1, uniforms)(0, p)
        order = np.asfortranarray
        arrays = draw_candidates(order(q), 1, uniforms)(0, order(p))
        over = np.clip(q - p, 0, None).astype(np.float64)
        over[over.sum(axis=-1) == 0] = q[over.sum(axis=-1) == 0]
        edges = np.cumsum(over, axis=-1) / over.sum(axis=-1, keepdims=True)
        for i, (a, b) in enumerate(zip(loop, arrays, strict=True)):
            assert over[i, a] > 0
            assert over[i, b] > 0
            # They may differ only where u falls on an edge, up to the rounding of a sum.
            slack = unit(dtype) * (p.shape[1] + 8)
            for token in (a, b):
                assert edges[i, token] >= u - slack
                assert token == 0 or edges[i, token - 1] <= u + slack


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("vocab", [9, 12, 31])
def test_last_bits_do_not_depend_on_where_what_is_read_lies(vocab, kind):
    rng = np.random.default_rng(vocab)
    p, q = (rng.dirichlet(np.ones(vocab), 1).astype(kind) for _ in range(2))
    memory = np.zeros(4096, kind)

    def at(start, values):
        memory[start : start + vocab] = values[0]
        return memory[start : start + vocab].reshape(1, vocab)

    for out in (at(1000, p), at(3000, p)):  # below and above what is read
        for gap in range(40):
            compiled._subtract(at(2000, p), at(2000 + vocab + gap, q), out)
            assert out.tobytes() == compiled.subtract(p, q).tobytes()


@pytest.mark.parametrize("make", [lambda a: compiled.apart(a.shape, a.dtype), compiled.zeros_beside])
@pytest.mark.parametrize("shape", [(1, 2), (3, 12), (2, 127), (2, 128), (1, 4096)])
def test_what_is_written_to_lies_apart_from_all_else(make, shape):
    for dtype in (np.float64, np.float32):
        out = make(np.ones(shape, dtype))
        assert (out.shape, out.dtype, out.flags.c_contiguous) == (shape, dtype, True)
        row = shape[-1] * out.itemsize
        whole = out if out.base is None else out.base
        before = out.ctypes.data - whole.ctypes.data
        after = whole.nbytes - out.nbytes - before
        # Another array begins after the last row of this one, or ends before its first.
        assert min(before, after) + row >= 1024
