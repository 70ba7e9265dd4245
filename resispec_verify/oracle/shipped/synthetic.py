"""Synthetic acceptance (vLLM, llama.cpp, SGLang): a coin that looks at nothing."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..engine import Joint
from ..laws import Law, normalise
from ..registry import transcribes

__all__ = ["synthetic"]


@transcribes("synthetic", most=1)
def synthetic(rate: Any, correction: str = "residual") -> Joint:
    """The candidate with probability `rate`; else a draw from ``norm((p - q)_+)``, or from p.

    Where the residual has no mass the target stands in for it.
    """
    if correction not in ("residual", "target"):
        raise ValueError(f"correction must be residual or target, got {correction!r}")
    accepted = Fraction(rate)

    def outcomes(p: Law, q: Law, tokens: tuple[int, ...]) -> list[tuple[int, int | None, Fraction]]:
        drawn: Law = p
        if correction == "residual":
            drawn = normalise([max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)], fallback=p)
        rest = [(x, None, (1 - accepted) * mass) for x, mass in enumerate(drawn)]
        return [(tokens[0], 0, accepted), *rest]

    return outcomes
