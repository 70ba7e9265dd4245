"""The text before each position of a flat dump, and the tokens that a grammar allows there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from resispec_verify.dumps.formats.mapped import refuse_repeats
from resispec_verify.dumps.kinds.values import integers
from resispec_verify.dumps.opening import PathLike
from resispec_verify.errors import InputError

__all__ = ["texts_before"]

_LAST = 2**31 - 1


def texts_before(path: PathLike, mapping: Mapping, leading: tuple[int, ...], vocab: int) -> dict[str, Any]:
    """What `FlatDump` has as history, prompt_len and allowed; None where the file has none.

    ``history``: a list of token ids for each position, or integers ``[..., L]`` that -1s pad at the end.
    ``prompt_len``: how many of them are the prompt, one number or one a position; all where it is missing.
    ``allowed_tokens``: booleans ``[..., V]``.

    Raises
    ------
    InputError
        Anything else, or a prompt that is longer than the history.
    """
    found: dict[str, Any] = {"history": None, "prompt_len": None, "allowed": None}
    positions = math.prod(leading)
    if mapping.get("allowed_tokens") is not None:
        found["allowed"] = _allowed(f"{path}: allowed_tokens", mapping["allowed_tokens"], leading, vocab)
    if mapping.get("history") is None:
        if mapping.get("prompt_len") is not None and positions:
            raise InputError(f"{path}: has prompt_len without history; save the tokens before each position")
        return found
    found["history"] = _history(f"{path}: history", mapping["history"], leading)
    if (lengths := mapping.get("prompt_len")) is not None:
        lengths = np.full(positions, lengths) if type(lengths) is int else lengths
        if isinstance(lengths, np.ndarray):
            lengths = (
                np.broadcast_to(lengths, leading).reshape(-1) if not lengths.ndim else lengths.reshape(-1)
            )
        found["prompt_len"] = integers(f"{path}: prompt_len", lengths, (positions,), 0, _LAST)
        for i, (length, tokens) in enumerate(zip(found["prompt_len"], found["history"], strict=True)):
            if length > len(tokens):
                raise InputError(
                    f"{path}: prompt_len of position {i} is {length}, and it has {len(tokens)} tokens; "
                    "save the tokens of the prompt that history holds"
                )
    return found


def _history(what: str, value: object, leading: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    positions = math.prod(leading)
    if isinstance(value, np.ndarray):
        if value.ndim != len(leading) + 1 or value.shape[:-1] != leading or value.dtype.kind not in "iu":
            raise InputError(
                f"{what} is {value.dtype.name} {list(value.shape)}; it needs integers {[*leading, 'L']}, "
                "padded with -1 at the end"
            )
        refuse_repeats(what, value)
        value = list(value.reshape(positions, -1))
    if not isinstance(value, (list, tuple)) or len(value) != positions:
        raise InputError(f"{what} must have a list of token ids for each of {positions} positions")
    rows = [integers(f"{what} of position {i}", row, None, -1, _LAST) for i, row in enumerate(value)]
    return tuple(_unpadded(f"{what} of position {i}", row) for i, row in enumerate(rows))


def _unpadded(what: str, row: np.ndarray) -> np.ndarray:
    there = np.flatnonzero(row != -1)
    row = row[: int(there[-1]) + 1 if there.size else 0]
    if (row == -1).any():
        raise InputError(f"{what} has -1 before its last token; pad with -1 at the end only")
    return row


def _allowed(what: str, value: object, leading: tuple[int, ...], vocab: int) -> np.ndarray:
    if not isinstance(value, np.ndarray) or value.dtype != np.bool_ or value.shape != (*leading, vocab):
        shape = f"{value.dtype.name} {list(value.shape)}" if isinstance(value, np.ndarray) else "no array"
        raise InputError(f"{what} is {shape}; save the mask of allowed tokens as bool {[*leading, vocab]}")
    refuse_repeats(what, value)
    return value.reshape(math.prod(leading), vocab)
