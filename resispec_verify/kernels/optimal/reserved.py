"""A round of optimal sequential verification: what it takes of the target, and what it reserves.

Each is written over whole arrays, and as loops over NumPy rows that make no temporaries: the same operations
on every token; only the order of the sum differs.
"""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.compiled import apart, compilable
from resispec_verify.kernels.elementwise.residuals import normalize, share_of
from resispec_verify.kernels.jit import jit

__all__ = ["reserve", "taken_share"]

_BLOCK = 128  # a sum over blocks of sums: no term passes through more than 128 + V / 128 additions


def taken_share(target: Array, draft: Array, upper: Array, lower: Array, weight: Array) -> Array:
    """``(min(p, upper q) - min(p, lower q)) / (weight q)``, at most 1.

    Rows ``(..., V)``, levels and weights ``(..., 1)``. Where q = 0 it is 1 or 0, as p > 0 or not.
    """
    if compilable(target, draft):
        out = np.empty_like(target)
        _taken_share(target, draft, *_by_row(target, upper, lower, weight), out)
        return out
    xp = array_namespace(target, draft)
    taken = xp.minimum(target, upper * draft) - xp.minimum(target, lower * draft)
    return xp.where(draft > 0, share_of(taken, weight * draft), xp.astype(target > 0, target.dtype))


def reserve(target: Array, draft: Array, first: Array, level: Array, fallback: Array) -> tuple[Array, Array]:
    """``(p - first q)_+ + min(p, level q)``: rows ``(..., V)`` divided by their sums, and these ``(..., 1)``.

    A row without mass becomes ``fallback``.
    """
    if compilable(target, draft, fallback):
        out, weight = apart(target.shape, target.dtype), np.empty((target.shape[0], 1), target.dtype)
        _reserve(target, draft, *_by_row(target, first, level), fallback, out, weight)
        return out, weight
    xp = array_namespace(target, draft)
    reserved = xp.clip(target - first * draft, 0.0, None) + xp.minimum(target, level * draft)
    return normalize(reserved, fallback), xp.sum(reserved, axis=-1, keepdims=True)


def _by_row(target: Array, *levels: Array) -> list[Array]:
    shape = target.shape[:-1]
    return [np.ascontiguousarray(np.broadcast_to(a[..., 0], shape), target.dtype) for a in levels]


@jit()
def _taken_share(target, draft, upper, lower, weight, out):
    zero, one = target.dtype.type(0), target.dtype.type(1)
    for b in range(target.shape[0]):
        high, low, w = upper[b], lower[b], weight[b]
        for x in range(target.shape[1]):
            p, q = target[b, x], draft[b, x]
            taken, offered = min(p, high * q) - min(p, low * q), w * q
            whole = (taken if q > zero else p) > zero
            out[b, x] = taken / offered if offered > taken and q > zero else (one if whole else zero)


@jit(fastmath={"reassoc"})
def _reserve(target, draft, first, level, fallback, out, weight):
    zero = target.dtype.type(0)
    rows, vocab = target.shape
    for b in range(rows):
        t, low = first[b], level[b]
        mass = zero
        for start in range(0, vocab, _BLOCK):
            total = zero
            for x in range(start, min(start + _BLOCK, vocab)):
                p, q = target[b, x], draft[b, x]
                out[b, x] = max(p - t * q, zero) + min(p, low * q)
                total += out[b, x]
            mass += total
        weight[b, 0] = mass
        for x in range(vocab):
            out[b, x] = out[b, x] / mass if mass > zero else fallback[b, x]
