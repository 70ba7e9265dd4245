"""What a residual of mass Z can look like: Theorem 2's curve, its flat stretches, and the budgets on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.ratio_order import RatioOrder, ratio_order
from resispec_verify.kernels.optimal.l1_curve import (
    Breakpoints,
    breakpoints,
    exact_acceptance,
    l1_at,
    l1_with_hole,
)
from resispec_verify.kernels.optimal.sequential import levels

__all__ = ["Exploration", "check_monotonicity", "curve_points", "curve_records", "explore_pair"]

Floats = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)
MOST_POINTS = 2000  # more kinks than a plot has pixels are thinned out


@dataclass(frozen=True)
class Exploration:
    """Theorem 2 on one pair.

    Attributes
    ----------
    order : RatioOrder
        The pair, sorted.
    points : Breakpoints
        The curve at all its kinks.
    candidates : int
        n, which the level of the optimal sequential rule depends on.
    rejected : int or None
        The token whose hole is looked at; None where no token can be rejected.
    hole_rank : int or None
        Its rank in ``order``.
    budgets : dict
        Mass reserved for what follows the first rejection, by who reserves it.
    zero_target : tuple of (int, float)
        How many tokens have q > 0 = p, and the draft's mass on them: why the curve can be flat.
    pair : tuple of float64 (V,)
        Target and draft.
    """

    order: RatioOrder
    points: Breakpoints
    candidates: int
    rejected: int | None
    hole_rank: int | None
    budgets: dict[str, float] = field(default_factory=dict)
    zero_target: tuple[int, float] = (0, 0.0)
    pair: tuple[Floats, Floats] | None = None

    @property
    def hypotheses_hold(self) -> bool:
        """Whether p > 0 wherever q > 0, which Theorem 2's proof of strictness uses."""
        return self.zero_target[0] == 0

    @property
    def strictly_increasing(self) -> bool:
        """Whether the curve is strictly increasing on (Z*, 1]: it is unless it begins with a flat stretch."""
        return self.points.flat_until == 0.0

    @property
    def flat(self) -> list[list[float]]:
        """Stretches on which the curve is constant, without the one where it is 0."""
        return [] if self.strictly_increasing else [[0.0, self.points.flat_until]]

    def table(self, Z: Floats) -> dict[str, Floats]:
        """The curves at any Z in (0, 1], by name; NaN where there is no such residual.

        ``l1``: the nearest residual of mass Z; ``l1_hole``: with a zero at the rejected token;
        ``acceptance``: of the next candidate, at best, ``1 - l1 / 2``; ``acceptance_exact``: the same after
        an exact round; ``accepted_by_two``: ``1 - Z`` and what the next candidate adds after an exact round.
        """
        l1 = l1_at(self.order, Z)
        hole = np.full_like(Z, np.nan)
        if self.hole_rank is not None:
            hole = l1_with_hole(self.order, self.hole_rank, Z)
        exact = exact_acceptance(self.order, Z)
        return {
            "Z": Z,
            "l1": l1,
            "l1_hole": hole,
            "acceptance": 1.0 - 0.5 * l1,
            "acceptance_exact": exact,
            "accepted_by_two": 1.0 - Z + Z * exact,
        }

    def accepted_by_all(self, points: int = 80) -> tuple[Floats, Floats]:
        """Z, ``(points + 1,)``, and what n candidates accept if an exact round leaves it, then the best.

        The round by levels, which leaves ``(p - s q)_+ + min(p, (s - 1) q)`` of the target: SpecInfer's for
        s = 1, where Z is least, and that of the optimal sequential rule where the curve is highest
        (docs/explanation/optimal-rules.md). Empty where no token can be rejected.
        """
        least = self.budgets["specinfer"]
        if self.pair is None or not 0.0 < least < 1.0:
            return np.zeros(0), np.zeros(0)
        p, q = self.pair
        best = float(levels(p, q, self.candidates)[0])
        found = []
        near = 1.0 + np.linspace(0.0, 1.0, points // 2) ** 2 * (2.0 * best - 1.0)
        far = 2.0 * best * np.geomspace(1.0, 1e4, points - len(near))
        for s in np.union1d(np.concatenate([near, far]), best):  # Z rises with s, to 1
            left = np.clip(p - s * q, 0.0, None) + np.minimum(p, (s - 1.0) * q)
            Z = float(left.sum())
            rest = levels(left / Z, q, self.candidates - 1)
            found.append((Z, 1.0 - Z + Z * float(np.minimum(left / Z, rest[0] * q).sum())))
        Z, accepted = np.asarray(sorted(found)).T
        return Z, accepted

    def result(self) -> dict[str, Any]:
        """The row of ``"results"``."""
        Z = self.points.Z
        found: dict[str, Any] = {
            "z_star": self.points.z_star,
            "curve": np.stack([Z, self.points.l1], axis=-1).tolist(),
            "flat": self.flat,
            "budgets": self.budgets,
            "candidates": self.candidates,
            "hypotheses_hold": self.hypotheses_hold,
            "strictly_increasing": self.strictly_increasing,
            "zero_target_tokens": self.zero_target[0],
            "zero_target_draft_mass": self.zero_target[1],
            "rejected": self.rejected,
        }
        if self.hole_rank is not None:
            hole = l1_with_hole(self.order, self.hole_rank, Z)
            inside = np.isfinite(hole)
            found["curve_hole"] = np.stack([Z[inside], hole[inside]], axis=-1).tolist()
        return found


def explore_pair(
    target: Floats, draft: Floats, candidates: int = 2, rejected: int | None = None
) -> Exploration:
    """Theorem 2 on one position.

    Parameters
    ----------
    target, draft : float64 (V,)
        Probabilities.
    candidates : int
        ``n >= 2``: with one candidate nothing is reserved for a next one.
    rejected : int, optional
        The token whose hole is looked at; by default the one that is most often rejected.

    Raises
    ------
    InputError
        A token outside the vocabulary, or one that is never rejected (q <= p).
    """
    if candidates < 2:
        raise InputError(f"candidates must be at least 2 for a next candidate to exist, got {candidates}")
    over = draft - target
    if rejected is not None and not 0 <= rejected < len(target):
        raise InputError(f"token {rejected} is outside the vocabulary 0..{len(target) - 1}")
    if rejected is not None and not over[rejected] > 0:
        raise InputError(
            f"token {rejected} is never rejected: its draft probability {draft[rejected]:.6g} is not above "
            f"its target probability {target[rejected]:.6g}; choose a token with q > p"
        )
    if rejected is None and over.max() > 0:
        rejected = int(np.argmax(over))
    order = ratio_order(target, draft)
    points = breakpoints(order)
    zero = (draft > 0) & (target == 0)
    T = levels(target, draft, candidates)
    budgets = {"specinfer": float(np.clip(target - draft, 0.0, None).sum()), "optimal-sequential": 0.0}
    if rejected is not None:  # else nothing is left to reserve but the rounding of the levels
        budgets["optimal-sequential"] = float(T[1] - T[2])
    hole_rank = None
    if rejected is not None:
        hole_rank = int(np.flatnonzero(order.order == rejected)[0])
        gap, room = float(over[rejected]), float(1.0 - target[rejected])
        budgets["resispec, local gap"] = min(gap, room)
        budgets["resispec, Eq. 13"] = min(max(points.z_star, gap), room)
    zeros = (int(zero.sum()), float(draft[zero].sum()))
    return Exploration(order, points, candidates, rejected, hole_rank, budgets, zeros, (target, draft))


def curve_points(found: Exploration) -> Floats:
    """Where the curves are evaluated, ``(K,)``: their kinks, thinned, a grid between, and the budgets."""
    kinks = found.points.Z
    kinks = kinks[np.unique(np.linspace(0, len(kinks) - 1, MOST_POINTS).astype(int))]
    budgets = [z for z in found.budgets.values() if 0.0 < z <= 1.0]
    return np.unique(np.concatenate([kinks, np.linspace(0.002, 1.0, 500), budgets]))


def curve_records(found: Exploration) -> list[dict[str, Any]]:
    """The curves where they are evaluated, a record a point; nothing where there is no such residual."""
    columns = {name: values.tolist() for name, values in found.table(curve_points(found)).items()}
    rows = zip(*columns.values(), strict=True)
    return [{name: "" if z != z else z for name, z in zip(columns, row, strict=True)} for row in rows]


def check_monotonicity(target: Floats, draft: Floats) -> dict[str, Any]:
    """Whether Theorem 2's hypotheses and its claims hold on one position; a row of ``--check``.

    ``monotone`` is measured on the computed curve, to the rounding of its sums; ``strictly_increasing``
    follows from where p is 0.
    """
    found = explore_pair(target, draft)
    # Two prefix sums of V terms, each at most 1, and a quotient at most the first.
    slack = 4.0 * len(target) * _EPS
    l1 = found.points.l1
    return {
        "z_star": found.points.z_star,
        "hypotheses_hold": found.hypotheses_hold,
        "strictly_increasing": found.strictly_increasing,
        "flat_until": found.points.flat_until,
        "monotone": bool((np.diff(l1) >= -slack).all() and l1[0] >= -slack),
        "l1_at_1": float(l1[-1]),
    }
