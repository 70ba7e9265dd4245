"""Hypothesis strategies for targets, drafts and pairs of them. Needs hypothesis (extra ``testing``)."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

__all__ = ["laws", "pairs"]

# Weights are small whole numbers: zeros, ties and laws that are almost one-hot come up often.
_WEIGHTS = st.one_of(st.integers(0, 3), st.integers(0, 1000))


@st.composite
def laws(draw: Any, vocab: int, *, zeros: bool = True) -> np.ndarray:
    """Probabilities ``(vocab,)``, float64.

    Parameters
    ----------
    vocab : int
        At least 1.
    zeros : bool
        Whether tokens may have probability 0.
    """
    low = 0 if zeros else 1
    weights = draw(st.lists(_WEIGHTS.map(lambda w: max(w, low)), min_size=vocab, max_size=vocab))
    if sum(weights) == 0:
        weights[draw(st.integers(0, vocab - 1))] = 1
    return np.asarray(weights, np.float64) / sum(weights)


@st.composite
def pairs(
    draw: Any, *, min_vocab: int = 2, max_vocab: int = 16, zeros: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """A target and a draft ``(V,)``: unrelated, equal, permuted, or opposed (unlikely where the target is
    likely).
    """
    vocab = draw(st.integers(min_vocab, max_vocab))
    target = draw(laws(vocab, zeros=zeros))
    kind = draw(st.sampled_from(("unrelated", "equal", "permuted", "opposed")))
    if kind == "equal":
        return target, target.copy()
    if kind == "permuted":
        return target, np.asarray(draw(st.permutations(target.tolist())), np.float64)
    if kind == "opposed":
        weights = 1.0 / np.maximum(target, 1e-3)
        return target, weights / weights.sum()
    return target, draw(laws(vocab, zeros=zeros))
