"""Toy language models for the fake engine: laws of the next token that look like those of real models.

A law depends on the last token, less on the one before it, and a little on the position. Its shape is a Zipf
law whose exponent gives the entropy, 0.1 to 3.5 nats with a mean near 1.5: sharp and flat contexts come
mixed. The draft has the target's logits with noise, so that about two thirds of its tokens are accepted.

NumPy and the standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

VOCAB = 400
POSITIONS = 8
# In this order each filter sees what the one before left.
ORDER = ("temperature", "top_k", "top_p", "min_p")
# Standard deviations of what the token before the last and the position add to the logits, and of what the
# draft gets wrong.
BEFORE_SD = 0.8
POSITION_SD = 0.25
DRAFT_SD = 1.2


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. The engine also takes the package's own class, which has no ``order``."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    order: tuple[str, ...] = ORDER


def softmax(logits: np.ndarray) -> np.ndarray:
    law = np.exp(logits - logits.max())
    return law / law.sum()


def nucleus(law: np.ndarray, mass: float) -> np.ndarray:
    """The most probable tokens of ``law`` (V,), as few as reach ``mass``, normalised."""
    ranked = np.argsort(-law, kind="stable")
    kept = ranked[: int(np.searchsorted(np.cumsum(law[ranked]), mass)) + 1]
    out = np.zeros_like(law)
    out[kept] = law[kept]
    return out / out.sum()


def shaped(law: np.ndarray, sampling) -> np.ndarray:
    """``law`` (V,) after temperature, top-k, top-p and min-p, in the order of ``sampling``."""
    for name in getattr(sampling, "order", ORDER):
        if name == "temperature" and sampling.temperature != 1.0:
            with np.errstate(divide="ignore"):
                law = softmax(np.log(law) / sampling.temperature)
        elif name == "top_k" and 0 < sampling.top_k < len(law):
            law = np.where(law >= np.sort(law)[-sampling.top_k], law, 0.0)
        elif name == "top_p" and sampling.top_p < 1.0:
            law = nucleus(law, sampling.top_p)
        elif name == "min_p" and sampling.min_p > 0.0:
            law = np.where(law >= sampling.min_p * law.max(), law, 0.0)
        law = law / law.sum()
    return law


def draw(law: np.ndarray, rng: np.random.Generator) -> int:
    sums = np.cumsum(law)
    return min(int(np.searchsorted(sums, rng.random() * sums[-1], side="right")), len(law) - 1)


def entropy(law: np.ndarray) -> float:
    held = law[law > 0]
    return float(-(held * np.log(held)).sum())


_RANKS = np.log(np.arange(1, VOCAB + 1))
_EXPONENTS = np.linspace(0.8, 9.0, 400)
_ENTROPIES = np.array([entropy(softmax(-a * _RANKS)) for a in _EXPONENTS])


@lru_cache(maxsize=1 << 14)
def _target_logits(seed: int, before: int, last: int, position: int) -> np.ndarray:
    noise = BEFORE_SD * np.random.default_rng((seed, before, last)).standard_normal(VOCAB)
    return _zipf(seed, last) + noise + _shift(seed, position)


@lru_cache(maxsize=VOCAB + 1)
def _zipf(seed: int, last: int) -> np.ndarray:
    rng = np.random.default_rng((seed, last))
    nats = 0.1 + 3.4 * rng.beta(1.4, 2.0)
    exponent = np.interp(-nats, -_ENTROPIES, _EXPONENTS)
    return -exponent * _RANKS[rng.permutation(VOCAB)]


@lru_cache(maxsize=64)
def _shift(seed: int, position: int) -> np.ndarray:
    return POSITION_SD * np.random.default_rng((seed, position, 2, 0)).standard_normal(VOCAB)


@lru_cache(maxsize=1 << 14)
def _draft_logits(seed: int, before: int, last: int, position: int) -> np.ndarray:
    rng = np.random.default_rng((seed, before, last, 1))
    return _target_logits(seed, before, last, position) + DRAFT_SD * rng.standard_normal(VOCAB)


@lru_cache(maxsize=1 << 14)
def _law(logits, key: tuple[int, int, int, int], temperature: float) -> np.ndarray:
    law = softmax(logits(*key) / temperature)
    law.flags.writeable = False
    return law


@lru_cache(maxsize=1 << 14)
def _shaped(logits, key: tuple[int, int, int, int], sampling) -> np.ndarray:
    law = shaped(_law(logits, key, 1.0), sampling)
    law.flags.writeable = False
    return law


class ToyModel:
    """A law of the next token for every prefix of token ids; the same on every machine and in every run."""

    def __init__(self, logits, seed: int = 0):
        self._logits, self.seed = logits, seed

    def _key(self, prefix: Sequence[int]) -> tuple[int, int, int, int]:
        # -1 is no token: one more than an id, since seeds are not negative.
        before, last = ([-1, -1, *prefix[-2:]])[-2:]
        if not all(-1 <= t < VOCAB for t in (before, last)):
            raise ValueError(f"token ids must be in 0..{VOCAB - 1}, got {before}, {last}")
        return self.seed, int(before) + 1, int(last) + 1, len(prefix) % POSITIONS

    def law(self, prefix: Sequence[int], temperature: float = 1.0) -> np.ndarray:
        """The law after ``prefix`` at a temperature, without filters: (V,), float64, read-only."""
        return _law(self._logits, self._key(prefix), temperature)

    def shaped(self, prefix: Sequence[int], sampling) -> np.ndarray:
        """The law after ``prefix`` that ``sampling`` draws from: (V,), float64, read-only."""
        return _shaped(self._logits, self._key(prefix), sampling)


def pair(seed: int = 0) -> tuple[ToyModel, ToyModel]:
    """A target and its draft."""
    return ToyModel(_target_logits, seed), ToyModel(_draft_logits, seed)
