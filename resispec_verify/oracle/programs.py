"""Limits and optima as linear programs, from their definitions, to the tolerance of HiGHS (1e-7).

HiGHS drops matrix entries below 1e-9, so draft probabilities below that count as 0. Where it reports no
optimum the functions that need one raise `RuntimeError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import linprog

from .engine import TupleLaw, independent, without_replacement
from .laws import read_pair

__all__ = [
    "best_value",
    "least_distance",
    "limit_by_program",
    "masses_by_program",
    "sequential_limit_by_program",
    "sequential_optimum_by_histories",
]


def best_value(gain: np.ndarray, **constraints: Any) -> tuple[float, np.ndarray, np.ndarray]:
    """The largest value of ``gain @ x`` under the constraints, the x, and the prices of ``A_ub``."""
    answer = linprog(-gain, method="highs", **constraints)
    if answer.status != 0:
        raise RuntimeError(f"HiGHS found no optimum (status {answer.status}): {answer.message}")
    return 0.0 - float(answer.fun), answer.x, -np.asarray(answer.ineqlin.marginals)


def limit_by_program(
    target: Sequence[Any],
    draft: Sequence[Any],
    n: int,
    *,
    tuples: TupleLaw | None = None,
    values: Sequence[float] | None = None,
) -> float:
    """Solve the limit as a linear program over couplings of candidate tuples and emitted token.

    Maximise P(emitted token is in the tuple) over couplings with the given marginals. Tuples that hold
    the same distinct tokens are interchangeable and are merged. Only accepted mass is a variable: a part of
    a coupling that respects both marginals can always be completed, and equalities would make rounding
    infeasible.

    Parameters
    ----------
    target, draft : sequence of rationals, length V
        The two laws.
    n : int
        Number of candidates.
    tuples : mapping from tuples to rationals, optional
        Law of the candidate tuple; n i.i.d. draws from `draft` by default. Give
        `without_replacement(draft, n)` for the limit without replacement, `fixed(draft, n)` for the
        draft's best tokens, `hub_pairs(draft)` for SpecHub's pairs.
    values : sequence of float, length V, optional
        What accepting each token is worth; 1 each by default.

    Returns
    -------
    float
        The optimum found by HiGHS, to its tolerance (1e-7).
    """
    p, q = read_pair(target, draft, n)
    weights: dict[frozenset[int], Fraction] = {}
    for tokens, weight in (independent(q, n) if tuples is None else tuples).items():
        key = frozenset(tokens)
        weights[key] = weights.get(key, Fraction(0)) + weight
    sets = [(members, float(weight)) for members, weight in weights.items() if members]
    if not sets:
        return 0.0
    pairs = [(row, y) for row, (members, _) in enumerate(sets) for y in sorted(members)]
    at_most = np.zeros((len(sets) + len(p), len(pairs)))
    for column, (row, y) in enumerate(pairs):
        at_most[row, column] = at_most[len(sets) + y, column] = 1.0
    capacity = np.array([weight for _, weight in sets] + [float(mass) for mass in p])
    gain = np.array([1.0 if values is None else float(values[y]) for _, y in pairs])
    return best_value(gain, A_ub=at_most, b_ub=capacity, bounds=(0, None))[0]


def masses_by_program(target: Sequence[Any], draft: Sequence[Any], values: Sequence[float]) -> np.ndarray:
    """The masses ``(n, V)`` to accept of siblings that are worth ``values``, looked at one after the other.

    A_k(x) is the mass accepted of sibling k at token x, W_k the probability that sibling k is looked at:
    maximise ``sum_k v_k sum_x A_k(x)`` subject to ``0 <= A_k <= W_k q``, ``W_1 = 1``, ``W_{k+1} = W_k - sum
    A_k`` and ``sum_k A_k <= p``.
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
    return best_value(gain, A_ub=np.array(at_most), b_ub=limit, bounds=(0, None))[1].reshape(n, size)


def sequential_limit_by_program(target: Sequence[Any], draft: Sequence[Any], n: int) -> float:
    """What n i.i.d. candidates, looked at one by one, can accept: `masses_by_program` for equal values.

    Rules that remember which tokens were rejected satisfy the same constraints with A_k their average, so
    they are covered; early stopping is ``A_k = 0``.
    """
    p, q = read_pair(target, draft, n)
    return float(masses_by_program(p, q, [1.0] * n).sum()) if n else 0.0


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
    equal, gain, capacity = np.zeros((len(histories), size)), np.zeros(size), np.zeros((len(p), size))
    equal[0, 0] = 1.0
    for s in histories[1:]:
        W, a = column[s], len(histories) + column[s]
        equal[W, [W, a]] = 1.0
        equal[W, column[s[:-1]]] = -float(reach[s] / reach[s[:-1]])
        gain[a] = worth[len(s) - 1]
        capacity[s[-1], a] = 1.0
    most: list[float | None] = [None] * size
    most[len(histories)] = 0.0  # nothing is accepted before the first candidate
    return best_value(
        gain,
        A_ub=capacity,
        b_ub=[float(mass) for mass in p],
        A_eq=equal,
        b_eq=(np.arange(len(histories)) == 0).astype(float),
        bounds=[(0.0, end) for end in most],
    )[0]


def least_distance(
    target: Sequence[Any],
    draft: Sequence[Any],
    Z: float,
    *,
    hole: int | None = None,
    exact: bool = False,
) -> float | None:
    """``min sum |r / Z - q|`` over ``0 <= r <= p`` with ``sum r = Z``, to the tolerance of HiGHS (1e-7).

    Parameters
    ----------
    target, draft : sequence of rationals, length V
        The two laws.
    Z : float
        In (0, 1].
    hole : int, optional
        A token at which r must be 0.
    exact : bool
        Require ``r >= (p - q)+`` too, which an exact round leaves at least.

    Returns
    -------
    float or None
        None where there is no such r.
    """
    p, q = (np.array([float(mass) for mass in law]) for law in read_pair(target, draft, 1))
    size = len(p)
    low, high = (np.clip(p - q, 0.0, None) if exact else np.zeros(size)), p.copy()
    if hole is not None:
        high[hole] = 0.0
        if low[hole] > 0.0:
            return None
    same = np.eye(size)
    answer = linprog(
        np.concatenate([np.zeros(size), np.ones(size)]),  # r, and at least |r / Z - q|
        A_ub=np.block([[same / Z, -same], [-same / Z, -same]]),
        b_ub=np.concatenate([q, -q]),
        A_eq=np.concatenate([np.ones(size), np.zeros(size)])[None, :],
        b_eq=[Z],
        bounds=[*zip(low, high, strict=True), *[(0.0, None)] * size],
        method="highs",
    )
    return float(answer.fun) if answer.status == 0 else None
