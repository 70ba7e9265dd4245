"""Proposition 2: ideal shaping needs Z <= Z*; the bound is necessary and not sufficient."""

from __future__ import annotations

from fractions import Fraction

from resispec_verify.oracle import Law

from ._laws import least_ratio, pairs
from ._report import ProofReport
from ._symbols import is_nonnegative, is_positive, orders, symbols

__all__ = ["ideal_proxy_exists", "prove"]

STATEMENT = (
    "If r = Z q belongs to a proxy k = p - r + s >= 0 with s >= 0, s r = 0 and sum k = 1, then Z <= "
    "min_{q>0} p/q, for every V >= 1. For Z > 0 such a proxy exists if and only if Z <= min_{q>0} p/q and "
    "some token has q = 0: the printed bound is necessary, not sufficient."
)
LINES = (
    "Necessary: where q > 0, r = Z q > 0, so s = 0 (Eq. 4) and k = p - Z q, which is >= 0 exactly if Z <=",
    "p/q.",
    "Sufficient: put the slack, Z in all (Proposition 1), on a token with q = 0, where r = 0. If q > 0 at",
    "every token there is none, and only Z = 0 is left: the degeneracy paradox.",
    "Without the disjoint supports there is no bound: s = r gives k = p for every Z. (If r <= p is required,",
    "as in Proposition 1, Z q <= p is the bound at once, and the supports are not needed for it.)",
)


def ideal_proxy_exists(
    p: Law, q: Law, Z: Fraction, *, disjoint: bool = True, aligned: int | None = None
) -> bool:
    """Whether a slack s >= 0 of mass Z makes ``k = p - Z q + s`` a law (Definition 1).

    Parameters
    ----------
    p, q : tuple of Fraction, length V
    Z : Fraction
        The mass of the reserve ``r = Z q``.
    disjoint : bool
        Require ``s r = 0`` (Eq. 4).
    aligned : int, optional
        A token at which ``k = q`` is required too (local alignment).
    """
    needed, room = Fraction(0), False  # the least slack, and whether some token can take more than that
    for x in range(len(p)):
        low = max(Fraction(0), Z * q[x] - p[x])
        if x == aligned:
            low = q[x] - p[x] + Z * q[x]
            if low < 0:
                return False
        closed = disjoint and Z * q[x] > 0
        if closed and low > 0:
            return False
        needed += low
        room |= not closed and x != aligned
    return needed == Z or (needed < Z and room)


def prove(*, disjoint: bool = True) -> ProofReport:
    """Prove Proposition 2 and what it leaves out; dropping the disjoint supports must fail."""
    gap = symbols("gap:2")[1]
    token = True
    for p, ideal in orders(2):  # s = 0 here: k = p - Z q
        smaller = is_nonnegative(p - ideal)
        token &= smaller or is_positive(ideal - p, gap)
    bound = converse = True
    unattained = 0
    grid = [Fraction(i, 12) for i in range(1, 13)]
    for p, q in pairs(range(1, 4), range(1, 5)):
        for Z in grid:
            exists = ideal_proxy_exists(p, q, Z, disjoint=disjoint)
            below = least_ratio(p, q) >= Z
            bound &= below or not exists
            converse &= exists == (below and min(q) == 0)
            unattained += below and not exists
    checks = (
        ("p - Z q is >= 0 exactly if p >= Z q, both orders at a token", token),
        ("a proxy exists only if Z <= Z*, all pairs with V <= 3, Z in twelfths", bound),
        ("it exists exactly if Z <= Z* and q = 0 somewhere, the same", converse),
        (f"the bound is met without a proxy in {unattained} of them", unattained > 0),
    )
    return ProofReport(STATEMENT, "proved", ("SymPy", "rational"), checks, LINES, left="nothing")
