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

from resispec_verify.dumps.opening import PathLike, as_path
from resispec_verify.errors import InputError

__all__ = ["SUFFIXES", "save_top_pairs"]

SUFFIXES = (".npz", ".safetensors")


def save_top_pairs(path: PathLike, mapping: Mapping[str, Any]) -> None:
    """Write arrays, whole numbers and ``meta`` under their keys.

    Raises
    ------
    InputError
        A name that ends otherwise.
    OSError
        If the file cannot be written.
    """
    path = as_path(path)
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
