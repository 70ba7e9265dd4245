"""Eq. 12: alignment at x0 costs at least the local gap; GetProxy pays exactly that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from resispec_verify.oracle import get_proxy

from ._laws import overfull, pairs
from ._report import ProofReport
from ._symbols import absolute, is_nonnegative, orders, symbols

__all__ = ["prove"]

STATEMENT = (
    "A proxy k = p - r + s with r, s >= 0, s r = 0, sum s = sum r = Z and k(x0) = q(x0) has Z >= |q(x0) - "
    "p(x0)|, for every V >= 1 and either sign. The bound is attained: with Z = q(x0) - p(x0) Algorithm "
    "1's proxy meets Definition 1."
)
LINES = (
    "k(x0) = q(x0) says s(x0) - r(x0) = q(x0) - p(x0), and one of the two is 0. If q >= p, s(x0) = q - p",
    "and Z = sum s >= s(x0); if p >= q, r(x0) = p - q and Z = sum r >= r(x0). The opposite choice asks",
    "for a negative mass.",
    "Attained: Z <= 1 - p(x0), the mass off x0, because q(x0) <= 1.",
)


def prove(*, others: Callable[[Any], Any] = lambda mass: mass) -> ProofReport:
    """Prove Eq. 12; `others` maps a number >= 0 to the mass of s (or r) off x0, so a sign there must fail."""
    rest, gap = symbols("rest gap1")
    bound = True
    cases = 0
    for p, q in orders(2):
        for zero_slack in (False, True):  # s r = 0 at x0: one of the two is 0, the other is forced
            forced = p - q if zero_slack else q - p
            if not is_nonnegative(forced):
                forced = forced.subs(gap, 0)  # a negative mass: only p = q is left
                cases += 1
                bound &= forced == 0
                continue
            bound &= is_nonnegative(forced + others(rest) - absolute(q - p))
            cases += 1
    attained, count = True, 0
    for p, q in pairs(range(2, 4), range(2, 6)):
        for x in overfull(p, q):
            found, count = get_proxy(p, q, x), count + 1
            attained &= found.Z == q[x] - p[x] == sum(found.s) == sum(found.r) and sum(found.k) == 1
            attained &= found.k[x] == q[x] and min(found.s) >= 0 and min(found.k) >= 0
            attained &= all(0 <= r <= a and r * s == 0 for r, s, a in zip(found.r, found.s, p, strict=True))
    checks = (
        (f"Z - |q(x0) - p(x0)| is what lies off x0, {cases} patterns (sign of q - p; r or s zero)", bound),
        (f"Definition 1 holds with Z = q(x0) - p(x0) in all {count} cases, V = 2, 3", attained),
    )
    return ProofReport(
        STATEMENT, "proved", ("SymPy", "rational"), checks, LINES,
        left="Definition 1 for Algorithm 1's proxy at V > 3, which follows from eq-13-repaired",
    )  # fmt: skip
