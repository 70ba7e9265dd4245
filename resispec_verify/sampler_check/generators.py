"""Generators whose uniforms are often at their ends."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["BoundaryGenerator", "boundary_words"]

# The 64-bit words behind the two ends of ``random()``, 0 and 1 - 2**-53.
_WORDS = (0, 2**64 - 1)


class BoundaryGenerator(np.random.Generator):
    """A generator whose ``random()`` is often 0 or 1 - 2**-53, its two ends.

    Everything else, and ``choice`` with probabilities, which calls ``random``, comes from the same stream.
    """

    def __init__(self, seed: Any, share: float = 0.25) -> None:
        super().__init__(np.random.PCG64(seed))
        self.share = share

    def spawn(self, n_children: int) -> list[BoundaryGenerator]:
        """As `numpy.random.Generator.spawn`; children inject too."""
        seeds = self.bit_generator.seed_seq.spawn(n_children)  # type: ignore[union-attr]
        return [BoundaryGenerator(seed, self.share) for seed in seeds]

    def random(self, *arguments: Any, **options: Any) -> Any:
        """As `numpy.random.Generator.random`, with entries replaced by an end."""
        drawn = super().random(*arguments, **options)
        coins = super().random(np.shape(drawn))
        highest = np.asarray(1.0 - np.finfo(np.asarray(drawn).dtype).epsneg, dtype=np.asarray(drawn).dtype)
        mixed = np.where(coins < self.share / 2, 0.0, np.where(coins < self.share, highest, drawn))
        if np.ndim(drawn) == 0:
            return float(mixed)
        drawn[...] = mixed  # also where the caller gave `out`
        return drawn


def boundary_words(seed: int, pattern: int, position: int) -> np.random.Generator:
    """A generator whose next words are all-zero or all-one, whatever method draws them.

    Parameters
    ----------
    seed : int
    pattern : int
        In 0..15: bit i chooses the i-th word.
    position : int
        In 0..3: how many of the four words are skipped.
    """
    bits = np.random.Philox(seed)
    state = bits.state
    state["buffer"] = np.array([_WORDS[pattern >> i & 1] for i in range(4)], dtype=np.uint64)
    state["buffer_pos"] = position
    bits.state = state
    return np.random.Generator(bits)
