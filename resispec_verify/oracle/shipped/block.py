"""Sun et al. (2024), Block Verification Accelerates Speculative Decoding: Algorithm 2."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ..laws import Law, normalise
from ..paths import drawn
from ..registry import Blocks, Chain, Path, transcribes_paths

__all__ = ["block"]


def _accept_block(target: Chain, draft: Chain, path: Path) -> list[tuple[Fraction, Law]]:
    """Block verification: for i = 0..L, the acceptance h_i and the law of the token after i tokens.

    ``w_i = min(1, w_{i-1} p/q)``, ``S_i = sum (w_i p - q)_+``, ``h_i = S_i / (S_i + 1 - w_i)``,
    ``h_L = w_L``. Where S_i = 1 - w_i = 0 the two laws agree and all that follows is accepted, so the
    value does not matter.
    """
    weight, steps = Fraction(1), []
    for i in range(len(path) + 1):
        p = target(path[:i])
        if i > 0:
            p_x, q_x = target(path[: i - 1])[path[i - 1]], draft(path[: i - 1])[path[i - 1]]
            weight = min(Fraction(1), weight * p_x / q_x)
        if i == len(path):
            steps.append((weight, p))
            continue
        left = [max(weight * a - b, Fraction(0)) for a, b in zip(p, draft(path[:i]), strict=True)]
        total = sum(left, Fraction(0))
        accept = total / (total + 1 - weight) if total + 1 > weight else Fraction(1)
        steps.append((accept, normalise(left, fallback=p)))
    return steps


@transcribes_paths("block", drawn)
def block(target: Chain, draft: Chain, paths: Sequence[Path]) -> Blocks:
    """The longest prefix whose own test passes is kept; the empty prefix always passes."""
    blocks: Blocks = {}
    for path in paths:
        steps = _accept_block(target, draft, path)
        beyond = Fraction(1)  # no longer prefix passed
        for i in reversed(range(len(steps))):
            accept, correction = steps[i]
            kept = beyond * (accept if i > 0 else 1)
            beyond -= kept
            for token, mass in enumerate(correction):
                key = (*path[:i], token)
                blocks[key] = blocks.get(key, Fraction(0)) + kept * mass
    return blocks
