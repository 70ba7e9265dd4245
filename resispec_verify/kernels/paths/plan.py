"""Where the work of `shaped_paths` goes: which paths to follow, and how fine the grids for the others are.

One price decides everything: ``theta``, the mass that a path evaluation must save from being lost. It is
looked for such that the expected losses add up to the gap, or the expected work to the budget. All of this is
guesswork that only costs time where it is wrong; what is lost is measured afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.elementwise.ratio_order import RatioOrder, rank_of
from resispec_verify.kernels.elementwise.water_level import Levels
from resispec_verify.kernels.jit import jit
from resispec_verify.kernels.paths.grids import (
    MOST_BITS,
    OCTAVES,
    Grids,
    build_grids,
    merge_loss,
    octave_of,
    remembered,
)
from resispec_verify.kernels.paths.knots import NO_KNOTS

__all__ = ["Plan", "Survey", "learn", "make_plan", "no_grids", "paths_up_to", "survey"]

_MOST_CELLS = 1 << 16  # a bound on memory
_MOST_HOLES = 24  # remembered by grids; more cost more than they save
_SURE = 0.03  # part of a class that stays expected, whatever was found
_OCTAVE = np.exp2(np.arange(OCTAVES) + 1.0 - OCTAVES)


class Survey(NamedTuple):
    """What a position looks like before anything is followed.

    Attributes
    ----------
    d, forget, cost : float64 (tokens,)
        For each token that can be rejected first: the probability that the next is rejected too, what
        forgetting its hole would lose of it, and the paths it takes to follow it.
    octave, set_of : int64 (tokens,)
        Octave of its path, and the set that would remember it.
    holes : int64 (sets - 1,)
        Ranks worth remembering.
    mass : float64 (n, sets, OCTAVES)
        Probability that the next is rejected too, of the paths by number of rejections (from 2 on),
        remembered hole and octave.
    forgotten : float64 (n, sets, OCTAVES)
        What forgetting the remembered hole would lose of it.
    cost_of : float64 (OCTAVES,)
        Paths it takes to continue one path.
    losses : tuple of two float64 (MOST_BITS + 1, OCTAVES)
        Of merging, with more rejections to come and with one.
    pairs : float
        Paths of two rejections.
    """

    d: NDArray[np.float64]
    forget: NDArray[np.float64]
    cost: NDArray[np.float64]
    octave: NDArray[np.int64]
    set_of: NDArray[np.int64]
    holes: NDArray[np.int64]
    mass: NDArray[np.float64]
    forgotten: NDArray[np.float64]
    cost_of: NDArray[np.float64]
    losses: tuple[NDArray[np.float64], NDArray[np.float64]]
    pairs: float


class Plan(NamedTuple):
    """Grids, the price of a path, and what this is expected to cost and to lose."""

    grids: Grids
    theta: float
    work: float
    loss: float


@jit()
def _first_rejections(order, floor, t_of, d, own, rank):
    count = rank_of(1.0, order.ratio, order.table)
    for j in range(count):
        gap = order.q[j] - order.p[j]
        if gap <= 0.0:
            continue
        t = max(gap, min(floor, order.prefix[-1, 1] - order.p[j]))
        r = rank_of(t, order.ratio, order.table)
        own[j], rank[j], t_of[j] = min(t * order.q[j], order.p[j]) * (gap / t), r, t
        d[j] = max(t * order.prefix[r, 0] - order.prefix[r, 1], 0.0) * (gap / t) + own[j]


@jit()
def paths_up_to(most, floor, order):
    """Paths of two and of three rejections, about; counted up to ``most`` and a little more."""
    ratio, q, p, table = order.ratio, order.q, order.p, order.table
    found = 0
    for j in range(rank_of(1.0, ratio, table)):
        gap = q[j] - p[j]
        if gap <= 0.0:
            continue
        t_first = max(gap, min(floor, order.prefix[-1, 1] - p[j]))
        for i in range(rank_of(t_first, ratio, table)):
            t = t_first * q[i] - p[i]
            if t > 0.0:
                found += rank_of(t, ratio, table) + 3  # beside the pair, both holes can come again
        if found > most:
            break
    return found


@jit()
def _follow_up(last, more, order, levels):
    """Sums of w t' and of w over the atoms that follow a path, by its octave: (OCTAVES, 2)."""
    sums = np.full((OCTAVES, 2), 1e300)  # no bound
    for octave in range(OCTAVES):
        t_parent = 1.4 * 2.0 ** (octave + 1 - OCTAVES)
        count = rank_of(t_parent, order.ratio, order.table)
        if not last:  # a guess: every further rejection adds as much
            sums[octave, 0] = more * (t_parent * order.prefix[count, 0] - order.prefix[count, 1])
            continue
        t_sum = w_sum = 0.0
        for j in range(count):
            t = t_parent * order.q[j] - order.p[j]
            if t > 0.0 and levels is not None:
                r = rank_of(t, levels.filled, levels.table)
                if r < levels.finite:
                    t_sum += min((t - order.prefix[r, 1]) / levels.suffix[r, 0], 1.0)
                w_sum += 1.0
            elif t > 0.0:
                r = rank_of(t, order.ratio, order.table)
                d = max(t * order.prefix[r, 0] - order.prefix[r, 1], 0.0)
                w = 1.0 - (d / (t_parent * (1.0 - order.q[j]) + d) if d > 0.0 else 0.0)
                t_sum += w * t
                w_sum += w
        sums[octave, 0], sums[octave, 1] = t_sum, w_sum
    return sums


