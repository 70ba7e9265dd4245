"""The last round of ResiSpec, summed over every token that can be rejected: O(V log V) for every option.

Rejecting x has probability ``q(x) - R(x)`` and leaves ``r / |r|`` off x, where r is ``min(Z q, R)`` with the
rest of the budget spread in proportion, or ``min(level q, R)`` by water-filling. Either is a combination of
``min(t q, R)`` and ``R``: an entry of a histogram over the rank of t, as in `shaped_paths`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.jit import jit
from resispec_verify.kernels.ratio_order import RatioOrder, rank_of
from resispec_verify.kernels.water_level import level_of, levels_of

__all__ = ["collect", "last_round"]


@jit()
def _sum_rejections(order, levels, water, floor, literal, atoms, correction):
    """Add every rejection to the histogram; coefficients of R on tokens with q > 0, and with q = 0."""
    ratio, p, q, prefix = order.ratio, order.p, order.q, order.prefix
    filled, fill_table, suffix, finite = levels.filled, levels.table, levels.suffix, levels.finite
    vocab = p.shape[0]
    whole, held = prefix[vocab, 1], prefix[finite, 1]
    none, nowhere = np.empty((0, 2)), np.empty(0, np.int64)
    covered = spilled = 0.0
    for j in range(rank_of(1.0, ratio, order.table)):
        weight = q[j] - p[j]
        if weight <= 0.0:
            continue
        off = whole - p[j]
        Z = min(max(weight, ratio[0]) if floor else weight, off)
        if water:
            level, rank, _, spill = level_of(
                Z, j, q[j], 0.0 if literal else p[j], 0, none, nowhere,
                ratio, order.table, prefix, filled, fill_table, suffix, finite, levels.outside,
            )  # fmt: skip
            if rank < finite:
                own = min(level * q[j], p[j])
                kept = Z - own if literal else Z
                share, spill = 0.0, 0.0
            else:
                kept = held - p[j] + spill * levels.outside
                level, own, share = 0.0, 0.0, 1.0
        else:
            level = Z
            rank = rank_of(Z, ratio, order.table)
            own = min(Z * q[j], p[j])
            clipped = prefix[rank, 1] + Z * suffix[rank] - own
            room = (whole if literal else off) - clipped
            share = min(max(Z - clipped, 0.0) / room, 1.0) if room > 0.0 else 0.0
            spill = share
            kept = clipped + share * (off - clipped)
        if kept <= 0.0:  # nothing is left off the rejected token: the rule falls back to R
            covered += weight
            spilled += weight
            continue
        w = weight / kept
        atoms[rank, 0] += w * (1.0 - share) * level
        atoms[rank, 1] += w * (1.0 - share)
        covered += w * share
        spilled += w * spill
        correction[j] += w * ((1.0 - share) * own + share * p[j])
    return covered, spilled


@jit()
def collect(order, atoms, correction, covered, spilled, finite):
    """Mass by token: each atom is ``level q`` up to its rank and ``p`` beyond it, less the corrections.

    R comes on top, ``covered`` times on the first ``finite`` ranks and ``spilled`` times on the others.
    """
    vocab = order.p.shape[0]
    mass, out = np.empty(vocab), np.empty(vocab)
    above = 0.0  # sum of w over atoms above p/q, summed from the top so that nothing cancels
    for j in range(vocab - 1, -1, -1):
        above += atoms[j + 1, 1]
        mass[j] = order.p[j] * (above + (covered if j < finite else spilled)) - correction[j]
    below = 0.0
    for j in range(vocab):
        if j < finite:
            below += atoms[j, 0]
            mass[j] += order.q[j] * below
        out[order.order[j]] = max(mass[j], 0.0)
    return out


def last_round(order: RatioOrder, *, redistribution: str, budget: str, hole: str) -> NDArray[np.float64]:
    """Mass emitted by rejecting the last candidate, by token ``(V,)``.

    Parameters
    ----------
    order : RatioOrder
        The current target R and the draft; candidates are drawn from the latter.
    redistribution, budget, hole
        ResiSpec's options.
    """
    vocab = order.p.shape[0]
    atoms, correction = np.zeros((vocab + 1, 2)), np.zeros(vocab)
    levels = levels_of(order)
    parts = _sum_rejections(
        order,
        levels,
        redistribution == "water-filling",
        budget == "floor",
        hole == "literal",
        atoms,
        correction,
    )
    return collect(order, atoms, correction, *parts, levels.finite)
