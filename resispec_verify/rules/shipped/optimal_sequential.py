"""Optimal sequential verification: the best exact rule that looks at the candidates one by one.

Keeps ResiSpec's idea, mass reserved near the draft for the candidates to come, but reserves it independently
of the rejected token. With levels ``T_1 >= ... >= T_{n+1} = 0`` and
``r_k = (p - T_1 q)_+ + min(p, T_{k+1} q)``, candidate k is accepted with ``(r_{k-1} - r_k) / (W_k q)``, where
``W_k = |r_{k-1}|``, and rejected to ``r_k / |r_k|``; if all are rejected the token is drawn from
``(p - T_1 q)_+``.

Guarantee: exact for every choice of levels with ``0 <= T_k - T_{k+1} <= W_k``, hence also for a search that
has not converged. With the levels of `kernels.sequential` its acceptance ``phi(T_1)`` is the largest of any
sequential rule for n i.i.d. candidates. It stays below the optimal-transport limit, which takes rules that
look at all candidates at once. The proof is in docs/explanation/optimal-rules.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.level_rows import level_rounds
from resispec_verify.kernels.elementwise.residuals import ratio_or_all
from resispec_verify.kernels.elementwise.rows import Rounds
from resispec_verify.kernels.optimal.reserved import reserve, taken_share
from resispec_verify.kernels.optimal.sequential import levels
from resispec_verify.rules.interface import Rule, State

__all__ = ["OptimalSequential"]


@dataclass(frozen=True)
class OptimalSequential(Rule):
    """Sequential verification that accepts as often as any exact sequential rule can.

    Attributes
    ----------
    find_levels : callable
        Maps target, draft and n to the levels ``T``, shape ``(..., n + 1)``; replaceable, since levels never
        cost exactness.
    """

    find_levels: Callable[[Any, Any, int], Any] = levels

    name = "optimal-sequential"
    claims_exact = True
    source = "this project, docs/explanation/optimal-rules.md"
    place = 120
    depends_on = "nothing"

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """Find the levels; the residual before the first candidate is the target."""
        xp = array_namespace(target, draft)
        T = xp.astype(self.find_levels(target, draft, candidates), target.dtype, copy=False)
        weight = xp.sum(target, axis=-1, keepdims=True)
        return State(target, draft, 0, {"target": target, "levels": T, "weight": weight})

    def accept(self, state: State) -> Array:
        """What round k takes of the target, ``min(p, T_k q) - min(p, T_{k+1} q)``, over ``W_k q``."""
        upper, lower = (state.extra["levels"][..., i, None] for i in (state.round, state.round + 1))
        return taken_share(state.extra["target"], state.draft, upper, lower, state.extra["weight"])

    def reject(self, state: State, tokens: Array) -> State:
        """The reserved mass ``r_k``, normalised, whatever was rejected."""
        k = state.round + 1
        first, level = (state.extra["levels"][..., i, None] for i in (0, k))
        residual, weight = reserve(state.extra["target"], state.draft, first, level, state.residual)
        return State(residual, state.draft, k, {**state.extra, "weight": weight})

    def sum_rounds(self, target: Array, draft: Array, candidates: int, drawn_from: Array) -> Rounds | None:
        """In compiled passes over a row; it divides by what of the reserved mass is reserved again."""
        found = array_namespace(target).astype(self.find_levels(target, draft, candidates), target.dtype)
        return level_rounds(target, draft, found, drawn_from)

    def condition(self, before: State, tokens: Array, after: State, fair: bool) -> Array:
        """The reserved mass is divided by its sum."""
        return ratio_or_all(before.extra["weight"], after.extra["weight"])
