"""The optimal joint rule: its winner's law exists as a layout of [0, 1), and attains the transport limit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

from resispec_verify.oracle import Law, enumerate_rule, limit_by_subsets
from resispec_verify.oracle.shipped.optimal_joint import optimal_joint

from ._laws import pairs
from ._report import ProofReport
from ._symbols import is_nonnegative, is_zero, least, orders, symbols

__all__ = ["convex", "envelope", "lay_out", "prove"]

STATEMENT = (
    "With F(s) = 1 - (1 - s)^n - p(A) at the ends s = q(A) of the prefixes A in descending order of p/q, "
    "and c the slopes of its lower convex envelope, m = p + c q is the winner's law of some layout of [0, "
    "1) into pieces, and sum min(p, m) = min_H 1 + p(H) - q(H)^n, for every V, n >= 1. So the race on "
    "that layout is exact and accepts as often as any exact rule."
)
LINES = (
    "Value. On the segments with c < 0, A in all, min(p, m) = m, of mass F(q(A)) + p(A) = 1 - (1 -",
    "q(A))^n, because A ends at a vertex; elsewhere, H, it is p. Together 1 + p(H) - q(H)^n >= the limit,",
    "which no exact rule exceeds.",
    "Layout. With g(u) = n (1 - u)^(n-1), tokens by descending m/q take a connected part, of length q and",
    "mass m, of what is free. Invariant: the leftmost length s of the free set has at least the mass",
    "wanted(s) of the first tokens.",
    "Start: mass(s) - wanted(s) = F(a + s) - F(a) - c s >= 0 at token ends, as the envelope lies below F;",
    "in between, mass is concave and wanted is linear. Step: the leftmost part of length q(x) has at",
    "least the mass m(x); the rightmost at most, as its mean of g is at most that of all that is free,",
    "the mean of the m/q left, of which x has the largest. By continuity some part, from y on, has m(x).",
    "Then, for s <= y, mass is as before and wanted'(s) = wanted(s + q(x)) - m(x) <= wanted(s): for",
    "descending m/q = d, wanted(s) = sum_j (d_j - d_{j+1}) min(s, L_j), L_j = q_1 + ... + q_j. For s > y,",
    "mass'(s) = mass(s + q(x)) - m(x) >= wanted(s + q(x)) - m(x) = wanted'(s).",
    "For n = 2 the mass of a part is piecewise linear in where it begins, so the layout is rational and",
    "built exactly here.",
)

Ends = list[tuple[Fraction, Fraction]]
Envelope = Callable[[Ends, int], tuple[int, Fraction]]


def convex(ends: Ends, first: int) -> tuple[int, Fraction]:
    """The next vertex of the lower convex envelope after `first`, and the slope that leads there."""
    slopes = {
        last: (ends[last][1] - ends[first][1]) / (ends[last][0] - ends[first][0])
        for last in range(first + 1, len(ends))
    }
    slope = min(slopes.values())
    return max(end for end, value in slopes.items() if value == slope), slope


def envelope(p: Law, q: Law, n: int, step: Envelope = convex) -> list[tuple[Fraction, Fraction, list[int]]]:
    """The segments: where each begins, its slope, and its tokens in descending order of p/q."""
    order = sorted((x for x in range(len(p)) if q[x] > 0), key=lambda x: p[x] / q[x], reverse=True)
    ends, above = [(Fraction(0), Fraction(0))], Fraction(0)
    for x in order:
        above += p[x]
        place = ends[-1][0] + q[x]
        ends.append((place, 1 - (1 - place) ** n - above))
    segments, first = [], 0
    while first < len(order):
        last, slope = step(ends, first)
        segments.append((ends[first][0], slope, order[first:last]))
        first = last
    return segments


def lay_out(
    start: Fraction, wanted: list[tuple[Fraction, Fraction]]
) -> list[list[tuple[Fraction, Fraction]]] | None:
    """The parts that tokens (length, mass), by descending mass/length, take of one segment, for n = 2.

    Returns the intervals (begin, length) of each token, or None where the invariant fails on the way.
    """
    free = [(start, sum((length for length, _ in wanted), Fraction(0)))]
    parts = []
    for i, (length, mass) in enumerate(wanted):
        reached = [Fraction(0), *itertools.accumulate(a for a, _ in wanted[i:])]
        asked = [Fraction(0), *itertools.accumulate(b for _, b in wanted[i:])]
        if any(_mass(_cut(free, Fraction(0), a)[0]) < b for a, b in zip(reached, asked, strict=True)):
            return None
        room = reached[-1] - length
        sizes = [Fraction(0), *itertools.accumulate(size for _, size in free)]
        kinks = {a for end in sizes for a in (end, end - length) if 0 <= a <= room} | {Fraction(0), room}
        for low, high in itertools.pairwise([*sorted(kinks), room]):
            left, right = (_mass(_cut(free, a, length)[0]) for a in (low, high))
            if left >= mass >= right:
                break
        else:
            return None
        offset = low if left == right else low + (high - low) * (left - mass) / (left - right)
        part, free = _cut(free, offset, length)
        parts.append(part)
    return parts


def prove(*, step: Envelope = convex) -> ProofReport:
    """Prove the theorem.

    Parameters
    ----------
    step : callable (ends, first) -> (next vertex, slope)
        Anything but the lower convex envelope is a mutation, which must fail.
    """
    value = concave = True
    c, s, below, wanted = symbols("c s p_before p_wanted")
    P, Q = symbols("P Q")  # (1 - a)^n and (1 - a - s)^n, for any n
    F = [1 - power - mass for power, mass in ((P, below), (Q, below + wanted))]
    start = is_zero(((P - Q) - (wanted + c * s)) - (F[1] - F[0] - c * s))
    for p, m in orders(2):  # c < 0 or c >= 0
        value &= is_zero(least(p, m) - (m if is_nonnegative(p - m) else p))
    length = symbols("length")  # of the densest token; `place` runs over what is left of a prefix without it
    for s_, place in orders(2):  # min(s, L_j - length) <= min(s, L_j)
        concave &= all(is_nonnegative(value - least(s_, place)) for value in (s_, place + length))
    family = [
        pair
        for i, pair in enumerate(pairs(range(1, 5), range(1, 5)))
        if i % (1, 1, 3, 61)[len(pair[0]) - 1] == 0
    ]
    limit, bases = _winners(family, step)
    built, exact = _raced(family, step)
    checks = (
        ("mass(s) - wanted(s) = F(a + s) - F(a) - c s, n arbitrary", start),
        ("min(p, m) is m where c < 0 and p elsewhere", value),
        ("wanted(s + q_1) - m_1 <= wanted(s), term by term, both orders", concave),
        (f"sum min(p, m) is the limit over all sets, {len(family)} pairs with V <= 4, n <= 4", limit),
        (
            "m(A) <= 1 - (1 - q(A))^n for every A, equal for the whole, as of a winner's law, the same",
            bases,
        ),
        (
            "n = 2: the layout exists with this law exactly, the invariant checked at each step",
            built,
        ),
        ("n = 2: the race on it emits p and accepts with the limit, V <= 3", exact),
    )
    return ProofReport(
        STATEMENT, "proved", ("SymPy", "rational"), checks, LINES,
        left="induction and intermediate value in words; the layout itself is built for n = 2",
    )  # fmt: skip


def _winners(family: list[tuple[Law, Law]], step: Envelope) -> tuple[bool, bool]:
    """Whether the winner's law accepts with the limit, and is one: no set wins more than it can."""
    limit = bases = True
    for p, q in family:
        for n in (1, 2, 3, 4):
            m = _winner(p, q, envelope(p, q, n, step))
            limit &= sum(map(min, p, m)) == limit_by_subsets(p, q, n)
            bases &= sum(m) == 1 and all(
                sum(m[x] for x in chosen) <= 1 - (1 - sum(q[x] for x in chosen)) ** n
                for size in range(1, len(p) + 1)
                for chosen in itertools.combinations(range(len(p)), size)
            )
    return limit, bases


