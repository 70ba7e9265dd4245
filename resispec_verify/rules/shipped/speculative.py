"""Speculative sampling: one candidate.

Leviathan, Kalman and Matias, Fast inference from transformers via speculative decoding, ICML 2023 (Appendix
A.1); Chen et al., arXiv 2302.01318 (Algorithm 2). Accept with ``min(1, p/q)``, otherwise draw from
``norm((p - q)_+)``. Guarantee: exact, when the candidate is drawn from the declared draft. No deviations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from resispec_verify.kernels.elementwise.residuals import positive_part_condition, standard_residual
from resispec_verify.rules.interface import Rule, State

__all__ = ["Speculative"]


@dataclass(frozen=True)
class Speculative(Rule):
    """Speculative sampling with one candidate from the draft."""

    name = "speculative"
    claims_exact = True
    source = "Leviathan et al. 2023; Chen et al. 2023"
    place = 10
    depends_on = "nothing"
    most_candidates = 1

    def reject(self, state: State, tokens: Any) -> State:
        """The standard residual, whatever was rejected."""
        return replace(state, residual=standard_residual(state.residual, state.draft), round=state.round + 1)

    def condition(self, before: State, tokens: Any, after: State, fair: bool) -> Any:
        """The residual is divided by its sum."""
        return positive_part_condition(before.residual, before.draft)

    def proxy(self, current: Any, draft: Any, token: Any) -> Any:
        """``k = q``."""
        return draft
