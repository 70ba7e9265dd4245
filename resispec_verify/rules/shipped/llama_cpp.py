"""llama.cpp's example ``speculative``: top-ranked candidates, tested as if they had been drawn from q.

ggml-org/llama.cpp, examples/speculative: the draft's tokens are taken in order of rank, but tested with
``min(1, p/q)``, and a rejection leaves ``norm((p - q)_+)``, as if the candidate were a draw from q. Several
siblings are tested one after the other with the residual of the one before.

Guarantee: none; the rule is speculative sampling (n = 1) or SpecInfer, and would be exact for candidates that
are drawn. With ranked ones it is not: the best token is proposed always instead of with probability q.
Assumption: ties go to the lowest index. No deviations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from resispec_verify.kernels.elementwise.residuals import positive_part_condition, standard_residual
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.proposals import Greedy

__all__ = ["LlamaCpp"]


@dataclass(frozen=True)
class LlamaCpp(Rule):
    """SpecInfer's test for candidates that were ranked, not drawn."""

    name = "llama-cpp"
    claims_exact = True
    source = "llama.cpp, examples/speculative"
    place = 110
    depends_on = "nothing"
    proposal = Greedy()

    def reject(self, state: State, tokens: Any) -> State:
        """The standard residual, whatever was rejected."""
        return replace(state, residual=standard_residual(state.residual, state.draft), round=state.round + 1)

    def condition(self, before: State, tokens: Any, after: State, fair: bool) -> Any:
        """The residual is divided by its sum."""
        return positive_part_condition(before.residual, before.draft)
