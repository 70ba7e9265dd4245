"""Reserving mass independently of the rejected token is exact, and nothing else with a common residual is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import Law, State, Transcription, enumerate_rule, normalise

from ._laws import pairs
from ._report import ProofReport
from ._symbols import is_nonnegative, is_zero, orders, positive_part, symbols

__all__ = ["least_reserve", "prove"]

STATEMENT = (
    "If each round reserves some r with (R - q)_+ <= r <= R, accepts x with (R - r)(x) / q(x) and goes on "
    "with r / |r| whatever was rejected, the rule emits R, for every V >= 1 and any number of rounds; r "
    "may depend on earlier rejections. Conversely a round whose residual does not depend on the rejected "
    "token is exact only if it is of this form."
)
LINES = (
    "R - r <= q makes the acceptance a probability. Accepted: R - r at each token. Rejected in all: sum",
    "(q - (R - r)) = |r|, after which r / |r| is emitted, by induction. Together R.",
    "Converse: let S be the common residual and c the probability of a rejection. Exactness says q a + c",
    "S = R; put r = c S.",
    "Then R - r = q a lies between 0 and q, so (R - q)_+ <= r <= R.",
    "A reserve of its own for each rejected token, within the same bounds, is not exact: that is",
    "ResiSpec's error.",
)


def least_reserve(R: Any, q: Any) -> Any:
    """The least that can be reserved of a token: ``(R - q)_+``, SpecInfer's choice."""
    return positive_part(R - q)


def prove(
    *,
    lowest: Callable[[Any, Any], Any] = least_reserve,
    common: bool = True,
    samples: int = 60,
    seed: int = 3,
) -> ProofReport:
    """Prove exactness of token-free shaping.

    Parameters
    ----------
    lowest : callable (R, q) -> least reserve of a token
        A lower one is a mutation, which must fail.
    common : bool
        Whether the reserve is the same for every rejected token; otherwise the proof must fail.
    samples, seed : int
        Number and seed of the rules that are enumerated.
    """
    probability = total = True
    part, rest = symbols("part rest")
    share = part / (part + rest)  # any number in [0, 1]
    for R, q in orders(2):
        low = lowest(R, q)
        r = low + share * (R - low)  # any r between
        probability &= is_nonnegative(R - r) and is_nonnegative(q - (R - r))
        total &= is_zero((R - r) + r - R) and is_zero((q - (R - r)) - r - (q - R))
    converse = True
    q, a = symbols("q"), share
    left = symbols("left")  # c S(x) >= 0
    R = q * a + left
    converse &= is_nonnegative(R - left) and is_nonnegative(left - (R - q)) and is_nonnegative(left)
    exact = True
    draw = random.Random(seed)
    for p, q_ in draw.sample(list(pairs(range(2, 4), range(2, 5))), samples):
        exact &= _law(p, q_, 3 if len(p) == 2 else 2, lowest, common, draw.randint(0, 99)) == p
    checks = (
        ("0 <= R - r <= q for every r between (R - q)_+ and R, both orders of R and q", probability),
        ("accepted and reserved add up to R; rejected mass is |r|, the same", total),
        ("converse: r = R - q a >= 0 lies between (R - q)_+ and R", converse),
        (f"the enumerated law is p, {samples} rules that remember earlier rejections, n = 2, 3", exact),
    )
    return ProofReport(
        STATEMENT, "proved", ("SymPy", "rational"), checks, LINES,
        left="nothing", coq=("token_free.v: shaped_exact", "token_free.v: shaped_weighted_exact"),
    )  # fmt: skip


def _law(p: Law, q: Law, n: int, lowest: Callable[[Any, Any], Any], common: bool, salt: int) -> Law | None:
    """Law of a rule whose reserve is an arbitrary function of the round and of earlier rejections."""

    def reserve(state: State, token: int) -> Law:
        size, known = len(state.residual), (*state.rejected, *([] if common else [token]))
        parts = [
            Fraction((salt + 7 * x + 5 * sum(known) + 3 * len(state.rejected)) % 4, 3) for x in range(size)
        ]
        low = tuple(map(lowest, state.residual, state.draft))
        return tuple(lo + part * (R - lo) for lo, part, R in zip(low, parts, state.residual, strict=True))

    def accept(state: State, token: int) -> Fraction:
        return (state.residual[token] - reserve(state, token)[token]) / state.draft[token]

    def reject(state: State, token: int) -> State:
        after = normalise(reserve(state, token), fallback=state.residual)
        return replace(state, residual=after, rejected=(*state.rejected, token))

    try:
        return enumerate_rule(Transcription(accept, reject), p, q, n).law
    except ValueError:  # an acceptance above 1
        return None