@jit()
def _reject_all(t_parent, mass, s, order, remembering, follow_up, sums):
    """Spread paths of probability ``t_parent`` and total ``mass`` over what they reject next.

    ``remembering``: the holes, and which set remembers a rank; ``sums``: as in `survey`.
    """
    holes, set_of = remembering
    out, forgotten, after = sums
    many = mass / t_parent
    hole = holes[s - 1] if s > 0 else -1
    for j in range(rank_of(t_parent, order.ratio, order.table)):
        t = t_parent * order.q[j] - (0.0 if j == hole else order.p[j])
        octave = octave_of(t)
        if t <= 0.0 or octave < 0:
            continue
        r = rank_of(t, order.ratio, order.table)
        s_next = remembered(s, set_of[j])
        own = forget = 0.0
        if s_next > 0:
            h = holes[s_next - 1]
            own = min(t * order.q[h], order.p[h])
            forget = own + min(follow_up[octave, 0] * order.q[h], follow_up[octave, 1] * order.p[h])
        out[s_next, octave] += many * (max(t * order.prefix[r, 0] - order.prefix[r, 1], 0.0) + own)
        forgotten[s_next, octave] += many * forget
        after[s_next, octave] += many * t


@jit()
def _reject_octaves(weight, order, remembering, follow_up, sums):
    for s in range(weight.shape[0]):
        for octave in range(OCTAVES):
            if weight[s, octave] > 0.0:
                t = 1.4 * 2.0 ** (octave + 1 - OCTAVES)
                _reject_all(t, weight[s, octave], s, order, remembering, follow_up, sums)


