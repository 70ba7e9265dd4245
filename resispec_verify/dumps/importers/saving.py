"""Writing top-k pairs as `.npz` or `.safetensors`, whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from resispec_verify.dumps.kinds.top_rows import TopPairs, TopRows
from resispec_verify.dumps.opening import PathLike, as_path
from resispec_verify.errors import InputError

__all__ = ["SUFFIXES", "save_top_pairs"]

SUFFIXES = (".npz", ".safetensors")


def save_top_pairs(path: PathLike, pairs: TopPairs | Mapping[str, Any], *, meta: Any = None) -> None:
    """Write top-k pairs, or what is to stand under each key.

    Parameters
    ----------
    pairs : TopPairs or mapping
        Pairs of some positions; or arrays, whole numbers and ``meta`` as docs/howto/log-top-k.md has them.
    meta : mapping, optional
        Beside pairs: what is to be said of them.

    Raises
    ------
    InputError
        A name that ends otherwise, or pairs that were read from a file: write its ``mapping``.
    OSError
        If the file cannot be written.
    """
    path = as_path(path)
    mapping = _mapping(pairs, meta) if isinstance(pairs, TopPairs) else pairs
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: top-k pairs are written as {' or '.join(SUFFIXES)}; end the name so")
    arrays = {
        key: value if isinstance(value, np.ndarray) else np.asarray([value])
        for key, value in mapping.items()
        if key != "meta" and value is not None
    }
    meta = json.dumps(mapping.get("meta") or {})
    goal = Path(os.path.realpath(path))
    handle, temporary = tempfile.mkstemp(dir=goal.parent, prefix=".resispec-", suffix=path.suffix.lower())
    os.close(handle)
    try:
        if path.suffix.lower() == ".npz":
            np.savez(temporary, meta=np.asarray(meta), **arrays)  # type: ignore[arg-type]
        else:
            tight = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
            save_file(tight, temporary, metadata={"meta": meta})
        os.chmod(temporary, 0o644)
        os.replace(temporary, goal)
    except BaseException:
        os.unlink(temporary)
        raise


def _mapping(pairs: TopPairs, meta: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"meta": meta}
    known = {rows.vocab for rows in (pairs.target, pairs.draft)} - {None}
    if len(known) == 1:
        found["vocab"] = known.pop()
    for role, rows in (("target", pairs.target), ("draft", pairs.draft)):
        if rows.off is not None and np.any(rows.off > 0.0):
            raise InputError(
                f"the {role}'s pairs were read from a file, and are known only to what it rounds; save the "
                "mapping of what open_top_pairs returned, which says so"
            )
        with np.errstate(divide="ignore"):
            found[f"{role}_top_logprobs"] = np.log(rows.probabilities)
        found |= {f"{role}_top_ids": rows.tokens, f"{role}_tail": rows.tail, f"{role}_ranked": _ranked(rows)}
    return found


def _ranked(rows: TopRows) -> np.ndarray:
    """How many of the listed are the most probable, as far as `most` says: those that have no less, (N,)."""
    listed = rows.tokens >= 0
    return np.count_nonzero(listed & (rows.probabilities >= rows.most[:, None]), axis=1)
