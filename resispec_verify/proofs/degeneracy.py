"""The degeneracy paradox: ideal shaping contradicts local alignment, more widely than the paper says."""

from __future__ import annotations

from fractions import Fraction

from ._laws import least_ratio, overfull, pairs
from ._report import ProofReport
from ._symbols import is_positive, symbols
from .proposition_2 import ideal_proxy_exists

__all__ = ["prove"]

STATEMENT = (
    "(1) p(x) = 0 < q(x) at one token makes Z* = 0. (2) If q > 0 at every token, r = Z q with disjoint "
    "supports and sum k = 1 forces Z = 0. (3) At a token x0 with q(x0) > p(x0) no Z >= 0 allows r = Z q "
    "together with k(x0) = q(x0); the full support that the paper assumes is not needed for this. For "
    "every V >= 1."
)
LINES = (
    "(1) the ratio at x is 0. (2) r > 0 everywhere for Z > 0, so s = 0 everywhere and Z = sum s = 0",
    "(Proposition 1).",
    "(3) r(x0) = Z q(x0). For Z > 0 Eq. 4 gives s(x0) = 0, so q - k = (q - p) + Z q > 0 there. For Z = 0,",
    "sum s = 0 gives k = p, so q - k = q - p > 0. Alignment fails in both cases.",
)


def prove(*, disjoint: bool = True, over: bool = True) -> ProofReport:
    """Prove the paradox; without disjoint supports, or at tokens with q <= p, it must fail."""
    p, over_by, Z = symbols("p over_by Z")
    q = p + over_by
    token = is_positive(q - (p - Z * q), over_by)
    margin = full = aligned = True
    grid = [Fraction(i, 12) for i in range(13)]
    for target, draft in pairs(range(1, 4), range(1, 5)):
        missing = any(a == 0 < b for a, b in zip(target, draft, strict=True))
        margin &= not missing or least_ratio(target, draft) == 0
        for Z_here in grid:
            if min(draft) > 0:
                full &= Z_here == 0 or not ideal_proxy_exists(target, draft, Z_here, disjoint=disjoint)
            for x in overfull(target, draft) if over else [x for x in range(len(draft)) if draft[x] > 0]:
                aligned &= not ideal_proxy_exists(target, draft, Z_here, disjoint=disjoint, aligned=x)
    checks = (
        ("q(x0) - k(x0) = (q - p) + Z q > 0 where q > p", token),
        ("(1) all pairs with V <= 3 and small denominators", margin),
        ("(2) the same with q > 0, Z in twelfths", full),
        ("(3) no proxy at any overfull token, with or without full support", aligned),
    )
    return ProofReport(STATEMENT, "proved", ("SymPy", "rational"), checks, LINES, left="nothing")
