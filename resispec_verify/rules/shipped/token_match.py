"""Token match (sample and match): the target draws its own token, and a candidate counts if it is that token.

Used under several names, in JetSpec, OPT-Tree and FlexFlow's token tree verification among others. The target
draws ``y ~ p`` once; a candidate equal to y is accepted; y is emitted whether or not it was a candidate. Seen
candidate by candidate: accept x with ``R(x)``; after a rejection ``R(x) <- 0`` and ``R <- norm(R)``, for the
target's token is then known to differ from x.

Guarantee: exact, whatever the candidates are and however they were drawn. Its price is acceptance: with one
candidate ``sum p q`` instead of ``sum min(p, q)``. Assumption: candidates are i.i.d. from q unless another
proposal is named. No deviations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from resispec_verify.arrays import Array
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.shipped.eagle import Eagle

__all__ = ["TokenMatch"]


@dataclass(frozen=True)
class TokenMatch(Rule):
    """The target's own sample decides."""

    name = "token-match"
    claims_exact = True
    source = "JetSpec, OPT-Tree, FlexFlow (sample and match)"
    place = 60
    depends_on = "token"

    def accept(self, state: State) -> Array:
        """``R(x)``: the probability that the target's token is x, given what it is not."""
        return state.residual

    def reject(self, state: State, tokens: Array) -> State:
        """The target's token is not x."""
        return Eagle().reject(state, tokens)

    def sum_paths(
        self, target: Array, draft: Array, candidates: int, gap: float, most_paths: float
    ) -> PathSum | None:
        """Closed form for i.i.d. candidates: y is first matched by candidate k with ``(1-q)^{k-1} q``."""
        missed, acceptance = np.asarray(target, np.float64), np.zeros(candidates)
        for k in range(candidates):
            acceptance[k] = (missed * draft).sum()
            missed = missed * (1.0 - draft)
        return PathSum(np.asarray(target, np.float64), acceptance, np.zeros(candidates + 1), candidates)
