"""Full rows cut to their most probable tokens, and lists made shorter."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resispec_verify.dumps.kinds.top_rows import TopRows
from resispec_verify.errors import InputError

__all__ = ["cut", "cut_logits", "shorten"]


def _checked_k(k: int) -> int:
    if k < 1:
        raise InputError(f"k must be at least 1, and is {k}")
    return k


def cut(rows: NDArray[np.floating], k: int) -> TopRows:
    """The k most probable tokens of each row of probabilities, in descending order, and what they leave.

    Parameters
    ----------
    rows : float array (N, V)
        Probabilities.
    k : int
        ``>= 1``; all of the vocabulary where it is smaller.

    Returns
    -------
    TopRows
        Probabilities in the type of the rows (float64 but for float32), their tail, and as
        ``most`` the least that is listed: 0 where the list is the vocabulary.

    Raises
    ------
    InputError
        ``k < 1``, or rows that are no matrix.
    """
    rows = np.asarray(rows)
    if rows.ndim != 2 or not rows.shape[1]:
        raise InputError(f"rows (N, V) are cut, and these have shape {rows.shape}")
    rows = rows if rows.dtype == np.float32 else rows.astype(np.float64, copy=False)
    vocab = rows.shape[1]
    k = min(_checked_k(k), vocab)
    places = np.argpartition(rows, vocab - k, axis=1) if k < vocab else _all(rows)
    chosen, others = places[:, vocab - k :], places[:, : vocab - k]
    values = np.take_along_axis(rows, chosen, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    tokens = np.take_along_axis(chosen, order, axis=1).astype(np.int32)
    listed = np.take_along_axis(values, order, axis=1)
    # Summed over what is not listed: 1 less the listed would be rounding where the tail is small.
    left = np.clip(np.take_along_axis(rows, others, axis=1).sum(axis=1, dtype=np.float64), 0.0, 1.0)
    most = listed[:, -1].astype(np.float64) if k < vocab else np.zeros(len(rows))
    return TopRows(tokens, listed, np.stack([left, left], axis=1), most, vocab)


def cut_logits(logits: NDArray[np.floating], k: int) -> TopRows:
    """The same of rows of logits (N, V), by a softmax in float64."""
    rows = np.asarray(logits, np.float64)
    rows = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return cut(rows / rows.sum(axis=-1, keepdims=True), k)


def shorten(rows: TopRows, k: int) -> TopRows:
    """The k most probable of the listed tokens; what is left out joins the tail.

    Parameters
    ----------
    rows : TopRows
    k : int
        ``>= 1``; rows that list no more stay as they are.
    """
    if _checked_k(k) >= rows.tokens.shape[1]:
        return rows
    weights = np.where(rows.tokens >= 0, rows.probabilities, -1.0)
    order = np.argsort(-weights, axis=1, kind="stable")
    kept = order[:, :k]
    dropped = np.take_along_axis(weights, order[:, k:], axis=1).clip(0.0).sum(axis=1, dtype=np.float64)
    probabilities = np.take_along_axis(rows.probabilities, kept, axis=1)
    least = np.take_along_axis(weights, kept[:, -1:], axis=1)[:, 0]
    lost = np.take_along_axis(weights, order[:, k : k + 1], axis=1)[:, 0] >= 0.0
    most = np.where(lost, np.maximum(rows.most, least), rows.most)
    return TopRows(
        np.take_along_axis(rows.tokens, kept, axis=1),
        probabilities,
        np.clip(rows.tail + dropped[:, None], 0.0, 1.0),
        most,
        rows.vocab,
        rows.off,  # of the dropped too, which are in the tail now
    )


def _all(rows: NDArray[np.floating]) -> NDArray[np.int64]:
    return np.broadcast_to(np.arange(rows.shape[1]), rows.shape)
