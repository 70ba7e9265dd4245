"""The acceptance that no exact rule can exceed: optimal transport, three ways.

For n candidates drawn i.i.d. from the draft, the largest probability that the emitted token is among them,
over all exact rules, sequential or joint, is ``OT_n = min_H 1 + p(H) - q(H)**n`` over sets H of tokens
(max-flow min-cut: a set H of tokens is paid for, and so are the tuples that do not lie inside H).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import linprog

from .engine import TupleLaw, independent
from .laws import read_pair

__all__ = [
    "limit_by_prefixes",
    "limit_by_program",
    "limit_by_subsets",
    "sequential_limit_by_program",
]


def limit_by_subsets(target: Sequence[Any], draft: Sequence[Any], n: int) -> Fraction:
    """``OT_n`` by trying all 2**V sets H.

    Parameters
    ----------
    target, draft : sequence of rationals, length V
        The two laws.
    n : int
        Number of i.i.d. candidates, at least 0.

    Returns
    -------
    Fraction
        The exact limit; 0 for n = 0, and 1 - TV(target, draft) for n = 1.
    """
    p, q = read_pair(target, draft, n)
    values = []
    for chosen in itertools.product((False, True), repeat=len(p)):
        inside = [x for x, member in enumerate(chosen) if member]
        p_H = sum((p[x] for x in inside), Fraction(0))
        q_H = sum((q[x] for x in inside), Fraction(0))
        values.append(1 + p_H - q_H**n)
    return min(values)


def limit_by_prefixes(target: Sequence[Any], draft: Sequence[Any], n: int) -> Fraction:
    """``OT_n`` by trying the V + 1 prefixes of the tokens in ascending order of target / draft.

    Parameters and result are those of `limit_by_subsets`. Tokens that the draft does not cover come last.
    """
    p, q = read_pair(target, draft, n)
    order = sorted(range(len(p)), key=lambda x: (q[x] == 0, p[x] / q[x] if q[x] else p[x]))
    p_H, q_H = Fraction(0), Fraction(0)
    best = 1 + p_H - q_H**n
    for x in order:
        p_H, q_H = p_H + p[x], q_H + q[x]
        best = min(best, 1 + p_H - q_H**n)
    return best


def limit_by_program(
    target: Sequence[Any], draft: Sequence[Any], n: int, *, tuples: TupleLaw | None = None
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

    Returns
    -------
    float
        The optimum found by HiGHS, to its tolerance (1e-7).

    Raises
    ------
    RuntimeError
        If the solver does not report an optimum.
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
    answer = linprog(
        -np.ones(len(pairs)),
        A_ub=at_most,
        b_ub=np.array([weight for _, weight in sets] + [float(mass) for mass in p]),
        bounds=(0, None),
        method="highs",
    )
    if answer.status != 0:
        raise RuntimeError(f"HiGHS found no optimum (status {answer.status}): {answer.message}")
    return 0.0 - float(answer.fun)


def sequential_limit_by_program(target: Sequence[Any], draft: Sequence[Any], n: int) -> float:
    """Solve the sequential program: what n i.i.d. candidates, looked at one by one, can accept.

    ``r_i(x)`` is the target's mass at x that is still to be emitted after i rejections, unnormalised, so
    ``|r_{i-1}|`` is the probability that candidate i is looked at. With ``r_0 = p``,

        minimise |r_n|  subject to  0 <= r_i <= r_{i-1},  r_{i-1} - r_i <= |r_{i-1}| q:

    round i emits ``r_{i-1} - r_i`` by accepting, at x no more than the probability ``|r_{i-1}| q(x)`` that
    candidate i is looked at and is x. Rules that remember which tokens were rejected satisfy the same
    constraints with r_i their average, so they are covered; early stopping is ``r_i = r_{i-1}``.

    Parameters
    ----------
    target, draft : sequence of rationals, length V
        The two laws.
    n : int
        Number of i.i.d. candidates, at least 0.

    Returns
    -------
    float
        ``1 - |r_n|`` found by HiGHS. It drops matrix entries below 1e-9, so draft probabilities below
        that count as 0.

    Raises
    ------
    RuntimeError
        If the solver does not report an optimum.
    """
    p, q = (np.array([float(mass) for mass in law]) for law in read_pair(target, draft, n))
    if n == 0:
        return 0.0
    size = len(p)
    steps = np.kron(np.eye(n), np.eye(size))  # r_1, ..., r_n as rows of one vector
    before = np.kron(np.eye(n, k=-1), np.eye(size))
    looked_at = np.kron(np.eye(n, k=-1), np.outer(q, np.ones(size)))
    first = np.zeros(n * size)
    first[:size] = p
    offered = np.zeros(n * size)
    offered[:size] = q - p
    answer = linprog(
        np.concatenate([np.zeros((n - 1) * size), np.ones(size)]),
        A_ub=np.vstack([steps - before, before - steps - looked_at]),
        b_ub=np.concatenate([first, offered]),
        bounds=(0, None),
        method="highs",
    )
    if answer.status != 0:
        raise RuntimeError(f"HiGHS found no optimum (status {answer.status}): {answer.message}")
    return 1.0 - float(answer.fun)
