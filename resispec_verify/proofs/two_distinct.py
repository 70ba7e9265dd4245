"""The best sequential rule for two candidates drawn without replacement."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import Law, enumerate_rule, sequential_optimum_by_histories, without_replacement
from resispec_verify.oracle.shipped.optimal_without_replacement import best_first, optimal_without_replacement

from ._laws import pairs
from ._report import ProofReport
from ._symbols import greatest, import_sympy, is_nonnegative, is_zero, symbols

__all__ = ["prove", "second_bound"]

TOLERANCE = 1e-7  # of HiGHS
STATEMENT = (
    "For two candidates without replacement, accept the first, x, with any mass A(x) <= min(p, q)(x), and "
    "the second, y, with min(p - A, q (B - v))(y), where v = (q - A)/(1 - q), B = sum v: the rule is "
    "exact. The largest acceptance of any sequential rule is phi(1 + B) = sum min(p, (1 + B) q) for the "
    "root B of sum s_B = B, s_B = clip(q (1 + B) - p, (q - p)_+ / (1 - q), q / (1 - q)), attained with v "
    "= s_B. For every V >= 2 and a draft on two tokens or more."
)
LINES = (
    "Exact: the first is rejected and the second is y with probability sum_{x != y} (q - A)(x) q(y) / (1",
    "- q(x)) = q (B - v)(y).",
    "Accepted and left add up to p at each token, and what is left does not depend on the rejected",
    "tokens.",
    "Bound: a sequential rule accepts A + C <= p with C <= q (B - v), whatever it remembers; A = q - (1 -",
    "q) v makes it min(p, q (1 + B) - v) at most. Let u = q (1 + B) - p. Up to s_B nothing of min(p, q (1",
    "+ B)) is lost, above it every unit of v is lost once. So the total for a given B is phi(1 + B) - (B",
    "- sum s_B)_+ at most, and it is reached.",
    "Best B: sum s_B - B does not rise with B: its slope is q(where s_B = u) - 1. As long as it is >= 0",
    "the total is phi(1 + B), which does not fall. Below 0 the total's slope is q(p > q (1 + B)) + q(s_B",
    "= u) - 1 <= 0, since p > q (1 + B) means u < 0.",
    "Tokens with q = 0 take part in nothing. A root lies in [sum (q - p)_+ / (1 - q), sum q / (1 - q)],",
    "as s_B lies between these.",
)


def second_bound(q: Any, B: Any, v: Any) -> Any:
    """Probability that the first candidate is rejected and the second is this token: ``q (B - v)``."""
    return q * (B - v)


def prove(
    *, offered: Callable[[Any, Any, Any], Any] = second_bound, first: Callable[[Law, Law], Law] = best_first
) -> ProofReport:
    """Prove the theorem.

    Parameters
    ----------
    offered : callable (q, B, v) -> probability of this second candidate
        Anything but ``q (B - v)`` is a mutation (``q B``: drawn with replacement), which must fail.
    first : callable (p, q) -> mass accepted of the first candidate
        Another choice, ``min(p, q)`` say, must fail to be optimal.
    """
    identity, cases, patterns = _symbolically(offered)
    drawn = exact = attained = best = programs = slopes = True
    count = 0
    family = [pair for pair in pairs(range(2, 4), range(2, 5)) if sum(b > 0 for b in pair[1]) > 1][::7]
    for p, q in family:
        A = first(p, q)
        B, v = _rejected(q, A)
        tuples = without_replacement(q, 2)
        for y in range(len(p)):
            found = sum((w * (1 - A[x] / q[x]) for (x, z), w in tuples.items() if z == y), Fraction(0))
            drawn &= found == offered(q[y], B, v[y])
        result = enumerate_rule(optimal_without_replacement(2, A), p, q, 2, tuples)
        phi = sum((min(a, (1 + B) * b) for a, b in zip(p, q, strict=True)), Fraction(0))
        exact &= result.law == p
        attained &= sum(result.acceptance) == phi
        for parts in itertools.product((0, 1, 2, 3), repeat=len(p)):
            other = tuple(Fraction(part, 3) * min(a, b) for part, a, b in zip(parts, p, q, strict=True))
            B_other, v_other = _rejected(q, other)
            total = sum(a + max(Fraction(0), min(c - a, b * (B_other - w)))
                        for a, b, c, w in zip(other, q, p, v_other, strict=True))  # fmt: skip
            best &= total <= phi
            count += 1
        values = [_excess(p, q, B + Fraction(i, 7)) for i in range(-3, 4) if B + Fraction(i, 7) >= 0]
        slopes &= all(a >= b for a, b in itertools.pairwise(values)) and _excess(p, q, B) == 0
    for p, q in family[::17]:
        value = sum(
            enumerate_rule(
                optimal_without_replacement(2, first(p, q)), p, q, 2, without_replacement(q, 2)
            ).acceptance
        )
        programs &= abs(sequential_optimum_by_histories(p, q, 2, distinct=True) - float(value)) < TOLERANCE
    checks = (
        ("A + q (B - v) = q (1 + B) - v with A = q - (1 - q) v", identity),
        (f"min(p, q (1 + B) - v) loses nothing up to s_B and (v - s_B) above it, {patterns} patterns", cases),
        (f"the second candidate is y with q (B - v)(y), {len(family)} pairs with V = 2, 3", drawn),
        ("the enumerated law is p, the same", exact),
        ("the enumerated acceptance is phi(1 + B), the same", attained),
        ("sum s_B = B there, and sum s_B - B does not rise", slopes),
        (f"no A accepts more, {count} others, A in thirds of min(p, q)", best),
        ("the linear program over all histories gives the same (to 1e-7), a sample", programs),
    )
    return ProofReport(
        STATEMENT, "proved", ("SymPy", "rational"), checks, LINES,
        left="sums over tokens and their slopes in words; more candidates have no closed form here",
    )  # fmt: skip


def _symbolically(offered: Callable[[Any, Any, Any], Any]) -> tuple[bool, bool, int]:
    """The bound at a token, and what it loses, for every place of u, p and v."""
    a, o, B_any, v_any, share, rest = symbols("a o B v share rest")
    q = a / (a + o)
    identity = is_zero((q - (1 - q) * v_any) + offered(q, B_any, v_any) - (q * (1 + B_any) - v_any))
    most, inner = a / o, share / (share + rest)
    cases, patterns = True, 0
    for p, B, least, s in _places(a, o):
        total, u = (import_sympy().cancel(value) for value in (q * (1 + B), q * (1 + B) - p))
        clipped = greatest(least, u) if s != most else most
        cases &= is_zero(s - clipped) and is_nonnegative(most - s) and is_nonnegative(s - least)
        full = p if is_nonnegative(u) else total  # min(p, q (1 + B))
        lossless = total - (least + inner * (s - least))
        cases &= is_nonnegative(lossless - p) if full is p else is_zero(lossless - full)
        if s != most:
            v = s + inner * (most - s)
            cases &= is_nonnegative(p - (total - v)) and is_zero(full - (total - v) - (v - s))
        cases &= is_nonnegative(u) or is_zero(
            s - least
        )  # s_B = u only where the minimum is p: disjoint slopes
        patterns += 1
    return identity, cases, patterns


def _places(a: Any, o: Any) -> list[tuple[Any, Any, Any, Any]]:
    """``(p, B, lower bound of v, s_B)`` in every case, for ``q = a / (a + o)``.

    Where q > p, B is at least the token's own lower bound, and u >= (q - p) / (1 - q) follows: u exceeds it
    by q times the rest of B. Where q <= p, u may lie below 0, inside, or above q / (1 - q).
    """
    part, others, share_u, rest_u, more, excess = symbols("part others share_u rest_u more excess")
    q, most = a / (a + o), a / o
    theta, psi = part / (part + others), share_u / (share_u + rest_u)
    p = theta * q
    least = (q - p) / (1 - q)
    room = (most - least) / q
    over = [
        (p, least + psi * room, least, least + q * psi * room),
        (p, least + room + more, least, most),
    ]
    under = [
        (q + q * excess + more, excess, 0 * a, 0 * a),  # u = -more
        (q + excess, (psi * most + excess) / q, 0 * a, psi * most),
        (q + excess, (most + more + excess) / q, 0 * a, most),
    ]
    cancel = import_sympy().cancel
    return [tuple(map(cancel, case)) for case in over + under]


def _rejected(q: Law, A: Law) -> tuple[Fraction, Law]:
    v = tuple((b - a) / (1 - b) for b, a in zip(q, A, strict=True))
    return sum(v, Fraction(0)), v


def _excess(p: Law, q: Law, B: Fraction) -> Fraction:
    """``sum s_B - B``."""
    total = -B
    for a, b in zip(p, q, strict=True):
        if b > 0:
            low = max(b - a, Fraction(0)) / (1 - b)
            total += min(max(b * (1 + B) - a, low), b / (1 - b))
    return total
