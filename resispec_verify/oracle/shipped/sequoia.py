"""Chen et al. (2024), Sequoia; the same recursion in EAGLE-1 (Li et al. 2024)."""

from __future__ import annotations

from ..engine import State, Transcription
from ..registry import transcribes
from ..steps import accept_ratio, drop_token, positive_part_residual

__all__ = ["sequoia"]


@transcribes("sequoia", "without-replacement")
def sequoia() -> Transcription:
    """``min(1, R / D)``; then ``R <- norm((R - D)_+)``, ``D(x) <- 0``, D renormalised."""

    def reject(state: State, token: int) -> State:
        return drop_token(positive_part_residual(state, token), token)

    return Transcription(accept=accept_ratio, reject=reject)
