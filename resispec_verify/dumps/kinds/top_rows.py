"""Laws of which only the most probable tokens were logged: what engines return as top log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["TopPairs", "TopRows"]


@dataclass(frozen=True)
class TopRows:
    """What is known of N laws over a vocabulary.

    Attributes
    ----------
    tokens : int32 array (N, k)
        Ids of the listed tokens, different within a row, in any order; -1 where a row lists fewer.
    probabilities : float64 or float32 array (N, k)
        Of the listed tokens; 0 where there is none.
    tail : float64 array (N, 2)
        The least and the greatest probability that all other tokens can have together: the same number where
        the listed are normalised over the vocabulary, ``(0, 1)`` where nothing is known.
    most : float64 array (N,)
        The greatest probability that one other token can have: the least listed one, where those listed are
        the most probable; else 1.
    vocab : int or None
        V, where it is known.
    off : float64 array (N,) or None
        What the listed probabilities may be off by in all, ``sum |error|``. None where nothing says it; then
        by no more than what listed and tail miss 1 by.
    """

    tokens: NDArray[np.int32]
    probabilities: NDArray[np.floating]
    tail: NDArray[np.float64]
    most: NDArray[np.float64]
    vocab: int | None = None
    off: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice) -> TopRows:
        return TopRows(
            self.tokens[rows],
            self.probabilities[rows],
            self.tail[rows],
            self.most[rows],
            self.vocab,
            None if self.off is None else self.off[rows],
        )


@dataclass(frozen=True)
class TopPairs:
    """Target and draft at the same positions.

    Attributes
    ----------
    target, draft : TopRows
        Of N positions each; their lists may have different lengths.
    """

    target: TopRows
    draft: TopRows

    def __len__(self) -> int:
        return len(self.target)
