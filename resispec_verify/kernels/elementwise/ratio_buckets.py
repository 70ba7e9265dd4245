"""The vocabulary in buckets of p/q, with sums by bucket: prefixes of the ratio order without a sort.

A bucket is an interval of ratios, made of the exponent and the leading bits of the fraction, so that no
logarithm is taken. Sums over the tokens below a ratio are those of whole buckets and of the few tokens that
share the ratio's own bucket. What needs an order inside a bucket sorts that bucket alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.jit import jit

__all__ = [
    "Inside",
    "RatioBuckets",
    "edges",
    "empty_buckets",
    "fill",
    "filled_and_open",
    "looked_into",
    "ratio_buckets",
]

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


class Inside(NamedTuple):
    """The tokens of those buckets that were looked into.

    Attributes
    ----------
    p, q : float64 (V,)
        Of all tokens.
    tokens : float64 (V, 2)
        p and q, bucket after bucket in the order they were looked into.
    place : int64 (K, 2)
        Where a bucket begins and ends in ``tokens``; -1 where it was not looked into.
    used : int64 (1,)
        Rows of ``tokens`` that are filled.
    """

    p: NDArray[np.float64]
    q: NDArray[np.float64]
    tokens: NDArray[np.float64]
    place: NDArray[np.int64]
    used: NDArray[np.int64]


@jit()
def fill(p, q, buckets):
    """Put one position's tokens into buckets that `empty_buckets` made, in the place of what is in them."""
    keys, sums, below, above, shift, base = buckets
    count = sums.shape[0]
    for x in range(p.shape[0]):
        ratio = p[x] / q[x] if q[x] > 0.0 else np.inf
        keys[x] = min(max((np.float64(ratio).view(np.int64) >> shift) - base, 0), count - 1)
    for b in range(count):
        sums[b, 0] = sums[b, 1] = 0.0
    for x in range(p.shape[0]):
        b = keys[x]
        sums[b, 0] += p[x]
        sums[b, 1] += q[x]
    for b in range(count):
        below[b + 1, 0], below[b + 1, 1] = below[b, 0] + sums[b, 0], below[b, 1] + sums[b, 1]
    for b in range(count - 1, -1, -1):
        above[b] = above[b + 1] + sums[b, 1]


def empty_buckets(vocab: int, highest: int) -> RatioBuckets:
    """Buckets for positions of so many tokens, for `fill`.

    Parameters
    ----------
    highest : int
        At least 1. Above it ratios share the last bucket, or that of one power of two.
    """
    bits = min(max(vocab.bit_length() - _TOKENS, 0), _MOST_BITS)
    count = (_OCTAVES << bits) + 1
    shift, base = 52 - bits, (1023 + math.frexp(highest)[1] - _OCTAVES) << bits
    sums, below, above = np.zeros((count, 2)), np.zeros((count + 1, 2)), np.zeros(count + 1)
    return RatioBuckets(np.empty(vocab, np.uint16), sums, below, above, shift, base)


def ratio_buckets(p: NDArray[np.float64], q: NDArray[np.float64], highest: int) -> RatioBuckets:
    """Put one position's tokens in buckets by p/q.

    Parameters
    ----------
    p, q : float64 (V,)
        Non-negative and finite; one position.
    highest : int
        As `empty_buckets`.
    """
    buckets = empty_buckets(p.shape[0], highest)
    fill(p, q, buckets)
    return buckets


def looked_into(vocab: int, buckets: RatioBuckets) -> tuple[NDArray, NDArray, NDArray]:
    """Nothing yet: the last three of `Inside`. `filled_and_open` looks into buckets when it has to."""
    place = np.full((len(buckets.sums), 2), -1, np.int64)
    return np.empty((vocab, 2)), place, np.zeros(1, np.int64)


def edges(buckets: RatioBuckets) -> NDArray[np.float64]:
    """The least ratio of each bucket, ``(K,)``."""
    bits = (np.arange(len(buckets.sums), dtype=np.int64) + buckets.base) << buckets.shift
    bits[0] = 0
    return bits.view(np.float64)


@jit()
def _bucket(t, buckets):
    key = (np.float64(t).view(np.int64) >> buckets.shift) - buckets.base
    return min(max(key, 0), buckets.sums.shape[0] - 1)


@jit()
def _look_into(b, keys, inside):
    """Copy the tokens of one bucket."""
    p, q, tokens, place, used = inside
    at = place[b, 0] = used[0]
    key = np.uint16(b)  # compared as it is stored
    for x in range(keys.shape[0]):
        if keys[x] == key:
            tokens[at, 0], tokens[at, 1] = p[x], q[x]
            at += 1
    place[b, 1] = used[0] = at


@jit(fastmath={"reassoc"})  # so that a bucket is added in vector registers
def filled_and_open(t, buckets, inside, roughly):
    """The p of tokens with ``p < t q``, and the q of all others.

    ``sum min(p, t q)`` is the first and t times the second.

    Parameters
    ----------
    t : float
        At most ``highest``; at and below 0 no token is filled.
    buckets, inside
        Of one position.
    roughly : bool
        Take all tokens that share the bucket of t for open ones.
    """
    b = _bucket(t, buckets)
    if roughly:
        return buckets.below[b, 0], buckets.above[b]
    if inside.place[b, 0] < 0:
        _look_into(b, buckets.keys, inside)
    filled = still_open = 0.0
    for j in range(inside.place[b, 0], inside.place[b, 1]):
        p, q = inside.tokens[j, 0], inside.tokens[j, 1]
        filled += p if p < t * q else 0.0
        still_open += 0.0 if p < t * q else q
    return buckets.below[b, 0] + filled, buckets.above[b + 1] + still_open
