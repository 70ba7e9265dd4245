"""SpecInfer with duplicates skipped: a candidate that was rejected before changes nothing.

A mode ("RRS") of the code published with SpecHub (Sun et al., arXiv 2411.05289): a candidate that is already
in the set of tested tokens is passed over, and the residual is *not* updated for it. Otherwise SpecInfer:
n i.i.d. candidates from q, accept with ``min(1, R/q)``, ``R <- norm((R - q)_+)``.

Guarantee: taken for exact, and not exact for n >= 2. SpecInfer's duplicate is tested again, always rejected,
and still updates R; here that mass goes missing. Assumption: the candidates are drawn with replacement, as
that mode draws them. No deviations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.probabilities import one_hot
from resispec_verify.kernels.elementwise.residuals import (
    accept_ratio,
    positive_part_condition,
    standard_residual,
)
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.kernels.paths.skipped_draws import rejected_by_draws
from resispec_verify.rules.interface import Rule, State

__all__ = ["SpecInferSkipDuplicates"]

_MOST = 6  # candidates; the closed form has terms for every set partition of them


@dataclass(frozen=True)
class SpecInferSkipDuplicates(Rule):
    """SpecInfer, but a duplicate of a rejected candidate leaves the residual as it is."""

    name = "specinfer-skip-duplicates"
    claims_exact = True
    source = "SpecHub's code, mode RRS (arXiv 2411.05289)"
    place = 30
    depends_on = "token"

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """Nothing has been seen."""
        return State(target, draft, extra={"seen": array_namespace(target).zeros_like(target)})

    def accept(self, state: State) -> Array:
        """``min(1, R/q)``, and 0 for a token seen before."""
        return accept_ratio(state.residual, state.draft) * (1.0 - state.extra["seen"])

    def reject(self, state: State, tokens: Array) -> State:
        """The standard residual, the first time a token is rejected."""
        xp = array_namespace(state.residual)
        R, q, seen = (row[..., None, :] for row in (state.residual, state.draft, state.extra["seen"]))
        here = one_hot(tokens, R.shape[-1], dtype=R.dtype)
        duplicate = xp.sum(here * seen, axis=-1, keepdims=True) > 0
        residual = xp.where(duplicate, R, standard_residual(R, q))
        return state.after(residual, seen=xp.where(here > 0, here, seen))

    def condition(self, before: State, tokens: Array, after: State, fair: bool) -> Array:
        """The residual is divided by its sum."""
        return positive_part_condition(before.residual, before.draft)

    def sum_paths(
        self, target: Array, draft: Array, candidates: int, gap: float, most_paths: float
    ) -> PathSum | None:
        """Closed form for up to six candidates.

        The residual depends only on how many different tokens were rejected, and a token rejected before has
        no residual left, so that ``min(1, R_j/q)`` rejects it anyway. With ``d_j = (q - R_j)_+`` the
        probability of each number of rejections is a sum over the tokens rejected, all different.
        """
        if candidates > _MOST:
            return None
        q = np.asarray(draft, np.float64)
        R = [np.asarray(target, np.float64)]
        for _ in range(candidates):
            R.append(standard_residual(R[-1][None, :], q[None, :])[0])
        rejected, magnitude = rejected_by_draws([np.clip(q - r, 0.0, None) for r in R], q, candidates)
        placed, acceptance = np.zeros_like(q), np.zeros(candidates)
        for k in range(candidates):
            emitted = [w * np.minimum(r, q) for w, r in zip(rejected[k], R, strict=False)]
            acceptance[k] = sum(float(e.sum()) for e in emitted)
            placed += sum(emitted)
        placed += sum(w * r for w, r in zip(rejected[candidates], R, strict=False))
        # Terms of both signs: each errs relative to itself, by a pairwise sum over V for each of its blocks.
        roundings = candidates**2 * (128 + math.ceil(math.log2(q.size)) + 8)
        rounding = 0.5 * float(np.finfo(np.float64).eps) * roundings * magnitude
        return PathSum(placed, acceptance, np.zeros(candidates + 1), candidates, rounding)
