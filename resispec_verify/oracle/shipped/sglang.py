"""SGLang and FlashInfer: the kernel ``tree_speculative_sampling_target_only``."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..engine import Transcription
from ..laws import Law, normalise
from ..registry import transcribes

__all__ = ["sglang"]


@dataclass(frozen=True)
class _Coin:
    """SGLang's walk over siblings: one coin c, of which ``c > low`` is known.

    `tried` is the sum of p over the siblings tried so far, duplicates counted again.
    """

    target: Law
    low: Fraction = Fraction(0)
    tried: Fraction = Fraction(0)
    rejected: tuple[int, ...] = ()


@transcribes("sglang", "fixed")
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
