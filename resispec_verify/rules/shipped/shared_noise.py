"""Speculative sampling whose residual is drawn with the noise that drew the candidate.

vLLM's second model runner, before its pull requests 47386 (closed) and 54282 (merged, August 2026);
``vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py``. Both draws are argmaxes of ``log law + g`` with
Gumbel noise g, and both took g from the same seed and position. The coin of the test is another number.

With ``E = exp(-g)``, which is exponential, a draw from a law l is the token that is first in a race in
which token v arrives at ``E(v) / l(v)``. The candidate is first at a time T, exponential with rate 1 and
independent of which token it is; of every other token it is then known that ``E(v) > q(v) T``, and no more.
So whatever was rejected, with ``r = (p - q)_+`` the second race is won by the least ``(q(v) T + F(v)) /
r(v)``, F fresh exponentials: the tokens of the residual start late, at ``T q(v) / r(v)``. Integrated over
T, with ``H(w) = sum (r(u) w - q(u))_+``, token y is emitted after a rejection with

    r(y) integral of (1 + H(w))^-2 over w > q(y) / r(y),

and between the starting times H is linear, which makes it a sum. With the starting times at 0 it is the
residual itself.

Guarantee: none, although the engine meant Leviathan's, which needs the draws to be independent. Tokens of
high q are emitted too seldom after a rejection; a draft without randomness is not affected. Assumptions:
the candidate is drawn from the declared draft; what follows an accepted candidate has noise of its own.
No deviations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.residuals import normalize, positive_part_condition
from resispec_verify.rules.interface import Rule, State

__all__ = ["SharedNoise"]


@dataclass(frozen=True)
class SharedNoise(Rule):
    """One candidate; the residual reuses its noise."""

    name = "shared-noise"
    claims_exact = True
    source = "vLLM, model runner V2 before its pull request 54282"
    place = 115
    depends_on = "nothing"
    most_candidates = 1

    def reject(self, state: State, tokens: Array) -> State:
        """The law of the residual's race, given that the candidate won the draft's."""
        return replace(
            state, residual=_late_race(state.residual, state.draft), round=state.round + 1, extra={}
        )

    def condition(self, before: State, tokens: Array, after: State, fair: bool) -> Array:
        """Eight times that of the residual, which is 1 over its sum.

        A relative error e of a rate or a start moves at most ``2 e G(v)``, G being who wins: w times the
        sum of the rates is at most ``1 + H(w)``. G(v) is at most 2 r(v) over the sum of the residual.
        """
        return 8.0 * positive_part_condition(before.residual, before.draft)


def _late_race(target: Array, draft: Array) -> Array:
    """Who wins the residual's race, rows ``(..., V)``; the target where there is no residual."""
    xp = array_namespace(target, draft)
    rate = xp.clip(target - draft, 0.0, None)
    runs = rate > 0
    start = xp.where(runs, draft / xp.where(runs, rate, 1.0), xp.inf)
    order = xp.argsort(start, axis=-1)
    rate, start, runs = (xp.take_along_axis(a, order, axis=-1) for a in (rate, start, runs))
    # Between the start of a token and that of the next one, H grows at the rate of all that have started.
    ahead = xp.concat([start[..., 1:], xp.full_like(start[..., :1], xp.inf)], axis=-1)
    last = runs & (ahead == xp.inf)
    length = xp.where(runs & ~last, ahead - xp.where(runs, start, 0.0), 0.0)
    together = _running_sum(rate)
    after = _running_sum(together * length)
    before = xp.concat([xp.zeros_like(after[..., :1]), after[..., :-1]], axis=-1)
    # 1 / (1 + H) at its two ends, their difference over the rate; to infinity after the last start.
    open_end = 1.0 / (xp.where(last, together, 1.0) * (1.0 + before))
    piece = xp.where(last, open_end, length / ((1.0 + before) * (1.0 + after)))
    later = xp.flip(_running_sum(xp.flip(xp.where(runs, piece, 0.0), axis=-1)), axis=-1)
    mass = xp.take_along_axis(rate * later, xp.argsort(order, axis=-1), axis=-1)
    return normalize(mass, target)


def _running_sum(values: Array) -> Array:
    """Prefix sums of rows ``(..., V)`` by doubling: each goes through log2 V roundings instead of V."""
    xp, step = array_namespace(values), 1
    while step < values.shape[-1]:
        values = xp.concat([values[..., :step], values[..., step:] + values[..., :-step]], axis=-1)
        step *= 2
    return values
