"""What one call gave, checked."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from resispec_verify.sampler_check.calls import tokens_of

__all__ = ["MOST_ROWS", "Drawn", "drawn_of", "rows_within"]

# Elements of one input of a call (rows x vocab): 2 MiB an array, so that the copies stay in cache.
_CALL_ELEMENTS = 1 << 18
MOST_ROWS = 1 << 14


class Drawn(NamedTuple):
    """What one call gave: integers with a known law ``(rows,)``; the index of the accepted candidate, if
    reported.
    """

    index: np.ndarray
    accepted: np.ndarray | None = None


def rows_within(elements: int) -> int:
    """Rows of the largest call, where a row has so many elements."""
    return max(1, min(MOST_ROWS, _CALL_ELEMENTS // elements))


def drawn_of(result: Any, rows: int, vocab: int, candidates: int | None) -> Drawn:
    """Tokens, or a tuple of tokens and the index of the accepted candidate; no other tuple."""
    if isinstance(result, tuple) and len(result) == 2 and not any(map(np.isscalar, result)):
        tokens, accepted = result
        most = vocab if candidates is None else candidates
        return Drawn(tokens_of(tokens, rows, vocab), tokens_of(accepted, rows, most + 1, what="accepted"))
    return Drawn(tokens_of(result, rows, vocab))
