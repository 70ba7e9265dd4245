"""The best sequential rule for two candidates drawn without replacement.

The first candidate x is accepted with ``A(x) / q(x)``; the second, y, with what the target has left of it
over the probability that it is offered, ``q(y) sum_{x != y} (q(x) - A(x)) / (1 - q(x))``: a test that does
not look at which token was rejected. If both are rejected the token is drawn from what is left of the target.

Guarantee: exact for every A with ``0 <= A <= min(p, q)``, on average over the rejected token and not given
it. With the A of `kernels.two_distinct` no sequential rule accepts more; the proof is in
docs/explanation/optimal-rules.md. For one candidate it is speculative sampling. For three and more the best
test depends on the set of rejected tokens, and is known as a linear program over sets (`oracle.distinct`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.kernels.elementwise.residuals import (
    normalize,
    positive_part_condition,
    ratio_or_all,
    share_of,
)
from resispec_verify.kernels.optimal.two_distinct import TwoDistinct, two_distinct
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.proposals import WithoutReplacement

__all__ = ["OptimalWithoutReplacement"]


@dataclass(frozen=True)
class OptimalWithoutReplacement(Rule):
    """Sequential verification of at most two distinct candidates that accepts as often as it can be done."""

    name = "optimal-without-replacement"
    claims_exact = True
    source = "this project, docs/explanation/optimal-rules.md"
    place = 140
    depends_on = "nothing"
    most_candidates = 2
    proposal = WithoutReplacement()

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """Find the masses accepted in each round; the state's residual is what is left of the target."""
        xp = array_namespace(target, draft)
        vocab = target.shape[-1]
        p, q = (to_numpy(a).astype(np.float64).reshape(-1, vocab) for a in (target, draft))
        found = [self._masses(*row, candidates) for row in zip(p, q, strict=True)]

        def stacked(values: list[Any]) -> Array:
            rows = np.asarray(values).reshape(target.shape)
            return xp.asarray(rows, dtype=target.dtype, device=target.device)

        extra = {
            "first": stacked([masses.first for masses in found]),
            "second": stacked([masses.second for masses in found]),
            "offered": stacked([masses.second_offered for masses in found]),
        }
        return State(target, draft, 0, {**extra, "target": target})

    def _masses(self, p: np.ndarray, q: np.ndarray, candidates: int) -> TwoDistinct:
        if candidates == 2:
            return two_distinct(p, q)
        first = np.minimum(p, q) if candidates else np.zeros_like(p)
        return TwoDistinct(first, np.zeros_like(p), np.zeros_like(p), float((q - first).sum()))

    def accept(self, state: State) -> Array:
        """The mass accepted in this round over the mass offered."""
        first = state.round == 0
        taken = state.extra["first" if first else "second"]
        offered = state.draft if first else state.extra["offered"]
        return share_of(taken, offered)

    def reject(self, state: State, tokens: Array) -> State:
        """What the rounds so far leave of the target, whatever was rejected."""
        xp = array_namespace(state.draft)
        taken = state.extra["first"] + (state.extra["second"] if state.round else 0.0)
        left = normalize(xp.clip(state.extra["target"] - taken, 0.0, None), state.residual)
        return State(left, state.draft, state.round + 1, state.extra)

    def final(self, state: State) -> Array:
        """What both rounds leave of the target, also where there was no second candidate."""
        xp = array_namespace(state.draft)
        taken = state.extra["first"] + state.extra["second"]
        return normalize(xp.clip(state.extra["target"] - taken, 0.0, None), state.residual)

    def condition(self, before: State, tokens: Array, after: State, fair: bool) -> Array:
        """What the second test divides by is a sum of differences, each over what the draft leaves."""
        if fair or before.round > 0:
            return 1.0
        xp = array_namespace(before.draft)
        q, offered = before.draft, before.extra["offered"]
        rest = xp.min(xp.where(q > 0, share_of(offered, q), 1.0), axis=-1, keepdims=True)
        others = xp.sum(q, axis=-1, keepdims=True) - xp.max(q, axis=-1, keepdims=True)
        return ratio_or_all(xp.ones_like(rest), rest * xp.clip(others, 0.0, None))

    def final_condition(self, state: State) -> Array:
        """What both rounds leave is divided by its sum."""
        taken = state.extra["first"] + state.extra["second"]
        return positive_part_condition(state.extra["target"], taken)

    def sum_paths(
        self, target: Array, draft: Array, candidates: int, gap: float, most_paths: float
    ) -> PathSum | None:
        """Two rounds in closed form: neither test looks at the rejected token."""
        state = self.start(target, draft, candidates)
        offered = state.extra["offered"]
        accepted = [draft * self.accept(state)]
        rejected = float((draft - accepted[0]).sum())
        if candidates == 2:
            accepted.append(offered * self.accept(self.reject(state, None)))
            rejected = rejected - float(accepted[1].sum())
        mass = sum(accepted) + max(rejected, 0.0) * self.final(state)
        acceptance = np.asarray([float(a.sum()) for a in accepted])
        return PathSum(mass, acceptance, np.zeros(candidates + 1), len(target))
