"""Sun et al. (2023), SpecTr: K-SEQ (Algorithm 3 and its choice of rho)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..engine import State, Transcription, planned
from ..laws import Law, normalise
from ..registry import transcribes
from ..steps import accept_ratio

__all__ = ["k_seq", "k_seq_overlap", "k_seq_rho"]

RHO_WIDTH = Fraction(1, 10**30)  # of the bracket that holds K-SEQ's rho where it is irrational


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


@transcribes("k-seq", counted=True)
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

    def plan(p: Law, q: Law) -> tuple[list[Law], list[Law]]:
        by = k_seq_rho(p, q, candidates) if rho is None else Fraction(rho)
        scaled = State(p, tuple(by * mass for mass in q))
        accept = tuple(accept_ratio(scaled, token) for token in range(len(p)))
        overlap = k_seq_overlap(p, q, by)
        times = (1 - (1 - overlap) ** candidates) / overlap if overlap else Fraction(0)
        left = [a - min(b, a / by) * times for a, b in zip(p, q, strict=True)]
        if min(left) < 0:
            raise ValueError(f"rho must be at least the root of 1 - (1 - b)**n = rho b, got {by}")
        return [accept] * candidates, [normalise(left, fallback=p)] * (candidates + 1)

    return planned(plan)
