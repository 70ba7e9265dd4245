"""Reading dumps of logits. A new format is one file with a `read` function and one line in `READERS`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from resispec_verify.dumps.flat import (
    Batch,
    FlatDump,
    as_mapping,
    flat_from_mapping,
    kind,
    looks_like_probabilities,
)
from resispec_verify.dumps.paths import check_file, show
from resispec_verify.dumps.pt import read_pt
from resispec_verify.errors import InputError

__all__ = ["Batch", "FlatDump", "kind", "load_mapping", "looks_like_probabilities", "open_dump"]

READERS: dict[str, Callable[[Path], object]] = {
    ".pt": read_pt,
    ".pth": read_pt,
}


def load_mapping(path: str | os.PathLike[str]) -> dict:
    """Read the dict a file holds, of whatever kind of dump: its arrays are views, not copies, where possible.

    Parameters
    ----------
    path : path
        A file with one of the suffixes in `READERS`.

    Raises
    ------
    InputError
        If the file is missing, not of a known format, damaged, needs code, or holds no dict.
    """
    path = check_file(path)
    read = READERS.get(path.suffix.lower())
    if read is None:
        suffix = f"suffix {show(path.suffix)}" if path.suffix else "a name without suffix"
        raise InputError(f"{path}: {suffix} is not a known format; supported: {', '.join(READERS)}")
    return as_mapping(path, read(path))


def open_dump(path: str | os.PathLike[str], *, pad_vocab: bool = False) -> FlatDump:
    """Open a flat dump: target and draft logits of the same positions.

    Parameters
    ----------
    path : path
        A file with one of the suffixes in `READERS`.
    pad_vocab : bool
        Pad the narrower rows with -inf if the widths differ, instead of refusing them.

    Raises
    ------
    InputError
        As `load_mapping` and `flat_from_mapping`.
    """
    return flat_from_mapping(path, load_mapping(path), pad_vocab=pad_vocab)
