"""Single-pass loops for NumPy rows, behind the array functions of the same names.

Each function here computes what its namesake in `residuals`, `divergences` or `evidence` computes with whole
arrays, without the temporaries. Sums run over blocks of 128 and then over the blocks, pairwise, so one term
passes through at most ``128 + log2(V / 128)`` additions; `reassoc` lets a block be added in vector registers.
Large outputs are allocated by NumPy, which asks for huge pages; compiled code does not, and first touching
its pages would take most of the time.

A loop that both writes and adds has vector registers only where what it writes is some way from what it
reads: the compiler tests that as it runs, and adds in another order where it is not so. Such a loop writes to
what `apart` or `zeros_beside` made, so that the last bits do not depend on where a small array happens to be.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import is_numpy_array

from resispec_verify.arrays import Array
from resispec_verify.kernels.jit import inline, jit, may_compile

__all__ = [
    "accept_ratio",
    "accumulate",
    "apart",
    "compilable",
    "draw",
    "proportional_k",
    "split",
    "subtract",
    "zeros_beside",
]

BLOCK = 128
SERIES = 1e-3  # |m/p - 1| below which the divergence is summed as a series

# Sums inside a block may be reordered, so that they use vector registers.
REORDER = {"reassoc"}

# Bytes, several times what a loop in vector registers goes through at once.
_MARGIN = 1024


def compilable(*arrays: Any) -> bool:
    """Whether the arrays are NumPy rows ``(B, V)`` of one floating dtype, contiguous along the vocabulary.

    Never inside `jit.uncompiled`.
    """
    first = arrays[0]
    return (
        may_compile()
        and is_numpy_array(first)
        and first.dtype in (np.float64, np.float32)
        and all(is_numpy_array(a) and a.dtype == first.dtype and a.shape == first.shape for a in arrays)
        and all(a.ndim == 2 and a.shape[1] > 0 and a.strides[1] == a.itemsize for a in arrays)
    )


def apart(shape: tuple[int, ...], dtype: Any) -> Array:
    """``np.empty``, at least `_MARGIN` bytes away from the same token of any other array."""
    margin, size = _MARGIN // np.dtype(dtype).itemsize, math.prod(shape)
    if shape[-1] >= margin:  # then the array itself keeps others away
        return np.empty(shape, dtype)
    return np.empty(size + 2 * margin, dtype)[margin : margin + size].reshape(shape)


def zeros_beside(rows: Array) -> Array:
    """Zeros in the shape of some rows, likewise."""
    if rows.shape[-1] * rows.itemsize >= _MARGIN:
        return np.zeros(rows.shape, rows.dtype)  # pages that nobody has touched
    out = apart(rows.shape, rows.dtype)
    out[...] = 0
    return out


@jit(inner=True)
def row_apart(vocab, dtype):
    """The same for a row, in compiled code."""
    return np.empty(vocab + 2 * _MARGIN, dtype)[_MARGIN : _MARGIN + vocab]


@jit()
def add_up(values):
    """Pairwise sum of a short array, destroying it."""
    count = values.shape[0]
    while count > 1:
        half = count // 2
        for i in range(half):
            values[i] = values[2 * i] + values[2 * i + 1]
        if count % 2:
            values[half] = values[count - 1]
            half += 1
        count = half
    return values[0]


@jit()
def _accept_ratio(current, draft, out):
    zero, one = current.dtype.type(0), current.dtype.type(1)
    for b in range(current.shape[0]):
        here, tested, there = current[b], draft[b], out[b]
        for x in range(current.shape[1]):
            R, q = here[x], tested[x]
            there[x] = R / q if q > R else (one if zero < R else zero)


def accept_ratio(current: Array, draft: Array) -> Array:
    """See `residuals.accept_ratio`."""
    out = np.empty_like(current)
    _accept_ratio(current, draft, out)
    return out


@jit(fastmath=REORDER)
def _subtract(current, draft, out):
    zero = current.dtype.type(0)
    rows, vocab = current.shape
    blocks = (vocab + BLOCK - 1) // BLOCK
    partial = np.empty(blocks, current.dtype)
    for b in range(rows):
        for k in range(blocks):
            first, last = k * BLOCK, min((k + 1) * BLOCK, vocab)
            here, taken, there = current[b, first:last], draft[b, first:last], out[b, first:last]
            total = zero
            for x in range(last - first):
                left = here[x] - taken[x] if taken[x] < here[x] else zero
                there[x] = left
                total += left
            partial[k] = total
        mass, there, here = add_up(partial), out[b], current[b]
        for x in range(vocab):
            there[x] = there[x] / mass if mass > 0 else here[x]


def subtract(current: Array, draft: Array) -> Array:
    """See `residuals.standard_residual`."""
    out = apart(current.shape, current.dtype)
    _subtract(current, draft, out)
    return out


@jit(fastmath=REORDER)
def accumulate(placed, law, accept, weight):
    """Add ``weight law accept`` to ``placed`` in place (`zeros_beside`); (accepted, rejected) mass by row."""
    zero = law.dtype.type(0)
    rows, vocab = law.shape
    blocks = (vocab + BLOCK - 1) // BLOCK
    partial, rejected_partial = np.empty(blocks, law.dtype), np.empty(blocks, law.dtype)
    accepted, rejected = np.empty((rows, 1), law.dtype), np.empty((rows, 1), law.dtype)
    for b in range(rows):
        w = weight[b, 0]
        for k in range(blocks):
            first, last = k * BLOCK, min((k + 1) * BLOCK, vocab)
            drawn, passed, out = law[b, first:last], accept[b, first:last], placed[b, first:last]
            total = rest = zero
            for x in range(last - first):
                proposed = w * drawn[x]
                emitted = proposed * passed[x]
                out[x] += emitted
                total += emitted
                # A choice, which a sum that is reordered cannot take apart: the difference keeps its digits.
                rest += proposed - emitted if emitted < proposed else zero
            partial[k], rejected_partial[k] = total, rest
        accepted[b, 0], rejected[b, 0] = add_up(partial), add_up(rejected_partial)
    return accepted, rejected


@jit(fastmath=REORDER)
def _split(total, k, current, weight, rest):
    zero = current.dtype.type(0)
    rows, vocab = current.shape
    blocks = (vocab + BLOCK - 1) // BLOCK
    partial = np.empty(blocks, current.dtype)
    after = np.empty_like(weight)
    for b in range(rows):
        w = weight[b, 0]
        for i in range(blocks):
            first, last = i * BLOCK, min((i + 1) * BLOCK, vocab)
            proxy, here = k[b, first:last], current[b, first:last]
            out, there = total[b, first:last], rest[b, first:last]
            left = zero
            for x in range(last - first):
                R = here[x]
                emitted = proxy[x] if proxy[x] < R else R
                out[x] += w * emitted
                unspent = R - emitted if emitted < R else zero
                there[x] = unspent
                left += unspent
            partial[i] = left
        mass = add_up(partial)
        after[b, 0] = w * mass
        for x in range(vocab):
            rest[b, x] = rest[b, x] / mass if mass > 0 else current[b, x]
    return after


def split(total: Array, k: Array, current: Array, weight: Array) -> tuple[Array, Array]:
    """One round of the path identity: add ``weight min(k, R)`` to ``total`` in place, of `zeros_beside`.

    Returns the weight and the current target of the next round.
    """
    rest = apart(current.shape, current.dtype)
    return _split(total, k, current, weight, rest), rest


@jit(fastmath=REORDER)
def _proportional_k(current, draft, tokens, k):
    zero, one = current.dtype.type(0), current.dtype.type(1)
    rows, vocab = current.shape
    blocks = (vocab + BLOCK - 1) // BLOCK
    clipped_partial, whole_partial = np.empty(blocks, current.dtype), np.empty(blocks, current.dtype)
    for b in range(rows):
        x0 = tokens[b]
        if x0 < 0 or x0 >= vocab:
            raise IndexError("token outside the vocabulary")
        R0, q0 = current[b, x0], draft[b, x0]
        for i in range(blocks):
            whole = zero
            for x in range(i * BLOCK, min((i + 1) * BLOCK, vocab)):
                whole += current[b, x] if x != x0 else zero
            whole_partial[i] = whole
        off = add_up(whole_partial)
        Z = min(abs(q0 - R0), off)
        for i in range(blocks):
            clipped = room = zero
            for x in range(i * BLOCK, min((i + 1) * BLOCK, vocab)):
                r = min(Z * draft[b, x], current[b, x]) if x != x0 else zero
                free = current[b, x] - r if x != x0 else zero
                clipped += r
                room += free
            clipped_partial[i], whole_partial[i] = clipped, room
        delta, capacity = max(Z - add_up(clipped_partial), zero), add_up(whole_partial)
        share = min(delta / capacity, one) if capacity > 0 else zero
        for x in range(vocab):
            r = min(Z * draft[b, x], current[b, x])
            k[b, x] = current[b, x] - (r + share * (current[b, x] - r))
        k[b, x0] = q0


def proportional_k(current: Array, draft: Array, tokens: Array) -> Array:
    """GetProxy's k for one token a row: proportional redistribution, local budget, hole excluded."""
    k = np.empty_like(current)
    _proportional_k(current, draft, tokens, k)
    return k


