"""SpecInfer with duplicates skipped: a mode of the code of Sun et al. (2024), SpecHub."""

from __future__ import annotations

from fractions import Fraction

from ..engine import State, Transcription
from ..registry import transcribes
from ..steps import accept_ratio, positive_part_residual

__all__ = ["skip_duplicates"]


@transcribes("specinfer-skip-duplicates")
def skip_duplicates() -> Transcription:
    """SpecInfer, but a duplicate of a rejected candidate is skipped and does not update R."""

    def accept(state: State, token: int) -> Fraction:
        return Fraction(0) if token in state.rejected else accept_ratio(state, token)

    def reject(state: State, token: int) -> State:
        return state if token in state.rejected else positive_part_residual(state, token)

    return Transcription(accept=accept, reject=reject)
