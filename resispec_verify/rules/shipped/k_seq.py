"""SpecTr's K-SEQ: n i.i.d. candidates, all tested against the same target scaled by rho.

Sun et al., SpecTr, arXiv 2310.15141 (K-SEQ). Each candidate is accepted with ``min(1, p / (rho q))``; the
target does not change between candidates. One candidate is accepted with probability
``b = sum min(q, p/rho)``, some candidate with ``1 - (1-b)^n``, in the shape of ``min(q, p/rho)``. When none
is, the token is drawn from ``p - min(q, p/rho) (1 - (1-b)^n) / b``, normalised.

rho in [1, n] solves ``1 - (1-b)^n = rho b``. A larger rho is exact too and accepts less; with a smaller one
the last law would be negative somewhere. Guarantee: exact; acceptance at least ``1 - 1/e`` of the
optimal-transport value. Assumption: candidates are i.i.d. from q. Deviation: the search for rho stops where
the equation holds up to rounding, and negative rounding in the last law is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.compiled import compilable
from resispec_verify.kernels.elementwise.residuals import (
    accept_ratio,
    normalize,
    positive_part_condition,
    ratio_or_all,
)
from resispec_verify.kernels.jit import jit
from resispec_verify.rules.interface import Rule, State

__all__ = ["KSeq", "solve_rho"]

# Newton converges in a handful of steps; bisection, its fallback, in as many as a float has bits.
_MOST_STEPS = 80
_TOLERANCE = 8  # of the equation for rho, in units of n times machine epsilon


@dataclass(frozen=True)
class KSeq(Rule):
    """K sequential tests against ``p / rho``."""

    name = "k-seq"
    claims_exact = True
    source = "SpecTr, K-SEQ (Sun et al. 2023, arXiv 2310.15141)"
    place = 70
    depends_on = "nothing"

    def start(self, target: Array, draft: Array, candidates: int) -> State:
        """Solve for rho; ``kept`` is what a token's ``min(q, p/rho)`` is emitted with, in all rounds."""
        xp = array_namespace(target, draft)
        rho = solve_rho(target, draft, candidates)
        growth, clipped = _overlap(target, draft, rho)
        b = growth + clipped / rho
        kept, left = xp.zeros_like(b), xp.ones_like(b)
        for _ in range(candidates):  # (1 - (1-b)^n) / b = 1 + (1-b) + ... + (1-b)^{n-1}
            kept, left = kept + left, left * (1.0 - b)
        return State(target, draft, extra={"rho": rho, "kept": kept, "candidates": max(candidates, 1)})

    def accept(self, state: State) -> Array:
        """``min(1, p / (rho q))``."""
        return accept_ratio(state.residual, state.extra["rho"] * state.draft)

    def reject(self, state: State, tokens: Array) -> State:
        """Nothing changes between candidates."""
        return replace(state, round=state.round + 1)

    def final(self, state: State) -> Array:
        """What the candidates leave of the target."""
        xp = array_namespace(state.residual)
        p, q = state.residual, state.draft
        emitted = xp.minimum(q, p / state.extra["rho"]) * state.extra["kept"]
        return normalize(xp.clip(p - emitted, 0.0, None), p)

    def accept_condition(self, state: State) -> Array:
        """How well rho is known: with fair draws any rho is exact, with others it matters."""
        rho, n = state.extra["rho"], state.extra["candidates"]
        growth, clipped = _overlap(state.residual, state.draft, rho)
        slope = _slope(growth, clipped, rho, n)
        return ratio_or_all(_TOLERANCE * n * array_namespace(rho).ones_like(rho), rho * slope)

    def final_condition(self, state: State) -> Array:
        """What the candidates leave is divided by its sum."""
        xp = array_namespace(state.residual)
        emitted = xp.minimum(state.draft, state.residual / state.extra["rho"]) * state.extra["kept"]
        return positive_part_condition(state.residual, emitted) * self.accept_condition(state)


