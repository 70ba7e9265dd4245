"""What inputs of several positions share: laws of the next token after each token."""

from __future__ import annotations

import numpy as np

__all__ = ["random_laws", "reserved"]


def random_laws(vocab: int, positions: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Target and draft ``(positions, V, V)``, the draft half the target; of the first, all rows are equal."""
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.ones(vocab), size=(positions, vocab))
    draft = 0.5 * target + 0.5 * rng.dirichlet(np.ones(vocab), size=(positions, vocab))
    target[0], draft[0] = target[0, :1], draft[0, :1]
    return target, draft


def reserved(laws: np.ndarray, offset: int, *, after: bool = False) -> np.ndarray:
    """The same laws with ``offset`` tokens of probability 0 in front of the others.

    Parameters
    ----------
    laws : float64 array (..., V), or (..., V, V) with ``after``
    offset : int
    after : bool
        The axis before the last is the token before: what comes after a reserved token, which never comes,
        is what comes after the first other one.
    """
    padded = np.concatenate([np.zeros((*laws.shape[:-1], offset)), laws], axis=-1)
    if not after:
        return padded
    return np.concatenate([np.repeat(padded[..., :1, :], offset, axis=-2), padded], axis=-2)
