"""ResiSpec's rejection paths on any array library, batched over positions and rejected tokens.

The recursion is that of `shaped_paths` (proportional redistribution, local budget, hole excluded). Here a
step rejects one more token after many paths at once, with array functions only, so that it runs where the
arrays live. Paths are not merged: each is followed, or left where it is light and counted in the gap.

Sums over paths go through `backends.add_at`, in whatever order the device adds. All terms are non-negative
(those of ``acceptance`` up to their own rounding), so a term passes through at most one rounding for each
path that is added to the same sum, in any order: the bound that `evidence` puts on path sums allows for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from resispec_verify.arrays import Array
from resispec_verify.backends import add_at, to_numpy
from resispec_verify.kernels.elementwise.residuals import density_ratio
from resispec_verify.kernels.paths.path_sum import PathSum

__all__ = ["chunks", "collected", "path_sums", "room_for", "shaped_marginals"]

# Paths held at once by each number of rejections: a part for each row, so that a batch that does not fit in
# memory does when it is halved.
_ROOM_A_ROW, _MOST_ROOM = 1 << 17, 1 << 22
# At most so many paths are followed without asking which.
_EXACT = 2e6
_LEAST_PRICE, _STEP = 2.0**-60, 8


def room_for(rows: int, vocab: int, candidates: int) -> int:
    """Paths to hold at once: at least what one path's rejections need."""
    return max(vocab + candidates, min(rows * _ROOM_A_ROW, _MOST_ROOM))


def shaped_marginals(
    sums: Callable[[Any, Any, int, NDArray[np.float64]], PathSum],
    target: Array,
    draft: Array,
    candidates: int,
    *,
    gap: float,
    most_paths: float,
) -> PathSum:
    """ResiSpec's operational marginals with at most ``gap`` left unexpanded, as far as the budget goes.

    The heaviest first rejections are followed, by D over what that costs, as many as it takes to leave the
    gap. With two candidates that is all. With more, the price of a path is lowered by up to a factor of 8,
    for the rows that need it, until their gap is reached or the budget could be exceeded. Where all paths are
    few, or no gap is allowed and all are within the budget, all are followed.

    Parameters
    ----------
    sums : callable
        `path_sums`, or `host.path_sums` with a device.
    target, draft : float64 array (B, V)
    candidates : int
        ``n >= 1``.
    gap : float
        0 asks for every path.
    most_paths : float
        Path evaluations a row, in all passes, besides its first rejections.

    Returns
    -------
    PathSum
        ``paths`` counts all passes.
    """
    xp, there = array_namespace(target), device(target)
    theta, most = _first_prices(target, draft, candidates, gap, most_paths)
    if candidates > 2:  # all that is followed at a price costs at most D over that price, at each length
        theta = np.maximum(theta, (candidates - 1) / most_paths)
    theta[most <= (min(_EXACT, most_paths) if gap > 0 else most_paths)] = 0.0
    best = sums(target, draft, candidates, theta[:, None])
    latest = to_numpy(best.paths).copy()
    while True:
        left, budget = to_numpy(best.unexpanded).sum(axis=-1), most_paths - to_numpy(best.paths)
        again = (left > gap) & (theta > 0) & (theta < np.inf) & (latest < budget)
        # What is new in the next pass extends what is left now: at each length, at most that over the price.
        new = np.maximum(theta / _STEP, (candidates - 1) * left / np.where(again, budget - latest, 1.0))
        nearly = theta <= _LEAST_PRICE
        again &= np.where(nearly, _STEP * latest <= budget, new <= 0.75 * theta)
        again = np.flatnonzero(again)
        if candidates <= 2 or again.size == 0:
            return best
        theta[again] = np.where(nearly, 0.0, new)[again]
        rows = xp.asarray(again, device=there)
        some = (xp.take(values, rows, axis=0) for values in (target, draft))
        found = sums(*some, candidates, theta[again, None])
        latest[again] = to_numpy(found.paths)
        spent = found.paths + xp.take(best.paths, rows, axis=0)
        best = _with_rows(best, again, replace(found, paths=spent))


def _with_rows(best: PathSum, rows: NDArray[np.int64], found: PathSum) -> PathSum:
    """``best`` with some of its rows as they were found anew."""
    xp, there = array_namespace(best.mass), device(best.mass)
    place = np.arange(best.mass.shape[0])
    place[rows] = len(place) + np.arange(len(rows))
    place = xp.asarray(place, device=there)
    names = ("mass", "acceptance", "unexpanded", "paths")
    pairs = ([getattr(one, name) for one in (best, found)] for name in names)
    return PathSum(*(xp.take(xp.concat(pair, axis=0), place, axis=0) for pair in pairs))


