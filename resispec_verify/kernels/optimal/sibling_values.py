"""The best sequential rule for i.i.d. siblings that are not worth the same, as in most trees.

Sibling k is worth v_k when it is accepted: itself and what is accepted below it. With ``W_k`` the probability
that it is looked at and ``a_k = W_k - W_{k+1}`` that it is accepted, masses can be found at the tokens iff

    sum_K a_k <= phi(sum_K W_k)    for every set K of siblings,    phi(t) = sum_x min(p(x), t q(x)),

because W_k offers ``W_k q(x)`` at x and x can take p(x) in all (max-flow min-cut; those sets of a are a
polymatroid). So the best value is a concave program in n numbers: maximise ``sum v_k a_k``. It is solved by
cutting planes, tangents of phi, of which only n need be looked at: the most violated sets K begin the
siblings in descending order of ``a_k / W_k``.

Its vertices are priorities: in an order of the siblings, each takes what the ones before it left of
``min(p, t q)``. The a that are found are a mixture of a few of those, and so are the masses by token. Equal
values give `kernels.sequential` (the last sibling first); values that fall steeply give SpecInfer (the first
one first).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.ratio_order import RatioOrder, ratio_order

__all__ = ["MOST_SIBLINGS", "accepted_masses", "checked_values"]

#: Mixtures are sought among all orders of the siblings and of some of them.
MOST_SIBLINGS = 6

_MOST_CUTS = 200
_FEASIBLE = 1e-10  # the least that HiGHS can be asked for; what it costs is acceptance


class _Overlap:
    """phi and its slope, O(log V) a call."""

    def __init__(self, order: RatioOrder) -> None:
        self.ratio, self.below = order.ratio, order.prefix[:, 1]
        self.above = np.append(np.cumsum(order.q[::-1])[::-1], 0.0)

    def __call__(self, t: float) -> tuple[float, float]:
        rank = int(np.searchsorted(self.ratio, t))
        return float(self.below[rank] + t * self.above[rank]), float(self.above[rank])


def _solve(gain: NDArray, rows: list[NDArray], limits: list[float]) -> NDArray:
    from scipy.optimize import linprog  # slow to import, and no other rule needs it

    answer = linprog(
        -gain,
        A_ub=np.asarray(rows),
        b_ub=np.asarray(limits),
        bounds=(0.0, 1.0),
        method="highs",
        options={"primal_feasibility_tolerance": _FEASIBLE, "dual_feasibility_tolerance": _FEASIBLE},
    )
    if answer.x is None:
        raise InputError(f"the program of the sibling values has no solution: {answer.message}")
    return answer.x


def _acceptance(overlap: _Overlap, values: NDArray) -> NDArray:
    """The W_1..W_{n+1} of the best value."""
    n = len(values)
    # Variables W_2..W_{n+1}; W_1 = 1 goes to the right-hand side.
    step = np.zeros((n, n + 1))  # a_k = step[k] @ W
    step[np.arange(n), np.arange(n)], step[np.arange(n), np.arange(n) + 1] = 1.0, -1.0
    look = np.eye(n, n + 1)
    rows, limits = [-row[1:] for row in step], [float(row[0]) for row in step]

    def cut(members: Sequence[int], t: float) -> None:
        height, slope = overlap(t)
        row = step[list(members)].sum(axis=0) - slope * look[list(members)].sum(axis=0)
        rows.append(row[1:])
        limits.append(height - slope * t - float(row[0]))

    for k in range(n):
        cut(range(k, n), 1.0)
    W = np.ones(n + 1)
    for _ in range(_MOST_CUTS):
        W = np.append(1.0, _solve((values @ step)[1:], rows, limits))
        a = step @ W
        first = np.argsort(-a / np.maximum(W[:-1], np.finfo(float).tiny), kind="stable")
        worst = 0.0
        for k in range(1, n + 1):
            t = float(W[first[:k]].sum())
            excess = float(a[first[:k]].sum()) - overlap(t)[0]
            worst = max(worst, excess)
            if excess > _FEASIBLE:
                cut(first[:k].tolist(), t)
        if worst <= _FEASIBLE:
            break
    return np.clip(W, 0.0, 1.0)


def checked_values(values: Sequence[float]) -> NDArray[np.float64]:
    """The values as an array; raises `InputError` as `accepted_masses` does."""
    worth = np.asarray(values, np.float64)
    if worth.ndim != 1 or len(worth) > MOST_SIBLINGS:
        raise InputError(f"values must be at most {MOST_SIBLINGS} numbers, got {len(worth)}")
    if not (np.isfinite(worth) & (worth > 0)).all():
        raise InputError(f"values must be positive numbers, got {', '.join(map(str, values))}")
    return worth


def accepted_masses(
    target: NDArray[np.float64], draft: NDArray[np.float64], values: Sequence[float]
) -> NDArray[np.float64]:
    """Mass that each sibling accepts at each token, for the largest expected value.

    Parameters
    ----------
    target, draft : float64 (V,)
        One position.
    values : sequence of float, length n
        What accepting each sibling is worth, in the order they are looked at; positive, n <= 6.

    Returns
    -------
    float64 (n, V)
        ``A_k`` with ``0 <= A_k <= W_k q`` and ``sum A_k <= p``, where ``W_1 = 1`` and
        ``W_{k+1} = W_k - sum A_k``; any such masses make an exact rule.

    Raises
    ------
    InputError
        More than 6 values, or one that is not positive and finite.
    """
    worth = checked_values(values)
    n = len(worth)
    if n == 0:
        return np.zeros((0, len(target)))
    overlap = _Overlap(ratio_order(target, draft))
    worth = worth / worth.max()  # only ratios matter, and the solver's tolerances are absolute
    W = _acceptance(overlap, worth)
    a = W[:-1] - W[1:]
    # A sibling that is passed over (the first, when a later one is worth more) is missing from an order.
    orders = [order for size in range(1, n + 1) for order in itertools.permutations(range(n), size)]
    fills = np.zeros((n, len(orders)))
    for column, order in enumerate(orders):
        t = 0.0
        for k in order:
            fills[k, column] = overlap(t + W[k])[0] - overlap(t)[0]
            t += W[k]
    shares = _solve(worth @ fills, [*fills, np.ones(len(orders))], [*a, 1.0])
    masses = np.zeros((n, len(target)))
    for share, order in zip(shares, orders, strict=True):
        if share > 0.0:
            t, before = 0.0, np.zeros_like(target)
            for k in order:
                t += W[k]
                upto = np.minimum(target, t * draft)
                masses[k] += share * (upto - before)
                before = upto
    return _settled(target, draft, masses)


def _settled(target: NDArray, draft: NDArray, masses: NDArray) -> NDArray:
    """The masses cut to what is offered and what is left, which the solver keeps only to its tolerance."""
    left, looked_at = target.copy(), float(draft.sum())
    for k in range(len(masses)):
        masses[k] = np.clip(masses[k], 0.0, np.minimum(left, looked_at * draft))
        left = left - masses[k]
        looked_at = max(looked_at - float(masses[k].sum()), 0.0)
    return masses
