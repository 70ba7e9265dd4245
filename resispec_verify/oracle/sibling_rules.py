"""Rules for distinct candidates: drawn without replacement, or the draft's best tokens.

References
----------
Chen et al. (2024), Sequoia; Li et al. (2024), EAGLE and EAGLE-2.
SGLang and FlashInfer: the kernel ``tree_speculative_sampling_target_only``.
llama.cpp: ``examples/speculative/speculative.cpp``.
ResiSpec: Table 2 and Appendix C (the combinations).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from .basic import accept_ratio, drop_token, positive_part_residual, proxy_residual, specinfer
from .engine import State, Transcription
from .laws import Law, normalise

__all__ = ["eagle", "eagle_resispec", "llama_cpp", "sequoia", "sequoia_resispec", "sglang", "token_match"]


def sequoia() -> Transcription:
    """Sequoia, EAGLE-1: ``min(1, R / D)``; then ``R <- norm((R - D)_+)``, ``D(x) <- 0``, D renormalised."""

    def reject(state: State, token: int) -> State:
        return drop_token(positive_part_residual(state, token), token)

    return Transcription(accept=accept_ratio, reject=reject)


def sequoia_resispec(**options: str) -> Transcription:
    """Sequoia's candidates and test with ResiSpec's residual, GetProxy(R, D, x); then D as in Sequoia."""

    def reject(state: State, token: int) -> State:
        return drop_token(proxy_residual(state, token, **options), token)

    return Transcription(accept=accept_ratio, reject=reject, flag=lambda state: state.capped)


def eagle() -> Transcription:
    """EAGLE-2: the candidate is certain (D = 1), so accept with R(x); then ``R(x) <- 0``, normalised.

    A candidate that came before has R(x) = 0 and changes nothing; one with R(x) = 1 is never rejected.
    """

    def reject(state: State, token: int) -> State:
        left = [Fraction(0) if x == token else mass for x, mass in enumerate(state.residual)]
        return replace(state, residual=normalise(left, fallback=state.residual))

    return Transcription(accept=lambda state, token: state.residual[token], reject=reject)


def eagle_resispec(**options: str) -> Transcription:
    """EAGLE-2's candidates with ResiSpec's test and residual, both with the soft q.

    That the soft q is meant in both places is an assumption: the paper does not say.
    """
    return Transcription(
        accept=accept_ratio,
        reject=lambda state, token: proxy_residual(state, token, **options),
        flag=lambda state: state.capped,
    )


def llama_cpp() -> Transcription:
    """llama.cpp's example: SpecInfer's test and residual, on candidates that were ranked, not drawn."""
    return specinfer()


def token_match(
    target: Law, draft: Law, tokens: tuple[int, ...]
) -> Iterator[tuple[int, int | None, Fraction]]:
    """Token match: the target draws its own token, and a candidate is accepted when it is that token."""
    for token, mass in enumerate(target):
        yield token, tokens.index(token) if token in tokens else None, mass


@dataclass(frozen=True)
class _Coin:
    """SGLang's walk over siblings: one coin c, of which ``c > low`` is known.

    `tried` is the sum of p over the siblings tried so far, duplicates counted again.
    """

    target: Law
    low: Fraction = Fraction(0)
    tried: Fraction = Fraction(0)
    rejected: tuple[int, ...] = ()


def sglang(threshold_single: Any = 1, threshold_acc: Any = 1) -> Transcription:
    """SGLang: accept when ``c <= P / threshold_acc``, or when ``p(x) >= threshold_single``.

    One coin c serves all siblings of a node, P adds up p over those tried. At the end the token is drawn
    from p without the rejected tokens: ``relu(p - draft_probs)``, where draft_probs is zero but for the
    rejected tokens, which were set to p. Where nothing is left the kernel returns the last token of the
    vocabulary.

    Parameters
    ----------
    threshold_single, threshold_acc : rational, in (0, 1]
        The thresholds; SGLang's defaults are 1.
    """
    single, total = Fraction(threshold_single), Fraction(threshold_acc)
    for name, value in (("threshold_single", single), ("threshold_acc", total)):
        if not 0 < value <= 1:
            raise ValueError(f"{name} must lie in (0, 1], got {value}")

    def reach(state: _Coin, token: int) -> Fraction:
        return min(Fraction(1), (state.tried + state.target[token]) / total)

    def accept(state: _Coin, token: int) -> Fraction:
        if state.target[token] >= single:
            return Fraction(1)
        return (reach(state, token) - state.low) / (1 - state.low)

    def reject(state: _Coin, token: int) -> _Coin:
        tried = state.tried + state.target[token]
        return _Coin(state.target, reach(state, token), tried, (*state.rejected, token))

    def final(state: _Coin) -> Law:
        left = [Fraction(0) if x in state.rejected else mass for x, mass in enumerate(state.target)]
        last = tuple(Fraction(int(x == len(left) - 1)) for x in range(len(left)))
        return normalise(left, fallback=last)

    return Transcription(start=lambda target, draft: _Coin(target), accept=accept, reject=reject, final=final)
