"""The best sequential rule for two candidates without replacement, in exact rationals, and its program.

With A(x) accepted as the first candidate and ``v = (q - A) / (1 - q)``, the second candidate is y after a
rejection with probability ``q(y) (sum v - v(y))``. The best v is ``clip(q (1 + B) - p, (q - p)+ / (1 - q),
q / (1 - q))`` for the B that is its own sum; that sum is piecewise linear in B, so B is rational.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import linprog

from .engine import Transcription, independent, without_replacement
from .laws import Law, normalise, read_pair

__all__ = ["best_first", "optimal_without_replacement", "sequential_optimum_by_histories"]


@dataclass(frozen=True)
class _Round:
    """Masses accepted in each round, and how many candidates have been rejected."""

    target: Law
    draft: Law
    first: Law
    second: Law
    offered: Law
    round: int = 0


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


def optimal_without_replacement(candidates: int, first: Sequence[Any] | None = None) -> Transcription:
    """The rule for at most two candidates; `first` is any mass up to min(p, q), by default `best_first`."""

    def start(p: Law, q: Law) -> _Round:
        if candidates < 2:
            none = (Fraction(0),) * len(p)
            return _Round(p, q, tuple(map(min, p, q)) if candidates else none, none, none)
        taken = best_first(p, q) if first is None else tuple(map(Fraction, first))
        alone = [q[x] == 1 for x in range(len(q))]
        v = [Fraction(0) if alone[x] else (q[x] - taken[x]) / (1 - q[x]) for x in range(len(q))]
        offered = tuple(
            q[y] * sum((v[x] for x in range(len(q)) if x != y), Fraction(0)) for y in range(len(q))
        )
        second = tuple(min(p[y] - taken[y], offered[y]) for y in range(len(q)))
        return _Round(p, q, taken, second, offered)

    def accept(state: _Round, token: int) -> Fraction:
        taken, offered = (state.first, state.draft) if state.round == 0 else (state.second, state.offered)
        return taken[token] / offered[token] if offered[token] else Fraction(0)

    def reject(state: _Round, token: int) -> _Round:
        return replace(state, round=state.round + 1)

    def final(state: _Round) -> Law:
        left = [p - a - b for p, a, b in zip(state.target, state.first, state.second, strict=True)]
        return normalise(left, fallback=state.target)

    return Transcription(accept, reject, final, start)


def sequential_optimum_by_histories(
    target: Sequence[Any],
    draft: Sequence[Any],
    n: int,
    *,
    distinct: bool = False,
    values: Sequence[float] | None = None,
) -> float:
    """The sequential optimum as a linear program over all histories of rejected tokens.

    For every history s of rejected tokens, W(s) is the probability that it comes about and a(s, x) the
    mass accepted at the next candidate x: ``a(s, x) + W(s x) = W(s) D_s(x)``, ``W() = 1``, and over all
    histories no token is accepted with more than p(x). What is emitted after the last rejection fills up the
    rest, whatever the history, so nothing else constrains a sequential rule.

    Parameters
    ----------
    target, draft : sequence of rationals, length V
    n : int
        Number of candidates.
    distinct : bool
        Drawn without replacement instead of independently.
    values : sequence of float, length n, optional
        What accepting the k-th candidate is worth; 1 each by default.

    Returns
    -------
    float
        The largest expected value, to the tolerance of HiGHS (1e-7).

    Raises
    ------
    RuntimeError
        If the solver does not report an optimum.
    """
    p, q = read_pair(target, draft, n)
    worth = [1.0] * n if values is None else list(values)
    drawn = without_replacement if distinct else independent
    reach: dict[tuple[int, ...], Fraction] = {(): Fraction(1)}
    for k in range(1, n + 1):
        reach |= {s: w for s, w in drawn(q, k).items() if len(s) == k}
    histories = list(reach)
    column = {s: i for i, s in enumerate(histories)}  # W(s); a(s) stands len(histories) further on
    size = 2 * len(histories)
    equal, gain, capacity = [], np.zeros(size), np.zeros((len(p), size))
    for s in histories[1:]:
        row = np.zeros(size)
        row[column[s]] = row[len(histories) + column[s]] = 1.0
        row[column[s[:-1]]] = -float(reach[s] / reach[s[:-1]])
        equal.append(row)
        gain[len(histories) + column[s]] = worth[len(s) - 1]
        capacity[s[-1], len(histories) + column[s]] = 1.0
    start = np.zeros(size)
    start[column[()]] = 1.0
    none: list[tuple[float, float | None]] = [(0.0, 0.0)]  # nothing is accepted before the first candidate
    any_mass: list[tuple[float, float | None]] = [(0.0, None)]
    bounds = any_mass * len(histories) + none + any_mass * (len(histories) - 1)
    answer = linprog(
        -gain,
        A_ub=capacity,
        b_ub=[float(mass) for mass in p],
        A_eq=np.vstack([start, *equal]),
        b_eq=np.concatenate([[1.0], np.zeros(len(equal))]),
        bounds=bounds,
        method="highs",
    )
    if answer.status != 0:
        raise RuntimeError(f"HiGHS found no optimum (status {answer.status}): {answer.message}")
    return 0.0 - float(answer.fun)
