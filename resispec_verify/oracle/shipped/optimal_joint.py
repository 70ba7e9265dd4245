"""A joint rule for independent candidates: each takes a random place on a line, and the leftmost wins.

[0, 1) is cut into pieces; token x owns pieces of total length q(x), and a candidate x stands at a uniform
place in them. The winner x, whose law is m, is accepted with ``min(1, p(x) / m(x))``; otherwise the token is
drawn from ``norm (p - m)+``. This is exact however the line is cut. `best_pieces` cuts it so that, up to the
bisection, ``sum min(p, m)`` is the optimal-transport limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from ..engine import Joint, Outcomes
from ..laws import Law, normalise
from ..registry import transcribes

__all__ = ["best_pieces", "optimal_joint"]

#: From left to right: the owner of each piece, and its length.
Pieces = Sequence[tuple[int, Fraction]]

_BISECTIONS = 60


def _wins(start: Fraction, length: Fraction, n: int) -> Fraction:
    """Probability that the leftmost of n uniform places lies in the piece."""
    return (1 - start) ** n - (1 - start - length) ** n


def _take(
    free: list[tuple[Fraction, Fraction]], offset: Fraction, length: Fraction
) -> tuple[list[tuple[Fraction, Fraction]], list[tuple[Fraction, Fraction]]]:
    """An interval of the free places, counted from `offset` on them; what is taken and what stays free."""
    taken, left, passed = [], [], Fraction(0)
    for start, size in free:
        low = min(max(offset - passed, Fraction(0)), size)
        high = min(max(offset + length - passed, Fraction(0)), size)
        if high > low:
            taken.append((start + low, high - low))
        left += [part for part in ((start, low), (start + high, size - high)) if part[1] > 0]
        passed += size
    return taken, left


@lru_cache(maxsize=64)
def best_pieces(p: Law, q: Law, n: int) -> tuple[tuple[int, Fraction], ...]:
    """Pieces for which the winner's law m has the least possible ``sum (p - m)+``, up to the bisection.

    Tokens in descending order of p/q; with F the difference of ``1 - (1 - q(prefix))**n`` and ``p(prefix)``,
    the next segment ends where the slope of F from its start is least, and there ``m - p`` is that slope
    times q. Within a segment each token takes an interval of the free places that has its mass.
    """
    order = sorted((x for x in range(len(p)) if q[x] > 0), key=lambda x: p[x] / q[x], reverse=True)
    ends = [(Fraction(0), Fraction(0))]
    for x in order:
        place, above = ends[-1][0] + q[x], sum((p[y] for y in order[: len(ends)]), Fraction(0))
        ends.append((place, _wins(Fraction(0), place, n) - above))
    pieces: list[tuple[Fraction, int, Fraction]] = []
    first = 0
    while first < len(order):
        slopes = {
            last: (ends[last][1] - ends[first][1]) / (ends[last][0] - ends[first][0])
            for last in range(first + 1, len(order) + 1)
        }
        slope = min(slopes.values())
        last = max(end for end, value in slopes.items() if value == slope)
        free = [(ends[first][0], ends[last][0] - ends[first][0])]
        for x in order[first:last]:
            wanted = p[x] + slope * q[x]
            low, high = Fraction(0), sum((size for _, size in free), Fraction(0)) - q[x]
            for _ in range(_BISECTIONS if high > 0 else 0):
                middle = (low + high) / 2
                mass = sum(_wins(start, size, n) for start, size in _take(free, middle, q[x])[0])
                low, high = (middle, high) if mass > wanted else (low, middle)
            taken, free = _take(free, high, q[x])
            pieces += [(start, x, size) for start, size in taken]
        first = last
    return tuple((x, size) for _, x, size in sorted(pieces))


@transcribes("optimal-joint", counted=True)
def optimal_joint(candidates: int, pieces: Pieces | None = None) -> Joint:
    """The race over n candidates, on `best_pieces` or on pieces of one's own."""

    def rule(p: Law, q: Law, tokens: tuple[int, ...]) -> Outcomes:
        line = best_pieces(p, q, candidates) if pieces is None else list(pieces)
        law, place = [Fraction(0)] * len(p), Fraction(0)
        for owner, length in line:
            law[owner] += _wins(place, length, candidates)
            place += length
        won = [Fraction(0)] * len(tokens)
        ahead = dict.fromkeys(tokens, Fraction(0))  # of each token, the share of its places passed so far
        for owner, length in line:
            if owner not in ahead:
                continue
            near, far = 1 - ahead[owner], 1 - ahead[owner] - length / q[owner]
            same = [j for j, x in enumerate(tokens) if x == owner]
            chance = near ** len(same) - far ** len(same)
            for x in tokens:
                chance *= 1 if x == owner else 1 - ahead[x]
            for j in same:
                won[j] += chance / len(same)
            ahead[owner] += length / q[owner]
        accept = [min(Fraction(1), p[x] / law[x]) if law[x] else Fraction(0) for x in tokens]
        outcomes: Outcomes = [
            (x, j, w * a) for j, (x, w, a) in enumerate(zip(tokens, won, accept, strict=True))
        ]
        rejected = 1 - sum((chance for _, _, chance in outcomes), Fraction(0))
        final = normalise([max(a - b, Fraction(0)) for a, b in zip(p, law, strict=True)], fallback=p)
        return outcomes + [(x, None, rejected * mass) for x, mass in enumerate(final)]

    return rule
