"""Eq. 13 can ask for more mass than there is, and where it does not, its proxy need not be normalised."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from resispec_verify.oracle import Law, get_proxy

from ._laws import least_ratio, overfull, pairs, show
from ._report import ProofReport

__all__ = ["as_printed", "prove"]

STATEMENT = (
    "Eq. 13, Z = max(Z*, |q(x0) - p(x0)|), does not 'ensure that k remains a valid probability "
    "distribution': it is infeasible whenever Z* > 1 - p(x0), from V = 2 on; and where Z* lies above the "
    "local gap and r > 0 off x0, sum k < 1."
)
LINES = (
    "r(x0) = 0 and r <= p leave room for 1 - p(x0) at most. The local gap always fits, since q(x0) <= 1;",
    "Z* need not.",
    "If Z exceeds the gap, s(x0) = q - p is less than Z, and Eq. 4 forbids slack where r > 0: sum k - 1 =",
    "gap - Z.",
    "The line that fails is the sentence after Eq. 13.",
)


def as_printed(ratio: Fraction, gap: Fraction, room: Fraction) -> Fraction:
    """Eq. 13: the budget from Z*, the local gap, and the mass off x0, which it does not look at."""
    return max(ratio, gap)


def prove(*, budget: Callable[[Fraction, Fraction, Fraction], Fraction] = as_printed) -> ProofReport:
    """Refute Eq. 13; with a `budget` cut to the room, or with the gap alone, there is nothing to find."""
    infeasible: tuple[Law, Law, int] | None = None
    unnormalised: tuple[Law, Law, int] | None = None
    condition = True
    for p, q in pairs(range(2, 4), range(1, 5)):
        for x in overfull(p, q):
            gap, room = q[x] - p[x], 1 - p[x]
            Z = budget(least_ratio(p, q), gap, room)
            condition &= (room < Z) == (least_ratio(p, q) > room) and gap <= room
            if room < Z:
                infeasible = infeasible or (p, q, x)
            elif gap < Z < room:
                found = get_proxy(p, q, x, budget="floor")
                if found.Z == Z and sum(found.k) != 1 and len(p) == 2:
                    unnormalised = unnormalised or (p, q, x)
    p, q = (Fraction(9, 20), Fraction(11, 20)), (Fraction(1, 2), Fraction(1, 2))
    wanted = budget(least_ratio(p, q), q[0] - p[0], 1 - p[0])
    lines: list[str] = list(LINES)
    if infeasible:
        p_, q_, x = infeasible
        shown = show(p_, q_)
        lines.append(
            f"smallest infeasible pair: p = {shown[0]}, q = {shown[1]}, x0 = {x}: Z = {least_ratio(p_, q_)}, "
            f"room {1 - p_[x]}"
        )
    if unnormalised:
        p_, q_, x = unnormalised
        shown, found = show(p_, q_), get_proxy(p_, q_, x, budget="floor")
        lines.append(
            f"smallest pair that is feasible with sum k < 1: p = {shown[0]}, q = {shown[1]}, x0 = {x}: "
            f"Z = {found.Z}, k = {show(found.k)[0]}, sum k = {sum(found.k)}"
        )
    checks = (
        ("an infeasible pair exists with V = 2 (searched by denominator)", infeasible is not None),
        ("infeasible exactly if Z* > 1 - p(x0), and the gap always fits, V = 2, 3", condition),
        ("p = (9, 11)/20, q = (1, 1)/2, x0 = 0: Z = 9/10 of 11/20", wanted == Fraction(9, 10)),
        ("the oracle caps that pair", get_proxy(p, q, 0, budget="floor").capped),
        ("a feasible pair with sum k < 1 exists with V = 2", unnormalised is not None),
    )
    return ProofReport(STATEMENT, "refuted", ("rational",), checks, tuple(lines), left="nothing")
