"""The limit of all exact rules for i.i.d. candidates, and that a prefix attains its minimum."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

from resispec_verify.oracle import Law, limit_by_program, limit_by_subsets

from ._laws import pairs
from ._report import ProofReport
from ._symbols import is_zero, symbols

__all__ = ["by_ratio", "prove"]

TOLERANCE = 1e-7  # of HiGHS
STATEMENT = (
    "No exact rule for n i.i.d. candidates emits one of them with probability above min_H 1 + p(H) - "
    "q(H)^n, and a prefix of the tokens in ascending order of p/q (q = 0 last) attains the minimum, for "
    "every V, n >= 1."
)
LINES = (
    "Bound: if the emitted token is a candidate, it lies in H, or some candidate lies outside H: p(H) + 1",
    "- q(H)^n.",
    "Prefix: t^n is the largest of its tangents, t^n = max_s (n s^(n-1) t - (n-1) s^n): with D_n the",
    "difference, D_1 = 0 and D_{n+1} = t D_n + n s^(n-1) (t - s)^2, so D_n >= 0, and it is 0 at s = t. So",
    "min_H p(H) - q(H)^n = min_s min_H [p(H) - n s^(n-1) q(H) + (n-1) s^n], and the inner minimum takes",
    "each token by itself: those with p < n s^(n-1) q, a prefix.",
    "Attained by some joint rule: by the optimal joint rule (layout).",
)


def by_ratio(p: Law, q: Law, x: int) -> tuple[bool, Fraction]:
    """The sort key: p/q ascending, tokens without draft mass last."""
    return (q[x] == 0, p[x] / q[x] if q[x] else p[x])


def prove(
    *, key: Callable[[Law, Law, int], Any] = by_ratio, power: Callable[[Any], Any] = lambda n: n
) -> ProofReport:
    """Prove the bound and the prefix formula.

    Parameters
    ----------
    key : callable (p, q, token) -> what the tokens are sorted by
        Another order is a mutation, which must fail.
    power : callable n -> factor of the tangent
        Anything but n is a mutation.
    """
    s, t, n, P, S = symbols("s t n P S")  # P = t^n, S = s^(n-1), for any n
    difference = P - (power(n) * S * t - (n - 1) * S * s)
    after = P * t - (power(n + 1) * S * s * t - n * S * s**2)
    growth = n * S * (t - s) ** 2
    tangent = is_zero(after - t * difference - growth)
    base = is_zero(difference.subs({P: t, S: 1, n: 1}))
    touches = is_zero(difference.subs({P: S * s, t: s}))
    formula = bound = True
    count = 0
    for p, q in pairs(range(1, 4), range(1, 5)):
        order = sorted(range(len(p)), key=partial(key, p, q))
        masses = itertools.accumulate(((p[x], q[x]) for x in order), lambda a, b: (a[0] + b[0], a[1] + b[1]))
        ends = [(Fraction(0), Fraction(0)), *masses]
        for n in (1, 2, 3, 4):
            formula &= min(1 + a - b**n for a, b in ends) == limit_by_subsets(p, q, n)
            count += 1
    for p, q in list(pairs(range(3, 4), range(4, 5)))[::31]:
        for n in (1, 2, 3):
            bound &= abs(limit_by_program(p, q, n) - float(limit_by_subsets(p, q, n))) < TOLERANCE
    checks = (
        ("D_{n+1} = t D_n + n s^(n-1) (t - s)^2 for D_n = t^n - tangent, n a symbol", tangent),
        ("D_1 = 0, so D_n >= 0 for every n", base),
        ("D_n = 0 at t = s, so every power is reached by a tangent", touches),
        (f"the best prefix is the best of all sets, {count} cases with V <= 3, n <= 4", formula),
        ("the linear program over all couplings gives the same (to 1e-7), a sample with V = 3", bound),
    )
    return ProofReport(
        STATEMENT, "proved", ("SymPy", "rational"), checks, LINES,
        left="that the bound is attained, shown by layout; the sum over tokens is argued in words",
    )  # fmt: skip