@jit(fastmath=REORDER)
def draw(draft, current, uniforms):
    """Tokens by inversion from ``(q - R)_+``, or from q where that is empty; see `draw_candidates`."""
    zero = draft.dtype.type(0)
    rows, vocab = draft.shape
    tokens = np.empty(rows, np.int64)
    for b in range(rows):
        total = zero
        for x in range(vocab):
            total += max(draft[b, x] - current[b, x], zero)
        anything = total <= 0
        if anything:
            for x in range(vocab):
                total += draft[b, x]
        bar, seen, last = uniforms[b] * total, zero, 0
        for x in range(vocab):
            mass = draft[b, x] if anything else max(draft[b, x] - current[b, x], zero)
            if mass > 0:
                seen += mass
                last = x
                if seen > bar:
                    break
        tokens[b] = last
    return tokens


@inline
def kl_term(m, p):
    """``m log(m/p) - m + p``; see `divergences.kl_terms`."""
    d = m - p
    if d == 0.0:
        return 0.0
    if p <= 0.0:
        return np.inf
    if abs(d) < SERIES * p:
        t = d / p
        return d * t * (0.5 - t * (1 / 6 - t * (1 / 12 - t * (1 / 20 - t / 30))))
    if m <= 0.0:
        return p
    if abs(d) < 0.5 * p:
        return max(m * np.log1p(d / p) - d, 0.0)
    ratio = m / p
    # Over a denormal target the ratio overflows; its logarithm does not.
    log_ratio = np.log(ratio) if ratio < np.inf else np.log(m) - np.log(p)
    return max(m * log_ratio - d, 0.0)


