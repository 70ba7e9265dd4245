"""The optimal sequential rule for independent candidates, solved in exact rationals.

With ``phi(t) = sum min(p, t q)`` the expected number ``T_1`` of candidates looked at solves
``T_{n+1} = 0`` in the recursion ``T_{k+1} = T_k - W_k``, ``W_k = 1 - phi(T_1) + phi(T_k)``. All of it is
piecewise linear in T_1, so the root is rational: bisection isolates the piece, and the line through one end
of the bracket gives the root, which is then checked by an equality.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..engine import Transcription, planned
from ..laws import Law, normalise, read_pair
from ..registry import transcribes

__all__ = ["covered", "optimal_sequential", "sequential_limit", "sequential_times"]


def covered(target: Law, draft: Law, time: Fraction) -> Fraction:
    """``phi(t) = sum min(p, t q)``: what t looks at candidates can accept in all."""
    return sum((min(p, time * q) for p, q in zip(target, draft, strict=True)), Fraction(0))


def _slope(target: Law, draft: Law, time: Fraction, *, right: bool) -> Fraction:
    """One-sided derivative of phi."""
    rising = (
        q
        for p, q in zip(target, draft, strict=True)
        if p > time * q or (not right and p == time * q)
    )  # fmt: skip
    return sum(rising, Fraction(0))


def _times(target: Law, draft: Law, n: int, start: Fraction) -> list[Fraction]:
    """T_1, ..., T_{n+1} for a given T_1."""
    missed = 1 - covered(target, draft, start)
    times = [start]
    for _ in range(n):
        times.append(times[-1] - missed - covered(target, draft, times[-1]))
    return times


def _end_slope(target: Law, draft: Law, times: list[Fraction], *, right: bool) -> Fraction:
    """One-sided derivative of T_{n+1} by T_1; every T_k moves the way T_1 does, or stays."""
    first, change = _slope(target, draft, times[0], right=right), Fraction(1)
    for time in times[:-1]:
        change = (1 - _slope(target, draft, time, right=right)) * change + first
    return change


def sequential_times(target: Sequence[Any], draft: Sequence[Any], n: int) -> tuple[Fraction, ...]:
    """``T_1, ..., T_n, T_{n+1} = 0`` of the optimal sequential rule; the smallest T_1 of those that do.

    Parameters
    ----------
    target, draft : sequence of rationals, length V
        The two laws.
    n : int
        Number of i.i.d. candidates, at least 1.

    Returns
    -------
    tuple of Fraction, length n + 1
        The expected number of candidates looked at from the k-th on.

    Raises
    ------
    ValueError
        If an input is not a law, or n < 1.
    """
    p, q = read_pair(target, draft, n)
    if n < 1:
        raise ValueError(f"the number of candidates must be at least 1, got {n}")

    def solved(start: Fraction) -> bool:
        """Whether `start` is the smallest root: a zero that is reached from below."""
        times = _times(p, q, n, start)
        return times[-1] == 0 and (start == 1 or _end_slope(p, q, times, right=False) > 0)

    low, high = Fraction(1), Fraction(n)
    if solved(low):
        return tuple(_times(p, q, n, low))
    if solved(high):
        return tuple(_times(p, q, n, high))
    while True:  # T_{n+1} < 0 at low and >= 0 at high
        for end, right in ((low, True), (high, False)):
            times = _times(p, q, n, end)
            slope = _end_slope(p, q, times, right=right)
            if slope > 0 and low <= end - times[-1] / slope <= high and solved(end - times[-1] / slope):
                return tuple(_times(p, q, n, end - times[-1] / slope))
        middle = (low + high) / 2
        low, high = (middle, high) if _times(p, q, n, middle)[-1] < 0 else (low, middle)


def sequential_limit(target: Sequence[Any], draft: Sequence[Any], n: int) -> Fraction:
    """Acceptance no exact sequential rule can exceed with n i.i.d. candidates: ``phi(T_1)``; 0 for n = 0."""
    p, q = read_pair(target, draft, n)
    return covered(p, q, sequential_times(p, q, n)[0]) if n else Fraction(0)


@transcribes("optimal-sequential", counted=True)
def optimal_sequential(candidates: int, times: Sequence[Any] | None = None) -> Transcription:
    """Candidate k is accepted with ``clip((p/q - T_{k+1}) / W_k, 0, 1)``, ``W_k = T_k - T_{k+1}``.

    Parameters
    ----------
    candidates : int
        The number n of candidates.
    times : sequence of rationals, length n + 1, optional
        T_1, ..., T_{n+1}; `sequential_times` by default.

    Notes
    -----
    Round k takes ``min(p, T_k q) - min(p, T_{k+1} q)`` out of the target's mass that is left, cut to what
    is there and to ``W_k q``, with W_k the probability that candidate k is looked at. For the solved times
    nothing is ever cut and this is the clip above. For any other times the rule is still exact, whatever
    they are: a solver that has not converged costs acceptance, never exactness.
    """

    def plan(p: Law, q: Law) -> tuple[list[Law], list[Law]]:
        T = sequential_times(p, q, candidates) if times is None and candidates else times or (0,)
        left, accept, final = p, [], [p]
        for before, after in itertools.pairwise(map(Fraction, T)):
            looked_at = sum(left, Fraction(0))
            taken = [
                max(Fraction(0), min(min(a, before * b) - min(a, after * b), looked_at * b, c))
                for a, b, c in zip(p, q, left, strict=True)
            ]
            accept.append(
                tuple(
                    a / (looked_at * b) if looked_at * b else Fraction(int(c > 0))
                    for a, b, c in zip(taken, q, left, strict=True)
                )
            )
            left = tuple(c - a for a, c in zip(taken, left, strict=True))
            final.append(normalise(left, fallback=p))
        return accept, final

    return planned(plan)
