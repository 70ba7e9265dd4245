"""Rules for independent candidates besides SpecInfer's: skipped duplicates, K-SEQ, and EASD's gate.

References
----------
Sun et al. (2024), SpecHub, whose code has a mode that skips duplicates.
Sun et al. (2023), SpecTr: K-SEQ (Algorithm 3 and its choice of rho).
EASD, arXiv 2512.23765: the abstract only.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import log
from typing import Any

from .basic import accept_ratio, positive_part_residual
from .engine import State, Transcription
from .laws import Law, normalise

__all__ = ["easd", "k_seq", "k_seq_overlap", "k_seq_rho", "skip_duplicates"]

RHO_WIDTH = Fraction(1, 10**30)  # of the bracket that holds K-SEQ's rho where it is irrational


def skip_duplicates() -> Transcription:
    """SpecInfer, but a duplicate of a rejected candidate is skipped and does not update R."""

    def accept(state: State, token: int) -> Fraction:
        return Fraction(0) if token in state.rejected else accept_ratio(state, token)

    def reject(state: State, token: int) -> State:
        return state if token in state.rejected else positive_part_residual(state, token)

    return Transcription(accept=accept, reject=reject)


def k_seq_overlap(target: Law, draft: Law, rho: Fraction) -> Fraction:
    """Probability ``b = sum min(q, p / rho)`` that K-SEQ accepts a candidate it looks at."""
    return sum((min(q, p / rho) for p, q in zip(target, draft, strict=True)), Fraction(0))


def k_seq_rho(target: Law, draft: Law, candidates: int) -> Fraction:
    """K-SEQ's rho: the root of ``1 - (1 - b)**n = rho b`` in [1, n], or just above it.

    The left side does not increase with rho and ``rho b = sum min(rho q, p)`` does not decrease, so the
    sign of their difference brackets the smallest root. The bracket is bisected to a width of 1e-30; a
    fraction of small denominator inside it that solves the equation is returned as the root. Otherwise
    the upper end is returned: the rule is exact for every rho from the root up. Each token is accepted
    with probability ``min(q, p / rho) S`` in all, ``S = (1 - (1 - b)**n) / b``, and that is at most p
    because ``S <= rho`` there; below the root it exceeds p wherever ``0 < p <= rho q``.
    """

    def excess(rho: Fraction) -> Fraction:
        overlap = k_seq_overlap(target, draft, rho)
        return 1 - (1 - overlap) ** candidates - rho * overlap

    low, high = Fraction(1), Fraction(max(candidates, 1))
    if excess(low) <= 0:
        return low
    while high - low > RHO_WIDTH:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    simple = high.limit_denominator(10**12)
    return simple if low <= simple <= high and excess(simple) == 0 else high


def k_seq(candidates: int, rho: Any = None) -> Transcription:
    """K-SEQ: every candidate is tested with ``min(1, p / (rho q))``, and p is kept in between.

    Parameters
    ----------
    candidates : int
        The number n of candidates.
    rho : rational, optional
        The divisor; `k_seq_rho` by default. A rho below the root leaves a residual with negative entries,
        which is an error.
    """
    divisors: dict[tuple[Law, Law], Fraction] = {}

    def divisor(state: State) -> Fraction:
        key = (state.residual, state.draft)
        if key not in divisors:
            divisors[key] = k_seq_rho(*key, candidates) if rho is None else Fraction(rho)
        return divisors[key]

    def accept(state: State, token: int) -> Fraction:
        scaled = tuple(divisor(state) * q for q in state.draft)
        return accept_ratio(replace(state, draft=scaled), token)

    def final(state: State) -> Law:
        by, overlap = divisor(state), k_seq_overlap(state.residual, state.draft, divisor(state))
        times = (1 - (1 - overlap) ** candidates) / overlap if overlap else Fraction(0)
        left = [p - min(q, p / by) * times for p, q in zip(state.residual, state.draft, strict=True)]
        if min(left) < 0:
            raise ValueError(f"rho must be at least the root of 1 - (1 - b)**n = rho b, got {by}")
        return normalise(left, fallback=state.residual)

    return Transcription(accept=accept, reject=lambda state, token: state, final=final)


def easd(
    *, rejects: str, target_entropy: float, draft_entropy: float, top_n: int, overlap: Any
) -> Transcription:
    """EASD as far as its abstract goes: an entropy gate in front of speculative sampling.

    The gate closes when the target's entropy is above `target_entropy`, the draft's above `draft_entropy`
    (nats), and of their `top_n` best tokens (V where that is less) they share at least the fraction
    `overlap`. With `rejects` "position" any candidate is then rejected and the token drawn from the target:
    exact, since the gate does not look at the candidate. With "overlap" only a candidate among the shared
    tokens is, which is not. The threshold's form and both gates are assumptions; the abstract gives no
    values, so none is a default.
    """
    if rejects not in ("position", "overlap"):
        raise ValueError(f"rejects must be position or overlap, got {rejects!r}")

    def entropy(law: Law) -> float:
        return -sum(float(mass) * log(mass) for mass in law if mass > 0)

    def best(law: Law) -> set[int]:
        return set(sorted(range(len(law)), key=lambda x: (-law[x], x))[:top_n])

    def gated(state: State, token: int) -> bool:
        shared = best(state.residual) & best(state.draft)
        closed = (
            entropy(state.residual) > target_entropy
            and entropy(state.draft) > draft_entropy
            and len(shared) >= Fraction(overlap) * min(top_n, len(state.residual))
        )
        return closed and (rejects == "position" or token in shared)

    def accept(state: State, token: int) -> Fraction:
        return Fraction(0) if gated(state, token) else accept_ratio(state, token)

    def reject(state: State, token: int) -> State:
        return state if gated(state, token) else positive_part_residual(state, token)

    return Transcription(accept=accept, reject=reject)
