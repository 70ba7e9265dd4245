"""Lemma 1: the residual is the draft exactly if the reserve is Z q; and when that is possible."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ._laws import laws, least_ratio, pairs
from ._report import ProofReport
from ._symbols import absolute, is_positive, is_zero, orders, symbols

__all__ = ["prove"]

STATEMENT = (
    "For Z > 0, J = sum |r/Z - q| is 0 if and only if r = Z q at every token, for every V >= 1; both "
    "directions. Under r <= p this r is allowed if and only if Z <= Z* = min_{q>0} p/q. Above Z* the "
    "least J is positive, so that Eq. 7 is then not what minimises J."
)
LINES = (
    "Z |r/Z - q| = |r - Z q| is the gap between r and Z q, whichever is larger. A sum of gaps >= 0 is 0",
    "exactly if each gap is. Conversely r = Z q makes each gap 0.",
    "The printed proof is right for the unconstrained minimum, 0. With r <= p the minimum is 0 only up to",
    "Z*; what it is above Z* is Theorem 2.",
)


def prove(*, distance: Callable[[Any], Any] = absolute) -> ProofReport:
    """Prove Lemma 1 and its converse; another `distance` (the signed difference, say) must fail."""
    gap = symbols("gap:2")[1]
    token = True
    for r, ideal in orders(2):
        term = distance(r - ideal)
        token &= is_positive(term, gap) and is_zero(term.subs(gap, 0))
    forward = backward = True
    for size, denominator in ((1, 1), (2, 4), (3, 4), (4, 3)):
        family = list(laws(size, denominator))
        for residual in family:
            for q in family:
                J = sum((distance(a - b) for a, b in zip(residual, q, strict=True)), Fraction(0))
                forward &= J != 0 or residual == q
                backward &= residual != q or J == 0
    allowed = True
    for p, q in pairs(range(2, 4), range(2, 5)):
        for Z in (Fraction(i, 12) for i in range(1, 13)):
            allowed &= all(Z * b <= a for a, b in zip(p, q, strict=True)) == (least_ratio(p, q) >= Z)
    checks = (
        ("at a token |r - Z q| is the gap between them: 0 exactly if it is, both orders", token),
        ("J = 0 implies r = Z q, all laws r/Z and q with V <= 4 and small denominators", forward),
        ("r = Z q implies J = 0, the same", backward),
        ("Z q <= p at every token exactly if Z <= Z*, V = 2, 3", allowed),
    )
    return ProofReport(
        STATEMENT, "proved", ("SymPy", "rational"), checks, LINES,
        left="nothing", coq=("theorem_2.v: L_zero_iff",),
    )  # fmt: skip
