"""The optimal sequential rule for independent candidates, solved in exact rationals.

With ``phi(t) = sum min(p, t q)`` the expected number ``T_1`` of candidates looked at solves
``T_{n+1} = 0`` in the recursion ``T_{k+1} = T_k - W_k``, ``W_k = 1 - phi(T_1) + phi(T_k)``. All of it is
piecewise linear in T_1, so the root is rational: bisection isolates the piece, and the line through one end
of the bracket gives the root, which is then checked by an equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .engine import Transcription
from .laws import Law, normalise, read_pair

__all__ = ["covered", "optimal_sequential", "sequential_limit", "sequential_times"]


@dataclass(frozen=True)
class _Round:
    """The rule between two candidates: the target's mass not accepted yet, by token, unnormalised."""

    target: Law
    draft: Law
    times: tuple[Fraction, ...]
    left: Law
    round: int = 0


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
    solved: dict[tuple[Law, Law], tuple[Fraction, ...]] = {}

    def look_up(p: Law, q: Law) -> tuple[Fraction, ...]:
        if times is not None:
            return tuple(Fraction(time) for time in times)
        if (p, q) not in solved:
            solved[p, q] = sequential_times(p, q, candidates) if candidates else (Fraction(0),)
        return solved[p, q]

    def accepted(state: _Round, token: int) -> Fraction:
        p, q, left = state.target[token], state.draft[token], state.left
        before, after = state.times[state.round], state.times[state.round + 1]
        wanted = min(p, before * q) - min(p, after * q)
        return max(Fraction(0), min(wanted, sum(left, Fraction(0)) * q, left[token]))

    def accept(state: _Round, token: int) -> Fraction:
        offered = sum(state.left, Fraction(0)) * state.draft[token]
        if offered == 0:
            return Fraction(int(state.left[token] > 0))
        return accepted(state, token) / offered

    def reject(state: _Round, token: int) -> _Round:
        left = tuple(mass - accepted(state, x) for x, mass in enumerate(state.left))
        return _Round(state.target, state.draft, state.times, left, state.round + 1)

    return Transcription(
        start=lambda p, q: _Round(p, q, look_up(p, q), p),
        accept=accept,
        reject=reject,
        final=lambda state: normalise(state.left, fallback=state.target),
    )
