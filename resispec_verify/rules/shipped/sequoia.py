"""Sequoia: candidates drawn without replacement, with the draft renormalised after each rejection.

Chen et al., Sequoia, arXiv 2402.12374 (Sequoia sampling and verification); the same recursion is used by
EAGLE-1 (Li et al., arXiv 2401.15077) when its siblings are sampled. Each candidate comes from the current
draft D, at first q; accept with ``min(1, R/D)``; after rejecting x ``R <- norm((R - D)_+)``, then
``D(x) <- 0`` and ``D <- norm(D)``.

Guarantee: exact at one position. That says nothing about code that reuses one vector of coins or of Gumbel
noise at every step of a sequence. Assumption: the candidates really are drawn without replacement.
Deviation: when the support of the draft is exhausted there is no further candidate and the token is drawn
from R; what a sampler proposes there instead cannot change an exact marginal.
"""

from __future__ import annotations

from dataclasses import dataclass

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.elementwise.residuals import (
    normalize,
    positive_part_condition,
    standard_residual,
)
from resispec_verify.kernels.paths.distinct import distinct_marginal
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.proposals import WithoutReplacement, strike_out

__all__ = ["Sequoia", "draft_without"]


def draft_without(draft: Array, tokens: Array) -> Array:
    """``D(x) <- 0``, renormalised, for each of ``tokens (..., m)``: ``(..., m, V)``; 0 if nothing is left."""
    left = strike_out(draft[..., None, :], tokens)
    return normalize(left, left)


@dataclass(frozen=True)
class Sequoia(Rule):
    """Sequential verification without replacement."""

    name = "sequoia"
    claims_exact = True
    source = "Sequoia (Chen et al. 2024, arXiv 2402.12374)"
    place = 40
    depends_on = "token"
    proposal = WithoutReplacement()

    def reject(self, state: State, tokens: Array) -> State:
        """The standard residual with the current draft; then the draft loses the rejected token."""
        xp = array_namespace(state.residual)
        draft = draft_without(state.draft, tokens)
        residual = standard_residual(state.residual, state.draft)[..., None, :]
        return State(xp.broadcast_to(residual, draft.shape), draft, state.round + 1)

    def condition(self, before: State, tokens: Array, after: State, fair: bool) -> Array:
        """The residual is divided by its sum."""
        return positive_part_condition(before.residual, before.draft)

    def sum_paths(
        self, target: Array, draft: Array, candidates: int, gap: float, most_paths: float
    ) -> PathSum | None:
        """Two scalars a path, and what depends on the rejected tokens only through their q."""
        order = ratio_order(to_numpy(target), to_numpy(draft))
        return distinct_marginal(order, candidates, gap, most_paths)
