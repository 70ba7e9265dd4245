"""Theorem 1 does not hold for Algorithm 1 as printed.

Under Algorithm 1 with one candidate, in every reading, the law is not p whenever q(x) > p(x) and
q(y) >= p(y) > 0 for two tokens x != y. Such pairs exist for every V >= 3. For V = 2 Algorithm 1 is exact for
every n wherever it is defined, because a law k with k(x0) = q(x0) is then q.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from resispec_verify.oracle import (
    Law,
    State,
    Transcription,
    accept_ratio,
    enumerate_rule,
    get_proxy,
    normalise,
)

from ._laws import laws, overfull, pairs, show
from ._report import ProofReport

__all__ = ["algorithm_1", "prove", "readings"]

NextResidual = Callable[[Law, Law, int], Law]

STATEMENT = (
    "Theorem 1 (for each candidate x a proxy with k(x) = q(x), acceptance min(1, p/k), residual norm (p - "
    "k)_+: the marginal is p) is false for the proxies of Algorithm 1, in all eight readings, for every V "
    ">= 3. For V = 2 it is true."
)
ARGUMENT = (
    "Line that fails: Appendix A.1, step 1: 'By substituting the Local Alignment condition', at every x'",
    "(Eq. 17).",
    "Steps 2 and 3 (Eq. 18-20) then use the sum of min(p, k) and the residual of one common k. But",
    "GetProxy's k depends on the rejected token x0 and is aligned at x0 only; both hold at once only if k",
    "= q, SpecInfer.",
    "Why it fails: an exact round needs residuals that vanish wherever q >= p (exact-rounds). Algorithm",
    "1's, off x0, is at least min(Z q(y), p(y)) / Z with Z > 0, so it puts mass on every y != x0 with",
    "p(y), q(y) > 0. If another token can be rejected, or q(y) = p(y), that y is emitted too often.",
    "Any V >= 3: give the V = 3 counterexamples further tokens with p = q = 0.",
    "V = 2: a law k with k(x0) = q(x0) is q, so the residual is SpecInfer's in every round. One reading",
    "(water-filling with the hole literal) may leave no residual at all: p = (1/2, 1/2), q = (1, 0)",
    "spends the budget on x0 and line 12 divides zero by zero. Such pairs are not counted as",
    "counterexamples here.",
)


def algorithm_1(**options: str) -> NextResidual:
    """Build lines 10 and 12 of Algorithm 1 in one of the readings of `get_proxy`.

    The residual raises ZeroDivisionError where line 12 has nothing to normalise.
    """

    def residual(target: Law, draft: Law, rejected: int) -> Law:
        proxy = get_proxy(target, draft, rejected, **options)
        if sum(proxy.r) == proxy.r[rejected]:
            raise ZeroDivisionError("line 12 normalises a residual without mass")
        return proxy.residual

    return residual


def readings() -> dict[str, NextResidual]:
    """All eight readings of Algorithm 1; the first is the default."""
    spreads, budgets, holes = ("proportional", "water-filling"), ("local", "floor"), ("excluded", "literal")
    return {
        f"{spread}, {budget} budget, hole {hole}": algorithm_1(
            redistribution=spread, budget=budget, hole=hole
        )
        for spread, budget, hole in itertools.product(spreads, budgets, holes)
    }


def emitted(next_residual: NextResidual, target: Law, draft: Law, n: int = 1) -> Law | None:
    """Enumerate the law emitted with n i.i.d. candidates; None where the rule is not defined."""

    def reject(state: State, token: int) -> State:
        return replace(state, residual=next_residual(state.residual, state.draft, token))

    try:
        return enumerate_rule(Transcription(accept_ratio, reject), target, draft, n).law
    except ZeroDivisionError:
        return None


def search(
    next_residual: NextResidual, size: int, denominators: range, *, smallest: int = 0, n: int = 1
) -> tuple[Law, Law] | None:
    """Find the first inexact pair (target, draft) by denominator, then in lexicographic order."""
    for denominator in denominators:
        for target in laws(size, denominator, smallest):
            for draft in laws(size, denominator, smallest):
                if emitted(next_residual, target, draft, n) not in (None, target):
                    return target, draft
    return None


def check_counterexamples(variants: Mapping[str, NextResidual]) -> tuple[list[tuple[str, bool]], list[str]]:
    """Search V = 3 and V = 2 in every reading."""
    checks, lines = [], []
    for name, residual in variants.items():
        first = search(residual, 3, range(1, 4))
        positive = search(residual, 3, range(3, 5), smallest=1)
        both = first is not None and positive is not None
        checks.append((f"V = 3 has a counterexample, also with p, q > 0 ({name})", both))
        for pair in (first, positive):
            if pair is not None:
                law = emitted(residual, *pair) or ()
                shown = show(*pair, law)
                lines.append(f"p = {shown[0]}, q = {shown[1]}: emits {shown[2]} ({name})")
        none = all(search(residual, 2, range(1, 6), n=n) is None for n in (1, 2))
        checks.append((f"V = 2 has none, denominators up to 5, n = 1, 2 ({name})", none))
    return checks, lines


def check_two_overfull(variants: Mapping[str, NextResidual]) -> list[tuple[str, bool]]:
    """Whether every pair with an overfull and a second full token is a counterexample, V = 3."""
    wrong, reserves = [], True
    for p, q in pairs(range(3, 4), range(1, 4)):
        for x in overfull(p, q):
            full = [y for y in range(3) if y != x and p[y] and q[y]]
            reserves &= all(residual(p, q, x)[y] > 0 for residual in variants.values() for y in full)
        if any(q[y] >= p[y] > 0 for x in overfull(p, q) for y in range(3) if y != x):
            wrong.append(all(emitted(residual, p, q) != p for residual in variants.values()))
    return [
        ("residuals are > 0 at every y != x0 with p(y), q(y) > 0", reserves),
        (f"not p in all {len(wrong)} pairs with q(x) > p(x), q(y) >= p(y) > 0", bool(wrong) and all(wrong)),
    ]


def check_printed_proof() -> list[tuple[str, bool]]:
    """What Theorem 1 says is what Algorithm 1 does; and where the printed proof departs from both."""
    same = True
    for p, q in pairs(range(2, 4), range(1, 5)):
        for x in overfull(p, q):
            found = get_proxy(p, q, x)
            left = [a - min(a, k) for a, k in zip(p, found.k, strict=True)]  # Eq. 15
            same &= normalise(left) == found.residual and sum(left) == 1 - sum(map(min, p, found.k))
    p, q = (normalise(list(map(Fraction, weights))) for weights in ((1, 1, 2), (2, 1, 1)))
    k = get_proxy(p, q, 0).k
    by_proof = tuple(map(min, k, p))  # Eq. 17 with the common k of steps 2 and 3
    by_sampler = tuple(map(min, q, p))  # lines 5-7 of Algorithm 1
    departs = show(k) == ["(1/2, 3/20, 7/20)"] and by_proof[1] == k[1] < by_sampler[1] == q[1]
    return [
        ("Eq. 15 with GetProxy's k is line 12, V = 2, 3", same),
        ("p = (1,1,2)/4, q = (2,1,1)/4, k = (10,3,7)/20: Eq. 17 accepts token 1 with 3/20, line 6 with 1/4",
         departs),
    ]  # fmt: skip


def prove(*, variants: Mapping[str, NextResidual] | None = None) -> ProofReport:
    """Refute Theorem 1 for Algorithm 1.

    Parameters
    ----------
    variants : mapping from names to residuals, optional
        The readings of Algorithm 1 to refute. An exact rule here is a mutation, which must fail.

    Returns
    -------
    ProofReport
        The checks, the argument and the counterexamples, smallest first.
    """
    chosen = readings() if variants is None else variants
    searched, found = check_counterexamples(chosen)
    checks = searched + check_two_overfull(chosen) + check_printed_proof()
    return ProofReport(
        STATEMENT, "refuted", ("rational",), tuple(checks), (*ARGUMENT, *found),
        left="exactness for V = 2 and every n is argued in words; exhausted for n = 1, 2",
        coq=("theorem_1.v: theorem_1_false", "theorem_1.v: resispec_biased", "theorem_1.v: every_vocabulary"),
    )  # fmt: skip
