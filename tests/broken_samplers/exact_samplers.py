"""An exact sampler of each style of `check`, for probabilities, NumPy, and candidates drawn i.i.d."""

from __future__ import annotations

import samplers
from handed_samplers import specinfer
from text_samplers import right
from tree_samplers import tree_speculative


def of_candidates(target, draft, candidates, rng):
    """SpecInfer, with coins of its own."""
    return specinfer(target, draft, candidates, rng.random((len(target), candidates.shape[1] + 1)))


EXACT = {
    "tokens": samplers.speculative,
    "candidates": of_candidates,
    "uniforms": specinfer,
    "block": samplers.block_speculative,
    "tree": tree_speculative,
    "text": right,
}
