"""SPEC-RL: from the first rejected token on, the target goes on by itself."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..engine import State, Transcription
from ..registry import transcribes

__all__ = ["redraw"]


@transcribes("redraw", most=1)
def redraw(lenience: Any = 1) -> Transcription:
    """Accepted with ``min(1, lenience p(x) / q(x))``; else a draw from p, rejected token included."""

    def accept(state: State, token: int) -> Fraction:
        p, q = Fraction(lenience) * state.residual[token], state.draft[token]
        return min(Fraction(1), p / q) if q else Fraction(int(p > 0))

    return Transcription(accept=accept, reject=lambda state, token: state)
