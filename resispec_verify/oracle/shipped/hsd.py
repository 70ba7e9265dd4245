"""Zhou et al. (2026), Hierarchical Speculative Decoding: Algorithm 2, by joint ratios."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

from ..laws import normalise
from ..paths import drawn
from ..registry import Blocks, Chain, Path, transcribes_paths

__all__ = ["hsd"]


@transcribes_paths("hsd", drawn)
def hsd(target: Chain, draft: Chain, paths: Sequence[Path], *, cap: str = "running") -> Blocks:
    """From the end of the path: the first prefix that passes is kept; the empty prefix always passes.

    ``cap = "last"``: joint ratios are cut at 1 by themselves, as in the authors' code.
    """
    blocks: Blocks = {}
    for path in paths:
        ratios = [
            prod((target(path[:j])[path[j]] / draft(path[:j])[path[j]] for j in range(i)), start=Fraction(1))
            for i in range(len(path) + 1)
        ]
        left = Fraction(1)
        for i in reversed(range(len(path) + 1)):
            weight = ratios[i] / max(ratios[: i + 1]) if cap == "running" else min(ratios[i], Fraction(1))
            p = target(path[:i])
            law, passes = p, weight
            if i < len(path):
                apart = [weight * a - b for a, b in zip(p, draft(path[:i]), strict=True)]
                above = sum((max(d, Fraction(0)) for d in apart), Fraction(0))
                below = sum((max(-d, Fraction(0)) for d in apart), Fraction(0))
                passes = above / max(above, below) if max(above, below) > 0 else Fraction(1)
                law = normalise([max(d, Fraction(0)) for d in apart], fallback=p)
            kept = left * (passes if i > 0 else 1)
            left -= kept
            for token, mass in enumerate(law):
                key = (*path[:i], token)
                blocks[key] = blocks.get(key, Fraction(0)) + kept * mass
    return blocks
