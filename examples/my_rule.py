"""A rule of one's own: resispec-verify kl DUMP.pt --rule examples/my_rule.py:EarlyStop"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from resispec_verify import Rule, State
from resispec_verify.kernels.elementwise.residuals import standard_residual


@dataclass(frozen=True)
class EarlyStop(Rule):
    """SpecInfer that gives up after two candidates. Exact, and slower."""

    name = "early-stop"
    claims_exact = True
    source = "an example"
    depends_on = "nothing"  # the state after a rejection does not depend on the token rejected

    def accept(self, state: State) -> Any:
        """Nothing from the third candidate on."""
        accept = super().accept(state)  # min(1, R/q) for every token
        return accept if state.round < 2 else 0.0 * accept

    def reject(self, state: State, tokens: Any) -> State:
        """The standard residual, as long as candidates are looked at."""
        rest = standard_residual(state.residual, state.draft) if state.round < 2 else state.residual
        return replace(state, residual=rest, round=state.round + 1)
