"""From logits to probabilities: temperature and the usual filters, in Hugging Face's order."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array

__all__ = ["filter_logits", "softmax", "temper"]


def temper(logits: Array, temperature: float, *, dtype: Any) -> Array:
    """Shift each row's maximum to 0 and divide by the temperature.

    Parameters
    ----------
    logits : array (..., V)
        Any floating dtype, -inf allowed, at least one finite entry a row.
    temperature : float
        ``>= 0``. At 0 the first maximum is 0 and everything else -inf: the one-hot of the first argmax.
    dtype : dtype
        Working precision. The cast comes first, but for what it cannot hold: wider logits are shifted before
        it, and a temperature outside its range divides in float64.
    """
    xp = array_namespace(logits)
    limits = xp.finfo(dtype)
    outside = temperature != 0.0 and not float(limits.smallest_normal) <= temperature <= float(limits.max)
    if outside and dtype != xp.float64:
        return _cast(temper(logits, temperature, dtype=xp.float64), dtype)
    if temperature != 0.0 and float(xp.finfo(logits.dtype).max) > float(limits.max):
        with np.errstate(over="ignore"):
            logits = _cast(logits - xp.max(logits, axis=-1, keepdims=True), dtype)
    logits = xp.astype(logits, dtype, copy=False)
    if temperature == 0.0:
        best = xp.argmax(logits, axis=-1, keepdims=True)
        tokens = xp.arange(logits.shape[-1], dtype=best.dtype, device=logits.device)
        zero = xp.asarray(0.0, dtype=dtype, device=logits.device)
        return xp.where(tokens == best, zero, -xp.inf)
    # What lies further below the maximum than floats reach, or is sent there by a tiny temperature, is -inf.
    with np.errstate(over="ignore"):
        shifted = logits - xp.max(logits, axis=-1, keepdims=True)
        return shifted if temperature == 1.0 else shifted / temperature


def _cast(shifted: Array, dtype: Any) -> Array:
    """Rows of which nothing is above 0; what lies below the range of the dtype is -inf."""
    xp = array_namespace(shifted)
    with np.errstate(over="ignore"):
        return xp.astype(shifted, dtype, copy=False)


def softmax(tempered: Array) -> Array:
    """Softmax of rows whose maximum is 0 (as `temper` leaves them): no overflow, no 0/0."""
    xp = array_namespace(tempered)
    weights = xp.exp(tempered)
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def filter_logits(tempered: Array, *, top_k: int | None, top_p: float | None, min_p: float | None) -> Array:
    """Set to -inf what top-k, then top-p, then min-p remove.

    The order, and the treatment of ties (tokens tied with the k-th are kept; top-p drops the lower index
    first), follow Hugging Face's logits processors. A token is dropped by top-p when the probability of it
    and everything below it is at most ``1 - top_p``, up to the rounding of that sum, so that a boundary
    such as 0.5 + 0.3 = 0.8 falls on the right side.
    """
    xp = array_namespace(tempered)
    vocab = tempered.shape[-1]
    if top_k is not None and top_k < vocab:
        kth = xp.sort(tempered, axis=-1)[..., vocab - top_k : vocab - top_k + 1]
        tempered = xp.where(tempered < kth, -xp.inf, tempered)
    if top_p is not None and top_p < 1.0:
        probabilities = softmax(tempered)
        order = xp.argsort(probabilities, axis=-1, stable=True)
        ascending = xp.astype(xp.take_along_axis(probabilities, order, axis=-1), xp.float64)
        cumulative = xp.cumulative_sum(ascending, axis=-1)
        # Rounding of the probabilities, and of their sum in float64.
        slack = 8 * xp.finfo(tempered.dtype).eps + vocab * xp.finfo(xp.float64).eps
        dropped = cumulative <= (1.0 - top_p) + slack
        last = xp.arange(vocab, device=tempered.device) == vocab - 1
        dropped = dropped & ~last  # the most probable token always stays
        back = xp.argsort(order, axis=-1)
        tempered = xp.where(xp.take_along_axis(dropped, back, axis=-1), -xp.inf, tempered)
    if min_p is not None and min_p > 0.0:
        probabilities = softmax(tempered)
        floor = min_p * xp.max(probabilities, axis=-1, keepdims=True)
        tempered = xp.where(probabilities < floor, -xp.inf, tempered)
    return tempered


def one_hot(tokens: Array, vocab: int, *, dtype: Any) -> Array:
    """One-hot rows of the given tokens, ``(...,) -> (..., vocab)``."""
    xp = array_namespace(tokens)
    classes = xp.arange(vocab, dtype=tokens.dtype, device=tokens.device)
    return xp.astype(classes == tokens[..., None], dtype)


def at(values: Array, tokens: Array) -> Array:
    """``values[..., tokens]``: the entries of rows ``(..., V)`` at ``(..., m)`` tokens."""
    xp = array_namespace(values, tokens)
    shape = np.broadcast_shapes(values.shape[:-1], tokens.shape[:-1])
    values = xp.broadcast_to(values, (*shape, values.shape[-1]))
    tokens = xp.broadcast_to(tokens, (*shape, tokens.shape[-1]))
    return xp.take_along_axis(values, tokens, axis=-1)
