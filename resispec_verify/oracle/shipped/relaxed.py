"""TensorRT-LLM's relaxed acceptance: the kernel ``mtpRelaxedAcceptanceKernel``, within a thinking phase."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..engine import Joint
from ..registry import transcribes

__all__ = ["relaxed"]


@transcribes("relaxed", "fixed", most=1)
def relaxed(topk: int = 10, delta: Any = "3/5") -> Joint:
    """A walk down the `topk` best tokens of the target, the first of them exempt from the threshold.

    It ends at a token below ``p(best) - delta``; a candidate met before is accepted. Otherwise the best token
    is emitted.
    """

    def outcomes(p: Any, q: Any, tokens: tuple[int, ...]) -> list[tuple[int, int | None, Fraction]]:
        ranked = sorted(range(len(p)), key=lambda x: (-p[x], x))[:topk]
        least = p[ranked[0]] - Fraction(delta)
        for place, x in enumerate(ranked):
            if place > 0 and least > p[x]:
                break
            if x == tokens[0]:
                return [(x, 0, Fraction(1))]
        return [(ranked[0], None, Fraction(1))]

    return outcomes
