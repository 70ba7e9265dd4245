"""Layouts: joint verification of i.i.d. candidates as a race between uniform numbers.

Cut [0, 1) into pieces, each owned by a token, so that token x owns the length q(x). A uniform number then
draws a token from q; of n of them, let the smallest win. The winner is one of n i.i.d. candidates, and its
law m depends on where the pieces lie: a piece from u to v wins with ``(1 - u)**n - (1 - v)**n``. Accepting
the winner x with ``min(1, p(x) / m(x))`` and drawing from ``norm (p - m)_+`` otherwise is plain speculative
sampling with m for a draft. So it is exact for every layout, and the layout decides only how often a
candidate is accepted: ``sum min(p, m)``.

The best layout attains the optimal-transport limit. With the tokens in descending order of p/q, let F be
``1 - (1 - s)**n - p(prefix of length s)`` where a prefix ends. On each segment of its lower convex envelope,
of slope c, take ``m = p + c q``: that m is the law of some layout, and its ``sum min(p, m)`` is the limit
(docs/explanation/optimal-rules.md).

From m to pieces: within a segment the tokens are taken by descending m/q. What they have left of it is some
gaps and, to the right of them, an interval not touched yet. Each token takes an interval of what is left
whose mass is m(x): a part of the untouched interval alone, or its beginning and the gaps next to it. One sort
and O(V) pieces; the place of each is one root of a polynomial.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.jit import jit

__all__ = ["Layout", "best_layout", "places", "race_law", "winning_shares"]

_MOST_STEPS = 100  # bisection alone needs 60
_CLOSE = 2.0**-50  # a few units in the last place of the mass wanted


class Layout(NamedTuple):
    """Pieces of [0, 1) from left to right.

    Attributes
    ----------
    token : int64 (K,)
        The owner of each piece; K <= 3 V.
    length : float64 (K,)
        Positive; the pieces of token x sum to q(x).
    """

    token: NDArray[np.int64]
    length: NDArray[np.float64]


@jit()
def _mass(start, length, n):
    """Probability that the smallest of n uniforms lies in ``[start, start + length)``."""
    near = 1.0 - start
    far = max(near - length, 0.0)
    # (near**n - far**n) without the cancellation
    total, power = 0.0, 1.0
    for _ in range(n):
        total = total * near + power
        power *= far
    return length * total


@jit()
def _density(u, n):
    value = float(n)
    for _ in range(n - 1):
        value *= max(1.0 - u, 0.0)
    return value


@jit()
def _envelope(position, value):
    """Indices of the vertices of the lower convex envelope, and how many there are."""
    hull = np.empty(position.shape[0], np.int64)
    size = 0
    for k in range(position.shape[0]):
        while size >= 2:
            i, j = hull[size - 2], hull[size - 1]
            rise = (value[j] - value[i]) * (position[k] - position[i])
            if rise < (value[k] - value[i]) * (position[j] - position[i]):
                break
            size -= 1
        hull[size] = k
        size += 1
    return hull, size


@jit()
def _step(at, low, high, short, slope):
    """A Newton step inside its bracket: (next place, low, high); the place itself where none is left.

    ``short`` is positive where the root lies to the right; it changes by ``slope`` or less.
    """
    if short > 0.0:
        low = at
    else:
        high = at
    new = at + short / slope if slope > 0.0 else high
    if not low < new < high:
        new = 0.5 * (low + high)
    return (new if low < new < high else at), low, high


@jit()
def _shift(start, end, length, wanted, n):
    """Where in [start, end] a piece begins that has the wanted mass; mass falls to the right."""
    low, high = start, max(end - length, start)
    at = low
    for _ in range(_MOST_STEPS):
        excess = _mass(at, length, n) - wanted
        if abs(excess) <= _CLOSE * wanted:
            return at
        before, fall = at, _density(at, n) - _density(at + length, n)
        at, low, high = _step(at, low, high, excess, fall)
        if at == before:
            break
    return high


@jit()
def _split(gap_end, gap, right, length, most, wanted, n):
    """How much of a piece of that length lies at the end of the gap, the rest from ``right`` on."""
    high = min(gap, length)
    at = low = min(max(length - most, 0.0), high)
    for _ in range(_MOST_STEPS):
        short = wanted - (_mass(gap_end - at, at, n) + _mass(right, length - at, n))
        if abs(short) <= _CLOSE * wanted:
            return at
        before, rise = at, _density(gap_end - at, n) - _density(right + length - at, n)
        at, low, high = _step(at, low, high, short, rise)
        if at == before:
            break
    return high


@jit()
def _cut(p, q, n):
    """Pieces ``(owner, start, length)`` for tokens in descending order of p/q, all with q > 0."""
    size = q.shape[0]
    position, value = np.zeros(size + 1), np.zeros(size + 1)
    p_sum = 0.0
    for j in range(size):
        position[j + 1] = min(position[j] + q[j], 1.0)
        p_sum += p[j]
        value[j + 1] = _mass(0.0, position[j + 1], n) - p_sum
    hull, vertices = _envelope(position, value)
    owner, start, length = np.empty(3 * size, np.int64), np.empty(3 * size), np.empty(3 * size)
    gap_start, gap_length = np.empty(size + 1), np.empty(size + 1)
    pieces = 0
    for h in range(vertices - 1):
        first, last = hull[h], hull[h + 1]
        frontier, end = position[first], position[last]
        width = end - frontier
        slope = (value[last] - value[first]) / width if width > 0.0 else 0.0
        gaps = 0
        for j in range(first, last):
            wanted, left = max(p[j] + slope * q[j], 0.0), q[j]
            if last - first > 1 and _mass(frontier, left, n) > wanted:
                begin = _shift(frontier, end, left, wanted, n)
                if begin > frontier:
                    gap_start[gaps], gap_length[gaps] = frontier, begin - frontier
                    gaps += 1
                frontier = begin
            else:
                while gaps > 0 and left > 0.0:
                    s, d = gap_start[gaps - 1], gap_length[gaps - 1]
                    most = max(end - frontier, 0.0)
                    whole = d <= left and (
                        left - d > most or _mass(s, d, n) + _mass(frontier, left - d, n) <= wanted
                    )
                    if not whole:
                        d = _split(s + d, d, frontier, left, most, wanted, n)
                    if d > 0.0:
                        begin = s + gap_length[gaps - 1] - d
                        owner[pieces], start[pieces], length[pieces] = j, begin, d
                        pieces += 1
                        left -= d
                        wanted -= _mass(begin, d, n)
                    if not whole:
                        gap_length[gaps - 1] -= d
                        break
                    gaps -= 1
            if left > 0.0:
                owner[pieces], start[pieces], length[pieces] = j, frontier, left
                pieces += 1
                frontier += left
    return owner[:pieces], start[:pieces], length[:pieces]


def best_layout(target: NDArray[np.float64], draft: NDArray[np.float64], candidates: int) -> Layout:
    """The layout whose race is accepted as often as any exact rule can be, for n i.i.d. candidates.

    Parameters
    ----------
    target, draft : float64 (V,)
        Probabilities of one position.
    candidates : int
        ``n >= 1``.

    Returns
    -------
    Layout
        An error in its cuts, as rounding makes, costs acceptance and never exactness.
    """
    order = ratio_order(target, draft)
    size = int(np.count_nonzero(order.q > 0))  # tokens without draft come last in the order
    p, q = order.p[:size][::-1].copy(), order.q[:size][::-1].copy()
    owner, start, length = _cut(p, q, candidates)
    placed = np.argsort(start, kind="stable")
    return Layout(order.order[:size][::-1][owner[placed]], length[placed])


def race_law(
    layout: Layout, drawn_from: NDArray[np.float64], draft: NDArray[np.float64], candidates: int
) -> NDArray[np.float64]:
    """Law of the winner, ``(V,)``, when the n candidates are i.i.d. from ``drawn_from (V,)``.

    A candidate takes a uniform place in the pieces of its token. One whose draft is 0 owns none: it stands
    behind all others and never wins.
    """
    token, length = layout
    length = (length / draft[token]) * drawn_from[token]
    behind = drawn_from[draft == 0].sum()
    left = np.append(np.cumsum(length[::-1])[::-1], 0.0) + behind  # what lies at or beyond each piece
    near, far = left[:-1], left[1:]
    mean, power = np.zeros_like(near), np.ones_like(near)
    for _ in range(candidates):
        mean = mean * near + power
        power = power * far
    return np.bincount(token, weights=length * mean, minlength=draft.shape[0]).astype(np.float64)


@jit()
def _shares(tuples, first, place, before, after, out):
    """Fill ``out (T, n)``; the pieces of token x are rows ``first[x]:first[x + 1]``."""
    n = tuples.shape[1]
    for t in range(tuples.shape[0]):
        for j in range(n):
            x = tuples[t, j]
            if x < 0:
                continue
            same = 0
            for i in range(n):
                same += tuples[t, i] == x
            for k in range(first[x], first[x + 1]):
                others = 1.0
                for i in range(n):
                    y = tuples[t, i]
                    if y < 0 or y == x:
                        continue
                    r = first[y] + np.searchsorted(place[first[y] : first[y + 1]], place[k])
                    if r > first[y]:
                        others *= after[r - 1]
                near, far, mean, power = before[k], after[k], 0.0, 1.0
                for _ in range(same):
                    mean = mean * near + power
                    power *= far
                out[t, j] += others * (near - far) * mean / same


def winning_shares(
    layout: Layout, draft: NDArray[np.float64], tuples: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Probability, given each tuple ``(T, n)`` of candidates, that its j-th one wins the race; ``(T, n)``.

    Pieces are disjoint, so that within a piece of x another token's chance to lie beyond it is constant.
    Entries of -1 are no candidates.
    """
    first, before, after, place = _by_token(layout, draft)
    out = np.zeros(tuples.shape)
    _shares(np.ascontiguousarray(tuples, np.int64), first, place, before, after, out)
    return out


