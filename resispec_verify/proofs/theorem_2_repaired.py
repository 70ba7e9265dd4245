"""Theorem 2 repaired: its formula, and exactly when it increases strictly."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import least_distance

from ._laws import least_ratio, pairs
from ._report import ProofReport
from ._symbols import absolute, is_nonnegative, is_positive, is_zero, least, orders, positive_part, symbols
from .theorem_2 import TOLERANCE, closed_form, stretches

__all__ = ["bottleneck", "prove"]

STATEMENT = (
    "For 0 < Z <= 1 the least sum |r/Z - q| over 0 <= r <= p, sum r = Z, is L(Z) = 2 sum (q - p/Z)_+; L "
    "is 0 exactly up to Z*, non-decreasing, and L(Z1) < L(Z2) for Z1 < Z2 iff some token has 0 < p < Z2 "
    "q. So L is strictly increasing on (Z*, 1] iff p > 0 wherever q > 0. For every V >= 1."
)
LINES = (
    "Formula: |a| = a + 2 (-a)_+, and r - Z q sums to 0, so Z sum |r/Z - q| = 2 sum (Z q - r)_+ >= 2 sum",
    "(Z q - p)_+, as r <= p. Attained by r = m + theta (p - m), m = min(Z q, p), theta = (Z - sum m) / (1",
    "- sum m): sum m <= Z <= 1, so 0 <= theta <= 1, and a token below Z q has r = p. (If sum m = 1, Z = 1",
    "and r = p.) Terms: with p = l q a term is q (1 - l/Z)_+; its growth from Z1 to Z2 is 0 if l >= Z2, q",
    "(Z2 - l)/Z2 if Z1 <= l < Z2, and p (Z2 - Z1)/(Z1 Z2) if l < Z1: never negative, and 0 for l < Z2",
    "only where p = 0.",
    "Strictness: if p > 0 wherever q > 0, the token of ratio Z* < Z2 grows. If p = 0 < q somewhere, Z* =",
    "0, and L is flat up to the least positive ratio.",
)


def bottleneck(reserve: Any, target: Any) -> Any:
    """``(Z q - p)_+`` at one token."""
    return positive_part(reserve - target)


def prove(*, loss: Callable[[Any, Any], Any] = bottleneck, support: bool = True) -> ProofReport:
    """Prove the repaired theorem.

    Parameters
    ----------
    loss : callable (Z q, p) -> least negative deviation of a token
        Anything but ``(Z q - p)_+`` is a mutation, which must fail.
    support : bool
        Whether strictness is claimed only where ``p > 0`` wherever ``q > 0``; without, the proof must fail.
    """
    sign, lower, attained = _at_a_token(loss)
    growth, strict = _along(loss)
    iff, zero, near, counted = _in_fractions(loss, support)
    checks = (
        ("|a - b| = (a - b) + 2 (b - a)_+, both orders", sign),
        ("(Z q - r)_+ >= (Z q - p)_+ for r <= p, all orders of r, p, Z q", lower),
        ("the r above stays between m and p and loses (Z q - p)_+, both orders of p and Z q", attained),
        ("a term does not fall, and stays if p/q >= Z2, all orders of p/q, Z1, Z2", growth),
        ("it grows strictly if 0 < p/q < Z2, and not if p = 0, the same", strict),
        (f"strictly increasing iff p > 0 wherever q > 0, V = 2, 3 ({counted[1]} are, {counted[0]} not)",
         iff and min(counted) > 0),
        ("L(Z) = 0 iff Z <= Z*, V = 2, 3", zero),
        ("the oracle's linear program gives L (to 1e-7), a sample with V = 3", near),
    )  # fmt: skip
    return ProofReport(
        STATEMENT, "repaired", ("SymPy", "rational"), checks, LINES,
        left="nothing",
        coq=("theorem_2.v: L_is_minimum", "theorem_2.v: L_zero_iff", "theorem_2.v: L_mono",
             "theorem_2.v: L_strict_iff", "theorem_2.v: theorem_2_iff"),
    )  # fmt: skip


def _at_a_token(loss: Callable[[Any, Any], Any]) -> tuple[bool, bool, bool]:
    """The bound of a token's loss, and that it is attained."""
    sign = lower = attained = True
    for a, b in orders(2):
        sign &= is_zero(absolute(a - b) - (a - b) - 2 * positive_part(b - a))
        sign &= is_nonnegative(absolute(a - b))
    for r, p, Zq in orders(3):
        if is_nonnegative(p - r):
            lower &= is_nonnegative(positive_part(Zq - r) - loss(Zq, p))
    part, rest = symbols("part rest")
    for p, Zq in orders(2):
        m = least(p, Zq)
        r = m + part / (part + rest) * (p - m)
        attained &= is_nonnegative(r - m) and is_nonnegative(p - r)
        attained &= is_zero(positive_part(Zq - r) - loss(Zq, p))
    return sign, lower, attained


def _along(loss: Callable[[Any, Any], Any]) -> tuple[bool, bool]:
    """How a token's term grows with Z, and where strictly."""
    growth = strict = True
    q, step, lowest = symbols("q step gap0")
    for ratio, Z1 in orders(2):
        for Z2 in _above(ratio, Z1, step):
            change = (loss(Z2 * q, ratio * q) / Z2) - (loss(Z1 * q, ratio * q) / Z1)
            growth &= is_nonnegative(change)
            if is_nonnegative(ratio - Z2):
                growth &= is_zero(change)
            else:
                # p > 0 makes the lowest gap positive: it is p/q, or Z1 > 0
                strict &= is_positive(change, q * lowest * step)
                strict &= not is_nonnegative(Z1 - ratio) or is_zero(change.subs(lowest, 0))
    return growth, strict


def _in_fractions(loss: Callable[[Any, Any], Any], support: bool) -> tuple[bool, bool, bool, list[int]]:
    """Where the curve is strictly increasing, where it is zero, and what a linear program gives."""
    iff = zero = near = True
    counted = [0, 0]
    for p, q_ in pairs(range(2, 4), range(1, 5)):
        low = least_ratio(p, q_)
        holds = not support or all(a > 0 or b == 0 for a, b in zip(p, q_, strict=True))
        increasing = not any(stretches(closed_form, p, q_))
        iff &= increasing == holds
        counted[increasing] += 1
        grid = [Fraction(i, 6) for i in range(1, 7)]
        zero &= all((sum(map(loss, (Z * b for b in q_), p)) == 0) == (low >= Z) for Z in grid)
    for p, q_ in list(pairs(range(3, 4), range(4, 5)))[::23]:
        for Z in (0.25, 0.5, 1.0):
            value = least_distance(p, q_, Z)
            exact = 2 * sum(map(loss, (Fraction(Z) * b for b in q_), p)) / Fraction(Z)
            near &= value is not None and abs(value - float(exact)) < TOLERANCE
    return iff, zero, near, counted


def _above(ratio: Any, Z1: Any, step: Any) -> list[Any]:
    """All places of Z2 > Z1 relative to the ratio p/q, by a further gap."""
    if is_nonnegative(Z1 - ratio):
        return [Z1 + step]
    share = symbols("share")
    inside = Z1 + (ratio - Z1) * step / (step + share)  # Z1 < Z2 <= ratio
    return [inside, ratio + step]