def _overlap(target: Array, draft: Array, rho: Array) -> tuple[Array, Array]:
    """The two parts of ``sum min(q, p/rho)``: q where ``rho q < p``, and p elsewhere, ``(..., 1)`` each."""
    if compilable(target, draft):
        return _overlap_of_rows(target, draft, rho)
    xp = array_namespace(target, draft)
    inside = rho * draft < target
    growth = xp.sum(xp.where(inside, draft, 0.0), axis=-1, keepdims=True)
    return growth, xp.sum(xp.where(inside, 0.0, target), axis=-1, keepdims=True)


@jit(fastmath={"reassoc"})
def _overlap_of_rows(target, draft, rho):
    """The same in one pass over rows ``(B, V)``, by blocks of 128."""
    zero = target.dtype.type(0)
    rows, vocab = target.shape
    growth, clipped = np.empty_like(rho), np.empty_like(rho)
    for b in range(rows):
        r, grown, cut = rho[b, 0], zero, zero
        for start in range(0, vocab, 128):
            part, rest = zero, zero
            for x in range(start, min(start + 128, vocab)):
                inside = r * draft[b, x] < target[b, x]
                part += draft[b, x] if inside else zero
                rest += zero if inside else target[b, x]
            grown += part
            cut += rest
        growth[b, 0], clipped[b, 0] = grown, cut
    return growth, clipped


def _slope(growth: Array, clipped: Array, rho: Array, n: int) -> Array:
    """Of F in `solve_rho`, from above."""
    miss = array_namespace(rho).clip(1.0 - (growth + clipped / rho), 0.0, None)
    return growth + n * miss ** (n - 1) * clipped / (rho * rho)


def solve_rho(target: Array, draft: Array, candidates: int) -> Array:
    """Solve ``1 - (1-b)^n = rho b`` for each row: ``(..., V) -> (..., 1)``, in [1, max(n, 1)].

    ``F(rho) = rho b - 1 + (1-b)^n`` does not decrease, for ``rho b = sum min(rho q, p)`` grows and b falls;
    ``F(1) <= 0 <= F(n)``. Safeguarded Newton: F and its slope take two row sums.
    """
    xp = array_namespace(target, draft)
    n = max(candidates, 1)
    ones = xp.ones((*target.shape[:-1], 1), dtype=target.dtype, device=target.device)
    if n == 1:
        return ones
    eps = float(xp.finfo(target.dtype).eps)

    def evaluate(rho: Array) -> tuple[Array, Array]:
        """F and its slope, from above."""
        growth, clipped = _overlap(target, draft, rho)
        b = growth + clipped / rho
        miss = xp.clip(1.0 - b, 0.0, None)
        value = rho * b - 1.0 + miss**n
        return value, _slope(growth, clipped, rho, n)

    # F is a handful of rounded terms of at most n. No more than what is left of it is lost to clipping.
    tolerance = _TOLERANCE * n * eps
    # F(1) = 0 only where p = q (or their supports are disjoint); F is then flat beyond, and 1 is the root.
    equal = evaluate(ones)[0] >= -tolerance
    low, high = ones, xp.where(equal, ones, n * ones)
    x, before = high, xp.full_like(ones, xp.inf)
    for _ in range(_MOST_STEPS):
        value, slope = evaluate(x)
        high = xp.where(value >= 0, x, high)
        low = xp.where(value < 0, x, low)
        met = equal | (xp.abs(value) <= tolerance) | (high - low <= 4 * eps * high)
        if bool(xp.all(met)):
            break
        newton = x - value / xp.where(slope > 0, slope, 1.0)
        # A step that leaves the bracket, or one after a step that did not halve F, is a bisection.
        good = (newton > low) & (newton < high) & (slope > 0) & (xp.abs(value) < 0.5 * before)
        x, before = (
            xp.where(met, x, xp.where(good, newton, 0.5 * (low + high))),
            xp.where(good, xp.abs(value), xp.inf),
        )
    return x
