"""Whether a dump is still the same: the size and a digest of the files behind a path."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from resispec_verify.dumps.opening import open_file
from resispec_verify.dumps.parts.shard_files import INDEX, find_shards

__all__ = ["Fingerprint", "fingerprint", "size_of"]

BLOCK = 1 << 20
SAMPLE = 1 << 16
SAMPLES = 64


class Fingerprint(NamedTuple):
    """Bytes in all files of a dump, and a digest of them."""

    size: int
    digest: str


def fingerprint(
    path: str | os.PathLike[str], *, whole: bool, advance: Callable[[int], Any] = lambda done: None
) -> Fingerprint:
    """Size and SHA-256 of a dump: a file, or the shards and the index of a folder or glob.

    Parameters
    ----------
    path : path
        As in `open_dump`.
    whole : bool
        Read everything; else at most 64 blocks of 64 KiB a file, evenly spaced, the first and the last
        among them: enough to tell one dump from another, not to find one changed number.
    advance : callable
        Called with the number of bytes as they are read.

    Raises
    ------
    InputError
        A file is missing or cannot be read.
    """
    digest, total = hashlib.sha256(), 0
    for name in _files(path):
        with open_file(name) as file:
            size = os.fstat(file.fileno()).st_size
            total += size
            digest.update(size.to_bytes(8, "little"))
            if whole or size <= SAMPLES * SAMPLE:
                while block := file.read(BLOCK):
                    digest.update(block)
                    advance(len(block))
                continue
            for i in range(SAMPLES):
                file.seek((size - SAMPLE) * i // (SAMPLES - 1))
                digest.update(file.read(SAMPLE))
    return Fingerprint(total, digest.hexdigest())


def size_of(path: str | os.PathLike[str]) -> int:
    """Bytes in all files of a dump."""
    return sum(os.stat(name).st_size for name in _files(path))


def _files(path: str | os.PathLike[str]) -> list[Path]:
    path = Path(path)
    shards = find_shards(path)
    if shards is None:
        return [path]
    index = [name for name in (path / INDEX, path) if name.is_file()]
    return [*index, *shards.files]
