"""What is said of a marginal beside its target, in one pass over a row; see `divergences.emitted_beside`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.compiled import BLOCK, REORDER, SERIES, add_up, kl_term
from resispec_verify.kernels.jit import jit

__all__ = ["MOST_NAMED", "Emitted", "emitted"]

MOST_NAMED = 10
"""Tokens that are never emitted, of one row, that are named."""


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


@jit(fastmath=REORDER)
def _near(marginal, target):
    """(L1, KL, how many tokens are not near the target) of a block; the KL is right where none is."""
    distance = divergence = 0.0
    far = 0
    for x in range(target.shape[0]):
        m, p = np.float64(marginal[x]), np.float64(target[x])
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
                    m, p = np.float64(marginal[b, x]), np.float64(target[b, x])
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
