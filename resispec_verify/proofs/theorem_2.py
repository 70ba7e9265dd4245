"""Theorem 2's second part fails: the L1 distance need not increase strictly above Z*."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from resispec_verify.oracle import Law, least_distance

from ._laws import least_ratio, pairs, show
from ._report import ProofReport

__all__ = ["closed_form", "prove", "samples", "stretches"]

TOLERANCE = 1e-7  # of HiGHS
STATEMENT = (
    "'Strictly increasing for Z in (Z*, 1]' (Theorem 2, part 2) is false, for every V >= 2: the curve is "
    "flat wherever all bottleneck tokens, those with q > p/Z, have p = 0."
)
LINES = (
    "Line that fails: Appendix A.2, case 2, after Eq. 24: 'Since p(x) > 0 for x in S_Z'. Nothing gives p",
    "> 0 there: a token with p = 0 < q is in S_Z for every Z and contributes the constant 2 q(x), with",
    "derivative 0.",
    "Such tokens are common: top-k, top-p, and probabilities that underflow.",
)

Curve = Callable[[Law, Law, Fraction], Fraction]


def closed_form(p: Law, q: Law, Z: Fraction) -> Fraction:
    """``L(Z) = 2 sum (q - p/Z)_+`` (Eq. 23)."""
    return 2 * sum((max(b - a / Z, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0))


def samples(p: Law, q: Law) -> list[Fraction]:
    """Breakpoints of the curve in (Z*, 1], 1, and points between: on each piece L is ``a - b/Z``, b >= 0.

    So the curve is strictly increasing on (Z*, 1] exactly if it is on these points.
    """
    low = least_ratio(p, q)
    ends = sorted(
        {low, Fraction(1), *(a / b for a, b in zip(p, q, strict=True) if b > 0 and low < a / b < 1)}
    )
    between = [(a + b) / 2 for a, b in itertools.pairwise(ends)]
    return sorted({*ends, *between} - {low}) if low < 1 else []


def stretches(curve: Curve, p: Law, q: Law) -> Iterator[tuple[Fraction, Fraction]]:
    """Neighbouring points of `samples` between which the curve does not increase."""
    for a, b in itertools.pairwise(samples(p, q)):
        if curve(p, q, b) <= curve(p, q, a):
            yield a, b


def prove(
    *, curve: Curve = closed_form, allowed: Callable[[Law, Law], bool] = lambda p, q: True
) -> ProofReport:
    """Refute part 2; a strictly increasing `curve`, or only pairs with p > 0 wherever q > 0, must fail."""

    def first(family: Iterable[tuple[Law, Law]], overlap: bool) -> tuple[Law, Law] | None:
        for p, q in family:
            meets = any(a and b for a, b in zip(p, q, strict=True))
            if allowed(p, q) and (meets or not overlap) and any(stretches(curve, p, q)):
                return p, q
        return None

    found = {
        "smallest": first(pairs(range(2, 4), range(1, 4)), overlap=False),
        "smallest with a common token": first(pairs(range(2, 4), range(1, 4)), overlap=True),
        "smallest with V = 3 and a common token": first(pairs(range(3, 4), range(1, 4)), overlap=True),
    }
    lines: list[str] = list(LINES)
    checks, where = [], True
    for name, pair in found.items():
        if pair is not None:
            a, b = next(iter(stretches(curve, *pair)))
            value = curve(*pair, b)
            shown, low = show(*pair), least_ratio(*pair)
            lines.append(f"{name}: p = {shown[0]}, q = {shown[1]}: L({a}) = L({b}) = {value}, Z* = {low}")
            bottleneck = [x for x in range(len(pair[0])) if pair[1][x] > pair[0][x] / b]
            where &= bool(bottleneck) and all(pair[0][x] == 0 for x in bottleneck)
        checks.append((f"a pair exists: {name}", pair is not None))
    half, fifth = Fraction(1, 2), Fraction(1, 5)
    p, q = (half, half, Fraction(0)), (2 * fifth, 2 * fifth, fifth)
    programs = [least_distance(p, q, Z) for Z in (0.2, 0.5, 0.8, 1.0)]
    flat = all(curve(p, q, Fraction(i, 20)) == 2 * fifth for i in range(1, 21))
    near = all(value is not None and abs(value - 0.4) < TOLERANCE for value in programs)
    checks += [
        ("there all bottleneck tokens have p = 0, where the printed proof takes p > 0", where),
        ("p = (1, 1, 0)/2, q = (2, 2, 1)/5: L = 2/5 at Z = 1/20, ..., 1", flat),
        ("the oracle's linear program gives 2/5 there (to 1e-7), without Eq. 23", near),
    ]
    return ProofReport(
        STATEMENT, "refuted", ("rational",), tuple(checks), tuple(lines),
        left="nothing", coq=("theorem_2.v: theorem_2_false", "theorem_2.v: L_flat"),
    )  # fmt: skip
