"""Li et al. (2024), EAGLE-2."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from ..engine import State, Transcription
from ..laws import normalise
from ..registry import transcribes

__all__ = ["eagle"]


@transcribes("eagle", "fixed")
def eagle() -> Transcription:
    """The candidate is certain (D = 1), so accept with R(x); then ``R(x) <- 0``, normalised.

    A candidate that came before has R(x) = 0 and changes nothing; one with R(x) = 1 is never rejected.
    """

    def reject(state: State, token: int) -> State:
        left = [Fraction(0) if x == token else mass for x, mass in enumerate(state.residual)]
        return replace(state, residual=normalise(left, fallback=state.residual))

    return Transcription(accept=lambda state, token: state.residual[token], reject=reject)