@jit(fastmath=REORDER)
def _fill_level(placed, target, allowed, gap):
    """The level ``l`` with ``sum (l target - placed)_+ = gap`` over allowed tokens; see `divergences`."""
    level = np.inf
    while True:
        room = held = 0.0
        for x in range(placed.shape[0]):
            if allowed[x] and target[x] > 0.0 and placed[x] < level * target[x]:
                room += target[x]
                held += placed[x]
        new = (gap + held) / room if room > 0.0 else 0.0
        if not new < level:
            return level
        level = new


@jit(fastmath=REORDER)
def kl_bounds(placed, target, gap, allowed):
    """Bounds on KL by row; see `divergences.divergence_bounds`."""
    rows, vocab = placed.shape
    blocks = (vocab + BLOCK - 1) // BLOCK
    base_partial, low_partial = np.empty(blocks), np.empty(blocks)
    low, high = np.empty(rows), np.empty(rows)
    for b in range(rows):
        g, worst, inside = gap[b], -np.inf, False
        level = _fill_level(placed[b], target[b], allowed[b], g) if g > 0.0 else 0.0
        # A token lifted to the level contributes p (l log l - l + 1).
        lifted = kl_term(level, 1.0) if level < np.inf else 0.0
        for k in range(blocks):
            base = filled = 0.0
            for x in range(k * BLOCK, min((k + 1) * BLOCK, vocab)):
                m, p = placed[b, x], target[b, x]
                term = kl_term(m, p)
                base += term
                filled += p * lifted if allowed[b, x] and m < level * p else term
                if g > 0.0 and allowed[b, x]:
                    inside = inside or p > 0.0
                    worst = max(worst, np.inf if p <= 0.0 else kl_term(m + g, p) - term)
            base_partial[k], low_partial[k] = base, filled
        start = add_up(base_partial)
        high[b] = start + worst if g > 0.0 else start
        low[b] = start if g <= 0.0 else (min(add_up(low_partial), high[b]) if inside else np.inf)
    return low, high
