"""What a flat dump says of its positions beside the logits: candidates, datasets, sampling."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

import numpy as np

from resispec_verify.dumps.mapped import is_text, repeats
from resispec_verify.dumps.paths import listing, show
from resispec_verify.errors import InputError

__all__ = ["SAMPLING_KEYS", "candidate_lists", "datasets", "samplings"]

LARGEST = 2**63
SAMPLING_KEYS = ("temperature", "top_k", "top_p", "min_p")

Path = str | os.PathLike[str]


def candidate_lists(path: Path, value: object, leading: tuple[int, ...], vocab: int) -> np.ndarray | None:
    """Candidates by position, int64 ``(N, n)``, checked; ``(..., n)`` with the logits' leading axes.

    Raises
    ------
    InputError
        Not integers, other leading axes, or a token outside the vocabulary (its position is named).
    """
    if value is None:
        return None
    what = f"{path}: candidates"
    if isinstance(value, (list, tuple)):
        try:
            value = np.asarray(value)
        except ValueError:
            raise InputError(
                f"{what} has rows of different lengths; save one integer tensor [N, n]"
            ) from None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
        kind = value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__
        raise InputError(f"{what} must be integer token ids [N, n], got {kind}; save an integer tensor")
    if value.ndim != len(leading) + 1 or value.shape[:-1] != leading or value.shape[-1] == 0:
        raise InputError(
            f"{what} is {list(value.shape)}; it needs the positions of the logits and n >= 1 candidates "
            f"each: {[*leading, 'n']}"
        )
    if repeats(value):
        raise InputError(f"{what} is an expanded tensor; save .contiguous()")
    tokens = value.reshape(math.prod(leading), value.shape[-1])
    outside = (tokens < 0) | (tokens >= vocab)
    if outside.any():
        position = int(np.argmax(outside.any(axis=-1)))
        token = tokens[position][outside[position]][0]
        raise InputError(
            f"{what}, position {position}: token {token} is outside the vocabulary 0..{vocab - 1}"
        )
    return tokens.astype(np.int64)


def datasets(path: Path, value: object, positions: int) -> str | tuple[str, ...] | None:
    """One dataset name for the whole dump, or one a position.

    Raises
    ------
    InputError
        Anything else.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _name(path, value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "U" and value.size == positions:
        if not is_text(value):
            raise InputError(f"{path}: dataset holds text that is not Unicode; record it again")
        value = value.reshape(-1).tolist()
    if isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value):
        if len(value) == positions:
            return tuple(_name(path, name) for name in value)
        raise InputError(
            f"{path}: dataset has {len(value)} names for {positions} positions; give one name each"
        )
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        kind = f"{show(value.dtype.name)} {list(value.shape)}"
    raise InputError(f"{path}: dataset must be a name or one name a position ({positions}), got {kind}")


def _name(path: Path, name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{path}: dataset {show(name)} cannot be written as text; rename it") from None
    return name


def samplings(
    path: Path, meta: object, positions: int
) -> Mapping[str, object] | tuple[Mapping[str, object], ...] | None:
    """The sampling that ``meta["sampling"]`` states: for the whole dump, or one mapping a position.

    Either a dict of `SAMPLING_KEYS`, each a number or a list with one number a position, or a list with one
    such dict a position.

    Raises
    ------
    InputError
        Anything else.
    """
    stated = meta.get("sampling") if isinstance(meta, Mapping) else None
    if stated is None:
        return None
    what = f"{path}: meta['sampling']"
    if isinstance(stated, (list, tuple)):
        if len(stated) != positions:
            raise InputError(f"{what} has {len(stated)} entries for {positions} positions; give one each")
        return tuple(_numbers(f"{what}[{i}]", entry) for i, entry in enumerate(stated))
    if not isinstance(stated, Mapping):
        raise InputError(f"{what} must be a dict or one dict a position, got {type(stated).__name__}")
    lists = {}
    for key, v in stated.items():
        if isinstance(v, (list, tuple)) or (isinstance(v, np.ndarray) and v.ndim == 1):
            if len(v) != positions:
                raise InputError(f"{what}[{show(key)}] has {len(v)} entries for {positions} positions")
            lists[key] = v.tolist() if isinstance(v, np.ndarray) else v
    if not lists:
        return _numbers(what, stated)
    rows = (
        {key: lists[key][i] if key in lists else v for key, v in stated.items()} for i in range(positions)
    )
    return tuple(_numbers(what, row) for row in rows)


def _numbers(what: str, entry: object) -> Mapping[str, object]:
    if not isinstance(entry, Mapping):
        raise InputError(f"{what} must be a dict, got {type(entry).__name__}")
    unknown = [key for key in entry if key not in SAMPLING_KEYS]
    if unknown:
        raise InputError(f"{what} has unknown keys {listing(unknown)}; known: {', '.join(SAMPLING_KEYS)}")
    given = {key: value for key, value in entry.items() if value is not None}
    for key, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(f"{what}[{key}] must be a number, got {type(value).__name__}")
        if abs(value) > LARGEST or value != value:
            raise InputError(f"{what}[{key}] must be a number below 2^63, got {show(value)}")
        if key == "top_k" and value != int(value):
            raise InputError(f"{what}[top_k] must be a whole number, got {value:g}")
    return {key: int(value) if key == "top_k" else float(value) for key, value in given.items()}
