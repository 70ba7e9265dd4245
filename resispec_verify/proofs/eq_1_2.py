"""Eq. 1-2: standard residuals make speculative sampling exact, with one candidate and with n (SpecInfer)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from resispec_verify.oracle import State, Transcription, accept_ratio, enumerate_rule, normalise

from ._laws import pairs
from ._report import ProofReport
from ._symbols import is_zero, least, orders, positive_part

__all__ = ["prove", "standard"]

STATEMENT = (
    "Accepting x ~ q with min(1, R(x)/q(x)) and going on with norm (R - q)_+ after a rejection emits R, "
    "for every V >= 1 and every number of candidates. Eq. 1 is undefined only for p = q, where nothing is "
    "rejected."
)
LINES = (
    "A token is emitted by acceptance with probability min(R, q). The probability of a rejection, sum (q",
    "- min(R, q)), is the normaliser sum (R - q)_+, because token by token the difference is q - R, which",
    "sums to 0. So the residual is emitted with mass (R - q)_+, and min(R, q) + (R - q)_+ = R.",
    "n candidates: by induction, what follows a rejection emits norm (R - q)_+, whatever was rejected.",
)


def standard(target: Any, draft: Any) -> Any:
    """``(p - q)_+`` at one token, on numbers or symbols."""
    return positive_part(target - draft)


def prove(*, residual: Callable[[Any, Any], Any] = standard) -> ProofReport:
    """Prove Eq. 1-2; any other `residual` of a token's (p, q) is a mutation, which must fail."""
    mass = normaliser = True
    for p, q in orders(2):
        mass &= is_zero(least(p, q) + residual(p, q) - p)
        normaliser &= is_zero((q - least(p, q)) - residual(p, q) - (q - p))

    def reject(state: State, token: int) -> State:
        kept = [residual(R, q) for R, q in zip(state.residual, state.draft, strict=True)]
        return replace(state, residual=normalise(kept, fallback=state.residual))

    family = [*pairs(range(1, 4), range(1, 4))]
    rule = Transcription(accept_ratio, reject)
    exact = all(enumerate_rule(rule, p, q, n).law == p for p, q in family for n in (1, 2, 3))
    undefined = all((sum(map(residual, p, q)) == 0) == (p == q) for p, q in family)
    checks = (
        ("min(p, q) + (p - q)_+ = p, both orders of p and q at a token", mass),
        ("(q - min(p, q)) - (p - q)_+ = q - p: rejection probability and normaliser agree", normaliser),
        (f"the enumerated law is p, {len(family)} pairs with V <= 3, n = 1, 2, 3", exact),
        ("(p - q)_+ has no mass only for p = q, same pairs", undefined),
    )
    return ProofReport(
        STATEMENT, "proved", ("SymPy", "rational"), checks, LINES,
        left="nothing", coq=("token_free.v: specinfer_exact",),
    )  # fmt: skip
