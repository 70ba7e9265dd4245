"""Reusing what a model computed for the beginning of a sequence, and cutting what it may look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from resispec_verify.models.interface import Model

__all__ = ["PrefixCached", "Windowed"]


class PrefixCached:
    """A `Model` that computes only what its last sequence does not share with the new one."""

    def __init__(self, vocab: int, context: int | None) -> None:
        self.vocab, self.context = vocab, context
        self._seen: list[int] = []

    def logits(self, tokens: Sequence[int], last: int = 1) -> np.ndarray:
        """Raw next-token logits ``[last, V]`` after each of the `last` final prefixes of `tokens`."""
        tokens = [int(token) for token in tokens]
        shared = next(
            (i for i, (a, b) in enumerate(zip(self._seen, tokens, strict=False)) if a != b),
            min(len(self._seen), len(tokens)),
        )
        keep = max(0, min(shared, len(tokens) - last))
        self._seen = []  # an exception leaves the cache in no known state
        rows = self._forward(tokens[keep:], keep, last)
        self._seen = tokens
        return rows.numpy()

    def _forward(self, tokens: Sequence[int], keep: int, last: int) -> Any:
        """Logits ``[last, V]``, a tensor on the CPU, after the first `keep` tokens of the last sequence."""
        raise NotImplementedError


class Windowed:
    """A model that sees only the last tokens, counted as positions 0, 1, ... ."""

    def __init__(self, model: Model, window: int) -> None:
        self.vocab, self.context = model.vocab, None
        self.model, self.window = model, window

    def logits(self, tokens: Sequence[int], last: int = 1) -> np.ndarray:
        """Raw next-token logits ``[last, V]`` after each of the `last` final prefixes of `tokens`."""
        ends = range(len(tokens) - last + 1, len(tokens) + 1)
        rows = [self.model.logits(tokens[max(0, end - self.window) : end]) for end in ends]
        return np.concatenate(rows)
