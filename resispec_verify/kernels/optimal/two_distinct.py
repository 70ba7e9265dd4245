"""The best sequential rule for two candidates drawn without replacement.

The first candidate x comes from q and is accepted with the mass A(x) <= min(p, q); the second, y, comes from
q without x. With ``v(x) = (q(x) - A(x)) / (1 - q(x))`` and ``B = sum v``, the first is rejected and the
second is y with probability ``q(y) (B - v(y))``. So at most

    min(p(y), q(y) (1 + B) - v(y)),    (q - p)_+ / (1 - q) <= v <= q / (1 - q),    sum v = B,

can be accepted at y in both rounds, and only through v(y) and B do the tokens depend on each other. For a
given B, the v that lose nothing at y are those up to ``s(y) = clip(q (1 + B) - p, (q - p)_+ / (1 - q),
q / (1 - q))``; every unit of v above them is lost once. So the total is ``phi(1 + B) - (B - sum s)_+`` with
``phi(t) = sum min(p, t q)``. It does not fall while ``sum s >= B``, nor rise afterwards: the optimum is the
root of ``sum s = B``, with v = s, and its acceptance is ``phi(1 + B)``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["TwoDistinct", "after_first", "two_distinct"]

_MOST_STEPS = 200
_EPS = float(np.finfo(np.float64).eps)


class TwoDistinct(NamedTuple):
    """Masses accepted of one position, ``(V,)``; any ``first`` with ``0 <= first <= min(p, q)`` is exact.

    Attributes
    ----------
    first, second : float64 (V,)
        Mass accepted as the first and as the second candidate.
    second_offered : float64 (V,)
        Probability that the first candidate is rejected and the second is this token.
    missing : float
        Probability that the first is rejected and there is no second: a draft with one token.
    """

    first: NDArray[np.float64]
    second: NDArray[np.float64]
    second_offered: NDArray[np.float64]
    missing: float


def two_distinct(p: NDArray[np.float64], q: NDArray[np.float64]) -> TwoDistinct:
    """The optimum for target p and draft q, ``(V,)``: a bracketed Newton search, O(V) a step."""
    others, unit = _others(q)
    free = others > 0  # a token that is the whole draft leaves no second candidate
    v = np.where(free, _search(p, q, np.where(free, others, 1.0), free, unit), 0.0)
    first = np.where(free, np.clip(q - (others / unit) * v, 0.0, np.minimum(p, q)), np.minimum(p, q))
    return after_first(p, q, first)


def after_first(p: NDArray[np.float64], q: NDArray[np.float64], first: NDArray[np.float64]) -> TwoDistinct:
    """The most the second candidate can be accepted with after any ``first`` between 0 and min(p, q)."""
    others, unit = _others(q)
    free = others > 0
    v = np.where(free, (q - first) * (unit / np.where(free, others, 1.0)), 0.0)
    # Of B - v nothing but the sum of the other tokens' v remains: never negative, and not a difference where
    # one token holds most of it.
    rest = np.clip(v.sum() - v, 0.0, None)
    top = int(np.argmax(v))
    rest[top] = v[:top].sum() + v[top + 1 :].sum()
    offered = (q / unit) * rest
    missing = float(np.where(free, 0.0, q - first).sum())
    return TwoDistinct(first, np.minimum(p - first, offered), offered, missing)


def _others(q: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """``1 - q`` as the sum of the other tokens: a peaked draft keeps its digits. And the unit of v.

    v is a quotient by it and can exceed the range of float64: all v are counted in ``1 / unit``.
    """
    others = q.sum() - q
    top = int(np.argmax(q))
    others[top] = q[:top].sum() + q[top + 1 :].sum()
    least = others[others > 0].min(initial=1.0)
    return others, float(min(1.0, least * 2.0**1000))


def _search(
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    others: NDArray[np.float64],
    free: NDArray[np.bool_],
    unit: float,
) -> NDArray[np.float64]:
    """The v of the smallest root of ``sum s = B``: of several optimal rules the one that looks at least."""
    least = np.where(free, np.clip(q - p, 0.0, None) * (unit / others), 0.0)
    most = np.where(free, q * (unit / others), 0.0)
    low, high = float(least.sum()), float(most.sum())
    B, found = low, most
    for _ in range(_MOST_STEPS):
        wanted = q * (unit + B) - unit * p
        v = np.clip(wanted, least, most)
        excess = float(v.sum()) - B
        if excess > len(q) * _EPS * B:  # beyond what summing can err
            low = B
        else:
            high, found = B, v
        fall = 1.0 - float(q[(wanted > least) & (wanted < most)].sum())
        new = B + excess / fall if fall > 0.0 else high
        if not low < new < high:
            new = 0.5 * (low + high)
        if new == B or not low < new < high:
            break
        B = new
    return found
