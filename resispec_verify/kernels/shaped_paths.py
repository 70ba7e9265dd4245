"""Every rejection path of ResiSpec as one scalar: its operational marginal at full vocabulary.

Proportional redistribution, local budget, hole excluded, candidates i.i.d. from the draft. With
``t_0 = 1`` and ``U_0 = p``, a path of rejected tokens ``x_1..x_i`` is described by

    t_i = t_{i-1} q(x_i) - p(x_i)                  (no p(x_i) if x_i was rejected before: a "hole"),
    D_i = sum (t_i q - p)_+ + sum_{holes h} min(t_i q_h, p_h),
    c_i = D_i / (t_{i-1} (1 - q(x_i)) + D_i),
    U_i = (1 - c_i) min(t_i q, p) + c_i U_{i-1},   zero on the holes,

where ``t_i > 0`` is the probability of the path, ``U_i / t_i`` its residual and ``D_i`` the probability
that the path happens and the next candidate is rejected too. So the marginal is a sum of atoms
``w min(t q, p)``: each is one entry of a histogram over the rank of ``t`` among the sorted p/q, the
holes are subtracted in a correction array, and one pass at the end adds everything up.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.jit import jit
from resispec_verify.kernels.ratio_order import SHORT, RatioOrder, bucket_of, rank_below

__all__ = ["PathSum", "choose_thresholds", "rejection_profile", "shaped_marginal", "sum_paths"]

# Values of D / (work to expand), in steps of 1/8 octave: fine enough to choose a threshold from.
PROFILE_STEPS = 8
PROFILE_OCTAVES = 200
PROFILE_BINS = PROFILE_STEPS * PROFILE_OCTAVES


class PathSum(NamedTuple):
    """What the expanded paths place.

    Attributes
    ----------
    mass : float64 (V,)
        Placed mass by token, in token order; non-negative.
    acceptance : float64 (n,)
        Placed probability that candidate ``i + 1`` is the one emitted.
    unexpanded : float64 (n + 1,)
        Probability of what was not followed further, by the number of candidates known to be rejected.
    paths : int
        Rejection paths evaluated.
    """

    mass: NDArray[np.float64]
    acceptance: NDArray[np.float64]
    unexpanded: NDArray[np.float64]
    paths: int


_FRAME = np.dtype(
    [
        ("t", np.float64),  # probability of the path
        ("c", np.float64),  # share of the residual before in its own residual
        ("share", np.float64),  # coefficient of its U in what is placed after n rejections
        ("own_p", np.float64),  # p of the token rejected last, 0 if it was a hole before
        ("rank", np.int64),  # rank of t: how many tokens can be rejected next
        ("cursor", np.int64),  # how many of them have been
        ("own", np.int64),  # the token rejected last
        ("holes", np.int64),
    ]
)


class _Work(NamedTuple):
    """Mutable accumulators of one walk, all in rank order."""

    theta: NDArray[np.float64]  # (n,) a path is expanded when D >= theta[i] * (what expanding it costs)
    p_free: NDArray[np.float64]  # (V,) p, but zero on the holes of the current path
    frames: NDArray[np.void]  # (n + 1,) _FRAME: the current path, one record a rejection
    hole_rank: NDArray[np.int64]  # (n + 1,)
    holes: NDArray[np.float64]  # (n + 1, 3) q and p of each hole, and the mass to subtract there
    atoms: NDArray[np.float64]  # (V + 1, 2) sum of w t and of w, by the rank of t
    correction: NDArray[np.float64]  # (V,) what the atoms put on holes
    acceptance: NDArray[np.float64]  # (n,)
    unexpanded: NDArray[np.float64]  # (n + 1,)
    profile: NDArray[np.float64]  # (bins, 2) mass and cost of paths, by D / cost
    paths: NDArray[np.int64]  # (1,)
    cell: NDArray[np.float64]  # (1,) scratch


# How the tokens after a path are rejected: expanding some, as the last candidate, or only looked at.
_INNER, _LAST, _PROFILE = 0, 1, 2


@jit()
def _reject_next(level, mode, order, work):
    """Reject the tokens that remain to be rejected after the path at ``level``, one after the other.

    Stops with True at a path that must be expanded (left in ``frames[level + 1]``), to be called again
    afterwards; False when all are done. This is where the time goes (up to billions of iterations), hence
    plain local arrays and no calls on the way.
    """
    ratio, q, prefix, table = order.ratio, order.q, order.prefix, order.table
    p_free, hole_rank, hole, atoms, correction = (
        work.p_free,
        work.hole_rank,
        work.holes,
        work.atoms,
        work.correction,
    )
    cell, bits = work.cell, work.cell.view(np.int64)
    frame = work.frames[level]
    t_parent, rank, holes, theta = frame.t, frame.rank, frame.holes, work.theta[level + 1]
    share = accepted = unexpanded = 0.0
    paths, stop_at = 0, -1
    for i in range(frame.cursor, rank + holes):
        j = i
        if i >= rank:  # a hole can be rejected again even where p/q >= t
            j = hole_rank[i - rank]
            if j < rank:
                continue
        free = p_free[j]
        t = t_parent * q[j] - free
        if t <= 0.0:
            continue
        paths += 1
        cell[0] = t
        b = bucket_of(bits[0])
        r, hi = table[b], table[b + 1]
        if hi - r > SHORT:
            r += np.searchsorted(ratio[r:hi], t)
        else:
            while r < hi and ratio[r] < t:
                r += 1
        own = min(t * q[j], free)
        d = max(t * prefix[r, 0] - prefix[r, 1], 0.0) + own
        for h in range(holes):
            d += min(t * hole[h, 0], hole[h, 1])
        c, w = 0.0, 1.0
        if mode == _PROFILE:
            _add_to_profile(d, r + holes + 1, work.profile)
            continue
        if mode == _LAST or (d > 0.0 and d >= theta * (r + holes + 1)):
            c = d / (t_parent * (1.0 - q[j]) + d) if d > 0.0 else 0.0
        if mode == _INNER:
            accepted += t - d
            if c > 0.0:
                _open(level + 1, j, t, r, c, order, work)
                stop_at = i
                break
            unexpanded += d
        else:
            w, share = 1.0 - c, share + c
        atoms[r, 0] += w * t
        atoms[r, 1] += w
        correction[j] += w * own + c * free
        for h in range(holes):
            hole[h, 2] += w * min(t * hole[h, 0], hole[h, 1])
    frame.cursor = stop_at + 1
    frame.share += share
    work.acceptance[level + 1] += accepted
    if mode == _INNER:  # these paths reject level + 1 candidates, and D counts the next one too
        work.unexpanded[level + 2] += unexpanded
    work.paths[0] += paths
    return stop_at >= 0


@numba.njit(inline="always")
def _add_to_profile(d, cost, profile):
    if d > 0.0:
        b = int(-np.log2(d / cost) * PROFILE_STEPS)
        b = 0 if b < 0 else (PROFILE_BINS - 1 if b >= PROFILE_BINS else b)
        profile[b, 0] += d
        profile[b, 1] += cost


@jit()
def _open(level, j, t, rank, c, order, work):
    """Push the path that ends in the rejection of rank ``j``; its token becomes a hole."""
    frame = work.frames[level]
    holes = work.frames[level - 1].holes
    frame.t, frame.c, frame.share, frame.own_p = t, c, 0.0, work.p_free[j]
    frame.rank, frame.cursor, frame.own, frame.holes = rank, 0, j, holes
    if frame.own_p > 0.0:  # a token with p = 0, or one rejected before, leaves nothing to subtract
        work.hole_rank[holes], work.p_free[j] = j, 0.0
        work.holes[holes, 0], work.holes[holes, 1], work.holes[holes, 2] = order.q[j], frame.own_p, 0.0
        frame.holes = holes + 1


@jit()
def _close(level, order, work):
    """Pop a path whose children are done: place what it emits itself, and its part of what they leave."""
    frame, parent = work.frames[level], work.frames[level - 1]
    j, w = frame.own, 1.0 + frame.share * (1.0 - frame.c)
    if frame.own_p > 0.0:
        work.p_free[j] = frame.own_p
        work.correction[j] += work.holes[parent.holes, 2]
    parent.share += frame.share * frame.c
    work.atoms[frame.rank, 0] += w * frame.t
    work.atoms[frame.rank, 1] += w
    work.correction[j] += w * min(frame.t * order.q[j], frame.own_p) + frame.share * frame.c * frame.own_p
    for h in range(parent.holes):
        work.holes[h, 2] += w * min(frame.t * work.holes[h, 0], work.holes[h, 1])


@jit()
def _walk(depth, placing, order, work):
    """Depth-first over all paths of up to ``depth`` rejections; returns the coefficient of ``U_0 = p``."""
    root = work.frames[0]
    root.rank = rank_below(1.0, order.ratio, order.table, work.cell)
    root.t, root.share, root.cursor, root.holes = 1.0, 0.0, 0, 0
    d = max(order.prefix[root.rank, 0] - order.prefix[root.rank, 1], 0.0)
    work.acceptance[0] += 1.0 - d
    work.atoms[root.rank, 0] += 1.0
    work.atoms[root.rank, 1] += 1.0
    level = 0 if d > 0.0 else -1
    while level >= 0:
        mode = _INNER if level < depth - 1 else (_LAST if placing else _PROFILE)
        if _reject_next(level, mode, order, work):
            level += 1
            continue
        if level > 0:
            _close(level, order, work)
        level -= 1
    return root.share


@jit()
def _collect(share, order, work):
    """Placed mass by token: each atom is ``t q`` up to its rank and ``p`` beyond it, less the corrections."""
    vocab = order.p.shape[0]
    mass = np.empty(vocab)
    above = 0.0  # sum of w over atoms with t > p/q, summed from the top so that nothing cancels
    for j in range(vocab - 1, -1, -1):
        above += work.atoms[j + 1, 1]
        mass[j] = order.p[j] * (above + share) - work.correction[j]
    below = 0.0
    for j in range(vocab):
        below += work.atoms[j, 0]
        mass[j] += order.q[j] * below
    out = np.empty(vocab)
    for j in range(vocab):
        out[order.order[j]] = max(mass[j], 0.0)
    return out


def _new_work(order: RatioOrder, n: int, theta: NDArray[np.float64]) -> _Work:
    vocab = order.p.shape[0]
    return _Work(
        theta=theta,
        p_free=order.p.copy(),
        frames=np.zeros(n + 1, _FRAME),
        hole_rank=np.zeros(n + 1, np.int64),
        holes=np.zeros((n + 1, 3)),
        atoms=np.zeros((vocab + 1, 2)),
        correction=np.zeros(vocab),
        acceptance=np.zeros(n + 1),
        unexpanded=np.zeros(n + 2),
        profile=np.zeros((PROFILE_BINS, 2)),
        paths=np.zeros(1, np.int64),
        cell=np.zeros(1),
    )


def sum_paths(order: RatioOrder, candidates: int, theta: NDArray[np.float64]) -> PathSum:
    """Expand every path with ``D >= theta[i] * cost`` and add up what they place.

    Parameters
    ----------
    order : RatioOrder
        The position's target and draft.
    candidates : int
        Number of candidates ``n >= 1``.
    theta : float64 (n,)
        Threshold by number of rejections (index 0 unused); 0 expands everything, inf nothing.
    """
    work = _new_work(order, candidates, theta)
    share = _walk(candidates, True, order, work)
    return PathSum(
        _collect(share, order, work),
        work.acceptance[:candidates],
        work.unexpanded[: candidates + 1],
        int(work.paths[0]),
    )


def rejection_profile(
    order: RatioOrder, depth: int, theta: NDArray[np.float64]
) -> tuple[NDArray[np.float64], int]:
    """Profile of the paths of ``depth`` rejections that survive the thresholds ``theta`` above them.

    Returns
    -------
    profile : float64 (PROFILE_BINS, 2)
        Row ``b``: total D and total cost (paths to evaluate) of the paths with
        ``D / cost`` in ``[2**(-(b + 1) / 8), 2**(-b / 8))``.
    paths : int
        Paths evaluated to make it.
    """
    work = _new_work(order, depth, theta)
    _walk(depth, False, order, work)
    return work.profile, int(work.paths[0])


def _threshold(profile: NDArray[np.float64], leave: float, budget: float) -> float:
    """Smallest work for which the paths left unexpanded weigh at most ``leave``; as a bound on D / cost."""
    mass, cost = profile[:, 0], profile[:, 1]
    rest = np.append(np.cumsum(mass[::-1])[::-1], 0.0)  # rest[k]: mass of bins k and beyond
    keep = int(np.argmax(rest <= leave))
    keep = min(keep, int(np.searchsorted(np.cumsum(cost), budget, side="right")))
    if keep == 0:
        return np.inf
    return 0.0 if rest[keep] == 0.0 else float(2.0 ** (-keep / PROFILE_STEPS))


def choose_thresholds(
    order: RatioOrder, candidates: int, gap: float, max_paths: float
) -> tuple[NDArray[np.float64], int]:
    """Thresholds that leave at most ``gap`` unexpanded, within ``max_paths`` path evaluations.

    Paths are taken heaviest first by ``D / cost``, the mass that expanding them resolves per path evaluated.
    Each number of rejections gets a part of the gap, half of what is left of it and the last one the rest.
    Where the budget binds, the gap comes out larger.

    Returns
    -------
    theta : float64 (candidates + 1,)
    paths : int
        Paths evaluated to find them.
    """
    theta = np.zeros(candidates + 1)
    spent, left = 0, 0.0
    for depth in range(1, candidates):
        profile, paths = rejection_profile(order, depth, theta)
        spent += paths
        allowed = (gap - left) * (1.0 if depth == candidates - 1 else 0.5)
        # What a depth costs is paid again in every later pass: an equal part of the budget for each depth.
        passes = candidates - depth
        budget = (max_paths - spent - passes * paths) / passes**2
        theta[depth] = _threshold(profile, allowed, budget)
        left += float(profile[:, 0].sum()) if theta[depth] == np.inf else _mass_below(profile, theta[depth])
    return theta, spent


def _mass_below(profile: NDArray[np.float64], theta: float) -> float:
    return 0.0 if theta == 0.0 else float(profile[round(-np.log2(theta) * PROFILE_STEPS) :, 0].sum())


def shaped_marginal(order: RatioOrder, candidates: int, gap: float, most_paths: float) -> PathSum:
    """The operational marginal with at most ``gap`` left unexpanded, if ``most_paths`` evaluations allow it.

    Parameters
    ----------
    order : RatioOrder
        The position's target and draft.
    candidates : int
        ``n >= 0``.
    gap : float
        Mass that may stay unexpanded; 0 expands everything.
    most_paths : float
        Budget of path evaluations.
    """
    if candidates == 0:
        p = np.empty_like(order.p)
        p[order.order] = order.p
        return PathSum(p, np.zeros(0), np.zeros(1), 0)
    first = int(np.searchsorted(order.ratio, 1.0))  # tokens that the first candidate can be rejected at
    if candidates * first > most_paths:
        return _first_round_only(order, candidates)
    theta, spent = choose_thresholds(order, candidates, gap, most_paths)
    placed = sum_paths(order, candidates, theta)
    return placed._replace(paths=placed.paths + spent)


def _first_round_only(order: RatioOrder, candidates: int) -> PathSum:
    """What accepting the first candidate places, and nothing after its rejection."""
    mass = np.empty_like(order.p)
    mass[order.order] = np.minimum(order.p, order.q)
    acceptance, unexpanded = np.zeros(candidates), np.zeros(candidates + 1)
    unexpanded[1] = np.sum(np.clip(order.q - order.p, 0.0, None))
    acceptance[0] = 1.0 - unexpanded[1]
    return PathSum(mass, acceptance, unexpanded, 0)
