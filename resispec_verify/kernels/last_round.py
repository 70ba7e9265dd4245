"""The last round of ResiSpec, summed over every token that can be rejected: O(V log V) for every option.

Rejecting x has probability ``q(x) - R(x)`` and leaves ``r / |r|`` off x, where r is ``min(Z q, R)`` with the
rest of the budget spread in proportion, or ``min(level q, R)`` by water-filling. Either is a combination of
``min(t q, R)`` and ``R``: an entry of a histogram over the rank of t, as in `shaped_paths`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.jit import jit
from resispec_verify.kernels.ratio_order import RatioOrder, rank_below

__all__ = ["last_round"]


@jit()
def _fill(Z, j, finite, exclude, ratio, p, q, filled, suffix):
    """Water level with total Z: (level, rank); rank -1 where even a full vessel holds less than Z."""
    low, high = 0, finite
    while low < high:
        i = (low + high) // 2
        total = filled[i, 1] + ratio[i] * suffix[i]
        if exclude:
            total -= min(ratio[i] * q[j], p[j])
        if total >= Z:
            high = i
        else:
            low = i + 1
    if low == finite:
        return np.inf, -1
    base, rate = filled[low, 1], suffix[low]
    if exclude and j < low:
        base -= p[j]
    elif exclude:
        rate -= q[j]
    level = max((Z - base) / rate, 0.0) if rate > 0.0 else ratio[low]
    return min(level, ratio[low]), low


@jit()
def _sum_rejections(order, water, floor, literal, atoms, correction):
    """Add every rejection to the histogram; coefficients of R on tokens with q > 0, and with q = 0."""
    ratio, p, q, prefix = order.ratio, order.p, order.q, order.prefix
    vocab = p.shape[0]
    cell = np.empty(1)
    finite = 0
    while finite < vocab and ratio[finite] < np.inf:
        finite += 1
    suffix = np.zeros(vocab + 1)  # sums of q from a rank on: a difference of prefix sums would cancel
    for i in range(vocab - 1, -1, -1):
        suffix[i] = suffix[i + 1] + q[i]
    whole = prefix[vocab, 1]
    outside = whole - prefix[finite, 1] if finite < vocab else 0.0
    covered = spilled = 0.0
    for j in range(rank_below(1.0, ratio, order.table, cell)):
        weight = q[j] - p[j]
        if weight <= 0.0:
            continue
        off = whole - p[j]
        Z = min(max(weight, ratio[0]) if floor else weight, off)
        if water:
            level, rank = _fill(Z, j, finite, not literal, ratio, p, q, prefix, suffix)
            if rank >= 0:
                own = min(level * q[j], p[j])
                kept = Z - own if literal else Z
                share, spill = 0.0, 0.0
            else:
                held = prefix[finite, 1] - (0.0 if literal else p[j])
                spill = min(max(Z - held, 0.0) / outside, 1.0) if outside > 0.0 else 0.0
                kept = prefix[finite, 1] - p[j] + spill * outside
                level, own, share = 0.0, 0.0, 1.0
        else:
            level = Z
            rank = rank_below(Z, ratio, order.table, cell)
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
        if rank >= 0:
            atoms[rank, 0] += w * (1.0 - share) * level
            atoms[rank, 1] += w * (1.0 - share)
        covered += w * share
        spilled += w * spill
        correction[j] += w * ((1.0 - share) * own + share * p[j])
    return covered, spilled, finite


@jit()
def _spread(order, atoms, correction, covered, spilled, finite):
    vocab = order.p.shape[0]
    out = np.empty(vocab)
    above = 0.0
    for j in range(vocab - 1, -1, -1):
        above += atoms[j + 1, 1]
        out[order.order[j]] = order.p[j] * (above + (covered if j < finite else spilled)) - correction[j]
    below = 0.0
    for j in range(vocab):
        below += atoms[j, 0]
        token = order.order[j]
        out[token] = max(out[token] + order.q[j] * below, 0.0)
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
    parts = _sum_rejections(
        order, redistribution == "water-filling", budget == "floor", hole == "literal", atoms, correction
    )
    return _spread(order, atoms, correction, *parts)
