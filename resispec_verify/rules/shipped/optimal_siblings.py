"""The best sequential rule for siblings that are not worth the same: a longer accepted path counts for more.

In a draft tree the first child of a node often has the larger subtree. With v_k the expected number of tokens
that accepting sibling k brings, the rule maximises ``sum v_k P(sibling k is accepted)`` over all exact
sequential rules for i.i.d. siblings. It accepts the mass ``A_k(x)`` of `kernels.sibling_values`, at x with
``A_k(x) / (W_k q(x))``, and goes on with ``p - A_1 - ... - A_k``, whatever was rejected.

Guarantee: exact for all masses with ``0 <= A_k <= W_k q`` and ``sum A_k <= p``, hence for any values and
any error of the solver. The values must not depend on the token. With equal values it accepts as often as
`optimal-sequential`; see docs/explanation/optimal-rules.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.residuals import normalize, ratio_or_all, share_of
from resispec_verify.kernels.optimal.sibling_values import accepted_masses, checked_values
from resispec_verify.rules.interface import Rule, State

__all__ = ["OptimalSiblings"]


@dataclass(frozen=True)
class OptimalSiblings(Rule):
    """Sequential verification for the largest expected value of the accepted sibling.

    Attributes
    ----------
    values : sequence of float
        What accepting each sibling is worth, in the order they are looked at; positive, at most 6.
    """

    values: tuple[float, ...] | None = None

    name = "optimal-siblings"
    claims_exact = True
    source = "this project, docs/explanation/optimal-rules.md"
    place = 200
    open_parameters = ("values",)
    measured_with: ClassVar[Mapping[str, Any]] = {"values": (3, 2, 1)}
    depends_on = "nothing"

    def __post_init__(self) -> None:
        if self.values is None:
            raise InputError("rule optimal-siblings needs values: what accepting each sibling is worth")
        checked_values(self.values)

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """Find the masses of each round, ``(n, ..., V)``."""
        assert self.values is not None
        if candidates > len(self.values):
            raise InputError(
                f"rule optimal-siblings has {len(self.values)} values and got {candidates} candidates; "
                "give a value for each"
            )
        xp, vocab = array_namespace(target, draft), target.shape[-1]
        p, q = (to_numpy(a).astype(np.float64).reshape(-1, vocab) for a in (target, draft))
        found = [accepted_masses(*row, self.values[:candidates]) for row in zip(p, q, strict=True)]
        masses = np.stack(found, axis=1).reshape(candidates, *target.shape)
        extra = {"masses": xp.asarray(masses, dtype=target.dtype, device=target.device)}
        return State(target, draft, 0, {**extra, "left": target})

    def accept(self, state: State) -> Array:
        """The mass accepted in this round over the mass offered, ``W_k q``."""
        xp = array_namespace(state.draft)
        taken = state.extra["masses"][state.round, ...]
        offered = xp.sum(state.extra["left"], axis=-1, keepdims=True) * state.draft
        return share_of(taken, offered)

    def reject(self, state: State, tokens: Array) -> State:
        """What the rounds so far leave of the target, whatever was rejected."""
        xp = array_namespace(state.draft)
        left = xp.clip(state.extra["left"] - state.extra["masses"][state.round, ...], 0.0, None)
        extra = {**state.extra, "left": left}
        return State(normalize(left, state.residual), state.draft, state.round + 1, extra)

    def condition(self, before: State, tokens: Array, after: State, fair: bool) -> Array:
        """What is left of the target is divided by its sum."""
        xp = array_namespace(before.draft)
        sums = (xp.sum(state.extra["left"], axis=-1, keepdims=True) for state in (before, after))
        return ratio_or_all(*sums)
