"""A draft with a reduced vocabulary, put at its places in the target's."""

from __future__ import annotations

import os

import numpy as np

from resispec_verify.dumps.keys import what
from resispec_verify.dumps.rows import Rows, Scattered
from resispec_verify.errors import InputError

__all__ = ["MAP_KEY", "scattered", "token_map"]

MAP_KEY = "d2t"

Path = str | os.PathLike[str]


def token_map(path: Path, value: object, width: int, vocab: int) -> np.ndarray:
    """Return the target's token id of each draft token, int64 ``(width,)``.

    Parameters
    ----------
    path : path
        Named in errors.
    value : object
        What the dump has under `MAP_KEY`: offsets; draft token i is target token ``i + d2t[i]``.
    width, vocab : int
        Of the draft and the target.

    Raises
    ------
    InputError
        If it is not `width` integers, or a token is outside the target's vocabulary or met twice.
    """
    name = f"{path}: {MAP_KEY}"
    if isinstance(value, (list, tuple)) and all(type(item) is int for item in value):
        try:
            value = np.asarray(value, np.int64)
        except OverflowError:
            raise InputError(f"{name} holds an offset beyond 64 bits; record it again") from None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.ndim != 1:
        raise InputError(f"{name} is {what(value)}; save one integer offset a draft token [{width}]")
    if len(value) != width:
        raise InputError(
            f"{name} has {len(value)} offsets for {width} draft tokens; save one each, or leave it out if "
            "the "
            "draft has the target's vocabulary already"
        )
    outside = (value > vocab) | (value < -width) if value.dtype.kind == "i" else value > vocab
    tokens = np.where(outside, -1, value).astype(np.int64) + np.arange(width)
    outside |= (tokens < 0) | (tokens >= vocab)
    if outside.any():
        i = int(np.argmax(outside))
        raise InputError(
            f"{name}: draft token {i} with offset {value[i]} is outside the target's vocabulary "
            f"0..{vocab - 1}; save offsets (target id minus draft id)"
        )
    order = np.argsort(tokens, kind="stable")
    again = np.flatnonzero(np.diff(tokens[order]) == 0)
    if again.size:
        one, other = order[again[0]], order[again[0] + 1]
        raise InputError(
            f"{name}: draft tokens {one} and {other} both become target token {tokens[one]}; save offsets "
            "(target id minus draft id)"
        )
    return tokens


def scattered(path: Path, draft: Rows, value: object, vocab: int) -> Rows:
    """Return draft rows at the target's width: -inf on tokens that the draft does not have.

    Raises
    ------
    InputError
        As `token_map`.
    """
    return Scattered(draft, token_map(path, value, draft.shape[-1], vocab), vocab)
