"""EASD, arXiv 2512.23765: the abstract only."""

from __future__ import annotations

from fractions import Fraction
from math import log
from typing import Any

from ..engine import State, Transcription
from ..laws import Law
from ..registry import transcribes
from ..steps import accept_ratio, positive_part_residual

__all__ = ["easd"]


@transcribes("easd", most=1)
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
