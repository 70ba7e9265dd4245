"""The best sequential rule for two candidates without replacement, in exact rationals.

With A(x) accepted as the first candidate and ``v = (q - A) / (1 - q)``, the second candidate is y after a
rejection with probability ``q(y) (sum v - v(y))``. The best v is ``clip(q (1 + B) - p, (q - p)+ / (1 - q),
q / (1 - q))`` for the B that is its own sum; that sum is piecewise linear in B, so B is rational.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..engine import Transcription, planned
from ..laws import Law, normalise
from ..registry import transcribes

__all__ = ["best_first", "optimal_without_replacement"]


def _clip(value: Fraction, low: Fraction, high: Fraction) -> Fraction:
    return min(max(value, low), high)


def best_first(p: Law, q: Law) -> Law:
    """The mass to accept of the first of two candidates, by token."""
    support = [x for x in range(len(p)) if q[x] > 0]
    if len(support) < 2:
        return tuple(map(min, p, q))
    least = {x: max(q[x] - p[x], Fraction(0)) / (1 - q[x]) for x in support}
    most = {x: q[x] / (1 - q[x]) for x in support}

    def total(B: Fraction) -> Fraction:
        return sum((_clip(q[x] * (1 + B) - p[x], least[x], most[x]) for x in support), Fraction(0))

    low, high = sum(least.values(), Fraction(0)), sum(most.values(), Fraction(0))
    kinks = {(bound[x] + p[x]) / q[x] - 1 for x in support for bound in (least, most)}
    ends = sorted({low, high} | {B for B in kinks if low < B < high})
    B = low
    for left, right in itertools.pairwise(ends):
        above, below = total(left) - left, total(right) - right
        if above >= 0 >= below:
            B = left if above == 0 else left + (right - left) * above / (above - below)
            break
    v = {x: _clip(q[x] * (1 + B) - p[x], least[x], most[x]) for x in support}
    return tuple(q[x] - (1 - q[x]) * v[x] if x in v else Fraction(0) for x in range(len(p)))


@transcribes("optimal-without-replacement", "without-replacement", most=2, counted=True)
def optimal_without_replacement(candidates: int, first: Sequence[Any] | None = None) -> Transcription:
    """The rule for at most two candidates; `first` is any mass up to min(p, q), by default `best_first`.

    The second test makes up for the first, and what both leave is emitted when there is no second candidate.
    """

    def plan(p: Law, q: Law) -> tuple[list[Law], list[Law]]:
        none = (Fraction(0),) * len(p)
        taken, offered = [tuple(map(min, p, q)) if candidates else none, none], [q, none]
        if candidates == 2:
            taken[0] = best_first(p, q) if first is None else tuple(map(Fraction, first))
            v = [Fraction(0) if q[x] == 1 else (q[x] - taken[0][x]) / (1 - q[x]) for x in range(len(q))]
            offered[1] = tuple(q[y] * (sum(v, Fraction(0)) - v[y]) for y in range(len(q)))
            taken[1] = tuple(min(p[y] - taken[0][y], offered[1][y]) for y in range(len(q)))
        accept = [
            tuple(a / b if b else Fraction(0) for a, b in zip(*both, strict=True))
            for both in zip(taken, offered, strict=True)
        ]
        left = normalise([a - b - c for a, b, c in zip(p, *taken, strict=True)], fallback=p)
        return accept, [left] * 3

    return planned(plan)