def _by_token(layout: Layout, draft: NDArray[np.float64]) -> tuple[NDArray[Any], ...]:
    """Pieces by token, from left to right in each.

    Returns
    -------
    first : int64 (V + 1,)
        The pieces of token x are ``first[x]:first[x + 1]``.
    before, after : float64 (K,)
        Share of the token that lies at or beyond the two ends of the piece.
    place : int64 (K,)
        Its rank in the layout.
    """
    place = np.argsort(layout.token, kind="stable")
    token, length = layout.token[place], layout.length[place]
    first = np.searchsorted(token, np.arange(draft.shape[0] + 1))
    passed = np.append(0.0, np.cumsum(length))
    after = np.clip(1.0 - (passed[1:] - passed[first[token]]) / draft[token], 0.0, 1.0)
    last = first[1:][first[1:] > first[:-1]] - 1
    after[last] = 0.0
    before = np.append(1.0, after)[:-1]
    before[first[:-1][first[1:] > first[:-1]]] = 1.0
    return first, before, after, place


def places(
    layout: Layout, candidates: NDArray[np.int64], uniforms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Where in [0, 1) candidates ``(n,)`` stand by their uniforms ``(n,)``; 1 for a token without pieces."""
    end = np.cumsum(layout.length)
    out = np.ones(len(candidates))
    for j, (x, u) in enumerate(zip(candidates.tolist(), uniforms.tolist(), strict=True)):
        own = np.flatnonzero(layout.token == x)
        if own.size:
            passed = np.cumsum(layout.length[own])
            k = min(int(np.searchsorted(passed, u * passed[-1], side="right")), own.size - 1)
            out[j] = end[own[k]] - max(passed[k] - u * passed[-1], 0.0)
    return out
