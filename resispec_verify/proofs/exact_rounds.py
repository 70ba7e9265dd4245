"""Which rounds are exact: the expected residual must be the standard one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import Law, State, Transcription, accept_ratio, enumerate_rule, normalise

from ._laws import overfull, pairs
from ._report import ProofReport
from ._symbols import import_sympy, is_zero, least, orders, positive_part

__all__ = ["prove", "subtract"]

STATEMENT = (
    "One round that accepts x ~ q with min(1, p/q) and emits from R^x when x is rejected emits p + sum_x "
    "(q-p)_+(x) R^x - (p-q)_+, so it is exact iff sum_x (q-p)_+(x) R^x = (p-q)_+, for every V >= 1. Every "
    "R^x that can occur then vanishes wherever q >= p. With more rounds the same holds with R^x the law "
    "that the remaining rounds emit."
)
LINES = (
    "A token y is emitted as the accepted candidate with probability q(y) min(1, p/q) = min(p, q)(y), and",
    "after the rejection of x, which has probability q(x) - min(p, q)(x) = (q-p)_+(x), with probability",
    "R^x(y). Add the two and use min(p, q) = p - (p-q)_+. Where q >= p the right side of the condition is",
    "0 and all terms of the left are >= 0.",
    "Rounds that are each exact suffice. They are not necessary: p = (0, 1/2, 1/2), q = (1/2, 3/10, 1/5),",
    "n = 2, the wrong first residual (0, 1, 0) followed by the wrong final residual (0, 1/7, 6/7) emits",
    "p.",
)


def subtract(moved: Any, missing: Any) -> Any:
    """Combine the two sides of the characterisation: what residuals put back, minus what is missing."""
    return moved - missing


def check_symbolically(combine: Callable[[Any, Any], Any]) -> list[tuple[str, bool]]:
    """Compare the sampler's law with the characterisation, for all sign patterns and free residuals."""
    sympy = import_sympy()
    token = True
    for p_, q_ in orders(2):
        accepted = least(p_, q_)  # q min(1, p/q)
        token &= is_zero(accepted - p_ + combine(0, -positive_part(p_ - q_)))
        token &= is_zero((q_ - accepted) - positive_part(q_ - p_))
    checks = [("q a = p - (p-q)_+ and q (1 - a) = (q-p)_+ at a token, both orders: any V", token)]
    for size in (2, 3, 4):
        p = sympy.symbols(f"p:{size}", positive=True)
        q = sympy.symbols(f"q:{size}", positive=True)
        R = [[sympy.Symbol(f"R_{x}_{y}") for y in range(size)] for x in range(size)]
        holds = True
        for over in itertools.product((False, True), repeat=size):  # where q > p
            accept = [p[x] / q[x] if over[x] else sympy.Integer(1) for x in range(size)]
            for y in range(size):
                law = q[y] * accept[y] + sum(q[x] * (1 - accept[x]) * R[x][y] for x in range(size))
                moved = sum((q[x] - p[x]) * R[x][y] for x in range(size) if over[x])
                missing = 0 if over[y] else p[y] - q[y]
                holds &= sympy.expand(law - p[y] - combine(moved, missing)) == 0
        checks.append((f"emitted - p = sum_x (q-p)_+ R^x - (p-q)_+, V = {size}, {2**size} patterns", holds))
    return checks


def emitted(residuals: tuple[Law, ...], p: Law, q: Law, n: int = 1, last: Law | None = None) -> Law:
    """Law of the rule whose residual after x is ``residuals[x]``, and `last` after a second rejection."""

    def reject(state: State, token: int) -> State:
        first = not state.rejected
        after = residuals[token] if first or last is None else last
        return replace(state, residual=after, rejected=(*state.rejected, token))

    return enumerate_rule(Transcription(accept_ratio, reject), p, q, n).law


def check_rationals(combine: Callable[[Any, Any], Any], samples: int, seed: int) -> list[tuple[str, bool]]:
    """The oracle's law against the formula, for standard, mixed and arbitrary residuals, zeros included."""
    draw = random.Random(seed)
    formula = same = vanish = True
    exact = inexact = 0
    family = [(p, q) for p, q in pairs(range(2, 5), range(3, 5)) if p != q]
    for p, q in draw.sample(family, samples):
        size = len(p)
        missing = [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
        standard = normalise(missing)
        loose = [
            normalise([Fraction(draw.randint(0, 3)) for _ in range(size - 1)] + [Fraction(1)]) for _ in p
        ]
        for residuals in (tuple([standard] * size), tuple(loose)):
            law = emitted(residuals, p, q)
            over = {x: q[x] - p[x] for x in overfull(p, q)}
            moved = [sum((w * residuals[x][y] for x, w in over.items()), Fraction(0)) for y in range(size)]
            formula &= all(law[y] - p[y] == combine(moved[y], missing[y]) for y in range(size))
            same &= (law == p) == (moved == missing)
            if law == p:
                vanish &= all(residuals[x][y] == 0 for x in over for y in range(size) if q[y] >= p[y])
            exact, inexact = exact + (law == p), inexact + (law != p)
    p = (Fraction(0), Fraction(1, 2), Fraction(1, 2))
    q = (Fraction(1, 2), Fraction(3, 10), Fraction(1, 5))
    first, last = (Fraction(0), Fraction(1), Fraction(0)), (Fraction(0), Fraction(1, 7), Fraction(6, 7))
    undone = emitted((first,) * 3, p, q, 2, last) == p != emitted((first,) * 3, p, q, 1)
    return [
        (f"the enumerated law is the formula, {2 * samples} rounds with V <= 4", formula),
        (f"exact iff the condition holds ({exact} exact, {inexact} not)", same and exact > 0 and inexact > 0),
        ("residuals of the exact ones vanish wherever q >= p", vanish),
        ("a wrong first residual undone by a wrong second one", undone),
    ]


def prove(
    *, combine: Callable[[Any, Any], Any] = subtract, samples: int = 120, seed: int = 20
) -> ProofReport:
    """Prove the characterisation.

    Parameters
    ----------
    combine : callable
        The right-hand side of the characterisation. Anything but a difference is a mutation, which must fail.
    samples, seed : int
        Number and seed of the pairs that are drawn from the family, each with two lists of residuals.

    Returns
    -------
    ProofReport
        The checks and the argument.
    """
    checks = check_symbolically(combine) + check_rationals(combine, samples, seed)
    return ProofReport(
        STATEMENT, "proved", ("SymPy", "rational"), tuple(checks), LINES,
        left="nothing",
        coq=("exact_round.v: exact_round_iff", "exact_round.v: exact_rule_iff",
             "exact_round.v: exact_round_vanishes"),
    )  # fmt: skip
