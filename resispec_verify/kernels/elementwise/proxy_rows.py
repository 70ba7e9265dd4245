"""The path identity of ResiSpec's proxy, row by row: as `rows`, with a draw and a proxy in each round."""

from __future__ import annotations

import numpy as np

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.compiled import BLOCK, REORDER, add_up, apart, row_apart
from resispec_verify.kernels.elementwise.rows import normalised
from resispec_verify.kernels.jit import jit

__all__ = ["proportional_identity"]


@jit(fastmath=REORDER)
def _open(rest, inverse, draft, sums):
    """Normalise a row in place; by block, what it holds and ``(q - R)_+``."""
    zero = rest.dtype.type(0)
    vocab = rest.shape[0]
    for k in range(sums.shape[1]):
        first, last = k * BLOCK, min((k + 1) * BLOCK, vocab)
        here, tested = rest[first:last], draft[first:last]
        held = over = zero
        for x in range(last - first):
            R, q = here[x] * inverse, tested[x]
            here[x] = R
            held += R
            over += q - R if q > R else zero
        sums[0, k], sums[1, k] = held, over


@jit()
def _drawn(rest, draft, over, uniform):
    """A token by inversion from ``(q - R)_+``, of sums ``over`` by block, or from q where that is empty."""
    zero = rest.dtype.type(0)
    vocab = rest.shape[0]
    total = zero
    for k in range(over.shape[0]):
        total += over[k]
    anything = total <= 0
    if anything:
        for k in range(over.shape[0]):
            over[k] = zero
            for x in range(k * BLOCK, min((k + 1) * BLOCK, vocab)):
                over[k] += draft[x]
            total += over[k]
    bar, seen, block, before = uniform * total, zero, 0, zero
    for k in range(over.shape[0]):
        if over[k] > 0:
            block, before = k, seen
            seen += over[k]
            if seen > bar:
                break
    token = block * BLOCK
    for x in range(block * BLOCK, min((block + 1) * BLOCK, vocab)):
        mass = draft[x] if anything else max(draft[x] - rest[x], zero)
        if mass > 0:
            before += mass
            token = x
            if before > bar:
                break
    return token


@jit(fastmath=REORDER)
def _clipped(rest, draft, Z, sums):
    """Sums of ``r = min(Z q, R)`` and of the room ``R - r`` above it."""
    zero = rest.dtype.type(0)
    vocab = rest.shape[0]
    for k in range(sums.shape[1]):
        first, last = k * BLOCK, min((k + 1) * BLOCK, vocab)
        here, tested = rest[first:last], draft[first:last]
        clipped = room = zero
        for x in range(last - first):
            R, wanted = here[x], Z * tested[x]
            clipped += wanted if wanted < R else R
            room += R - wanted if wanted < R else zero
        sums[0, k], sums[1, k] = clipped, room
    return add_up(sums[0]), add_up(sums[1])


@jit(fastmath=REORDER)
def _shaped_round(rest, draft, total, weight, Z, share, sums):
    """Emit ``min(k, R)`` with ``k = R - r - share (R - r)`` and leave what is left, by block."""
    zero = rest.dtype.type(0)
    vocab = rest.shape[0]
    for b in range(sums.shape[1]):
        first, last = b * BLOCK, min((b + 1) * BLOCK, vocab)
        here, tested, out = rest[first:last], draft[first:last], total[first:last]
        left = zero
        for x in range(last - first):
            R, wanted = here[x], Z * tested[x]
            r = wanted if wanted < R else R
            k = R - (r + share * (R - r))
            taken = k if k < R else R
            out[x] += weight * taken
            after = R - taken if taken < R else zero
            here[x] = after
            left += after
        sums[0, b] = left


@jit()
def _proportional_round(rest, draft, total, weight, x0, sums):
    """One round of a row after `_open`; the mass that is left.

    The rejected token has a k of its own and is outside all sums: its place is empty meanwhile.
    """
    zero, one = rest.dtype.type(0), rest.dtype.type(1)
    R0, q0, home = rest[x0], draft[x0], x0 // BLOCK
    rest[x0] = zero
    sums[0, home] = zero
    for x in range(home * BLOCK, min((home + 1) * BLOCK, rest.shape[0])):
        sums[0, home] += rest[x]
    Z = min(abs(q0 - R0), add_up(sums[0]))
    clipped, room = _clipped(rest, draft, Z, sums)
    share = min(max(Z - clipped, zero) / room, one) if room > 0 else zero
    _shaped_round(rest, draft, total, weight, Z, share, sums)
    taken = min(q0, R0)
    total[x0] += weight * taken
    rest[x0] = R0 - taken
    sums[0, home] += rest[x0]
    return add_up(sums[0])


@jit()
def _proportional(target, draft, tokens, uniforms, given, total):
    """All rounds of the path identity of ResiSpec's proxy; see `proportional_identity`."""
    rows, vocab = target.shape
    one = target.dtype.type(1)
    rest = row_apart(vocab, target.dtype)
    sums = np.empty((2, (vocab + BLOCK - 1) // BLOCK), target.dtype)
    for b in range(rows):
        q, out = draft[b], total[b]
        inverse = weight = one
        for x in range(vocab):
            rest[x] = target[b, x]
            out[x] = 0
        for i in range(tokens.shape[1]):
            _open(rest, inverse, q, sums)
            x0 = tokens[b, i] if given else _drawn(rest, q, sums[1], uniforms[b, i])
            mass = _proportional_round(rest, q, out, weight, x0, sums)
            weight = weight * mass
            if not mass > 0:
                break  # all is emitted
            inverse = normalised(rest, mass)
        for x in range(vocab):
            out[x] += weight * (rest[x] * inverse)


def proportional_identity(
    target: Array, draft: Array, rounds: int, *, tokens: Array | None = None, uniforms: Array | None = None
) -> Array:
    """The path identity of ResiSpec's proxy as printed; see `evidence.path_identity`.

    Parameters
    ----------
    target, draft : array (B, V)
        That `compilable` takes.
    rounds : int
    tokens : integer array (B, >= rounds), optional
        The rejected candidates, inside the vocabulary. Or:
    uniforms : array (B, >= rounds), optional
        In [0, 1): each is drawn by inversion from what can be rejected in its round.
    """
    shape = (target.shape[0], rounds)
    lists = np.zeros(shape, np.int64) if tokens is None else np.asarray(tokens[:, :rounds], np.int64)
    coins = np.zeros(shape) if uniforms is None else uniforms[:, :rounds]
    lists, coins = (np.ascontiguousarray(a) for a in (lists, coins.astype(target.dtype)))
    total = apart(target.shape, target.dtype)
    p, q = (np.ascontiguousarray(a) for a in (target, draft))
    _proportional(p, q, lists, coins, tokens is not None, total)
    return total
