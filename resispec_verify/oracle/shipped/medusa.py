"""Cai et al. (2024), Medusa: typical acceptance."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from ..laws import Law
from ..registry import Blocks, Chain, Path, transcribes_paths

__all__ = ["medusa", "typical"]


def _heads(draft: Chain, length: int, top: int = 2) -> list[tuple[Sequence[Path], Fraction]]:
    """All paths over the `top` best tokens; every head has the draft's law at the root."""
    law = draft(())
    best = sorted(range(len(law)), key=lambda x: (-law[x], x))[:top]
    return [(list(itertools.product(best, repeat=length)), Fraction(1))]


def typical(law: Law, token: int, delta: Fraction, alpha: Fraction) -> bool:
    """Medusa's test ``p > min(delta, alpha exp(-H(p)))``, the entropy in nats to 40 digits."""
    if law[token] > delta:
        return True
    with localcontext() as context:
        context.prec = 40
        masses = [Decimal(mass.numerator) / Decimal(mass.denominator) for mass in law if mass > 0]
        entropy = -sum((mass * mass.ln() for mass in masses), Decimal(0))
        bound = Decimal(alpha.numerator) / Decimal(alpha.denominator) * (-entropy).exp()
        return Decimal(law[token].numerator) / Decimal(law[token].denominator) > bound


@transcribes_paths("medusa", _heads)
def medusa(
    target: Chain,
    draft: Chain,
    paths: Sequence[Path],
    *,
    delta: Any = "9/100",
    alpha: Any = "3/10",
    correction: str = "greedy",
) -> Blocks:
    """Typical acceptance: the longest accepted path wins, the first of equals; then a token of the target.

    By default that token is the target's argmax, ties to the lowest index: in the paper the first token of
    the next step is greedy and accepted unconditionally, and the code does so in its default mode (`fast`).
    """
    if correction not in ("greedy", "target"):
        raise ValueError(f"correction must be greedy or target, got {correction!r}")

    def accepted(path: Path) -> int:
        passes = (
            typical(target(path[:i]), path[i], Fraction(delta), Fraction(alpha)) for i in range(len(path))
        )
        return sum(1 for _ in itertools.takewhile(bool, passes))

    best = max(paths, key=accepted)
    kept = best[: accepted(best)]
    law = target(kept)
    if correction == "greedy":
        return {(*kept, max(range(len(law)), key=lambda x: (law[x], -x))): Fraction(1)}
    return {(*kept, token): mass for token, mass in enumerate(law) if mass > 0}