def _first_prices(
    target: Array, draft: Array, candidates: int, gap: float, most_paths: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """By row: the price of the last first rejection to follow, and how many paths there are at most."""
    xp = array_namespace(target)
    walk = _ArrayWalk(target, draft, candidates, 0.0, 0)
    p, q = walk.p[:, :-1], walk.q[:, :-1]
    t = xp.clip(q - p, 0.0, None)
    flat = xp.reshape(t, (-1,))
    rank = walk._ranks(flat, [(i, i * walk.vocab, (i + 1) * walk.vocab) for i in range(walk.rows)])
    base = xp.arange(walk.rows, device=walk.device)[:, None] * walk.wide
    rank = xp.reshape(rank, t.shape)
    d = walk._excess(xp.reshape(base + rank, (-1,)), flat)
    d = xp.reshape(d, t.shape) + xp.minimum(t * q, p)
    cost = xp.astype(xp.where(d > 0, rank + 1, 0), t.dtype)
    price = xp.where(d > 0, d / xp.where(d > 0, cost, 1.0), 0.0)
    heaviest = xp.flip(xp.argsort(price, axis=-1), axis=-1)
    price, d, cost = (xp.take_along_axis(a, heaviest, axis=-1) for a in (price, d, cost))
    first = xp.astype(_count(t > 0), t.dtype)
    spent = xp.cumulative_sum(cost, axis=-1)
    # What is left from each on, summed from the lightest; a little less than the gap, for rounding.
    rest = xp.flip(xp.cumulative_sum(xp.flip(d, axis=-1), axis=-1), axis=-1)
    wanted = xp.minimum(_count(rest > 0.999 * gap), _count(first[:, None] + spent <= most_paths))

    def at(values: Array, count: Array) -> Array:
        return xp.take_along_axis(values, xp.where(count > 0, count - 1, 0)[:, None], axis=-1)

    last = at(price, wanted)
    dearest = to_numpy(first + at(spent, _count(price >= last))[:, 0])  # all that have its price
    last, wanted, first, level = (to_numpy(v) for v in (last[:, 0], wanted, first, spent[:, -1]))
    last = np.where(dearest > most_paths, np.nextafter(last, np.inf), last)
    total = first
    for holes in range(2, candidates + 1):  # later rejections are among the first ones and the holes
        total, level = total + level, level * (first + holes)
    return np.where(wanted > 0, last, np.inf), total


def _count(true: Array) -> Array:
    """How many entries of each row are true."""
    xp = array_namespace(true)
    return xp.sum(xp.astype(true, xp.int64), axis=-1)


def path_sums(
    target: Array, draft: Array, candidates: int, theta: Array = 0.0, *, room: int | None = None
) -> PathSum:
    """ResiSpec's operational marginal (proportional, local, excluded) of rows, on their own device.

    Parameters
    ----------
    target, draft : float64 array (B, V)
    candidates : int
        ``n >= 1``.
    theta : float or NumPy array broadcastable to (B, n + 1)
        A path of i rejections, not the last, is followed where ``D >= theta[i]`` times what that costs: the
        number of its next rejections. 0 follows everything.
    room : int, optional
        Paths held at once by each number of rejections; not less than those of one path.
    """
    rows, vocab = target.shape
    room = room_for(rows, vocab, candidates) if room is None else max(room, vocab + candidates)
    return _ArrayWalk(target, draft, candidates, theta, room).run()


class _Paths(NamedTuple):
    """Paths of equal length, sorted by row; one entry a path in each array ``(m,)``.

    Attributes
    ----------
    row, t, rank
        Position in the batch, probability, and how many tokens can be rejected next: the first ranks.
    holes : tuple of arrays
        Ranks rejected before, where something is missing there; V where nothing is.
    """

    row: Any
    t: Any
    rank: Any
    holes: tuple[Any, ...]


class _ArrayWalk:
    """All paths of one batch of rows, depth first in chunks.

    Rows of V numbers lie one after the other, each with one more entry at its end: V stands for "no token",
    with p = q = 0.
    """

    def __init__(self, target: Array, draft: Array, candidates: int, theta: Array, room: int) -> None:
        xp = self.xp = array_namespace(target, draft)
        self.n, self.room, self.device = candidates, room, device(target)
        self.rows, self.vocab = target.shape
        self.wide = self.vocab + 1
        ratio = density_ratio(target, draft)
        self.ranked = xp.argsort(ratio, axis=-1)
        self.ratio, p, q = (xp.take_along_axis(a, self.ranked, axis=-1) for a in (ratio, target, draft))
        none = self._zeros((self.rows, 1))
        self.p, self.q = (xp.concat([a, none], axis=-1) for a in (p, q))
        self.p_before, self.q_before = (
            xp.concat([none, xp.cumulative_sum(a, axis=-1)], axis=-1) for a in (p, q)
        )
        # Sums of w t and of w over atoms, by the rank of t; what they put on holes, by rank.
        self.atom_t, self.atom_w, self.correction = (self._zeros(self.rows * self.wide) for _ in range(3))
        self.acceptance = self._zeros((self.rows, candidates))
        self.unexpanded = self._zeros((self.rows, candidates + 1))
        self.paths = self._zeros((self.rows, 1))
        theta = np.broadcast_to(np.asarray(theta, np.float64), (self.rows, candidates + 1))
        self.theta = xp.asarray(theta.copy(), device=self.device)

    def run(self) -> PathSum:
        xp = self.xp
        row = xp.arange(self.rows, device=self.device)
        t = self._zeros(self.rows) + 1.0
        spans = [(i, i, i + 1) for i in range(self.rows)]
        rank = self._ranks(t, spans)
        d = self._excess(row * self.wide + rank, t)
        self._tally(self.acceptance, 0, 1.0 - d, spans)
        self._place(row * self.wide + rank, t, t)
        share = self._extend_all(_Paths(row, t, xp.where(d > 0, rank, 0), ()))
        return self._collect(share)

    def _extend_all(self, parents: _Paths) -> Any:
        """Place what extends paths of one length; coefficients ``(m,)`` of their U in the final draws."""
        share = self._zeros(parents.t.shape[0])
        rows = to_numpy(parents.row)
        costs = to_numpy(parents.rank) + len(parents.holes)
        for first, stop in chunks(costs, self.room):
            some = slice(first, stop)
            row, t, rank = (values[some] for values in parents[:3])
            part = _Paths(row, t, rank, tuple(hole[some] for hole in parents.holes))
            share[some] = self._extend(part, rows[some], costs[some])
        return share

    def _extend(self, parents: _Paths, rows: NDArray[np.int64], costs: NDArray[np.int64]) -> Any:
        """Reject every token after each path; coefficients as `_extend_all`.

        ``costs`` are how many there are, holes included.
        """
        xp, level = self.xp, len(parents.holes)
        spans, total = _spans(rows, costs), int(costs.sum())
        counts = xp.asarray(costs, device=self.device)
        ends = xp.cumulative_sum(counts)
        i = xp.arange(total, device=self.device)
        parent = xp.searchsorted(ends, i, side="right")
        i = i - xp.take(ends - counts, parent)
        row, before, rank = (xp.take(values, parent) for values in parents[:3])
        holes = tuple(xp.take(hole, parent) for hole in parents.holes)
        base = row * self.wide
        # The ranks below the path's own, then the holes beyond; a hole below is among the former.
        j = xp.where(i < rank, i, self.vocab)
        for slot, hole in enumerate(holes):
            j = xp.where((i == rank + slot) & (hole >= rank), hole, j)
        free, q = (xp.take(xp.reshape(values, (-1,)), base + j) for values in (self.p, self.q))
        for hole in holes:
            free = xp.where(hole == j, 0.0, free)
        t = xp.clip(before * q - free, 0.0, None)
        rank = self._ranks(t, spans)
        own = xp.minimum(t * q, free)
        on_holes = [self._clipped(base + hole, t) for hole in holes]
        d = self._excess(base + rank, t) + own
        for mass in on_holes:
            d = d + mass
        some = d > 0
        c = xp.where(some, d, 0.0) / xp.where(some, before * (1.0 - q) + d, 1.0)
        self._tally(self.paths, 0, xp.astype(t > 0, t.dtype), spans)

        w = 1.0 - c  # of what U places after the last rejection
        up = c
        if level + 1 < self.n:
            self._tally(self.acceptance, level + 1, t - d, spans)
            cost = rank + 1
            for hole in holes:
                cost = cost + xp.astype(hole < self.vocab, cost.dtype)
            least = xp.take(self.theta[:, level + 1], row)
            follow = some & (d >= least * xp.astype(cost, t.dtype))
            # D counts the next rejection too.
            self._tally(self.unexpanded, level + 2, xp.where(follow, 0.0, d), spans)
            kept = xp.nonzero(follow)[0]
            share = xp.zeros_like(t)
            if kept.shape[0] > 0:
                new = xp.where(free > 0, j, self.vocab)  # a token with p = 0 leaves nothing to subtract
                taken = (xp.take(values, kept) for values in (row, t, rank, *holes, new))
                row_, t_, rank_, *holes_ = taken
                share = add_at(share, kept, self._extend_all(_Paths(row_, t_, rank_, tuple(holes_))))
            w, up = 1.0 + share * w, share * c
        self._place(base + rank, t, w)
        self.correction = add_at(self.correction, base + j, w * own + up * free)
        for hole, mass in zip(holes, on_holes, strict=True):
            self.correction = add_at(self.correction, base + hole, w * mass)
        return add_at(xp.zeros_like(parents.t), parent, up)

    def _zeros(self, shape: int | tuple[int, ...]) -> Array:
        return self.xp.zeros(shape, dtype=self.xp.float64, device=self.device)

    def _ranks(self, t: Array, spans: list[_Span]) -> Array:
        """Number of tokens with p/q < t, row by row: the standard's search takes one sorted list."""
        return self.xp.concat([self.xp.searchsorted(self.ratio[row, :], t[a:b]) for row, a, b in spans])

    def _excess(self, cell: Any, t: Array) -> Array:
        """Mass by which t q exceeds p: prefix sums at the rank of t."""
        xp = self.xp
        q, p = (xp.take(xp.reshape(a, (-1,)), cell) for a in (self.q_before, self.p_before))
        return xp.clip(t * q - p, 0.0, None)

    def _clipped(self, cell: Any, t: Array) -> Array:
        """What min(t q, p) has on single tokens."""
        xp = self.xp
        q, p = (xp.take(xp.reshape(a, (-1,)), cell) for a in (self.q, self.p))
        return xp.minimum(t * q, p)

    def _place(self, cell: Any, t: Array, w: Array) -> None:
        """Add atoms ``w min(t q, p)`` at the rank of t."""
        self.atom_t = add_at(self.atom_t, cell, w * t)
        self.atom_w = add_at(self.atom_w, cell, w)

    def _tally(self, into: Array, column: int, values: Array, spans: list[_Span]) -> None:
        for row, a, b in spans:
            into[row, column] = into[row, column] + self.xp.sum(values[a:b])

    def _collect(self, share: Any) -> PathSum:
        sums = (
            self.xp.reshape(a, (self.rows, self.wide)) for a in (self.atom_t, self.atom_w, self.correction)
        )
        mass = collected(self.p[:, :-1], self.q[:, :-1], self.ranked, share, *sums)
        return PathSum(mass, self.acceptance, self.unexpanded, self.paths[:, 0])


def collected(
    p: Array, q: Array, ranked: Array, share: Any, t_sums: Array, w_sums: Array, correction: Array
) -> Array:
    """Mass by token: each atom is ``t q`` up to its rank and ``p`` beyond it, less the corrections.

    ``p, q (B, V)`` are in the order ``ranked``; ``share (B,)`` is drawn from the target in the end; the
    others ``(B, V + 1)`` are sums of w t and of w over atoms, and what they put on holes, by rank.
    """
    xp = array_namespace(p)
    # Summed from the top, so that nothing cancels.
    above = xp.flip(xp.cumulative_sum(xp.flip(w_sums, axis=-1), axis=-1), axis=-1)[:, 1:]
    below = xp.cumulative_sum(t_sums, axis=-1)[:, :-1]
    mass = xp.clip(p * (above + share[:, None]) - correction[:, :-1] + q * below, 0.0, None)
    return xp.take_along_axis(mass, xp.argsort(ranked, axis=-1), axis=-1)


#: Row of the batch, first and last + 1 of its entries.
_Span = tuple[int, int, int]


def _spans(rows: NDArray[np.int64], costs: NDArray[np.int64]) -> list[_Span]:
    """Where the rejections after paths that are sorted by row lie."""
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    ends = np.append(0, np.cumsum(costs))
    cuts = ends[np.append(starts, len(rows))].tolist()
    return [(int(rows[s]), a, b) for s, a, b in zip(starts, cuts[:-1], cuts[1:], strict=True)]


def chunks(costs: NDArray[np.int64], room: int) -> Iterator[tuple[int, int]]:
    """Ranges of parents whose children fit in ``room``; parents without children are left out at the ends."""
    ends = np.cumsum(costs)
    first, done = 0, 0
    while first < len(costs):
        last = int(np.searchsorted(ends, done + room, side="right"))
        if ends[last - 1] > done:
            yield first, last
        first, done = last, int(ends[last - 1])
