"""The last round of ResiSpec, summed over every token that can be rejected: O(V log V) for every option.

Rejecting x has probability ``q(x) - R(x)`` and leaves ``r / |r|`` off x, where r is ``min(Z q, R)`` with the
rest of the budget spread in proportion, or ``min(level q, R)`` by water-filling. Either is a combination of
``min(t q, R)`` and ``R``: an entry of a histogram over the rank of t, as in `shaped_paths`.

**Rounding.** What is spread is found as sums of non-negative terms off x, and ``|r|`` off x is the sum of
what is placed there, so that what a rejection places has its weight. One case divides by what may be little:
water-filling with the hole read literally, where x itself is full. An error of ``eps Z`` in the budget then
moves ``eps Z / |r off x|`` of the weight. It is measured (`LastRound.magnified`;
docs/explanation/exactness.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.elementwise.ratio_order import RatioOrder, rank_of
from resispec_verify.kernels.elementwise.residuals import ALL
from resispec_verify.kernels.elementwise.water_level import FAINT_SCALE, Levels, levels_of, sum_without
from resispec_verify.kernels.jit import jit

__all__ = ["LastRound", "collect", "last_round", "last_roundings"]

# A rejection whose histogram entry would put this many times its own mass on the rejected token, to be taken
# off again, is placed token by token. Few tokens can hold so much more than all others beyond their rank.
_MOST_TAKEN_OFF = 8.0


class LastRound(NamedTuple):
    """What rejecting the last candidate emits.

    Attributes
    ----------
    mass : float64 (V,)
        By token.
    magnified : float
        Sum over the rejections of their probability times what divisions magnify its rounding by, beyond the
        1 that every rejection counts.
    """

    mass: NDArray[np.float64]
    magnified: float


class _Faint(NamedTuple):
    """Tokens with ``p/q > HIGHEST``, as `Levels` by themselves, q scaled up."""

    first: int
    q: NDArray[np.float64]  # (F,) scaled
    ratio: NDArray[np.float64]  # (F,) p over it, ascending
    full: NDArray[np.float64]  # (F + 1,) sums of p below a rank
    slope: NDArray[np.float64]  # (F + 1,) sums of q from a rank on
    filled: NDArray[np.float64]  # (F,) what they hold at the level ``ratio``


def _faint(order: RatioOrder, levels: Levels) -> _Faint:
    first, last = levels.finite, levels.drafted
    p, q = order.p[first:last], order.q[first:last] * FAINT_SCALE
    ratio = p / q
    full = np.append(0.0, np.cumsum(p))
    slope = np.append(np.cumsum(q[::-1])[::-1], 0.0)
    filled = np.maximum.accumulate(full[:-1] + ratio * slope[:-1]) if p.size else p
    return _Faint(first, q, ratio, full, slope, filled)


@jit()
def _level_without(budget, j, order, levels):
    """The level at which the tokens with q > 0 but j hold the budget: (level, rank, full, slope).

    Newton's method from the left: the sum is concave, and not above the one that includes j.
    """
    rank = rank_of(budget, levels.filled, levels.table)
    while rank < levels.finite:
        full = sum_without(order.p, 0, rank, order.prefix[rank, 1], j)
        slope = sum_without(order.q, rank, levels.drafted, levels.suffix[rank, 0], j)
        level = max(budget - full, 0.0) / slope if slope > 0.0 else np.inf
        if level <= order.ratio[rank]:
            return level, rank, full, slope
        rank = max(rank_of(level, order.ratio, order.table), rank + 1)
    rank = levels.finite
    return 0.0, rank, sum_without(order.p, 0, rank, order.prefix[rank, 1], j), 0.0


@jit()
def _raise(budget, j, literal, order, levels, faint):
    """Water-filling: (level, rank, own, kept, spill); the level is scaled where the rank is a faint token's.

    ``kept`` is the sum off j of what is placed, ``own`` what the histogram entry puts on j.
    """
    p, q = order.p, order.q
    if literal:
        rank = min(rank_of(budget, levels.filled, levels.table), levels.finite)
        level, slope = 0.0, 0.0
        if rank < levels.finite:
            level = max(budget - order.prefix[rank, 1], 0.0) / levels.suffix[rank, 0]
            level = min(level, order.ratio[rank])
            slope = sum_without(q, rank, levels.drafted, levels.suffix[rank, 0], j)
        full = sum_without(p, 0, rank, order.prefix[rank, 1], j)
        held = order.prefix[rank, 1]
    else:
        level, rank, full, slope = _level_without(budget, j, order, levels)
        held = full
    if rank < levels.finite:
        return level, rank, min(level * q[j], p[j]), full + level * slope, 0.0
    rest, own, kept, k = max(budget - held, 0.0), p[j], full, 0
    if faint.q.shape[0]:
        k = np.searchsorted(faint.filled, rest)
        kept += faint.full[k]
        if k < faint.q.shape[0]:
            level = min((rest - faint.full[k]) / faint.slope[k], faint.ratio[k])
            return level, rank + k, own, kept + level * faint.slope[k], 0.0
        rest = max(rest - faint.full[k], 0.0)
    spill = min(rest / levels.outside, 1.0) if levels.outside > 0.0 else 0.0
    return 0.0, rank + k, own, kept + spill * levels.outside, spill


@jit(forceinline=True)
def _spread(budget, j, literal, order, tail, levels):
    """In proportion: (rank, own, kept, share)."""
    p, q, prefix = order.p, order.q, order.prefix
    rank = rank_of(budget, order.ratio, order.table)
    own = min(budget * q[j], p[j])
    clipped = budget * sum_without(q, rank, levels.drafted, levels.suffix[rank, 0], j)
    room = max(sum_without(p, rank, p.shape[0], tail[rank], j) - clipped, 0.0)
    clipped += sum_without(p, 0, rank, prefix[rank, 1], j)
    # budget - clipped, for a draft that sums to 1
    left = max(budget * prefix[rank, 0] - prefix[rank, 1], 0.0) + own
    whole_room = room + p[j] if literal else room
    share = min(left / whole_room, 1.0) if whole_room > 0.0 else 0.0
    return rank, own, clipped + share * room, share


@jit()
def _place(weight, j, found, order, levels, faint, direct):
    """One rejection, token by token; ``found`` is its (level, rank, kept, share, spill)."""
    level, rank, kept, share, spill = found
    for x in range(order.p.shape[0]):
        if x == j:
            continue
        p = order.p[x]
        if x >= levels.drafted:
            r = max(spill, share) * p
        elif x < rank:
            r = p
        elif rank >= levels.finite:
            r = min(level * faint.q[x - faint.first], p)
        else:
            r = min(level * order.q[x], p)
            r += share * (p - r)
        direct[order.order[x]] += weight * (r / kept)


@jit()
def _sum_rejections(order, levels, faint, tail, options, sums):
    """Add every rejection to ``sums``: a histogram and its correction, or what is placed token by token.

    ``options``: whether the rest is spread by water-filling, the budget is Eq. 13's, and the hole read
    literally. Returns the coefficients of R on tokens with q > 0 and with q = 0, and what rounding is
    magnified by.
    """
    p, q, ratio, prefix, suffix = order.p, order.q, order.ratio, order.prefix, levels.suffix
    filled, fill_table, finite = levels.filled, levels.table, levels.finite
    water, floor, literal = options
    atoms, correction, direct = sums
    vocab = p.shape[0]
    covered = spilled = magnified = 0.0
    for j in range(rank_of(1.0, ratio, order.table)):
        weight = q[j] - p[j]
        if weight <= 0.0:
            continue
        off = sum_without(p, 0, vocab, prefix[vocab, 1], j)
        budget = min(max(weight, ratio[0]) if floor else weight, off)
        share = spill = 0.0
        if water:
            # Nearly always the level is found at once; the calls, with all their arrays, cost more than that.
            alone = filled[j] - p[j]  # what the others hold where j is full
            rank = rank_of(budget + p[j] if alone <= budget else budget, filled, fill_table)
            level, full, slope = np.inf, 0.0, 0.0
            if not literal and rank < finite:
                full, slope = prefix[rank, 1], suffix[rank, 0]
                safe = full - p[j] >= 0.25 * full if j < rank else slope - q[j] >= 0.25 * slope
                full, slope = (full - p[j], slope) if j < rank else (full, slope - q[j])
                level = max(budget - full, 0.0) / slope if safe else np.inf
            if rank < finite and level <= ratio[rank] and (rank == 0 or level >= ratio[rank - 1]):
                own, kept = min(level * q[j], p[j]), full + level * slope
            else:
                level, rank, own, kept, spill = _raise(budget, j, literal, order, levels, faint)
        else:
            level = budget
            rank, own, kept, share = _spread(budget, j, literal, order, tail, levels)
            spill = share
        if kept <= 0.0:  # nothing is left off the rejected token: the rule falls back to R
            covered += weight
            spilled += weight
            magnified += weight * ALL if literal and water else 0.0
            continue
        taken_off = (1.0 - share) * own + share * p[j]
        if literal and water and j < rank:
            magnified += weight * min(budget / kept, ALL)
        if not taken_off <= _MOST_TAKEN_OFF * kept:
            _place(weight, j, (level, rank, kept, share, spill), order, levels, faint, direct)
            continue
        w = weight / kept
        magnified += w * taken_off if literal else 0.0
        atoms[rank, 0] += w * (1.0 - share) * level
        atoms[rank, 1] += w * (1.0 - share)
        covered += w * share
        spilled += w * spill
        correction[j] += w * taken_off
    return covered, spilled, magnified


@jit()
def collect(order, atoms, correction, covered, spilled, finite, drafted):
    """Mass by token: each atom is ``level q`` from its rank on and ``p`` below it, less the corrections.

    R comes on top, ``covered`` times on the first ``drafted`` ranks and ``spilled`` times on the others.
    Atoms from ``finite`` to ``drafted`` have levels of their own scale, `FAINT_SCALE`.
    """
    vocab = order.p.shape[0]
    mass, out = np.empty(vocab), np.empty(vocab)
    above = 0.0  # sum of w over atoms above p/q, summed from the top so that nothing cancels
    for j in range(vocab - 1, -1, -1):
        above += atoms[j + 1, 1]
        mass[j] = order.p[j] * (above + (covered if j < drafted else spilled)) - correction[j]
    below = below_faint = 0.0
    for j in range(vocab):
        if j < finite:
            below += atoms[j, 0]
        elif j < drafted:
            below_faint += atoms[j, 0]
        if j < drafted:
            mass[j] += order.q[j] * below + order.q[j] * FAINT_SCALE * below_faint
        out[order.order[j]] = max(mass[j], 0.0)
    return out


def last_round(order: RatioOrder, *, redistribution: str, budget: str, hole: str) -> LastRound:
    """What rejecting the last candidate emits.

    Parameters
    ----------
    order : RatioOrder
        The current target R and the draft; candidates are drawn from the latter.
    redistribution, budget, hole
        ResiSpec's options.
    """
    vocab = order.p.shape[0]
    atoms, correction, direct = np.zeros((vocab + 1, 2)), np.zeros(vocab), np.zeros(vocab)
    water = redistribution == "water-filling"
    levels = levels_of(order, tabulated=water)
    covered, spilled, magnified = _sum_rejections(
        order,
        levels,
        _faint(order, levels),
        np.append(np.cumsum(order.p[::-1])[::-1], 0.0),
        (water, budget == "floor", hole == "literal"),
        (atoms, correction, direct),
    )
    mass = collect(order, atoms, correction, covered, spilled, levels.finite, levels.drafted)
    return LastRound(mass + direct, magnified)


def last_roundings(vocab: int) -> int:
    """Roundings on the way of one term: sums over ranks, one after the other, and an addition a rejection."""
    return 5 * vocab + 24
