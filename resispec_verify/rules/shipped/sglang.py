"""SGLang's target-only test of siblings: one coin a node against the accumulated target mass.

sgl-project/sglang, sgl-kernel, kernel ``tree_speculative_sampling_target_only``. A node has one coin ``c ~
U(0, 1)``. Its children are tried in order; P accumulates p over the children tried, the present one
included; a child is accepted if ``c <= P / threshold_acc`` or ``p(x) >= threshold_single``. If none is, the
token is drawn from ``relu(target - draft_probs)``, where the entries of rejected children have been set to
p and all others are 0 (the caller passes zeros): p without the rejected children.

The coin is shared, so given that the children before were rejected it is uniform above their accumulated
mass: with P that mass, the next child is accepted with ``min(1, p(x) / (threshold_acc - P))``.

Guarantee: exact at thresholds (1, 1) with distinct children, where it is EAGLE's test in other words; lossy
by design below. A child tried twice counts twice, which is not exact at any threshold. Assumption: children
are the draft's top-k; the kernel does not look at how they were chosen. Deviation: the kernel raises
threshold_acc to at least 1e-9, and so does this. Where the residual has no mass the kernel emits the last
token of the vocabulary; such a rejection has probability 0 here and falls back to the present residual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.probabilities import one_hot
from resispec_verify.kernels.elementwise.residuals import normalize, share_of
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.proposals import Greedy

__all__ = ["SGLang"]

_LEAST_THRESHOLD = 1e-9  # of the kernel's launcher


@dataclass(frozen=True)
class SGLang(Rule):
    """Target-only test with two thresholds; 1 and 1 are SGLang's defaults."""

    threshold_single: float = 1.0
    threshold_acc: float = 1.0

    name = "sglang"
    claims_exact = True
    source = "SGLang, tree_speculative_sampling_target_only"
    place = 100
    inexact_with: ClassVar[Mapping[str, Any] | None] = dict.fromkeys(
        ("threshold_single", "threshold_acc"), Fraction(1, 2)
    )
    exact_if = "threshold_single = threshold_acc = 1, the defaults"
    depends_on = "token"
    proposal = Greedy()

    def __post_init__(self) -> None:
        for name in ("threshold_single", "threshold_acc"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{name} must be in [0, 1], got {getattr(self, name)}")

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """No child has been tried."""
        xp = array_namespace(target)
        tried = xp.zeros((*target.shape[:-1], 1), dtype=target.dtype, device=target.device)
        return State(target, draft, extra={"target": target, "tried": tried})

    def accept(self, state: State) -> Array:
        """``min(1, p / (threshold_acc - P))``; 1 where ``p >= threshold_single``."""
        xp = array_namespace(state.residual)
        p = state.extra["target"]
        left = max(self.threshold_acc, _LEAST_THRESHOLD) - state.extra["tried"]
        ratio = share_of(p, xp.clip(left, 0.0, None))
        return xp.where(p >= self.threshold_single, 1.0, ratio)

    def reject(self, state: State, tokens: Array) -> State:
        """Strike the child out of the residual, and add its target mass to what was tried."""
        xp = array_namespace(state.residual)
        R, p, tried = (a[..., None, :] for a in (state.residual, state.extra["target"], state.extra["tried"]))
        here = one_hot(tokens, R.shape[-1], dtype=R.dtype)
        residual = normalize(xp.where(here > 0, 0.0, R), R)
        tried = tried + xp.sum(here * p, axis=-1, keepdims=True)
        return state.after(residual, target=xp.broadcast_to(p, residual.shape), tried=tried)
