"""The vocabulary sorted by p/q, with prefix sums: what turns O(V) sums into O(1) look-ups.

Every quantity of the form ``sum_x min(t q(x), p(x))`` or ``sum_x (t q(x) - p(x))_+`` splits at the
tokens with ``p/q < t``, a prefix of this order. One bucket sort on the leading bits of the ratio gives
the order *and* the table that finds the rank of any ``t`` in a short scan.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["RatioOrder", "ratio_order"]

# A float64 key keeps MANTISSA leading bits of the fraction below the exponent, for exponents from
# 2**LOWEST to 2**HIGHEST; what lies outside shares the first or last bucket.
_MANTISSA = 9
_LOWEST, _HIGHEST = -90, 10
_SHIFT = 52 - _MANTISSA
_BASE = (1023 + _LOWEST) << _MANTISSA
_BUCKETS = ((_HIGHEST - _LOWEST) << _MANTISSA) + 2
INSERTION_LIMIT = 24  # longer buckets are sorted by a library sort and searched by bisection


class RatioOrder(NamedTuple):
    """One position's tokens in ascending order of p/q (tokens with q = 0 last).

    Attributes
    ----------
    order : int64 (V,)
        ``order[j]`` is the token at rank ``j``.
    ratio, p, q : float64 (V,)
        p/q, p and q in that order; ``ratio`` is inf where q = 0.
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


@numba.njit(inline="always")
def bucket_of(bits):
    key = (bits >> _SHIFT) - _BASE
    return 0 if key < 0 else (_BUCKETS - 1 if key >= _BUCKETS else key)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _sort_buckets(ratio, order, table):
    """Sort each bucket by ratio, carrying the tokens along; stable."""
    for b in range(_BUCKETS):
        lo, hi = table[b], table[b + 1]
        if hi - lo > INSERTION_LIMIT:
            inner = np.argsort(ratio[lo:hi], kind="mergesort")
            ratio[lo:hi] = ratio[lo:hi][inner]
            order[lo:hi] = order[lo:hi][inner]
            continue
        for j in range(lo + 1, hi):
            value, token = ratio[j], order[j]
            i = j
            while i > lo and ratio[i - 1] > value:
                ratio[i], order[i] = ratio[i - 1], order[i - 1]
                i -= 1
            ratio[i], order[i] = value, token


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _build(p, q):
    vocab = p.shape[0]
    unsorted = np.empty(vocab)
    for x in range(vocab):
        unsorted[x] = p[x] / q[x] if q[x] > 0.0 else np.inf
    bits = unsorted.view(np.int64)
    table = np.zeros(_BUCKETS + 1, np.int32)
    for x in range(vocab):
        table[bucket_of(bits[x]) + 1] += 1
    for b in range(_BUCKETS):
        table[b + 1] += table[b]
    cursor = table[:-1].copy()
    order = np.empty(vocab, np.int64)
    ratio = np.empty(vocab)
    for x in range(vocab):
        b = bucket_of(bits[x])
        j = cursor[b]
        cursor[b] = j + 1
        order[j] = x
        ratio[j] = unsorted[x]
    _sort_buckets(ratio, order, table)
    p_sorted, q_sorted = np.empty(vocab), np.empty(vocab)
    prefix = np.empty((vocab + 1, 2))
    q_sum = p_sum = 0.0
    for j in range(vocab):
        prefix[j, 0], prefix[j, 1] = q_sum, p_sum
        p_sorted[j], q_sorted[j] = p[order[j]], q[order[j]]
        q_sum += q_sorted[j]
        p_sum += p_sorted[j]
    prefix[vocab, 0], prefix[vocab, 1] = q_sum, p_sum
    return order, ratio, p_sorted, q_sorted, prefix, table


@numba.njit(inline="always")
def rank_below(t, ratio, table, scratch):
    """Number of tokens with p/q < t, for t >= 0; ``scratch`` is a float64 (1,) work cell."""
    scratch[0] = t
    b = bucket_of(scratch.view(np.int64)[0])
    lo, hi = table[b], table[b + 1]
    if hi - lo > INSERTION_LIMIT:
        return lo + np.searchsorted(ratio[lo:hi], t)
    while lo < hi and ratio[lo] < t:
        lo += 1
    return lo


def ratio_order(p: NDArray[np.float64], q: NDArray[np.float64]) -> RatioOrder:
    """Sort one position's tokens by p/q.

    Parameters
    ----------
    p, q : float64 (V,)
        Non-negative and finite; one position.
    """
    p = np.ascontiguousarray(p, np.float64)
    q = np.ascontiguousarray(q, np.float64)
    return RatioOrder(*_build(p, q))