def _raced(family: list[tuple[Law, Law]], step: Envelope) -> tuple[bool, bool]:
    """Whether the layout for n = 2 exists with the winner's law, and the race on it is exact and optimal."""
    built = exact = True
    for p, q in family:
        segments = envelope(p, q, 2, step)
        line = []
        for begin, slope, tokens in segments:
            parts = lay_out(begin, [(q[x], p[x] + slope * q[x]) for x in tokens])
            built &= parts is not None
            line += [(u, x, size) for x, part in zip(tokens, parts or [], strict=False) for u, size in part]
        law = [Fraction(0)] * len(p)
        for u, x, size in sorted(line):
            law[x] += (1 - u) ** 2 - (1 - u - size) ** 2
        built &= tuple(law) == _winner(p, q, segments)
        if built and len(p) < 4:
            found = enumerate_rule(optimal_joint(2, [(x, size) for _, x, size in sorted(line)]), p, q, 2)
            exact &= found.law == p and sum(found.acceptance) == limit_by_subsets(p, q, 2)
    return built, exact


def _winner(p: Law, q: Law, segments: list[tuple[Fraction, Fraction, list[int]]]) -> Law:
    law = [Fraction(0)] * len(p)
    for _, slope, tokens in segments:
        for x in tokens:
            law[x] = p[x] + slope * q[x]
    return tuple(law)


def _mass(parts: list[tuple[Fraction, Fraction]]) -> Fraction:
    """Probability that the smaller of two uniform numbers lies in the parts."""
    return sum(((1 - u) ** 2 - (1 - u - size) ** 2 for u, size in parts), Fraction(0))


def _cut(
    free: list[tuple[Fraction, Fraction]], offset: Fraction, length: Fraction
) -> tuple[list[tuple[Fraction, Fraction]], list[tuple[Fraction, Fraction]]]:
    """The part of the free set from `offset` on, counted in free length, and the rest."""
    part, rest, passed = [], [], Fraction(0)
    for begin, size in free:
        low = min(max(offset - passed, Fraction(0)), size)
        high = min(max(offset + length - passed, Fraction(0)), size)
        part.append((begin + low, high - low))
        rest += [(begin, low), (begin + high, size - high)]
        passed += size
    return [x for x in part if x[1] > 0], [x for x in rest if x[1] > 0]
