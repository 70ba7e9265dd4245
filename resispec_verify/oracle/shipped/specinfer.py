"""Speculative sampling, SpecInfer, and SpecInfer's test on ranked candidates.

References
----------
Leviathan et al. (2023) and Chen et al. (2023): speculative sampling.
Miao et al. (2024): SpecInfer's multi-step speculative sampling (Eq. 2 of the ResiSpec paper).
llama.cpp: ``examples/speculative/speculative.cpp``, whose candidates were ranked, not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ..engine import Transcription
from ..laws import normalise
from ..paths import drawn
from ..registry import Blocks, Chain, Path, transcribes, transcribes_paths
from ..steps import accept_ratio, positive_part_residual

__all__ = ["specinfer"]


@transcribes("speculative", most=1)
@transcribes("specinfer")
@transcribes("llama-cpp", "fixed")
def specinfer() -> Transcription:
    """SpecInfer; with one candidate it is speculative sampling. Duplicates are tested again."""
    return Transcription(accept=accept_ratio, reject=positive_part_residual)


@transcribes_paths("speculative", drawn)
def by_token(target: Chain, draft: Chain, paths: Sequence[Path]) -> Blocks:
    """Speculative sampling token by token, stopping at the first rejection."""
    blocks: Blocks = {}
    for path in paths:
        reach = Fraction(1)
        for i in range(len(path) + 1):
            p = target(path[:i])
            stop, correction = reach, p
            if i < len(path):
                q = draft(path[:i])
                stop = reach * (1 - min(Fraction(1), p[path[i]] / q[path[i]]))
                left = [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
                correction = normalise(left, fallback=p)
            for token, mass in enumerate(correction):
                key = (*path[:i], token)
                blocks[key] = blocks.get(key, Fraction(0)) + stop * mass
            reach -= stop
    return blocks
