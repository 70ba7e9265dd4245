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

from resispec_verify.arrays import Array
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.rules.interface import State
from resispec_verify.rules.proposals import WithoutReplacement
from resispec_verify.rules.shipped.resispec import ResiSpec, ShapedRule
from resispec_verify.rules.shipped.sequoia import draft_without

__all__ = ["SequoiaResiSpec"]


@dataclass(frozen=True)
class SequoiaResiSpec(ShapedRule):
    """Sequoia's candidates and test, ResiSpec's residual."""

    name = "sequoia+resispec"
    source = "ResiSpec, Table 2 (arXiv 2608.24411)"
    place = 160
    proposal = WithoutReplacement()

    def reject(self, state: State, tokens: Array) -> State:
        """ResiSpec's residual with the current draft; then the draft loses the rejected token."""
        return replace(super().reject(state, tokens), draft=draft_without(state.draft, tokens))

    def sum_paths(
        self, target: Array, draft: Array, candidates: int, gap: float, most_paths: float
    ) -> PathSum | None:
        """With one candidate this is `resispec`."""
        if candidates != 1:
            return None
        same = ResiSpec(self.redistribution, self.budget, self.hole)
        return same.sum_paths(target, draft, candidates, gap, most_paths)
