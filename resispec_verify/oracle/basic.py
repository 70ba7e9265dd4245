"""The residual rules of ResiSpec's comparison, and the two steps that other transcriptions share.

These are transcriptions made from the papers alone, to check faster code against.

References
----------
Leviathan et al. (2023) and Chen et al. (2023): speculative sampling.
Miao et al. (2024): SpecInfer's multi-step speculative sampling (Eq. 2 of the ResiSpec paper).
ResiSpec: Algorithm 1.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from .engine import State, Transcription
from .laws import normalise
from .proxy import get_proxy

__all__ = [
    "accept_ratio",
    "drop_token",
    "positive_part_residual",
    "proxy_residual",
    "resispec",
    "specinfer",
]


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
    proxy = get_proxy(state.residual, state.draft, token, **options)
    return replace(
        state,
        residual=proxy.residual,
        rejected=(*state.rejected, token),
        capped=state.capped or proxy.capped,
    )


def drop_token(state: State, token: int) -> State:
    """``D(x) <- 0``, D renormalised; all zeros when nothing is left to draw."""
    left = tuple(Fraction(0) if x == token else mass for x, mass in enumerate(state.draft))
    return replace(state, draft=normalise(left, fallback=left))


def specinfer() -> Transcription:
    """SpecInfer; with one candidate it is speculative sampling. Duplicates are tested again."""
    return Transcription(accept=accept_ratio, reject=positive_part_residual)


def resispec(**options: str) -> Transcription:
    """Transcribe ResiSpec as printed (Algorithm 1); `options` are those of `get_proxy`."""
    return Transcription(
        accept=accept_ratio,
        reject=lambda state, token: proxy_residual(state, token, **options),
        flag=lambda state: state.capped,
    )
