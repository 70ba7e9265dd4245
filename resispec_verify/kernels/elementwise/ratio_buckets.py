"""The vocabulary in buckets of p/q, with sums by bucket: prefixes of the ratio order without a sort.

A bucket is an interval of ratios, made of the exponent and the leading bits of the fraction, so that no
logarithm is taken. Sums over the tokens below a ratio are those of whole buckets and of the few tokens that
share the ratio's own bucket. What needs an order inside a bucket sorts that bucket alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.elementwise.ratio_order import float_bits
from resispec_verify.kernels.jit import jit

__all__ = ["RatioBuckets", "TokensByBucket", "edges", "filled_and_open", "grouped", "ratio_buckets"]

_OCTAVES = 32  # what lies further below the highest level shares the first bucket
_MOST_BITS = 7  # of the fraction: 4,097 buckets, whose sums stay in the cache
_TOKENS = 11  # no more bits than leave a bucket 2**_TOKENS tokens where one octave holds all


class RatioBuckets(NamedTuple):
    """Sums over one position's tokens by K buckets of p/q; tokens with q = 0 are in the last one.

    Attributes
    ----------
    keys : uint16 (V,)
        Each token's bucket.
    sums : float64 (K, 2)
        Of p and q in each bucket.
    below : float64 (K + 1, 2)
        The same over all buckets before each.
    above : float64 (K + 1,)
        Sums of q from each bucket on: a difference of prefix sums would cancel.
    shift, base : int
        A ratio with the bits ``i`` is in bucket ``(i >> shift) - base``, or in the first or last one.
    """

    keys: NDArray[np.uint16]
    sums: NDArray[np.float64]
    below: NDArray[np.float64]
    above: NDArray[np.float64]
    shift: int
    base: int


class TokensByBucket(NamedTuple):
    """p and q of one position's tokens, ``tokens (V, 2)``, bucket after bucket; where each begins, ``first (K + 1,)``."""

    tokens: NDArray[np.float64]
    first: NDArray[np.int64]


@jit()
def _keys(p, q, shift, base, last, keys):
    for x in range(p.shape[0]):
        ratio = p[x] / q[x] if q[x] > 0.0 else np.inf
        keys[x] = min(max((float_bits(ratio) >> shift) - base, 0), last)  # pyright: ignore[reportCallIssue]


@jit()
def _add(p, q, keys, sums, below, above):
    buckets = sums.shape[0]
    for x in range(p.shape[0]):
        b = keys[x]
        sums[b, 0] += p[x]
        sums[b, 1] += q[x]
    for b in range(buckets):
        below[b + 1, 0], below[b + 1, 1] = below[b, 0] + sums[b, 0], below[b, 1] + sums[b, 1]
    for b in range(buckets - 1, -1, -1):
        above[b] = above[b + 1] + sums[b, 1]


@jit()
def _group(p, q, keys, first, tokens):
    buckets = first.shape[0] - 1
    for x in range(keys.shape[0]):
        first[keys[x] + 1] += 1
    for b in range(buckets):
        first[b + 1] += first[b]
    place = first[:buckets].copy()
    for x in range(keys.shape[0]):
        at = place[keys[x]]
        place[keys[x]] = at + 1
        tokens[at, 0], tokens[at, 1] = p[x], q[x]


def ratio_buckets(p: NDArray[np.float64], q: NDArray[np.float64], highest: int) -> RatioBuckets:
    """Put one position's tokens in buckets by p/q.

    Parameters
    ----------
    p, q : float64 (V,)
        Non-negative and finite; one position.
    highest : int
        At least 1. Above it ratios share the last bucket, or that of one power of two.
    """
    vocab = p.shape[0]
    bits = min(max(vocab.bit_length() - _TOKENS, 0), _MOST_BITS)
    count = (_OCTAVES << bits) + 1
    shift, base = 52 - bits, (1023 + math.frexp(highest)[1] - _OCTAVES) << bits
    keys = np.empty(vocab, np.uint16)
    _keys(p, q, shift, base, count - 1, keys)
    sums, below, above = np.zeros((count, 2)), np.zeros((count + 1, 2)), np.zeros(count + 1)
    _add(p, q, keys, sums, below, above)
    return RatioBuckets(keys, sums, below, above, shift, base)


def grouped(p: NDArray[np.float64], q: NDArray[np.float64], buckets: RatioBuckets) -> TokensByBucket:
    """The tokens bucket after bucket, inside a bucket as they came."""
    tokens, first = np.empty((p.shape[0], 2)), np.zeros(len(buckets.sums) + 1, np.int64)
    _group(p, q, buckets.keys, first, tokens)
    return TokensByBucket(tokens, first)


def edges(buckets: RatioBuckets) -> NDArray[np.float64]:
    """The least ratio of each bucket, ``(K,)``."""
    bits = (np.arange(len(buckets.sums), dtype=np.int64) + buckets.base) << buckets.shift
    bits[0] = 0
    return bits.view(np.float64)


@numba.njit(inline="always")
def _bucket(t, buckets):
    key = (float_bits(t) >> buckets.shift) - buckets.base  # pyright: ignore[reportCallIssue]
    return min(max(key, 0), buckets.sums.shape[0] - 1)


@jit(fastmath={"reassoc"})  # so that a bucket is added in vector registers
def filled_and_open(t, buckets, by_bucket):
    """The p of tokens with ``p < t q``, and the q of all others; ``sum min(p, t q)`` is the one plus t times the other.

    ``t`` is at most ``highest``; at and below 0 no token is filled.
    """
    b = _bucket(t, buckets)
    tokens, first = by_bucket
    filled = still_open = 0.0
    for j in range(first[b], first[b + 1]):
        full = tokens[j, 0] < t * tokens[j, 1]
        filled += tokens[j, 0] if full else 0.0
        still_open += 0.0 if full else tokens[j, 1]
    return buckets.below[b, 0] + filled, buckets.above[b + 1] + still_open
