"""Speculative sampling whose residual is drawn with the Gumbel noise that drew the candidate (vLLM, V2)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from ..engine import State, Transcription
from ..laws import Law
from ..registry import transcribes
from ..steps import accept_ratio

__all__ = ["late_race", "shared_noise"]


def late_race(target: Law, draft: Law) -> Law:
    """The token drawn after a rejection: ``argmax(log r + g)``, given that ``argmax(log q + g)`` was another.

    Both are races: token v arrives at ``E(v)`` over its mass, with the same exponentials E. The draft's race
    ends at T, of rate 1; any other token then needs ``E(v) > q(v) T``, after which it is as good as new. In
    units of T, v cannot win the residual's race before ``q(v) / r(v)``, and from then on does at the rate
    ``r(v) T``. Nobody has won by w with probability ``E exp(-T H(w)) = 1 / (1 + H(w))``, H the rates
    integrated, and who wins between two starts is one of those that run, in proportion to their rates.
    """
    rates = [max(p - q, Fraction(0)) for p, q in zip(target, draft, strict=True)]
    starts = {x: draft[x] / rate for x, rate in enumerate(rates) if rate > 0}
    if not starts:
        return target
    times, won = sorted(set(starts.values())), [Fraction(0)] * len(rates)
    nobody, grown = Fraction(1), Fraction(0)
    for i, time in enumerate(times):
        running = [x for x, start in starts.items() if start <= time]
        together = sum((rates[x] for x in running), Fraction(0))
        until = Fraction(0)  # nobody's chance at infinity
        if i + 1 < len(times):
            grown += together * (times[i + 1] - time)
            until = 1 / (1 + grown)
        for x in running:
            won[x] += (nobody - until) * rates[x] / together
        nobody = until
    return tuple(won)


@transcribes("shared-noise", most=1)
def shared_noise() -> Transcription:
    """The standard test with a coin of its own, and that race for what replaces the candidate."""

    def reject(state: State, token: int) -> State:
        left = late_race(state.residual, state.draft)
        return replace(state, residual=left, rejected=(*state.rejected, token))

    return Transcription(accept=accept_ratio, reject=reject)
