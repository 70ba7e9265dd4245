"""Theorem 1 repaired: one proxy for all tokens, below the draft, verified against the draft."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import Law, State, Transcription, enumerate_rule, normalise

from ._laws import pairs
from ._report import ProofReport
from ._symbols import is_nonnegative, is_zero, least, orders

__all__ = ["common_mass", "prove"]

STATEMENT = (
    "Let one k >= 0, common to all tokens, have min(p, k) <= q (k <= q suffices). Accepting x ~ q with "
    "min(p, k)(x) / q(x) and emitting from (p - min(p, k)) / (1 - beta), beta = sum min(p, k), after a "
    "rejection emits p, for every V >= 1 and, with such a k for each residual, every number of rounds. "
    "Neither normalisation nor alignment of k is needed."
)
LINES = (
    "This is the printed proof with what it uses made true: Eq. 17 holds because the acceptance is min(p,",
    "k) / q and not min(1, p/k), Eq. 18 because k is common to all tokens. Accepted: min(p, k). Rejected:",
    "1 - beta, whatever the token.",
    "Emitted in all: min(p, k) + (p - min(p, k)) = p.",
    "min(p, k) <= q makes the acceptance a probability. With r = p - min(p, k) this is token-free",
    "shaping, (p - q)_+ <= r <= p, from which any number of rounds follows. With k(x) = q(x) at all x it",
    "is SpecInfer.",
)


def common_mass(p: Any, q: Any, k: Any) -> Any:
    """What is accepted of a token: ``min(p, k)``."""
    return least(p, k)


def prove(*, accepted: Callable[[Any, Any, Any], Any] = common_mass, below: bool = True) -> ProofReport:
    """Prove the repaired theorem.

    Parameters
    ----------
    accepted : callable (p, q, k) -> mass accepted of a token
        Eq. 14 in its place, ``q min(1, p/k)``, must fail.
    below : bool
        Whether ``k <= q`` is assumed; without it the acceptance is no probability, and the proof must fail.
    """
    probability = total = shaping = True
    patterns = 0
    for p, q, k in orders(3):
        if below and not is_nonnegative(q - k):
            continue
        patterns += 1
        mass = accepted(p, q, k)
        probability &= is_nonnegative(mass) and is_nonnegative(q - mass)
        total &= is_zero(mass + (p - least(p, k)) - p) and is_zero((q - mass) - (p - least(p, k)) - (q - p))
        r = p - mass
        shaping &= is_nonnegative(p - r) and is_nonnegative(r - (p - least(p, q)))
    exact, count = True, 0
    for p, q in pairs(range(2, 4), range(2, 4)):
        for parts in ((1, 0, 2), (0, 2, 1)):
            exact &= _law(p, q, tuple(Fraction(part, 2) for part in parts), accepted, below) == p
            count += 1
    checks = (
        (f"0 <= min(p, k) <= q where k <= q, {patterns} orders of p, q, k", probability),
        ("accepted and left add up to p, and rejected mass is the normaliser 1 - beta, the same", total),
        ("it is token-free shaping: (p - q)_+ <= p - min(p, k) <= p, the same", shaping),
        (f"the enumerated law of two rounds is p, {count} rules with V = 2, 3", exact),
    )
    return ProofReport(
        STATEMENT, "repaired", ("SymPy", "rational"), checks, LINES,
        left="nothing", coq=("token_free.v: shaped_exact",),
    )  # fmt: skip


def _law(p: Law, q: Law, parts: Law, accepted: Callable[[Any, Any, Any], Any], below: bool) -> Law | None:
    """Law of two rounds with ``k = parts q`` (or, not below q, ``k = 4 parts q``); None if it is no rule."""

    def taken(state: State) -> Law:
        scale = 1 if below else 4
        proxy = [
            min(b, scale * part * b) if below else scale * part * b
            for part, b in zip(parts, state.draft, strict=False)
        ]
        return tuple(map(accepted, state.residual, state.draft, proxy))

    def accept(state: State, token: int) -> Fraction:
        return taken(state)[token] / state.draft[token]

    def reject(state: State, token: int) -> State:
        left = [a - b for a, b in zip(state.residual, taken(state), strict=True)]
        return replace(state, residual=normalise(left, fallback=state.residual))

    try:
        return enumerate_rule(Transcription(accept, reject), p, q, 2).law
    except (ValueError, ZeroDivisionError):
        return None
