"""Draws of ours: candidates that are handed in, and tokens of the target after what was emitted."""

from __future__ import annotations

import numpy as np

__all__ = ["draw_candidates", "draw_siblings", "rows_of"]


def draw_candidates(
    rng: np.random.Generator, draft: np.ndarray, rows: int, n: int, proposal: str
) -> np.ndarray:
    """Candidates ``(rows, n)``: i.i.d. from the draft, without replacement, or its top n tokens."""
    if proposal == "top":
        return np.tile(np.argsort(-draft, kind="stable")[:n], (rows, 1))
    if proposal == "iid":
        cumulative = np.cumsum(draft)
        found = np.searchsorted(cumulative, rng.random((rows, n)) * cumulative[-1], side="right")
        return np.minimum(found, np.flatnonzero(draft)[-1])
    return _without_replacement(rng, np.broadcast_to(draft, (rows, len(draft))), n)


def draw_siblings(rng: np.random.Generator, draft: np.ndarray, n: int, proposal: str) -> np.ndarray:
    """The same, ``(rows, n)``, where each row has a draft of its own, ``(rows, V)``."""
    if proposal == "top":
        return np.argsort(-draft, axis=-1, kind="stable")[:, :n]
    if proposal == "iid":
        return np.stack([rows_of(rng, draft) for _ in range(n)], axis=1)
    return _without_replacement(rng, draft, n)


def _without_replacement(rng: np.random.Generator, draft: np.ndarray, n: int) -> np.ndarray:
    # The n largest of log q plus Gumbel noise are a draw without replacement, in its order.
    with np.errstate(divide="ignore"):
        keys = np.log(draft) + rng.gumbel(size=draft.shape)
    return np.argsort(-keys, axis=-1, kind="stable")[:, :n]


def rows_of(rng: np.random.Generator, law: np.ndarray) -> np.ndarray:
    """One draw from each row of ``law (rows, V)``."""
    cumulative = np.cumsum(law, axis=-1)
    below = cumulative <= (rng.random(len(law)) * cumulative[:, -1])[:, None]
    last = law.shape[-1] - 1 - np.argmax(law[:, ::-1] > 0, axis=-1)
    return np.minimum(below.sum(axis=-1), last)
