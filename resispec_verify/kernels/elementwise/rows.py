"""All rounds of the standard residual, row by row: what they emit, and the path identity.

A kernel goes through one row after the other, several times, so that a row of a usual vocabulary stays in
the second-level cache from its first pass to its last. What it computes is written with whole arrays in
`evidence.enumeration` and `evidence.path_identity`, which tests hold it against. Sums run over blocks of 128
and then over the blocks, pairwise, as in `compiled`.

A residual is kept as it is before its division, ``(R - q)_+``, and multiplied by the reciprocal of its mass
in the next pass: two roundings where a division has one. What is emitted is ``w min(q, R)``, one rounding
where ``w q min(1, R/q)`` has three, so the count behind `rounding_bound` holds. Blocks are slices, and
comparisons are written out, because the compiler then uses vector registers; not so for ``min`` and ``max``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.compiled import BLOCK, REORDER, add_up, apart, row_apart
from resispec_verify.kernels.jit import jit

__all__ = ["Rounds", "normalised", "standard_identity", "standard_rounds"]


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


@jit()
def normalised(rest, mass):
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
def _first_round(target, draft, rest, placed, sums):
    """`_round` from a target of weight 1, and the sums of target and draft."""
    zero = rest.dtype.type(0)
    vocab = rest.shape[0]
    for k in range(sums.shape[1]):
        first, last = k * BLOCK, min((k + 1) * BLOCK, vocab)
        here, tested = target[first:last], draft[first:last]
        out, there = placed[first:last], rest[first:last]
        taken = refused = left = whole = drawn = zero
        for x in range(last - first):
            p, q = here[x], tested[x]
            both = q if q < p else p
            after = p - q if q < p else zero
            out[x], there[x] = both, after
            taken += both
            refused += q - p if q > p else zero
            left += after
            whole += p
            drawn += q
        sums[0, k], sums[1, k], sums[2, k], sums[3, k], sums[4, k] = taken, refused, left, whole, drawn
    return add_up(sums[0]), add_up(sums[1]), add_up(sums[2]), add_up(sums[3]), add_up(sums[4])


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
        inverse = normalised(rest, left[i])
    return inverse


@jit()
def _standard(target, draft, drawn_from, fair, telescoping, found):
    """All rounds of rows ``(B, V)``; ``telescoping`` weighs them by what is left, not by what is rejected."""
    placed, accepted, weights, left, totals = found
    rows, vocab = target.shape
    rest = row_apart(vocab, target.dtype)
    sums = np.empty((5, (vocab + BLOCK - 1) // BLOCK), target.dtype)
    for b in range(rows):
        p, q, s, out = target[b], draft[b], drawn_from[b], placed[b]
        inverse = weight = target.dtype.type(1)
        weights[b, 0], steps = weight, 0
        whole = drawn = taken = refused = mass = target.dtype.type(0)
        begun = fair and accepted.shape[1] > 0
        if begun:
            taken, refused, mass, whole, drawn = _first_round(p, q, rest, out, sums)
        else:
            drawn, whole = _copied(s, out, sums[0]), _copied(p, rest, sums[0])
            for x in range(vocab):
                out[x] = 0
        totals[b, 0], totals[b, 1] = whole, drawn
        for i in range(accepted.shape[1]):
            if i == 0 and begun:
                pass
            elif fair:
                taken, refused, mass = _round(rest, inverse, q, out, weight, sums)
            else:
                taken, refused, mass = _drawn_round(rest, inverse, q, s, out, weight, sums)
            accepted[b, i], left[b, i] = taken, mass
            weight = weight * (mass if telescoping else refused)
            weights[b, i + 1] = weight
            if mass > 0:
                inverse, steps = normalised(rest, mass), steps + 1
            else:  # the residual stays, from here to the end; only rounding sends a draw there
                inverse = _residual(p, q, left[b], steps, rest)
        for x in range(vocab):
            out[x] += weight * (rest[x] * inverse)


def _all_rounds(target: Array, draft: Array, n: int, drawn_from: Array | None, telescoping: bool) -> Rounds:
    rows, kind = target.shape[0], target.dtype
    shapes = (target.shape, (rows, n), (rows, n + 1), (rows, n), (rows, 2))
    found = Rounds(*(apart(shape, kind) for shape in shapes))
    given = [np.ascontiguousarray(a) for a in (target, draft, draft if drawn_from is None else drawn_from)]
    _standard(*given, drawn_from is None, telescoping, tuple(found))
    return found


def standard_rounds(target: Array, draft: Array, n: int, drawn_from: Array | None = None) -> Rounds:
    """``n`` tests ``min(1, R/q)``, each followed by ``R <- norm((R - q)_+)``; then a draw from R.

    Parameters
    ----------
    target, draft : array (B, V)
        That `compiled.compilable` takes.
    n : int
    drawn_from : array (B, V), optional
        What candidates are drawn from, where it is not the draft.
    """
    return _all_rounds(target, draft, n, drawn_from, telescoping=False)


def standard_identity(target: Array, draft: Array, rounds: int) -> Array:
    """The path identity with ``k = q``, whatever the candidates; see `evidence.path_identity`."""
    return _all_rounds(target, draft, rounds, None, telescoping=True).placed
