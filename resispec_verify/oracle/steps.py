"""The steps that several transcriptions share: the test, and what a rejection leaves of target and draft."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from .engine import State
from .laws import normalise
from .proxy import get_proxy

__all__ = ["accept_ratio", "drop_token", "positive_part_residual", "proxy_residual"]


def accept_ratio(state: State, token: int) -> Fraction:
    """Acceptance ``min(1, R(x) / q(x))``; where q(x) = 0 it is 1 if R(x) > 0, else 0.

    A token with q(x) = 0 can only be a candidate when the candidates are not drawn from the declared
    draft.
    """
    residual, draft = state.residual[token], state.draft[token]
    if draft == 0:
        return Fraction(int(residual > 0))
    return min(Fraction(1), residual / draft)


def positive_part_residual(state: State, token: int) -> State:
    """SpecInfer's residual ``(R - q)_+`` normalised; R itself where that has no mass.

    With candidates drawn from the declared draft the second case cannot be reached in exact arithmetic.
    It can when they are drawn from another law: R = q, and a candidate with R(x) = q(x) = 0.
    """
    kept = [max(R - q, Fraction(0)) for R, q in zip(state.residual, state.draft, strict=True)]
    residual = normalise(kept, fallback=state.residual)
    return replace(state, residual=residual, rejected=(*state.rejected, token))


def proxy_residual(state: State, token: int, **options: str) -> State:
    """ResiSpec's residual after `token` was rejected; `options` are those of `get_proxy`."""
    residual = get_proxy(state.residual, state.draft, token, **options).residual
    return replace(state, residual=residual, rejected=(*state.rejected, token))


def drop_token(state: State, token: int) -> State:
    """``D(x) <- 0``, D renormalised; all zeros when nothing is left to draw."""
    left = tuple(Fraction(0) if x == token else mass for x, mass in enumerate(state.draft))
    return replace(state, draft=normalise(left, fallback=left))
