"""PyTorch files from before 1.6: pickles one after the other, then the storages; memory-mapped."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from resispec_verify.dumps.formats.unpickle import Storage, load_stream
from resispec_verify.dumps.opening import open_file, show
from resispec_verify.errors import InputError

__all__ = ["LegacyFile", "is_legacy"]

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
COUNT = struct.Struct("<q")
RESAVE = "re-save it with torch.save(torch.load(path, weights_only=True), path)"


def is_legacy(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins like a pickle, as those before PyTorch 1.6 do."""
    with open_file(path) as file:
        return file.read(1) == b"\x80"


class LegacyFile:
    """A file of `torch.save` before 1.6, walked with the same machine as zip files; torch is not needed.

    Attributes
    ----------
    path : Path
    buffer : mmap.mmap
        The whole file, read-only.
    content : object
        What its pickle describes; see `load_pickle`.

    Raises
    ------
    InputError
        If it is a pickle of another kind, is damaged, needs anything but tensors and plain values, or its
        storages are not as long as it says.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with open_file(path) as file:
            self.buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._next("a bare pickle, not a file of torch.save, or a truncated one")[0] != MAGIC:
            raise InputError(
                f"{path}: is a bare pickle, not a file of torch.save, and is not opened; save a dict of "
                "tensors with torch.save"
            )
        before = "a PyTorch file from before 1.6, perhaps truncated"
        protocol, system = self._next(before)[0], self._next(before)[0]
        if protocol != PROTOCOL or not isinstance(system, dict) or system.get("little_endian") is not True:
            raise InputError(f"{path}: is not a little-endian PyTorch file of protocol {PROTOCOL}; {RESAVE}")
        self.content, storages = self._next(before)
        self._spans = dict(self._places(storages, self._next(before)[0]))

    def span(self, record: str) -> tuple[int, int]:
        """Return where the bytes of a storage, ``data/`` and its key, begin and end in the file."""
        return self._spans[record]

    def _next(self, what: str) -> tuple[object, dict[str, Storage]]:
        """What the next pickle describes, and the storages it refers to."""
        try:
            return load_stream(self.buffer, len(self.buffer), self.path)
        except InputError as error:
            raise InputError(f"{error} ({what}; {len(self.buffer)} bytes in all)") from None

    def _places(self, storages: dict[str, Storage], keys: object) -> list[tuple[str, tuple[int, int]]]:
        path, at, size = self.path, self.buffer.tell(), len(self.buffer)
        if not isinstance(keys, list) or not all(type(key) is str for key in keys):
            raise InputError(
                f"{path}: truncated or damaged: its list of storages is not one; record it again"
            )
        if sorted(keys) != sorted(storages):
            raise InputError(
                f"{path}: truncated or damaged: its storages are not those it uses; record it again"
            )
        places = []
        for key in keys:
            storage = storages[key]
            begin = at + COUNT.size
            end = begin + storage.nbytes
            if end > size:
                raise InputError(
                    f"{path}: truncated: storage {show(key)} says {storage.nbytes} bytes from byte {at} on, "
                    f"but the file has only {size} bytes; copy or record it again"
                )
            if COUNT.unpack_from(self.buffer, at)[0] * storage.dtype.itemsize != storage.nbytes:
                raise InputError(f"{path}: damaged: storage {show(key)} has two lengths; record it again")
            places.append((f"data/{key}", (begin, end)))
            at = end
        return places
