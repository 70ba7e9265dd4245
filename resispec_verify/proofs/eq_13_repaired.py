"""Eq. 13 repaired: cut to the room it is always feasible; normalised exactly if it is the local gap."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from resispec_verify.oracle import get_proxy

from ._laws import least_ratio, overfull, pairs
from ._report import ProofReport
from ._symbols import is_zero, symbols

__all__ = ["capped", "prove"]

STATEMENT = (
    "Z = min(max(Z*, q(x0) - p(x0)), 1 - p(x0)) is feasible for every V >= 2 and every x0 with q(x0) > "
    "p(x0): there is r with 0 <= r <= p, r(x0) = 0 and sum r = Z. With slack at x0 alone, sum k = 1 - (Z "
    "- gap), so k is a law exactly if Z is the local gap, which Eq. 12 allows and which is always "
    "feasible."
)
LINES = (
    "r can have any mass up to 1 - p(x0): take the p off x0 in proportion. gap <= 1 - p(x0), as q(x0) <=",
    "1.",
    "Slack off x0 is allowed only where r = 0; Algorithm 1 leaves no such token with target mass.",
)


def capped(ratio: Fraction, gap: Fraction, room: Fraction) -> Fraction:
    """The budget from Z*, the local gap and the mass off x0."""
    return min(max(ratio, gap), room)


def prove(*, budget: Callable[[Fraction, Fraction, Fraction], Fraction] = capped) -> ProofReport:
    """Prove the repaired budget; Eq. 13 as printed in its place must fail."""
    q, p = symbols("q p")
    off, reserve = symbols("off r_off")  # target mass and reserve off x0; r(x0) = 0, s lives at x0
    whole = is_zero((p + (q - p)) + (off - reserve) - (p + off) - ((q - p) - reserve))
    feasible = agrees = normal = True
    above = 0
    for target, draft in pairs(range(2, 4), range(2, 6)):
        for x in overfull(target, draft):
            gap, room = draft[x] - target[x], 1 - target[x]
            found = get_proxy(target, draft, x, budget="floor")
            wanted = budget(least_ratio(target, draft), gap, room)
            feasible &= gap <= wanted <= room
            agrees &= found.Z == wanted == sum(found.r) and found.r[x] == 0 and min(found.r) >= 0
            agrees &= all(r <= a for r, a in zip(found.r, target, strict=True))
            normal &= (sum(found.k) == 1) == (wanted == gap) and sum(found.k) == 1 - (wanted - gap)
            above += wanted > gap
    checks = (
        ("sum k - 1 = (q - p)(x0) - Z with slack at x0 alone", whole),
        ("gap <= Z <= 1 - p(x0), all pairs with V = 2, 3 and denominators up to 5", feasible),
        ("the oracle's r has this mass, vanishes at x0 and stays below p", agrees),
        (f"sum k = 1 exactly if Z is the gap; it is above it in {above} cases", normal and above > 0),
    )
    return ProofReport(STATEMENT, "repaired", ("SymPy", "rational"), checks, LINES, left="nothing")
