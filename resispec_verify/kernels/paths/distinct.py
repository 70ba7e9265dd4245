r"""Sequoia's rejection paths as pairs of scalars: acceptance and marginal at full vocabulary.

Candidates are drawn without replacement from q. With ``S(l) = sum (p - l q)_+``, ``lam_0 = 0``, ``lam_1 = 1``
and Q the q of the tokens rejected so far, the rule's state after k rejections is, off these tokens,

    D_k = u_k q,  u_k = 1 / (sum q - Q),      R_k = (p - lam_k q)_+ / S(lam_k),
    lam_{k+1} = lam_k + u_k S(lam_k).

*Proof.* Where ``R_k > 0``, ``R_k - D_k = (p - lam_{k+1} q) / S(lam_k)``; its positive part is normalised by
``S(lam_{k+1})``. A rejected token had ``R < D``, so ``p < lam_{k+1} q``: it drops out of all later positive
parts by itself. QED. So a new token y with ``p < lam_{k+1} q`` is rejected next with probability

    w(y) = (D_k - R_k)_+ = u_k q - (p - lam_k q)_+ / S(lam_k),

and the probability ``W_k`` that k candidates are rejected is a sum over paths of products of w: of scalars
that are looked up in prefix sums. A path matters only through the q of its tokens. So tokens of equal q are
one *cluster*: exact, and few where logits were logged in 16 bits.

**Bounds where q has too many values.** Let clusters hold an interval ``[a, b]`` of q, and replace the q of
rejected tokens, in u only, by b. Every path's probability rises. With a it falls.

*Proof.* Let ``G(l)`` be the q of the tokens with ``p >= l q``. Rejected tokens are not among them, so
``u G(lam) <= 1``. Hence ``lam + u S(lam)`` falls neither with u nor with lam, where its slope is ``1 - u G``.
The same holds for w(y). It rises with u. Its slope in lam is 0 where ``p < lam q`` and ``(q - G R) / S``
elsewhere, which is not negative, because ``R < u q`` where y can be rejected and ``u G <= 1``. Now induction
along the path. A path on which a token cannot be rejected has probability 0, the least there is. QED.

What rejected tokens take away from the sum of a cluster is bounded with the other end. So two walks bound
every ``W_k``. The one that counts is a third, at the mean q of each cluster.

**The marginal.** A state accepts ``w [(p - lam_k q)_+ - (p - lam_{k+1} q)_+] / S(lam_k)`` and leaves the rest
to states with the residual ``(p - lam_{k+1} q)_+ / S(lam_{k+1})``. Summed over states,

    marginal = p + sum of b (p - lam_{k+1} q)_+,      b = rejected / S(lam_{k+1}) - w / S(lam_k),

where ``rejected`` is what the state rejects in all, by the formula for w. So b is what a round does wrong. It
is measured, state by state. That it vanishes, since ``sum (D - R)_+ = sum (R - D)_+`` for two laws, is why
the rule is exact; and it vanishes for *every* u. So clusters move mass between candidates and never between
tokens.

When the support of q is exhausted there is no further candidate, and R is emitted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.elementwise.ratio_order import RatioOrder, rank_of
from resispec_verify.kernels.jit import inline, jit
from resispec_verify.kernels.paths.clusters import Clusters, clustered
from resispec_verify.kernels.paths.path_sum import PathSum

__all__ = ["distinct_marginal"]

# Evaluations of one walk: few, or more where these leave too much error.
_EVALUATIONS = (2.5e5, 4e6)
# The error that is fine, and the error that is too much, in units of the gap.
_FINE, _COARSE = 1e-6, 0.1
_SMALLEST = 1e-250  # of the q whose inverse is safe to multiply with


_FRAME = np.dtype(
    [
        ("lam", np.float64),
        ("u", np.float64),
        ("z", np.float64),  # S(lam)
        ("w", np.float64),  # probability of the path
        ("below", np.float64),  # what is left to draw below the top clusters, by the q that u is made of
        ("below_own", np.float64),  # and by the q that drawn tokens take away
        ("out", np.float64),  # probability of the paths of one more token
        ("token", np.int64),  # cluster of the token rejected last
        ("cursor", np.int64),  # cluster to reject next
        ("fresh", np.int64),  # whether no child has been opened
    ]
)


class _Work(NamedTuple):
    """What one walk reads besides the clusters, and its mutable accumulators."""

    q: NDArray[np.float64]  # (m,) of each cluster in u
    own: NDArray[np.float64]  # (m,) what a drawn token takes away
    signed: bool  # whether negative probabilities, which the means of clusters can make, are kept
    suffix: NDArray[np.float64]  # (V + 1, 2) sums of q and p from a rank on: differences would cancel
    frames: NDArray[np.void]  # (n + 1,) _FRAME: the current path, one record a token
    pointer: NDArray[np.int64]  # (n + 1, m) tokens of each cluster with p/q < lam_k
    drawn: NDArray[np.int64]  # (m,) tokens of the path, by cluster
    room: NDArray[np.int64]  # (m,) how many there can be
    rejected: NDArray[np.float64]  # (n + 1,) W_k
    atoms: NDArray[np.float64]  # (V + 1, 2) sums of b and of b lam, by the rank of lam


@jit()
def _left(below, q, clusters, drawn):
    """What is left to draw: ``below`` of the lower clusters, and what was not drawn of the top ones.

    Exactly 0 where all is drawn, and without cancellation: while a path holds lower tokens, as many top ones,
    each at least as large, have not been drawn.
    """
    left, m = below, q.shape[0]
    for c in range(m - clusters.top, m):
        left += (clusters.start[c + 1] - clusters.start[c] - drawn[c]) * q[c]
    return left


@jit()
def _advance(pointer, lam, clusters):
    start, ratio = clusters.start, clusters.ratio
    for c in range(start.shape[0] - 1):
        i, stop = start[c] + pointer[c], start[c + 1]
        while i < stop and ratio[i] < lam:
            i += 1
        pointer[c] = i - start[c]


@inline
def _chance(c, before, after, state, own, room, clusters, drawn):
    """Probability ``w`` that the next candidate is a new token of cluster c, and rejected.

    ``state`` is (lam, u, S(lam)).
    """
    lam, u, z = state
    if drawn[c] >= room[c]:
        return 0.0
    prefix, at = clusters.prefix, clusters.start[c] + c
    i, j = at + before[c], at + after[c]
    met = prefix[j, 1] - prefix[i, 1] - lam * (prefix[j, 0] - prefix[i, 0])
    return u * (prefix[j, 0] - drawn[c] * own[c]) - met / z


@jit()
def _leaves(n, frame, after, order, clusters, work):
    """Reject every cluster as token n - 1 after the path of ``frame``, and the last candidate after that.

    Returns the probability of the former. ``after`` is ``(lam, S(lam))`` of the next state. This is where the
    time goes.
    """
    ratio, table, drawn = order.ratio, order.table, work.drawn
    before, behind = work.pointer[n - 2], work.pointer[n - 1]
    q, own, suffix, room, signed = work.q, work.own, work.suffix, work.room, work.signed
    lam, z = after
    m = q.shape[0]
    upper = _left(0.0, q, clusters, drawn)
    total = all_rejected = 0.0
    for c in range(m):
        w = frame.w * _chance(c, before, behind, (frame.lam, frame.u, frame.z), own, room, clusters, drawn)
        if w == 0.0 or (w < 0.0 and not signed):
            continue
        total += w
        if z <= 0.0:  # nothing remains to be emitted; only rounding gets here
            continue
        left, left_own = frame.below - q[c] + upper, frame.below_own - own[c] + upper
        if c >= m - clusters.top:
            drawn[c] += 1
            left, left_own = (
                _left(frame.below, q, clusters, drawn),
                _left(frame.below_own, q, clusters, drawn),
            )
            drawn[c] -= 1
            if left <= 0.0:  # no further candidate
                all_rejected += w
                continue
        last = lam + z / left
        r = rank_of(last, ratio, table)
        kept_q, kept_p = suffix[r, 0], suffix[r, 1]
        rejected = (left_own - kept_q) / left - (z - (kept_p - lam * kept_q)) / z
        rejected = w * max(rejected, 0.0)
        all_rejected += rejected
        z_last = kept_p - last * kept_q
        if z_last > 0.0:
            b = rejected / z_last - w / z
            work.atoms[r, 0] += b
            work.atoms[r, 1] += b * last
    work.rejected[n] += all_rejected
    return total


@jit()
def _next_child(level, z_after, clusters, work):
    """Open the next path of one more token, in ``frames[level + 1]``; False when there is none."""
    frame, child, drawn, room = work.frames[level], work.frames[level + 1], work.drawn, work.room
    before, behind = work.pointer[level], work.pointer[level + 1]
    q, own, signed = work.q, work.own, work.signed
    if z_after <= 0.0:
        return False
    for c in range(frame.cursor, q.shape[0]):
        w = frame.w * _chance(c, before, behind, (frame.lam, frame.u, frame.z), own, room, clusters, drawn)
        if w == 0.0 or (w < 0.0 and not signed):
            continue
        frame.out += w
        drawn[c] += 1
        below = c < q.shape[0] - clusters.top
        child.below = frame.below - (q[c] if below else 0.0)
        child.below_own = frame.below_own - (own[c] if below else 0.0)
        left = _left(child.below, q, clusters, drawn)
        if left > 0.0:
            child.w, child.u, child.token, frame.cursor = w, 1.0 / left, c, c + 1
            return True
        drawn[c] -= 1  # no further candidate: none is accepted
        work.rejected[level + 2 :] += w
    return False


@jit()
def _walk(n, order, clusters, work):
    """Depth-first over all paths of clusters; returns how many evaluations it made."""
    frames, pointer, suffix = work.frames, work.pointer, work.suffix
    level, evaluations, entered = 0, 0, True
    root = frames[0]
    root.lam, root.u, root.z, root.w = 0.0, 1.0, 1.0, 1.0
    root.below = root.below_own = clusters.rest
    while level >= 0:
        frame = frames[level]
        lam = frame.lam + frame.u * frame.z
        r = rank_of(lam, order.ratio, order.table)
        z = suffix[r, 1] - lam * suffix[r, 0]
        if entered:
            frame.out, frame.cursor, frame.fresh = 0.0, 0, True
            _advance(pointer[level + 1], lam, clusters)
            evaluations += pointer.shape[1]
        entered = False
        if level == n - 2:
            frame.out = _leaves(n, frame, (lam, z), order, clusters, work)
        elif _next_child(level, z, clusters, work):
            if frame.fresh:  # siblings come in ascending order of lam: their pointers go on
                pointer[level + 2, :] = pointer[level + 1, :]
            frame.fresh = False
            frames[level + 1].lam, frames[level + 1].z = lam, z
            level, entered = level + 1, True
            continue
        work.rejected[level + 1] += frame.out
        if z > 0.0:
            b = frame.out / z - frame.w / frame.z
            work.atoms[r, 0] += b
            work.atoms[r, 1] += b * lam
        work.drawn[frame.token] -= level > 0
        level -= 1
    return evaluations


@jit()
def _collect(order, atoms):
    """``p + sum of b (p - lam q)_+`` in token order."""
    mass = np.empty(order.p.shape[0])
    b = b_lam = 0.0
    for j in range(order.p.shape[0]):
        b += atoms[j, 0]
        b_lam += atoms[j, 1]
        mass[order.order[j]] = max(order.p[j] + (b * order.p[j] - b_lam * order.q[j]), 0.0)
    return mass


def _run(
    order: RatioOrder,
    n: int,
    clusters: Clusters,
    q: NDArray[np.float64],
    own: NDArray[np.float64],
    signed: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """``W_1..W_n``, atoms and evaluations of one walk."""
    suffix = np.zeros((order.p.size + 1, 2))
    suffix[:-1, 0] = np.cumsum(order.q[::-1])[::-1]
    suffix[:-1, 1] = np.cumsum(order.p[::-1])[::-1]
    m = q.size
    room = np.diff(clusters.start)
    if signed:  # rounds balance only if a cluster that stands for its mean is never full
        room = np.where(clusters.low == clusters.high, room, n)
    work = _Work(
        q,
        own,
        signed,
        suffix,
        frames=np.zeros(n + 1, _FRAME),
        pointer=np.zeros((n + 1, m), np.int64),
        drawn=np.zeros(m, np.int64),
        room=room,
        rejected=np.zeros(n + 1),
        atoms=np.zeros((order.p.size + 1, 2)),
    )
    evaluations = _walk(n, order, clusters, work)
    return work.rejected[1:], work.atoms, evaluations


def distinct_marginal(order: RatioOrder, candidates: int, gap: float, most_paths: float) -> PathSum | None:
    """Sequoia's acceptance and marginal at one position; nothing is left unexpanded.

    Parameters
    ----------
    order : RatioOrder
        The position's target and draft.
    candidates : int
        ``n >= 1``.
    gap : float
        What clusters may cost the acceptance is a tenth of it, and they get finer until it is a millionth or
        a walk takes 4 million evaluations. 0 tells all values of q apart.
    most_paths : float
        Budget of evaluations, one for each cluster at each state.

    Returns
    -------
    PathSum or None
        None where the budget is too small, or where so much of the draft can be drawn that the inverse of the
        rest overflows.
    """
    n = candidates
    drafted = order.q[order.q > 0.0]
    if np.count_nonzero(drafted > _SMALLEST) < min(n, drafted.size):
        return None
    if n == 1:
        return _one(order)
    if gap == 0.0:
        values = np.unique(drafted).size
        return _rounded(_bounded(order, n, values)) if float(values) ** (n - 1) <= most_paths else None
    if float(n) ** (n - 1) > _EVALUATIONS[1]:
        return None  # a path can have as many tokens of one value each: too many candidates for clusters
    found = None
    for evaluations in _EVALUATIONS:
        most = int(min(evaluations, most_paths / 3.0) ** (1.0 / (n - 1)))
        found = _bounded(order, n, max(most, n))
        if found.acceptance_error <= _FINE * gap:
            break
    if found is None or found.acceptance_error > _COARSE * gap:
        return None
    if found.paths > max(most_paths, _EVALUATIONS[0]):
        return None
    return _rounded(found)


def _rounded(found: PathSum) -> PathSum:
    """With what rounding adds: sums over V tokens by cluster, beside those that every path sum has."""
    rounds, vocab = found.unexpanded.size, found.mass.size
    return replace(found, rounding=1.5 * float(np.finfo(np.float64).eps) * rounds * vocab)


def _one(order: RatioOrder) -> PathSum:
    """One candidate: ``min(p, q)``, and what is rejected goes to ``norm((p - q)_+)``."""
    rejected = float(np.sum(np.clip(order.q - order.p, 0.0, None)))
    kept = np.clip(order.p - order.q, 0.0, None)
    left = float(np.sum(kept))
    mass = np.empty_like(order.p)
    mass[order.order] = np.minimum(order.p, order.q) + (rejected / left * kept if left > 0.0 else 0.0)
    acceptance = np.asarray([float(np.sum(np.minimum(order.p, order.q)))])
    return PathSum(mass, acceptance, np.zeros(2), 1, 0.0)


def _bounded(order: RatioOrder, n: int, most: int) -> PathSum:
    """At most ``most`` clusters, or n where that is more."""
    clusters = clustered(order, n - 1, most)
    rejected, atoms, paths = _run(order, n, clusters, clusters.mean, clusters.mean, True)
    error = 0.0
    if not np.array_equal(clusters.low, clusters.high):
        above, _, more = _run(order, n, clusters, clusters.high, clusters.low, False)
        below, _, as_many = _run(order, n, clusters, clusters.low, clusters.high, False)
        paths += more + as_many
        # Acceptance is the difference of two of them.
        error = float(np.sum(np.sort(np.maximum(above - rejected, rejected - below))[-2:]))
    acceptance = np.clip(-np.diff(rejected, prepend=1.0), 0.0, 1.0)
    return PathSum(_collect(order, atoms), acceptance, np.zeros(n + 1), paths, 0.0, error)