def survey(
    order: RatioOrder, candidates: int, gap: float, floor: float = 0.0, levels: Levels | None = None
) -> Survey:
    """Look at all first rejections, with a budget of at least ``floor``, and at classes of the later ones.

    ``levels`` are those of water-filling.
    """
    vocab = order.p.shape[0]
    (d, own, t), rank = np.zeros((3, vocab)), np.zeros(vocab, np.int64)
    _first_rejections(order, floor, t, d, own, rank)
    alive = np.flatnonzero(d > 0.0)
    weight = order.q[alive] - order.p[alive]
    octave = np.frexp(t[alive])[1].astype(np.int64) - 2 + OCTAVES
    follow_up = [_follow_up(k == candidates - 1, candidates - k, order, levels) for k in range(candidates)]
    after_first = follow_up[1][np.clip(octave, 0, None)]
    forget = np.minimum(after_first[:, 0] * order.q[alive], after_first[:, 1] * order.p[alive])
    forget = own[alive] + forget * (weight / t[alive])
    holes = np.zeros(0, np.int64)
    if candidates > 2:
        heavy = alive[(own[alive] > 0.0) & (weight * order.q[alive] > 1e-2 * gap)]
        holes = heavy[np.argsort(-order.q[heavy], kind="stable")][:_MOST_HOLES]
    set_of = np.zeros(vocab, np.int64)
    set_of[holes] = np.arange(1, holes.size + 1)
    mass, forgotten = np.zeros((2, candidates, holes.size + 1, OCTAVES))
    where = set_of[alive] * OCTAVES + np.clip(octave, 0, None)
    weight = np.bincount(where, weight, minlength=(holes.size + 1) * OCTAVES).reshape(holes.size + 1, OCTAVES)
    for level in range(2, candidates):
        weight[weight < 1e-3 * gap / weight.size] = 0.0
        after = np.zeros_like(weight)
        _reject_octaves(
            weight, order, (holes, set_of), follow_up[level], (mass[level], forgotten[level], after)
        )
        weight = after
    cost_of = np.asarray(np.searchsorted(order.ratio, 1.4 * _OCTAVE) + 2.0, np.float64)
    return Survey(
        d[alive],
        forget,
        np.asarray(rank[alive] + 2.0, np.float64),
        octave,
        set_of[alive],
        holes,
        mass,
        forgotten,
        cost_of,
        (merge_loss(order, False), merge_loss(order, True)),
        float(rank.sum() + alive.size),
    )


def no_grids(order: RatioOrder, candidates: int, theta: float) -> Plan:
    """Merge nothing: follow what is worth it at that price, all of it at 0, none at infinity."""
    none = np.full((candidates, 1, OCTAVES), -1)
    return Plan(build_grids(order, none, np.zeros(0, np.int64)), theta, np.inf, np.inf)


@jit()
def _first_at_price(theta, seen, first, kept, alone, left, single):
    """Sort the first rejections into octaves; returns the work for those with too much to forget.

    By remembered hole and octave of the rest: ``first`` is the mass, ``kept`` what forgetting their holes
    loses. Without a grid, ``alone`` is the work for those that are followed, ``left`` the mass of those that
    are not, ``single`` the price of both.
    """
    d, forget, cost, octave, set_of = seen
    work = 0.0
    for i in range(d.shape[0]):
        s, k = set_of[i], max(octave[i], 0)
        if forget[i] >= theta * cost[i]:
            work += cost[i]
            continue
        first[s, k] += d[i]
        kept[s, k] += forget[i]
        if d[i] >= theta * cost[i]:
            alone[s, k] += cost[i]
            single[s, k] += theta * cost[i]
        else:
            left[s, k] += d[i]
            single[s, k] += d[i]
    return work


def _at_price(seen: Survey, theta: float) -> tuple[NDArray[np.int64], float, float]:
    """Bits of each octave at a price, the work of it all, and the mass that it loses."""
    n, sets, _ = seen.mass.shape
    bits = np.full((n, sets, OCTAVES), -1)
    first, kept, alone, left, single = np.zeros((5, sets, OCTAVES))
    work, loss = _first_at_price(theta, seen[:5], first, kept, alone, left, single), 0.0
    for level in range(1, n):
        mass, forgotten = (first, kept) if level == 1 else (seen.mass[level], seen.forgotten[level])
        last = level == n - 1
        # A set may do without a grid: set 0 takes its paths, at the price of their holes.
        use, fine, lost, costs = _resolution(seen, theta, mass[1:], forgotten[1:], last)
        bits[level, 1:] = np.where(use, fine, -1)
        work, loss = work + float((use * costs).sum()), loss + float(np.where(use, lost, forgotten[1:]).sum())
        shared = mass[0] + np.where(use, 0.0, mass[1:]).sum(axis=0)
        without = single[0] if level == 1 else mass[0]
        use, fine, lost, costs = _resolution(seen, theta, shared, without + shared - mass[0], last)
        bits[level, 0] = np.where(use, fine, -1)
        work, loss = work + float((use * costs).sum()), loss + float((use * lost).sum())
        if level == 1:
            work += float((~use * alone[0]).sum())
            loss += float(np.where(use, kept[0], left[0]).sum())
        else:
            loss += float((~use * shared).sum())
    return bits, work, loss


