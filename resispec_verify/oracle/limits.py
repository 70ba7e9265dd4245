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

__all__ = ["limit_by_prefixes", "limit_by_program", "limit_by_subsets"]


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
    the same distinct tokens are interchangeable and are merged.

    Parameters
    ----------
    target, draft : sequence of rationals, length V
        The two laws.
    n : int
        Number of candidates.
    tuples : mapping from tuples to rationals, optional
        Law of the candidate tuple; n i.i.d. draws from `draft` by default. Give
        `without_replacement(draft, n)` for the limit without replacement.

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
    sets, size = list(weights), len(p)
    hits = np.array([[float(y in members) for y in range(size)] for members in sets])
    rows = np.kron(np.eye(len(sets)), np.ones((1, size)))
    columns = np.kron(np.ones((1, len(sets))), np.eye(size))
    answer = linprog(
        -hits.ravel(),
        A_eq=np.vstack([rows, columns]),
        b_eq=np.array([float(weights[members]) for members in sets] + [float(mass) for mass in p]),
        bounds=(0, None),
        method="highs",
    )
    if answer.status != 0:
        raise RuntimeError(f"HiGHS found no optimum (status {answer.status}): {answer.message}")
    return 0.0 - float(answer.fun)
