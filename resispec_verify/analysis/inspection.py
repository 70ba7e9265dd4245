"""What a dump holds, before anything is computed from it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from resispec_verify.dumps import kind, load_mapping, looks_like_probabilities, open_dump
from resispec_verify.errors import InputError

__all__ = ["inspect_dump"]

_BATCH_ELEMENTS = 1 << 22
_USED_AS = ("target", "draft", "proposal")


def inspect_dump(path: str | os.PathLike[str], *, pad_vocab: bool = False) -> dict[str, Any]:
    """Describe one file.

    Returns
    -------
    dict
        ``path``, ``kind`` (flat, rounds, tree, unknown), ``keys`` (key, type, shape, dtype, used_as),
        ``positions``, ``vocab``, ``dtype`` (None where it is not a flat dump), ``notes`` and ``problems``
        (one line each).

    Raises
    ------
    InputError
        The file cannot be read at all.
    """
    mapping = load_mapping(path)
    result: dict[str, Any] = {
        "path": str(path),
        "kind": kind(mapping),
        "keys": [_entry(key, value) for key, value in mapping.items()],
        "positions": None,
        "vocab": None,
        "dtype": None,
        "notes": [],
        "problems": [],
    }
    if result["kind"] in ("rounds", "tree"):
        return result
    try:
        dump = open_dump(path, pad_vocab=pad_vocab)
    except InputError as error:
        result["problems"].append(str(error))
        return result
    result |= {"kind": "flat", "positions": dump.positions, "vocab": dump.vocab, "dtype": dump.dtype}
    used = dict(zip(dump.keys, _USED_AS, strict=True))
    for entry in result["keys"]:
        entry["used_as"] = used.get(entry["key"]) or ({"candidates": "path identity"}.get(entry["key"]))
    step = max(1, _BATCH_ELEMENTS // dump.vocab)
    same = True
    for first in range(0, dump.positions, step):
        try:
            batch = dump.batch(first, min(first + step, dump.positions))
        except InputError as error:
            result["problems"].append(str(error))
            same = False
            continue
        same = same and np.array_equal(batch.target, batch.draft)
    if dump.pad:
        result["notes"].append(
            f"widths differ: target {dump.pad[0]}, draft {dump.pad[1]}; the narrower is padded"
        )
    if same:
        result["notes"].append("target and draft are identical: every rule that is exact accepts always")
    if not result["problems"] and looks_like_probabilities(dump):
        result["notes"].append("rows look like probabilities, not logits; kl needs --input probabilities")
    return result


def _entry(key: Any, value: Any) -> dict[str, Any]:
    array = isinstance(value, np.ndarray)
    return {
        "key": str(key),
        "type": "array" if array else type(value).__name__,
        "shape": list(value.shape)
        if array
        else ([len(value)] if isinstance(value, (list, tuple, dict)) else None),
        "dtype": value.dtype.name if array else None,
        "used_as": None,
    }
