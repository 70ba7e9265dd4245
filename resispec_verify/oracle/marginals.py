"""Operational marginals of three rules in exact rationals, by naive enumeration.

These are transcriptions made from the papers alone, to check faster code against.

References
----------
Leviathan et al. (2023) and Chen et al. (2023): speculative sampling.
Miao et al. (2024): SpecInfer's multi-step speculative sampling (Eq. 2 of the ResiSpec paper).
ResiSpec: Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from .engine import Result, State, Transcription, TupleLaw, enumerate_rule
from .laws import normalise
from .proxy import get_proxy

__all__ = ["accept_ratio", "marginal", "positive_part_residual", "resispec", "specinfer"]


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


def specinfer() -> Transcription:
    """SpecInfer; with one candidate it is speculative sampling. Duplicates are tested again."""
    return Transcription(accept=accept_ratio, reject=positive_part_residual)


def resispec(**options: str) -> Transcription:
    """Transcribe ResiSpec as printed (Algorithm 1); `options` are those of `get_proxy`."""

    def reject(state: State, token: int) -> State:
        proxy = get_proxy(state.residual, state.draft, token, **options)
        return replace(
            state,
            residual=proxy.residual,
            rejected=(*state.rejected, token),
            capped=state.capped or proxy.capped,
        )

    return Transcription(accept=accept_ratio, reject=reject, flag=lambda state: state.capped)


def marginal(
    rule: str,
    target: Sequence[Any],
    draft: Sequence[Any],
    candidates: int,
    *,
    proposal: Sequence[Any] | TupleLaw | None = None,
    **options: str,
) -> Result:
    """Compute the exact law of the token a rule emits.

    Parameters
    ----------
    rule : {"speculative", "specinfer", "resispec"}
        The rule.
    target, draft : sequence of rationals, length V
        The target and the declared draft.
    candidates : int
        Number of candidates n >= 0; at most 1 for "speculative".
    proposal : sequence of rationals, or mapping from tuples to rationals, optional
        What the candidates are really drawn from (see `enumerate_rule`); the draft by default.
    **options
        `redistribution`, `budget` and `hole` of `get_proxy`, for "resispec" only.

    Returns
    -------
    Result
        Marginal, acceptance by candidate, and the probability that a budget was capped.

    Raises
    ------
    ValueError
        If the rule is unknown, or an input is out of range.
    TypeError
        If an option does not belong to the rule.
    """
    rules: Mapping[str, Any] = {"speculative": specinfer, "specinfer": specinfer, "resispec": resispec}
    if rule not in rules:
        raise ValueError(f"rule must be one of {', '.join(rules)}, got {rule!r}")
    if rule == "speculative" and candidates > 1:
        raise ValueError(
            f"speculative verifies one candidate, got candidates = {candidates}; use specinfer for more"
        )
    return enumerate_rule(rules[rule](**options), target, draft, candidates, proposal)
