"""Whole rows at once: rounds of the standard residual, path identities, and what is said of a marginal.

Each kernel goes through one row after the other, several times, so that a row of a usual vocabulary stays in
the second-level cache from its first pass to its last. What they compute is written with whole arrays in
`evidence.enumeration`, `evidence.path_identity` and `kernels.elementwise.divergences`, which tests hold them
against. Sums run over blocks of 128 and then over the blocks, pairwise, as in `compiled`.

A residual is kept as it is before its division, ``(R - q)_+``, and multiplied by the reciprocal of its mass in
the next pass: two roundings where a division has one. What is emitted is ``w min(q, R)``, one rounding where
``w q min(1, R/q)`` has three, so the count behind `rounding_bound` holds. Blocks are slices and comparisons are
written out because the compiler then uses vector registers, which it does not for ``min`` and ``max``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.compiled import (
    BLOCK,
    REORDER,
    SERIES,
    add_up,
    compilable,
    kl_term,
)
from resispec_verify.kernels.jit import jit

__all__ = [
    "MOST_NAMED",
    "Emitted",
    "Rounds",
    "emitted",
    "proportional_identity",
    "standard_identity",
    "standard_rounds",
]

MOST_NAMED = 10
"""Tokens that are never emitted, of one row, that are named."""


class Rounds(NamedTuple):
    """All rounds of a rule without memory of tokens.

    Attributes
    ----------
    placed : array (B, V)
        What is emitted.
    accepted : array (B, n)
        Probability that candidate ``i + 1`` is the one emitted.
    weights : array (B, n + 1)
        Probability that so many candidates are rejected.
    left : array (B, n)
        Mass of ``(R - q)_+`` by round, which the next residual is divided by.
    sums : array (B, 2)
        Of the target and of what candidates are drawn from.
    """

    placed: Any
    accepted: Any
    weights: Any
    left: Any
    sums: Any


class Emitted(NamedTuple):
    """What is said of a marginal by row ``(B,)``, but for the tokens.

    Attributes
    ----------
    tv, kl : float64 array
        As `divergences.distances`.
    off_support : float64 array
        Mass where the target has none.
    off_support_token : int array
        Where that is most; 0 where there is none.
    never_emitted : float64 array
        Mass of the target on tokens that the marginal lacks.
    silent : int array (B, MOST_NAMED)
        The first of those tokens; -1 after the last.
    """

    tv: Any
    kl: Any
    off_support: Any
    off_support_token: Any
    never_emitted: Any
    silent: Any


@jit()
def _normalised(rest, mass):
    """The reciprocal of a mass; where that overflows 1, after a division in place."""
    one = rest.dtype.type(1)
    inverse = one / mass
    if inverse < np.inf:
        return inverse
    for x in range(rest.shape[0]):
        rest[x] = rest[x] / mass
    return one


@jit(fastmath=REORDER)
def _round(rest, inverse, draft, placed, weight, sums):
    """One fair round of a row; (accepted, rejected, left) mass, before the weight for the last two."""
    zero = rest.dtype.type(0)
    vocab = rest.shape[0]
    for k in range(sums.shape[1]):
        first, last = k * BLOCK, min((k + 1) * BLOCK, vocab)
        here, tested, out = rest[first:last], draft[first:last], placed[first:last]
        taken = refused = left = zero
        for x in range(last - first):
            R, q = here[x] * inverse, tested[x]
            both = q if q < R else R
            after = R - q if q < R else zero
            out[x] += weight * both
            here[x] = after
            taken += both
            refused += q - R if q > R else zero
            left += after
        sums[0, k], sums[1, k], sums[2, k] = taken, refused, left
    return weight * add_up(sums[0]), add_up(sums[1]), add_up(sums[2])


@jit(fastmath=REORDER)
def _drawn_round(rest, inverse, draft, drawn_from, placed, weight, sums):
    """The same where candidates are drawn from another law than they are tested with."""
    zero, one = rest.dtype.type(0), rest.dtype.type(1)
    vocab = rest.shape[0]
    for k in range(sums.shape[1]):
        first, last = k * BLOCK, min((k + 1) * BLOCK, vocab)
        here, tested, out = rest[first:last], draft[first:last], placed[first:last]
        drawn = drawn_from[first:last]
        taken = refused = left = zero
        for x in range(last - first):
            R, q, s = here[x] * inverse, tested[x], drawn[x]
            accept = R / q if q > R else (one if zero < R else zero)
            both = s * accept
            after = R - q if q < R else zero
            out[x] += weight * both
            here[x] = after
            taken += both
            refused += s - both if s > both else zero
            left += after
        sums[0, k], sums[1, k], sums[2, k] = taken, refused, left
    return weight * add_up(sums[0]), add_up(sums[1]), add_up(sums[2])


@jit(fastmath=REORDER)
def _copied(values, out, sums):
    """Copy a row; its sum."""
    for k in range(sums.shape[0]):
        first, last = k * BLOCK, min((k + 1) * BLOCK, values.shape[0])
        here, there = values[first:last], out[first:last]
        total = values.dtype.type(0)
        for x in range(last - first):
            there[x] = here[x]
            total += here[x]
        sums[k] = total
    return add_up(sums)


@jit()
def _residual(target, draft, left, rounds, rest):
    """The residual after so many rounds, before the factor that is returned; masses are known."""
    zero, inverse = target.dtype.type(0), target.dtype.type(1)
    for x in range(target.shape[0]):
        rest[x] = target[x]
    for i in range(rounds):
        for x in range(target.shape[0]):
            R = rest[x] * inverse
            rest[x] = R - draft[x] if draft[x] < R else zero
        inverse = _normalised(rest, left[i])
    return inverse


@jit()
def _standard(target, draft, drawn_from, fair, telescoping, found):
    """All rounds of rows ``(B, V)``; ``telescoping`` weighs them by what is left, not by what is rejected."""
    placed, accepted, weights, left, totals = found
    rows, vocab = target.shape
    rest = np.empty(vocab, target.dtype)
    sums = np.empty((3, (vocab + BLOCK - 1) // BLOCK), target.dtype)
    for b in range(rows):
        p, q, s, out = target[b], draft[b], drawn_from[b], placed[b]
        inverse = weight = target.dtype.type(1)
        weights[b, 0], steps = weight, 0
        totals[b, 1] = _copied(s, out, sums[0])
        totals[b, 0] = _copied(p, rest, sums[0])
        for x in range(vocab):
            out[x] = 0
        for i in range(accepted.shape[1]):
            if fair:
                taken, refused, mass = _round(rest, inverse, q, out, weight, sums)
            else:
                taken, refused, mass = _drawn_round(rest, inverse, q, s, out, weight, sums)
            accepted[b, i], left[b, i] = taken, mass
            weight = weight * (mass if telescoping else refused)
            weights[b, i + 1] = weight
            if mass > 0:
                inverse, steps = _normalised(rest, mass), steps + 1
            else:  # the residual stays, from here to the end; only rounding sends a draw there
                inverse = _residual(p, q, left[b], steps, rest)
        for x in range(vocab):
            out[x] += weight * (rest[x] * inverse)


def _all_rounds(target: Array, draft: Array, n: int, drawn_from: Array | None, telescoping: bool) -> Rounds:
    rows, kind = target.shape[0], target.dtype
    shapes = (target.shape, (rows, n), (rows, n + 1), (rows, n), (rows, 2))
    found = Rounds(*(np.empty(shape, kind) for shape in shapes))
    given = [np.ascontiguousarray(a) for a in (target, draft, draft if drawn_from is None else drawn_from)]
    _standard(*given, drawn_from is None, telescoping, tuple(found))
    return found


def standard_rounds(target: Array, draft: Array, n: int, drawn_from: Array | None = None) -> Rounds | None:
    """``n`` tests ``min(1, R/q)``, each followed by ``R <- norm((R - q)_+)``; then a draw from R.

    Parameters
    ----------
    target, draft : array (B, V)
    n : int
    drawn_from : array (B, V), optional
        What candidates are drawn from, where it is not the draft.

    Returns
    -------
    Rounds or None
        None for arrays that `compilable` does not take.
    """
    if not compilable(target, draft, target if drawn_from is None else drawn_from):
        return None
    return _all_rounds(target, draft, n, drawn_from, telescoping=False)


def standard_identity(target: Array, draft: Array, rounds: int) -> Array:
    """The path identity with ``k = q``, whatever the candidates; see `evidence.path_identity`."""
    return _all_rounds(target, draft, rounds, None, telescoping=True).placed


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
            here[x] = R - taken
            left += R - taken
        sums[0, b] = left


@jit()
def _proportional(target, draft, tokens, uniforms, given, total):
    """All rounds of the path identity of ResiSpec's proxy; see `proportional_identity`."""
    rows, vocab = target.shape
    zero, one = target.dtype.type(0), target.dtype.type(1)
    rest = np.empty(vocab, target.dtype)
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
            # The rejected token has a k of its own and is outside all sums: its place is empty meanwhile.
            R0, q0, home = rest[x0], q[x0], x0 // BLOCK
            rest[x0] = zero
            sums[0, home] = zero
            for x in range(home * BLOCK, min((home + 1) * BLOCK, vocab)):
                sums[0, home] += rest[x]
            Z = min(abs(q0 - R0), add_up(sums[0]))
            clipped, room = _clipped(rest, q, Z, sums)
            share = min(max(Z - clipped, zero) / room, one) if room > 0 else zero
            _shaped_round(rest, q, out, weight, Z, share, sums)
            taken = min(q0, R0)
            out[x0] += weight * taken
            rest[x0] = R0 - taken
            sums[0, home] += rest[x0]
            mass = add_up(sums[0])
            weight = weight * mass
            if not mass > 0:
                break  # all is emitted
            inverse = _normalised(rest, mass)
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
    total = np.empty(target.shape, target.dtype)
    p, q = (np.ascontiguousarray(a) for a in (target, draft))
    _proportional(p, q, lists, coins, tokens is not None, total)
    return total


