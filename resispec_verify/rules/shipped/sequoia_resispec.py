"""Sequoia with ResiSpec's residual: candidates without replacement, the residual shaped by GetProxy.

ResiSpec, arXiv 2608.24411, Table 2 and Appendix C ("only the verification-time sampling distribution is
changed"). Candidates come without replacement; accept with ``min(1, R/D)``; after rejecting x the residual is
``norm((R - k)_+)`` with k from GetProxy(R, D, x), and then ``D(x) <- 0``, renormalised.

Guarantee: the paper claims exactness; like `resispec` it is not exact. Assumption: GetProxy gets the current
draft D, with which x was tested, as Appendix C's "updates p and q exactly as in the recurrence" suggests. The
options are ResiSpec's. No further deviations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from resispec_verify.kernels.paths.shaped import PathSum
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.proposals import WithoutReplacement
from resispec_verify.rules.shipped.resispec import Budget, Hole, Redistribution, ResiSpec
from resispec_verify.rules.shipped.sequoia import draft_without

__all__ = ["SequoiaResiSpec"]


@dataclass(frozen=True)
class SequoiaResiSpec(Rule):
    """Sequoia's candidates and test, ResiSpec's residual."""

    redistribution: Redistribution = "proportional"
    budget: Budget = "local"
    hole: Hole = "excluded"

    name = "sequoia+resispec"
    claims_exact = True
    source = "ResiSpec, Table 2 (arXiv 2608.24411)"
    place = 160
    depends_on = "token"
    proposal = WithoutReplacement()

    def __post_init__(self) -> None:
        self._shaped()  # checks the options

    def reject(self, state: State, tokens: Any) -> State:
        """ResiSpec's residual with the current draft; then the draft loses the rejected token."""
        shaped = self._shaped().reject(state, tokens)
        return replace(shaped, draft=draft_without(state.draft, tokens))

    def sum_paths(
        self, target: Any, draft: Any, candidates: int, gap: float, most_paths: float
    ) -> PathSum | None:
        """With one candidate this is `resispec`."""
        if type(self) is not SequoiaResiSpec or candidates != 1:
            return None
        return self._shaped().sum_paths(target, draft, candidates, gap, most_paths)

    def condition(self, before: State, tokens: Any, after: State, fair: bool) -> Any:
        """ResiSpec's."""
        return self._shaped().condition(before, tokens, after, fair)

    def options(self) -> dict[str, str]:
        """ResiSpec's three options."""
        return self._shaped().options()

    def _shaped(self) -> ResiSpec:
        return ResiSpec(self.redistribution, self.budget, self.hole)
