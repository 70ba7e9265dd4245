"""EAGLE-2 and EAGLE-3: the draft's top-k tokens as siblings, each tested as if it were certain (D = 1).

Li et al., EAGLE-2, arXiv 2406.16858, and EAGLE-3, arXiv 2503.01840: siblings of one parent are the best
tokens of the draft, taken without any randomness. A deterministic candidate x has draft probability 1, so
it is accepted with ``R(x)``; after a rejection ``R(x) <- 0`` and ``R <- norm(R)``.

Guarantee: exact, and for any deterministic choice of distinct siblings. Assumption: ties go to the lowest
index. Tested with the soft q instead, the same candidates are not exact (`llama-cpp`). No deviations.
"""

from __future__ import annotations

from dataclasses import dataclass

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.residuals import normalize
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.proposals import Greedy, strike_out

__all__ = ["Eagle"]


@dataclass(frozen=True)
class Eagle(Rule):
    """Top-k siblings tested with D = 1."""

    name = "eagle"
    claims_exact = True
    source = "EAGLE-2, EAGLE-3 (Li et al., arXiv 2406.16858, 2503.01840)"
    place = 50
    depends_on = "token"
    proposal = Greedy()

    def accept(self, state: State) -> Array:
        """``R(x)``."""
        return state.residual

    def reject(self, state: State, tokens: Array) -> State:
        """``R(x) <- 0``, renormalised."""
        R = state.residual[..., None, :]
        return state.after(normalize(strike_out(R, tokens), R))
