"""EASD (entropy-aware speculative decoding): when both models are unsure and agree, the target draws anew.

Su et al., arXiv 2512.23765, as far as its abstract goes: "When both models exhibit high entropy with
substantial overlap among their top-N predictions, the corresponding token is rejected and re-sampled by the
target". Elsewhere it is speculative sampling with one candidate.

The abstract gives no thresholds and does not say exactly what is rejected, so everything is a parameter
without a default. Guarantee: whether the rule is exact depends on the second point alone:

* ``rejects = "position"``: the gate looks at (p, q) alone, and any candidate is rejected. The token is a
  fresh draw from p: exact, at the cost of acceptance;
* ``rejects = "overlap"``: only a candidate that is itself among the common top-N tokens ("rejects the
  aligned token") is rejected, and others take the standard test. The gate looks at the token: not exact.

Assumptions: entropies are Shannon's, in nats, of the distributions after temperature and filters; "high" is
above a threshold; the overlap is the number of common tokens divided by N; ties for the top N go to the
lowest index; a fresh draw is from p, not from the residual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.probabilities import at
from resispec_verify.kernels.elementwise.residuals import (
    accept_ratio,
    positive_part_condition,
    standard_residual,
)
from resispec_verify.rules.interface import Rule, State

__all__ = ["EASD", "entropy"]

# Its exactness is measured with these.
_GATE = {"target_entropy": 1.0, "draft_entropy": 1.0, "top_n": 2, "overlap": Fraction(1, 2)}


def entropy(law: Array) -> Array:
    """Shannon entropy of rows ``(..., V)`` in nats, ``(..., 1)``."""
    xp = array_namespace(law)
    positive = law > 0
    terms = xp.where(positive, law * xp.log(xp.where(positive, law, 1.0)), 0.0)
    return -xp.sum(terms, axis=-1, keepdims=True)


@dataclass(frozen=True)
class EASD(Rule):
    """Speculative sampling with an entropy gate.

    Attributes
    ----------
    target_entropy, draft_entropy : float
        The gate is open where both entropies exceed these, in nats.
    top_n : int
        N.
    overlap : float
        Least fraction of the N best tokens that target and draft share, in [0, 1].
    rejects : {"position", "overlap"}
        What an open gate rejects: any candidate, or those among the shared tokens.
    """

    target_entropy: float | None = None
    draft_entropy: float | None = None
    top_n: int | None = None
    overlap: float | None = None
    rejects: str | None = None

    name = "easd"
    claims_exact = False
    source = "EASD (arXiv 2512.23765), abstract only"
    place = 190
    open_parameters = ("target_entropy", "draft_entropy", "top_n", "overlap", "rejects")
    measured_with: ClassVar[Mapping[str, Any]] = {"rejects": "position", **_GATE}
    inexact_with: ClassVar[Mapping[str, Any] | None] = {"rejects": "overlap", **_GATE}
    exact_if = "its gate looks at the two laws and not at the candidate"
    depends_on = "token"
    most_candidates = 1

    def __post_init__(self) -> None:
        high_p, high_q, top_n, overlap, rejects = self.required()
        for name, value in (("target_entropy", high_p), ("draft_entropy", high_q)):
            if not value >= 0.0:
                raise InputError(f"easd: {name} must be at least 0, got {value}")
        if not (isinstance(top_n, int) and top_n >= 1):
            raise InputError(f"easd: top_n must be a whole number of at least 1, got {top_n}")
        if not 0.0 <= overlap <= 1.0:
            raise InputError(f"easd: overlap must be in [0, 1], got {overlap}")
        if rejects not in ("position", "overlap"):
            raise InputError(f"easd: rejects must be position or overlap, got {rejects!r}")

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """``struck`` holds the tokens that the gate rejects whatever their probabilities."""
        xp = array_namespace(target, draft)
        assert self.top_n is not None
        assert self.overlap is not None
        n = min(self.top_n, target.shape[-1])
        # Whichever library, ties go to the lowest index.
        best = [xp.argsort(xp.argsort(-law, axis=-1, stable=True), axis=-1) < n for law in (target, draft)]
        shared = best[0] & best[1]
        common = xp.sum(xp.astype(shared, target.dtype), axis=-1, keepdims=True)
        unsure = (entropy(target) > self.target_entropy) & (entropy(draft) > self.draft_entropy)
        gate = unsure & (common >= self.overlap * n)
        struck = gate & (shared | (self.rejects == "position"))
        return State(target, draft, extra={"struck": xp.broadcast_to(struck, target.shape)})

    def accept(self, state: State) -> Array:
        """The standard test where the gate does not reject."""
        xp = array_namespace(state.residual)
        return xp.where(state.extra["struck"], 0.0, accept_ratio(state.residual, state.draft))

    def reject(self, state: State, tokens: Array) -> State:
        """The target itself after the gate, else the standard residual."""
        xp = array_namespace(state.residual)
        p, q = state.residual[..., None, :], state.draft[..., None, :]
        struck = at(xp.astype(state.extra["struck"], p.dtype), tokens)[..., None] > 0
        return state.after(xp.where(struck, p, standard_residual(p, q)))

    def condition(self, before: State, tokens: Array, after: State, fair: bool) -> Array:
        """The standard residual is divided by its sum; after the gate nothing is."""
        xp = array_namespace(before.residual)
        struck = at(xp.astype(before.extra["struck"], before.residual.dtype), tokens)[..., None] > 0
        return xp.where(struck, 1.0, positive_part_condition(before.residual, before.draft)[..., None, :])
