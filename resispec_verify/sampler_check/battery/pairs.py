"""Pairs of a target and a draft on which samplers fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from resispec_verify.sampler_check.battery.laws import reserved

__all__ = ["Input", "battery", "battery_names", "named"]


@dataclass(frozen=True)
class Input:
    """One pair.

    Attributes
    ----------
    name : str
    target, draft : float64 array (V,)
        Probabilities.
    share : float
        Its draws, as a share of the budget of one pair.
    """

    name: str
    target: np.ndarray
    draft: np.ndarray
    share: float = 1.0

    def shifted(self, offset: int) -> Input:
        """The same with tokens 0 to ``offset - 1`` reserved, which have no probability."""
        target, draft = (reserved(law, offset) for law in (self.target, self.draft))
        return replace(self, target=target, draft=draft)


def _softmax(rows: np.ndarray) -> np.ndarray:
    weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _wide(vocab: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A law of power-law tail, as of a language model, and a draft that is a noisy copy of it."""
    rng = np.random.default_rng(seed)
    logits = -1.2 * np.log(np.arange(vocab) + 2.0)
    target = rng.permutation(logits)
    return _softmax(target), _softmax(target + rng.normal(0.0, 1.0, vocab))


@cache
def named(name: str) -> Input:
    """The input of the battery with this name."""
    if name == "wide":
        return Input(name, *_wide(4096, 1), 1 / 16)
    if name == "very-wide":
        return Input(name, *_wide(151_936, 2), 1 / 256)
    adversarial = np.random.default_rng(0).normal(0.0, 1.5, 16)
    laws: dict[str, tuple[Sequence[float], Sequence[float], float]] = {
        "base": ([0.5, 0.3, 0.2], [0.6, 0.3, 0.1], 1.0),
        "v4": ([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], 0.5),
        "equal": ([0.25, 0.05, 0.4, 0.3], [0.25, 0.05, 0.4, 0.3], 0.125),
        "one-hot": ([0.0, 1.0, 0.0, 0.0], [0.4, 0.3, 0.2, 0.1], 1 / 64),
        "both-one-hot": ([0.0, 0.0, 1.0], [0.0, 0.0, 1.0], 1 / 64),
        # No target at both ends, where an inverse transform goes wrong; no draft in the middle.
        "zeros": ([0.0, 0.3, 0.2, 0.5, 0.0, 0.0], [0.3, 0.0, 0.4, 0.1, 0.0, 0.2], 0.125),
        # Ten tenths sum to less than 1 in floating point.
        "tenths": ([0.1] * 10, [0.05, 0.15] * 5, 0.125),
        "peaked": ([0.9994, 0.0003, 0.0002, 0.0001], [0.7, 0.1, 0.1, 0.1], 0.25),
        "adversarial": (list(_softmax(adversarial)), list(_softmax(-adversarial)), 0.25),
    }
    target, draft, share = laws[name]
    return Input(name, np.array(target), np.array(draft), share)


def battery_names() -> tuple[str, ...]:
    """The names of the fixed battery, cheap ones first."""
    return (
        "base", "v4", "equal", "one-hot", "both-one-hot", "zeros", "tenths", "peaked", "adversarial", "wide",
        "very-wide",
    )  # fmt: skip


def battery() -> tuple[Input, ...]:
    """The fixed battery."""
    return tuple(named(name) for name in battery_names())
