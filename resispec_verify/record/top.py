"""The most probable tokens of rows of logits, as a file of top-k pairs keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.errors import InputError

__all__ = ["TOP_KEYS", "listed", "sampling_of"]

TOP_KEYS = ("top_ids", "top_logprobs", "tail")


def sampling_of(meta: Mapping[str, Any]) -> Sampling:
    """The sampling that ``meta["sampling"]`` states, the same for all rows.

    Raises
    ------
    InputError
        One that differs by row, or that is not known: laws with unseen tails are listed after it.
    """
    stated = meta.get("sampling") or {}
    if not isinstance(stated, Mapping) or not all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in stated.values()
    ):
        raise InputError(
            "meta['sampling'] must be a dict of numbers with top_k, the same for all rows, in the order of "
            "transformers and with no settings of the draft; record whole rows, and cut them with convert"
        )
    try:
        return Sampling(**stated)
    except TypeError:
        raise InputError(
            f"meta['sampling'] has a key that is no setting of Sampling: {', '.join(stated)}"
        ) from None


def listed(rows: np.ndarray, k: int, sampling: Sampling, dtype: np.dtype) -> dict[str, np.ndarray]:
    """The `k` most probable tokens of each row, the most probable first.

    Parameters
    ----------
    rows : float array (n, V)
        Logits as a dump of whole rows would hold them.
    k : int
    sampling : Sampling
        What makes laws of them.
    dtype : numpy.dtype
        Of the log-probabilities.

    Returns
    -------
    dict
        ``top_ids`` int32 (n, k), ``top_logprobs`` (n, k), ``tail`` float64 (n,): the sum of all others in
        float64.
    """
    laws = np.array(sampling.probabilities(rows, dtype=np.float64))
    k = min(k, laws.shape[-1])
    ids = np.argpartition(laws, -k, axis=-1)[:, -k:]
    order = np.argsort(-np.take_along_axis(laws, ids, axis=-1), axis=-1, kind="stable")
    ids = np.take_along_axis(ids, order, axis=-1)
    with np.errstate(divide="ignore"):
        logs = np.log(np.take_along_axis(laws, ids, axis=-1))
    np.put_along_axis(laws, ids, 0.0, axis=-1)
    return {
        "top_ids": ids.astype(np.int32),
        "top_logprobs": logs.astype(dtype),
        "tail": laws.sum(axis=-1),
    }
