"""All rounds of the optimal sequential rule, row by row; see `rules.shipped.optimal_sequential`."""

from __future__ import annotations

import numpy as np

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.compiled import BLOCK, REORDER, add_up, apart
from resispec_verify.kernels.elementwise.rows import Rounds
from resispec_verify.kernels.jit import jit

__all__ = ["level_rounds"]


@jit(fastmath=REORDER)
def _sum(values, sums):
    for k in range(sums.shape[0]):
        here = values[k * BLOCK : min((k + 1) * BLOCK, values.shape[0])]
        total = values.dtype.type(0)
        for x in range(here.shape[0]):
            total += here[x]
        sums[k] = total
    return add_up(sums)


@jit(fastmath=REORDER)
def _round(rows, placed, levels, held, weight, sums):
    """One round between two levels; (accepted, rejected, reserved) mass. ``held`` is what was reserved."""
    target, draft, drawn_from = rows
    highest, upper, lower = levels
    zero, one = target.dtype.type(0), target.dtype.type(1)
    for k in range(sums.shape[1]):
        first, last = k * BLOCK, min((k + 1) * BLOCK, target.shape[0])
        here, tested, drawn = target[first:last], draft[first:last], drawn_from[first:last]
        out = placed[first:last]
        taken = refused = reserved = zero
        for x in range(last - first):
            p, q = here[x], tested[x]
            kept = lower * q if lower * q < p else p
            mass = (upper * q if upper * q < p else p) - kept
            offered = held * q
            accept = mass / offered if offered > mass else (one if zero < mass else zero)
            accept = accept if q > zero else (one if zero < p else zero)
            proposed = weight * drawn[x]
            emitted = proposed * accept
            out[x] += emitted
            taken += emitted
            refused += proposed - emitted if emitted < proposed else zero
            reserved += (p - highest * q if highest * q < p else zero) + kept
        sums[0, k], sums[1, k], sums[2, k] = taken, refused, reserved
    return add_up(sums[0]), add_up(sums[1]), add_up(sums[2])


@jit()
def _final(target, draft, highest, level, held, weight, placed):
    """Draw the rest from what a round reserves."""
    zero = target.dtype.type(0)
    for x in range(target.shape[0]):
        p, q = target[x], draft[x]
        above = p - highest * q if highest * q < p else zero
        kept = level * q if level * q < p else p
        placed[x] += weight * ((above + kept) / held)


@jit()
def _all_rounds(target, draft, drawn_from, levels, found):
    placed, accepted, weights, left, totals = found
    one, zero = target.dtype.type(1), target.dtype.type(0)
    sums = np.empty((3, (target.shape[1] + BLOCK - 1) // BLOCK), target.dtype)
    for b in range(target.shape[0]):
        p, q, s, T, out = target[b], draft[b], drawn_from[b], levels[b], placed[b]
        for x in range(p.shape[0]):
            out[x] = 0
        totals[b, 0], totals[b, 1] = _sum(p, sums[0]), _sum(s, sums[0])
        held, weight, last, last_held = totals[b, 0], one, -1, one
        weights[b, 0] = one
        for i in range(accepted.shape[1]):
            between = (T[0], T[i], T[i + 1])
            accepted[b, i], weight, reserved = _round((p, q, s), out, between, held, weight, sums)
            weights[b, i + 1] = weight
            left[b, i] = reserved / held if held > zero else zero
            held = reserved
            if held > zero:
                last, last_held = i + 1, held
        # Where a round reserves nothing, the law stays what it was.
        if last < 0:
            for x in range(p.shape[0]):
                out[x] += weight * p[x]
        else:
            _final(p, q, T[0], T[last], last_held, weight, out)


def level_rounds(target: Array, draft: Array, levels: Array, drawn_from: Array | None = None) -> Rounds:
    """Rounds that accept ``min(p, T_k q) - min(p, T_{k+1} q)`` and reserve what lies above T_1 or below.

    Parameters
    ----------
    target, draft : array (B, V)
        That `compiled.compilable` takes.
    levels : array (B, n + 1)
        ``T_1`` to ``T_{n+1}``, in the type of the rows.
    drawn_from : array (B, V), optional
        What candidates are drawn from, where it is not the draft.
    """
    (rows, n), kind = (levels.shape[0], levels.shape[1] - 1), target.dtype
    shapes = (target.shape, (rows, n), (rows, n + 1), (rows, n), (rows, 2))
    found = Rounds(*(apart(shape, kind) for shape in shapes))
    given = (target, draft, draft if drawn_from is None else drawn_from, levels)
    _all_rounds(*(np.ascontiguousarray(a) for a in given), tuple(found))
    return found