@jit(fastmath=REORDER)
def _near(marginal, target):
    """(L1, KL, how many tokens are not near the target) of a block; the KL is right where none is."""
    distance = divergence = 0.0
    far = 0
    for x in range(target.shape[0]):
        m, p = float(marginal[x]), float(target[x])
        d = m - p
        distance += abs(d)
        far += 1 if abs(d) >= SERIES * p and d != 0.0 else 0
        t = d / (p if p > 0.0 else 1.0)
        divergence += d * t * (0.5 - t * (1 / 6 - t * (1 / 12 - t * (1 / 20 - t / 30))))
    return distance, divergence, far


@jit()
def _emitted(marginal, target, tv, kl, off, off_token, never, silent):
    rows, vocab = target.shape
    blocks = (vocab + BLOCK - 1) // BLOCK
    sums = np.empty((4, blocks))
    for b in range(rows):
        most, named = 0.0, 0
        off_token[b] = 0
        for i in range(silent.shape[1]):
            silent[b, i] = -1
        for k in range(blocks):
            first, last = k * BLOCK, min((k + 1) * BLOCK, vocab)
            distance, divergence, far = _near(marginal[b, first:last], target[b, first:last])
            outside = lost = 0.0
            if far:  # only such blocks have tokens off the support, or that are never emitted
                divergence = 0.0
                for x in range(first, last):
                    m, p = float(marginal[b, x]), float(target[b, x])
                    divergence += kl_term(m, p)
                    if p <= 0.0:
                        outside += m
                        if m > most:
                            most, off_token[b] = m, x
                    elif m == 0.0:
                        lost += p
                        if named < silent.shape[1]:
                            silent[b, named] = x
                            named += 1
            sums[0, k], sums[1, k], sums[2, k], sums[3, k] = distance, divergence, outside, lost
        tv[b], kl[b] = 0.5 * add_up(sums[0]), add_up(sums[1])
        off[b], never[b] = add_up(sums[2]), add_up(sums[3])


def emitted(marginal: Array, target: Array) -> Emitted:
    """Distances from the target in float64, and where a marginal leaves the support or lacks a token of it.

    Parameters
    ----------
    marginal, target : array (B, V)
        Of non-negative numbers, that `compilable` takes.
    """
    rows = target.shape[0]
    tv, kl, off, never = np.empty((4, rows))
    off_token, silent = np.empty(rows, np.int64), np.empty((rows, MOST_NAMED), np.int64)
    _emitted(
        np.ascontiguousarray(marginal), np.ascontiguousarray(target), tv, kl, off, off_token, never, silent
    )
    return Emitted(tv, kl, off, off_token, never, silent)
