"""Writing a `.pt` file piece by piece, without torch and without holding what was written.

The file is a zip archive of one record a storage and a small pickle that names them. A tensor whose size is
known goes straight into the archive; a `Column`, which grows, goes to a file of its own beside it and is
copied into the archive at the end. All of it lies in a temporary folder next to the file until then.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import shutil
import sys
import tempfile
import weakref
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from resispec_verify.errors import InputError

__all__ = ["Column", "PtFile", "Tensor"]

ALIGNMENT = 64
CHUNK = 1 << 22
ZIP64_EXTRA = 20
STORAGE_NAMES = {
    np.dtype(np.float16): "HalfStorage",
    np.dtype(ml_dtypes.bfloat16): "BFloat16Storage",
    np.dtype(np.float32): "FloatStorage",
    np.dtype(np.float64): "DoubleStorage",
    np.dtype(np.int32): "IntStorage",
    np.dtype(np.int64): "LongStorage",
    np.dtype(np.bool_): "BoolStorage",
}


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor in the archive, contiguous, in a storage of its own."""

    key: int
    dtype: np.dtype
    shape: tuple[int, ...]


class Column:
    """A tensor that grows along its first axis.

    Attributes
    ----------
    dtype : numpy.dtype
        One of those torch has a storage for.
    row : tuple of int
        Shape of one entry.
    length : int
        Entries appended so far.
    leading : tuple of int or None
        Axes that take the place of the first one in the file.
    """

    def __init__(self, path: Path, dtype: np.dtype, row: tuple[int, ...]) -> None:
        self.path, self.dtype, self.row = path, dtype, row
        self.length = 0
        self.leading: tuple[int, ...] | None = None
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close

    def append(self, entries: np.ndarray) -> None:
        """Append entries ``(n, *row)``."""
        self._file.write(_bytes(entries, self.dtype))
        self.length += len(entries)

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the file."""
        return (*(self.leading or (self.length,)), *self.row)


class PtFile:
    """A `.pt` file being written; it appears, whole, when `finish` is called.

    Parameters
    ----------
    path : path
        The file; an existing one is replaced at the end.

    Raises
    ------
    OSError
        If the folder cannot be written to, or the disk is full; the path is the error's file name.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._goal = Path(os.path.realpath(path))  # a link stays a link
        with self._named():
            self._folder = Path(tempfile.mkdtemp(dir=self._goal.parent, prefix=".resispec-"))
        self._finalizer = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._raw = open(self._folder / "archive", "wb")  # noqa: SIM115 - closed by finish or discard
        self._archive = zipfile.ZipFile(self._raw, "w")
        self._columns: list[Column] = []
        self._keys = 0

    def tensor(self, array: np.ndarray) -> Tensor:
        """Write an array and return what stands for it in the content; integers become int64."""
        dtype = np.dtype(np.int64) if array.dtype.kind in "iu" else _storable(array.dtype)
        made = Tensor(self._keys, dtype, array.shape)
        self._keys += 1
        with self._named(), self._record(f"data/{made.key}", array.size * dtype.itemsize) as record:
            record.write(_bytes(array, dtype))
        return made

    def column(self, dtype: np.dtype, row: tuple[int, ...]) -> Column:
        """Begin a tensor that grows; integers other than int32 become int64."""
        with self._named():
            made = Column(self._folder / f"column{len(self._columns)}", _storable(dtype), row)
        self._columns.append(made)
        return made

    def append(self, column: Column, entries: np.ndarray) -> None:
        """Append entries to a column of this file."""
        with self._named():
            column.append(entries)

    def finish(self, content: dict[str, Any]) -> None:
        """Write the content, a dict of plain values, `Tensor` and `Column`, and put the file in place."""
        with self._named():
            keys = {id(column): self._copied(column) for column in self._columns}
            data = io.BytesIO()
            _Pickler(data, keys).dump(content)
            for name, value in (
                ("data.pkl", data.getvalue()),
                ("byteorder", sys.byteorder.encode()),
                ("version", b"3\n"),
            ):
                with self._record(name, len(value)) as record:
                    record.write(value)
            self._archive.close()
            self._raw.close()
            os.replace(self._folder / "archive", self._goal)
        self._finalizer()

    def discard(self) -> None:
        """Remove everything that was written."""
        self._archive.fp = None  # nothing to complete: the folder goes
        for file in (*self._columns, self._raw):
            with suppress(OSError):  # what is in its buffer need not fit on the disk
                file.close()
        self._finalizer()

    def _copied(self, column: Column) -> int:
        column.close()
        key, self._keys = self._keys, self._keys + 1
        size = math.prod((column.length, *column.row)) * column.dtype.itemsize
        with open(column.path, "rb") as source, self._record(f"data/{key}", size) as record:
            while size > 0 and (block := source.read(min(CHUNK, size))):
                record.write(block)
                size -= len(block)
        column.path.unlink()  # before the next is copied: the disk need not hold everything twice
        return key

    def _record(self, name: str, size: int) -> Any:
        info = zipfile.ZipInfo(f"archive/{name}")
        info.file_size = size
        # As torch does: storages begin at multiples of 64 bytes, so that they can be memory-mapped.
        large = size * 1.05 > zipfile.ZIP64_LIMIT
        assert self._archive.fp is not None
        end = self._archive.fp.tell() + 30 + len(info.filename) + 4 + (ZIP64_EXTRA if large else 0)
        padding = -end % ALIGNMENT
        info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
        return self._archive.open(info, "w")

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), str(self.path)) from None


def _bytes(array: np.ndarray, dtype: np.dtype) -> Any:
    """The bytes of an array as it is stored, without a copy where it lies so already."""
    return np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data


def _storable(dtype: np.dtype) -> np.dtype:
    if dtype.newbyteorder("=") in STORAGE_NAMES:
        return dtype.newbyteorder("=")
    if dtype.kind in "iu":
        return np.dtype(np.int64)
    raise InputError(f"arrays of dtype {dtype.name} cannot be recorded; convert to float32 or int64")


@dataclass(frozen=True)
class _Name:
    """A global by name: it is written, not imported."""

    module: str
    name: str


@dataclass(frozen=True, eq=False)
class _Storage:
    key: int
    dtype: np.dtype
    numel: int


# The Python pickler, because its table of types can be extended with names that are not importable here.
class _Pickler(pickle._Pickler):  # type: ignore[name-defined, misc]
    write: Callable[[bytes], object]
    save: Callable[[object], None]

    def __init__(self, file: io.BytesIO, keys: dict[int, int]) -> None:
        super().__init__(file, protocol=2)
        self._keys_of_columns = keys

    def persistent_id(self, obj: object) -> tuple | None:
        if not isinstance(obj, _Storage):
            return None
        kind = _Name("torch", STORAGE_NAMES[obj.dtype])
        return ("storage", kind, str(obj.key), "cpu", obj.numel)

    def _save_name(self, obj: _Name) -> None:
        self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())

    def _save_tensor(self, obj: Tensor | Column) -> None:
        key = obj.key if isinstance(obj, Tensor) else self._keys_of_columns[id(obj)]
        shape = obj.shape
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        storage = _Storage(key, obj.dtype, math.prod(shape))
        self.save(_Name("torch._utils", "_rebuild_tensor_v2"))
        self.save((storage, 0, shape, strides, False, OrderedDict()))
        self.write(pickle.REDUCE)

    dispatch = {  # noqa: RUF012 - as in the base class
        **pickle._Pickler.dispatch,  # type: ignore[attr-defined]
        _Name: _save_name,
        Tensor: _save_tensor,
        Column: _save_tensor,
    }
