"""Siblings that are not worth the same: the averaged program, and the rule that its masses make.

With A_k(x) the mass accepted of sibling k at token x: ``0 <= A_k <= W_k q``, ``W_1 = 1``,
``W_{k+1} = W_k - sum A_k``, ``sum_k A_k <= p``; maximise ``sum_k v_k sum_x A_k(x)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import linprog

from .engine import Transcription
from .laws import Law, normalise

__all__ = ["masses_by_program", "optimal_siblings"]


@dataclass(frozen=True)
class _Round:
    """Masses accepted by round, the probability of each round, and how many have been rejected."""

    target: Law
    draft: Law
    masses: tuple[Law, ...]
    looked_at: tuple[Fraction, ...]
    round: int = 0


def masses_by_program(target: Sequence[Any], draft: Sequence[Any], values: Sequence[float]) -> np.ndarray:
    """The best masses ``(n, V)``, to the tolerance of HiGHS (1e-7).

    Raises
    ------
    RuntimeError
        If the solver does not report an optimum.
    """
    p, q = (np.array([float(mass) for mass in law]) for law in (target, draft))
    n, size = len(values), len(p)
    at_most, limit = [], []
    for k in range(n):
        for x in range(size):
            row = np.zeros((n, size))
            row[k, x] = 1.0
            row[:k] += q[x]  # W_k = 1 - what was accepted before
            at_most.append(row.ravel())
            limit.append(q[x])
    for x in range(size):
        row = np.zeros((n, size))
        row[:, x] = 1.0
        at_most.append(row.ravel())
        limit.append(p[x])
    gain = np.repeat(np.asarray(values, float), size)
    answer = linprog(-gain, A_ub=np.array(at_most), b_ub=limit, bounds=(0, None), method="highs")
    if answer.status != 0:
        raise RuntimeError(f"HiGHS found no optimum (status {answer.status}): {answer.message}")
    return answer.x.reshape(n, size)


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

    def start(p: Law, q: Law) -> _Round:
        wanted = masses
        if wanted is None:
            found = masses_by_program(p, q, [float(v) for v in values[:candidates]]) if candidates else []
            wanted = [[Fraction(float(m)).limit_denominator(10**9) for m in row] for row in found]
        left, kept, looked_at = list(p), [], [Fraction(1)]
        for row in wanted:
            taken = tuple(
                max(min(Fraction(a), b, looked_at[-1] * c), Fraction(0))
                for a, b, c in zip(row, left, q, strict=True)
            )
            left = [b - a for a, b in zip(taken, left, strict=True)]
            kept.append(taken)
            looked_at.append(looked_at[-1] - sum(taken, Fraction(0)))
        return _Round(p, q, tuple(kept), tuple(looked_at))

    def accept(state: _Round, token: int) -> Fraction:
        offered = state.looked_at[state.round] * state.draft[token]
        return state.masses[state.round][token] / offered if offered else Fraction(0)

    def reject(state: _Round, token: int) -> _Round:
        return replace(state, round=state.round + 1)

    def final(state: _Round) -> Law:
        taken = [sum(column, Fraction(0)) for column in zip(*state.masses, strict=True)]
        taken = taken or [Fraction(0)] * len(state.target)
        return normalise([p - a for p, a in zip(state.target, taken, strict=True)], fallback=state.target)

    return Transcription(accept, reject, final, start)