def _resolution(
    seen: Survey, theta: float, mass: NDArray[np.float64], without: NDArray[np.float64], last: bool
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Whether a grid pays, its bits, what it loses and what it costs; ``(..., OCTAVES)`` each."""
    choices = np.arange(MOST_BITS + 1)
    costs = 2.0 * np.multiply.outer(np.exp2(choices), seen.cost_of)
    losses = seen.losses[int(last)]
    if mass.ndim > 1:
        costs, losses = costs[:, None, :], losses[:, None, :]
    losses = losses * mass
    total = losses + theta * costs
    best = np.argmin(total, axis=0)
    lost, least = (np.take_along_axis(x, best[None], axis=0)[0] for x in (losses, total))
    return least < without, best, lost, 2.0 * np.exp2(best) * seen.cost_of


def _cells(bits: NDArray[np.int64]) -> float:
    return float(np.exp2(bits[bits >= 0]).sum())


def make_plan(
    order: RatioOrder,
    seen: Survey,
    gap: float,
    work: float,
    below: float = 1.0,
    knots: NDArray[np.float64] = NO_KNOTS,
) -> Plan:
    """The cheapest plan that is expected to lose ``gap``, or else to cost ``work``, at most.

    Its price is at most ``below``, unless the work forbids that.
    """
    low, high = -60.0, 0.0  # log2 of the price
    for _ in range(14):
        middle = 0.5 * (low + high)
        _, _, loss = _at_price(seen, 2.0**middle)
        low, high = (middle, high) if loss <= gap else (low, middle)
    theta = min(2.0**low, below)
    bits, cost, loss = _at_price(seen, theta)
    while (cost > work or _cells(bits) > _MOST_CELLS) and theta < 1.0:
        theta *= 1.3
        bits, cost, loss = _at_price(seen, theta)
    return Plan(build_grids(order, bits, seen.holes, knots), theta, cost, loss)


def learn(seen: Survey, order: RatioOrder, plan: Plan, deposits: NDArray[np.float64]) -> tuple[Survey, float]:
    """The survey with what a run has deposited on its grids, and what the plan is now expected to lose.

    Paths that were followed are not there any more, and with a lower price even fewer will be.
    """
    grids = plan.grids
    t = np.stack([grids.low, grids.high], axis=-1)
    rank = np.searchsorted(order.ratio, t)
    rejected = np.clip(t * order.prefix[rank, 0] - order.prefix[rank, 1], 0.0, None)
    weight = np.append(0.0, np.cumsum((deposits * rejected).sum(axis=-1)))
    covered = grids.first >= 0
    stop = np.where(covered, grids.first + (1 << grids.bits), 0)
    found = np.where(covered, weight[stop] - weight[np.where(covered, grids.first, 0)], np.inf)
    found[:2] = np.inf  # first rejections are all known
    mass = np.clip(found, _SURE * seen.mass, seen.mass)
    share = np.divide(mass, seen.mass, out=np.zeros_like(mass), where=seen.mass > 0.0)
    seen = seen._replace(mass=mass, forgotten=seen.forgotten * share)
    return seen, _at_price(seen, plan.theta)[2]
