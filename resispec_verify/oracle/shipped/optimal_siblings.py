"""Siblings that are not worth the same: the rule that the masses of `masses_by_program` make."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..engine import Transcription, planned
from ..laws import Law, normalise
from ..programs import masses_by_program
from ..registry import transcribes

__all__ = ["optimal_siblings"]


@transcribes("optimal-siblings", counted=True)
def optimal_siblings(
    candidates: int, values: Sequence[Any], masses: Sequence[Sequence[Any]] | None = None
) -> Transcription:
    """Sibling k is accepted at x with ``A_k(x) / (W_k q(x))``.

    Parameters
    ----------
    candidates : int
        How many of the values are used.
    values : sequence of numbers
        What accepting each sibling is worth.
    masses : n sequences of rationals, optional
        A_k, cut to what is offered and left; by default those of `masses_by_program`.
    """

    def plan(p: Law, q: Law) -> tuple[list[Law], list[Law]]:
        wanted = masses
        if wanted is None:
            found = masses_by_program(p, q, [float(v) for v in values[:candidates]]) if candidates else []
            wanted = [[Fraction(float(m)).limit_denominator(10**9) for m in row] for row in found]
        left, looked_at, accept, final = p, Fraction(1), [], [p]
        for row in wanted:
            offered = [looked_at * mass for mass in q]
            taken = [
                max(min(Fraction(a), b, c), Fraction(0)) for a, b, c in zip(row, left, offered, strict=True)
            ]
            accept.append(tuple(a / b if b else Fraction(0) for a, b in zip(taken, offered, strict=True)))
            left = tuple(b - a for a, b in zip(taken, left, strict=True))
            looked_at -= sum(taken, Fraction(0))
            final.append(normalise(left, fallback=p))
        return accept, final

    return planned(plan)
