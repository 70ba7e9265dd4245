"""Which format a file has, and the dict it holds.

A new format is one file, and one line in `READERS` (by suffix) or `RECOGNISED` (by how the file begins).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from resispec_verify.dumps.formats.foreign import conversion
from resispec_verify.dumps.formats.jsons import with_meta
from resispec_verify.dumps.formats.llamacpp import is_llamacpp, read_llamacpp
from resispec_verify.dumps.formats.npz import read_npz
from resispec_verify.dumps.formats.pt import read_pt
from resispec_verify.dumps.formats.safetensors import read_safetensors
from resispec_verify.dumps.kinds.keys import as_mapping
from resispec_verify.dumps.kinds.rounds import unstacked
from resispec_verify.dumps.kinds.tree_rounds import unstacked_trees
from resispec_verify.dumps.opening import check_file, show
from resispec_verify.errors import InputError

__all__ = ["READERS", "RECOGNISED", "load_mapping"]

READERS: dict[str, Callable[[Path], object]] = {
    ".pt": read_pt,
    ".pth": read_pt,
    ".safetensors": read_safetensors,
    ".npz": read_npz,
}
"""By suffix."""
RECOGNISED = (("files of llama.cpp's --kl-divergence-base", is_llamacpp, read_llamacpp),)
"""Formats of any suffix: in words, what tells their files, and what reads them."""


def load_mapping(path: str | os.PathLike[str]) -> dict:
    """Read the dict a file holds, of whatever kind of dump: its arrays are views, not copies, where possible.

    Rounds saved as arrays with a leading axis become a list of rounds, and a list of dicts becomes `chunks`.

    Parameters
    ----------
    path : path
        A file with one of the suffixes in `READERS`, or a base file of llama.cpp under any name.

    Raises
    ------
    InputError
        If the file is missing, not of a known format, damaged, needs code, or holds no dict.
    """
    path = check_file(path)
    read = READERS.get(path.suffix.lower())
    read = read or next((reader for _, matches, reader in RECOGNISED if matches(path)), None)
    if read is None:
        if (line := conversion(path)) is not None:
            raise InputError(f"{path}: {line}")
        suffix = f"suffix {show(path.suffix)}" if path.suffix else "a name without suffix"
        others = ", and ".join(words for words, _, _ in RECOGNISED)
        raise InputError(
            f"{path}: {suffix} is not a known format; give one of {', '.join(READERS)}, a folder or glob of "
            f"them or its index.json, or {others}"
        )
    return unstacked_trees(path, unstacked(path, with_meta(path, as_mapping(path, read(path)))))
