"""The vocabulary sorted by p/q, with prefix sums: what turns O(V) sums into O(1) look-ups.

Every quantity of the form ``sum_x min(t q(x), p(x))`` or ``sum_x (t q(x) - p(x))_+`` splits at the
tokens with ``p/q < t``, a prefix of this order. A table on the leading bits of the ratio finds the rank
of any ``t`` in a short scan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.arrays import Array
from resispec_verify.kernels.jit import inline, jit

__all__ = ["RatioOrder", "ratio_order"]

# A float64 key keeps MANTISSA leading bits of the fraction below the exponent, for exponents from
# 2**LOWEST to 2**HIGHEST; what lies outside shares the first or last bucket.
_MANTISSA = 9
_LOWEST, _HIGHEST = -90, 10
_SHIFT = 52 - _MANTISSA
_BASE = (1023 + _LOWEST) << _MANTISSA
BUCKETS = ((_HIGHEST - _LOWEST) << _MANTISSA) + 2
TIE = 2.0**-50  # relative distance below which two ratios may stand in either order
SHORT = 24  # longer runs are sorted by a library sort, longer buckets searched by bisection


class RatioOrder(NamedTuple):
    """One position's tokens in ascending order of p/q, up to ties (`TIE`); tokens with q = 0 last.

    Attributes
    ----------
    order : int64 (V,)
        ``order[j]`` is the token at rank ``j``.
    ratio, p, q : float64 (V,)
        p/q, p and q in that order; ``ratio`` is inf where q = 0, and where it overflows.
    prefix : float64 (V + 1, 2)
        ``prefix[r] = (sum of q, sum of p)`` over the first ``r`` ranks.
    table : int32 (buckets + 1,)
        First rank of each bucket of leading bits.
    """

    order: NDArray[np.int64]
    ratio: NDArray[np.float64]
    p: NDArray[np.float64]
    q: NDArray[np.float64]
    prefix: NDArray[np.float64]
    table: NDArray[np.int32]


@inline
def bucket_of(bits):
    key = (bits >> _SHIFT) - _BASE
    return 0 if key < 0 else (BUCKETS - 1 if key >= BUCKETS else key)


@jit()
def _keys(p, q, index_bits):
    """Sortable integers: the leading bits of each ratio, then the token."""
    vocab = p.shape[0]
    ratio = np.empty(vocab)
    for x in range(vocab):
        ratio[x] = p[x] / q[x] if q[x] > 0.0 else np.inf
    keys = ratio.view(np.int64)  # of non-negative floats: the order of the bits is the order of the values
    for x in range(vocab):
        keys[x] = ((keys[x] >> index_bits) << index_bits) | x
    return keys


@inline
def _tied(ratio, lo, hi):
    """Whether the ratios of a run of ranks are ties up to rounding, or overflow.

    Logits logged in 16 bits make most ratios tie: sorting their rounding noise would be most of the work.
    """
    least = most = ratio[lo]
    for j in range(lo + 1, hi):
        least, most = min(least, ratio[j]), max(most, ratio[j])
    return most - least <= TIE * least or most == np.inf


@inline
def _insert(ratio, order, lo, hi):
    """Sort a short run of ranks."""
    for j in range(lo + 1, hi):
        value, token = ratio[j], order[j]
        i = j
        while i > lo and ratio[i - 1] > value:
            ratio[i], order[i] = ratio[i - 1], order[i - 1]
            i -= 1
        ratio[i], order[i] = value, token


@jit()
def _unpack(keys, p, q, index_bits):
    vocab = p.shape[0]
    order, ratio = np.empty(vocab, np.int64), np.empty(vocab)
    mask = (1 << index_bits) - 1
    for j in range(vocab):
        x = keys[j] & mask
        order[j] = x
        ratio[j] = p[x] / q[x] if q[x] > 0.0 else np.inf
    return order, ratio


@jit()
def _settle_runs(keys, ratio, order, index_bits):
    """Sort runs of ranks whose ratios agree in their leading bits; returns the long ones, to be sorted.

    Numba's own sort takes three seconds to compile, and long runs that are not ties are rare.
    """
    long = np.empty((keys.shape[0] // SHORT + 1, 2), np.int64)
    count = run = 0
    for j in range(1, keys.shape[0] + 1):
        if j == keys.shape[0] or (keys[j] >> index_bits) != (keys[run] >> index_bits):
            if j - run > 1 and not _tied(ratio, run, j):
                if j - run > SHORT:
                    long[count, 0], long[count, 1] = run, j
                    count += 1
                else:
                    _insert(ratio, order, run, j)
            run = j
    return long[:count]


@jit()
def _gather(order, p, q):
    vocab = p.shape[0]
    p_sorted, q_sorted, prefix = np.empty(vocab), np.empty(vocab), np.empty((vocab + 1, 2))
    q_sum = p_sum = 0.0
    for j in range(vocab):
        prefix[j, 0], prefix[j, 1] = q_sum, p_sum
        p_sorted[j], q_sorted[j] = p[order[j]], q[order[j]]
        q_sum += q_sorted[j]
        p_sum += p_sorted[j]
    prefix[vocab, 0], prefix[vocab, 1] = q_sum, p_sum
    return p_sorted, q_sorted, prefix


@jit()
def bucket_table(ratio):
    bits = ratio.view(np.int64)
    table = np.empty(BUCKETS + 1, np.int32)
    bucket = 0
    table[0] = 0
    for j in range(ratio.shape[0]):
        here = bucket_of(bits[j])
        while bucket < here:
            bucket += 1
            table[bucket] = j
    table[bucket + 1 :] = ratio.shape[0]
    return table


@inline
def rank_of(t, ratio, table) -> Array:
    """Number of tokens with p/q < t, for t >= 0."""
    b = bucket_of(np.float64(t).view(np.int64))
    lo, hi = table[b], table[b + 1]
    if hi - lo > SHORT:
        return lo + np.searchsorted(ratio[lo:hi], t)
    while lo < hi and ratio[lo] < t:
        lo += 1
    return lo


def _settle_infinite(order: NDArray[np.int64], ratio: NDArray[np.float64], p: Array, q: Array) -> None:
    """Tokens whose p/q overflows, in ascending order of it; tokens with q = 0 stay behind them."""
    first = int(np.searchsorted(ratio, np.inf))
    tail = order[first:]
    drafted = q[tail] > 0.0
    if drafted.any():
        overflowing = tail[drafted]
        # An overflowing ratio has q < 2**-1023: 2**64 q is exact, and p over it in range.
        key = np.argsort(p[overflowing] / (q[overflowing] * 2.0**64), kind="stable")
        order[first:] = np.concatenate([overflowing[key], tail[~drafted]])


def ratio_order(p: NDArray[np.float64], q: NDArray[np.float64]) -> RatioOrder:
    """Sort one position's tokens by p/q.

    Parameters
    ----------
    p, q : float64 (V,)
        Non-negative and finite; one position.
    """
    p = np.ascontiguousarray(p, np.float64)
    q = np.ascontiguousarray(q, np.float64)
    index_bits = max(p.shape[0] - 1, 1).bit_length()
    keys = _keys(p, q, index_bits)
    keys.sort()  # integers sort faster than an argsort of the ratios, and carry the token with them
    order, ratio = _unpack(keys, p, q, index_bits)
    for lo, hi in _settle_runs(keys, ratio, order, index_bits):
        inner = np.argsort(ratio[lo:hi], kind="stable")
        ratio[lo:hi], order[lo:hi] = ratio[lo:hi][inner], order[lo:hi][inner]
    if np.isinf(ratio[-1]):
        _settle_infinite(order, ratio, p, q)
    p_sorted, q_sorted, prefix = _gather(order, p, q)
    return RatioOrder(order, ratio, p_sorted, q_sorted, prefix, bucket_table(ratio))
