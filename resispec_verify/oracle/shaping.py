"""The nearest residual of a given mass, by linear programming: Theorem 2's quantity from its definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linprog

from .laws import read_pair

__all__ = ["least_distance"]


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
