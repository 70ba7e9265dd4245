"""SpecInfer's multi-step speculative sampling: n candidates, one standard residual after another.

Miao et al., SpecInfer, ASPLOS 2024 (multi-step speculative sampling); Eq. 2 of ResiSpec, arXiv 2608.24411.
Candidates are i.i.d. from q; accept with ``min(1, R/q)``; after a rejection ``R <- norm((R - q)_+)`` with q
kept. A duplicate of a rejected candidate is tested again, is rejected, and still updates R. Guarantee: exact.
No deviations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.residuals import positive_part_condition, standard_residual
from resispec_verify.kernels.elementwise.rows import Rounds, standard_identity, standard_rounds
from resispec_verify.rules.interface import Rule, State

__all__ = ["SpecInfer"]


@dataclass(frozen=True)
class SpecInfer(Rule):
    """Sequential verification of i.i.d. candidates with the standard residual."""

    name = "specinfer"
    claims_exact = True
    source = "SpecInfer (Miao et al. 2024); Eq. 2 of arXiv 2608.24411"
    place = 20
    depends_on = "nothing"

    def reject(self, state: State, tokens: Array) -> State:
        """The standard residual, whatever was rejected."""
        return replace(state, residual=standard_residual(state.residual, state.draft), round=state.round + 1)

    def condition(self, before: State, tokens: Array, after: State, fair: bool) -> Array:
        """The residual is divided by its sum."""
        return positive_part_condition(before.residual, before.draft)

    def sum_rounds(self, target: Array, draft: Array, candidates: int, drawn_from: Array) -> Rounds | None:
        """In compiled passes over a row."""
        return standard_rounds(target, draft, candidates, drawn_from)

    def sum_identity(
        self, target: Array, draft: Array, rounds: int, tokens: Array, uniforms: Array
    ) -> Array | None:
        """The same for all candidates."""
        return standard_identity(target, draft, rounds)

    def proxy(self, current: Array, draft: Array, token: Array) -> Array:
        """``k = q``: for this rule the path identity is the operational marginal."""
        return draft
