"""NumPy `.npz` files: stored arrays are memory-mapped, compressed ones decompressed within stated bounds."""

from __future__ import annotations

import math
import os
import re
import threading
import zlib
from collections import OrderedDict
from mmap import mmap
from typing import Any

import ml_dtypes
import numpy as np

from resispec_verify.dumps.formats.archive import ZipRecords
from resispec_verify.dumps.formats.jsons import parse_json
from resispec_verify.dumps.formats.mapped import c_strides, is_text, view
from resispec_verify.dumps.opening import listing, show
from resispec_verify.dumps.rows import LazyRows, Rows
from resispec_verify.errors import InputError

__all__ = ["read_npz"]

MAGIC = b"\x93NUMPY"
LONGEST_HEADER = 1 << 16
DEFLATED = 8
MOST_RATIO = 1032
"""Deflate cannot do better, so a header that claims more lies."""
LARGE = 1 << 20
"""Compressed matrices from this size on are read row by row as they are asked for."""
MOST_COMPRESSED = 1 << 26
"""What all compressed arrays that must be read at once may take together."""
MOST_SKIPPED = 1 << 23
ROWS_SKIPPED = 1 << 10
"""How many bytes and rows of a compressed matrix are kept that were skipped."""
PIECE = 1 << 18
BROKEN = "copy or record it again"


class NpzRecords(ZipRecords):
    """The zip file of `numpy.savez`."""

    resave = "save it with numpy.savez(path, **arrays)"

    def _check(self) -> None:
        if not any(name.endswith(".npy") for name in self.records):
            raise InputError(
                f"{self.path}: a zip file, but not one of numpy.savez (no .npy in it; its records: "
                f"{listing(self.records)}); {self.resave}"
            )

    def _not_zip(self, head: bytes) -> str:
        return f"is not an .npz file ({self._size} bytes, begins with {head!r}); {self.resave}"


def read_npz(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a `.npz` file; nothing is unpickled.

    Returns
    -------
    dict
        Read-only arrays by name: views of the memory-mapped file where they are stored (`numpy.savez`), in
        memory or read row by row where they are compressed (`numpy.savez_compressed`). An array without axes
        is a Python value, and a `meta` that is a JSON text is parsed.

    Raises
    ------
    InputError
        If the file is missing, truncated or damaged, holds object arrays, or needs more memory than its
        headers and sizes allow.
    """
    records = NpzRecords(path)
    left = MOST_COMPRESSED
    mapping: dict[str, Any] = {}
    for record in records.records:
        if not record.endswith(".npy"):
            continue
        key = record[: -len(".npy")]
        if records.records[record].compress_type == DEFLATED:
            value = _compressed(records, record, show(key), left)
            left -= value.nbytes if isinstance(value, np.ndarray) else 0
        else:
            value = _mapped(records, record, show(key))
        mapping[key] = _plain(records, key, value)
    return mapping


def _plain(records: NpzRecords, key: str, value: Rows) -> Any:
    if isinstance(value, LazyRows):
        return value
    if value.ndim or value.dtype.kind == "V":
        return value
    if not is_text(value):
        raise InputError(f"{records.path}: array {show(key)} holds text that is not Unicode; {BROKEN}")
    scalar = value.item()
    if key == "meta" and isinstance(scalar, (str, bytes)):
        return parse_json(scalar, f"{records.path}: meta")
    return scalar


def _mapped(records: NpzRecords, record: str, name: str) -> np.ndarray:
    start, end = records.stored(record, name)
    head = records.buffer[start : min(end, start + LONGEST_HEADER)]
    dtype, shape, fortran, offset = _header(records, name, head)
    needed = math.prod(shape) * dtype.itemsize
    if needed != end - start - offset:
        raise InputError(
            f"{records.path}: array {name} is {dtype.name} {list(shape)}, {needed} bytes, but has "
            f"{end - start - offset}; {BROKEN}"
        )
    return _array(f"{records.path}: array {name}", records.buffer, dtype, shape, fortran, start + offset)


def _compressed(records: NpzRecords, record: str, name: str, left: int) -> Rows:
    start, end = records.extent(record, name)
    stated = records.records[record].file_size
    stream = _Inflated(records, start, end, name)
    # A header may be short of what is asked for; the array after it is then short as well.
    head = stream.take(min(stated, LONGEST_HEADER), exact=False)
    dtype, shape, fortran, offset = _header(records, name, head)
    needed = math.prod(shape) * dtype.itemsize
    if needed + offset != stated or stated > MOST_RATIO * (end - start) + PIECE:
        raise InputError(
            f"{records.path}: array {name} is {dtype.name} {list(shape)}, {needed} bytes, but its record "
            f"says {stated} of {end - start} compressed; {BROKEN}"
        )
    streams = len(shape) > 1 and not fortran and needed >= LARGE and dtype.kind in "fV"
    at_once = math.prod(shape[-1:]) * dtype.itemsize if streams else needed
    if at_once > left:
        raise InputError(
            f"{records.path}: array {name} needs {at_once} bytes decompressed, too many to hold; "
            f"{records.resave}, without compression"
        )
    if streams:
        return _CompressedRows(records, (start, end), name, dtype, shape, offset)
    stream = _Inflated(records, start, end, name)
    stream.take(offset)
    data = bytes(stream.take(needed))
    stream.finish()
    if zlib.crc32(data, zlib.crc32(head[:offset])) != records.records[record].CRC:
        raise InputError(f"{records.path}: array {name} has a wrong checksum; {BROKEN}")
    return _array(f"{records.path}: array {name}", data, dtype, shape, fortran, 0)


def _array(
    what: str, buffer: mmap | bytes, dtype: np.dtype, shape: tuple[int, ...], fortran: bool, start: int
) -> np.ndarray:
    """A view of the buffer, which is known to be long enough."""
    strides = c_strides(shape[::-1])[::-1] if fortran else c_strides(shape)
    try:
        return view(buffer, dtype, shape, strides, start, 0, len(buffer))
    except (ValueError, OverflowError) as error:
        raise InputError(f"{what} is damaged ({show(str(error))}); {BROKEN}") from None


class _Inflated:
    """A compressed record from its beginning; no more is decompressed than is asked for."""

    def __init__(self, records: NpzRecords, start: int, end: int, name: str) -> None:
        self._records, self._name = records, name
        self._at, self._end = start, end
        self._machine = zlib.decompressobj(-zlib.MAX_WBITS)
        self._rest = b""

    def take(self, count: int, *, exact: bool = True) -> bytearray:
        """Return the next `count` bytes; fewer, if not `exact`, where the stream ends."""
        taken = bytearray()
        try:
            while len(taken) < count and not self._machine.eof:
                if not self._rest:
                    self._rest = self._records.buffer[self._at : min(self._at + PIECE, self._end)]
                    self._at += len(self._rest)
                    if not self._rest:
                        break
                taken += self._machine.decompress(self._rest, min(PIECE, count - len(taken)))
                self._rest = self._machine.unconsumed_tail
        except zlib.error as error:
            raise InputError(f"{self._what} is damaged ({show(str(error))}); {BROKEN}") from None
        if exact and len(taken) != count:
            raise InputError(f"{self._what} ends too early; {BROKEN}")
        return taken

    def finish(self) -> None:
        """Check that nothing is left."""
        if self.take(1, exact=False) or not self._machine.eof:
            raise InputError(f"{self._what} does not end where its header says; {BROKEN}")

    @property
    def _what(self) -> str:
        return f"{self._records.path}: array {self._name}"


class _CompressedRows(LazyRows):
    """A compressed matrix; reading on is cheap, going back begins again.

    Threads ask for rows nearly in order: what one of them skips is kept for a while, for one that comes late.
    """

    def __init__(
        self,
        records: NpzRecords,
        span: tuple[int, int],
        name: str,
        dtype: np.dtype,
        shape: tuple[int, ...],
        offset: int,
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self._open = lambda: _Inflated(records, *span, name)
        self._offset, self._width = offset, shape[-1] * dtype.itemsize
        self._stream: _Inflated | None = None
        self._next = 0
        self._skipped: OrderedDict[int, bytearray] = OrderedDict()
        self._lock = threading.Lock()

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return positions ``start`` to ``stop - 1``."""
        with self._lock:
            data = self._kept(start, stop) or self._read(start, stop)
        return np.frombuffer(data, self.dtype).reshape(stop - start, self.shape[-1])

    def _kept(self, start: int, stop: int) -> bytes | None:
        """Rows that were skipped before, if all of them were."""
        wanted = range(start, stop)
        if not all(row in self._skipped for row in wanted):
            return None
        return b"".join([self._skipped.pop(row) for row in wanted])

    def _read(self, start: int, stop: int) -> bytearray:
        stream, at = self._stream, self._next
        if stream is None or start < at:
            stream, at = self._open(), 0
            stream.take(self._offset)
        self._stream = None  # whatever goes wrong from here on, begin again
        most = min(ROWS_SKIPPED, MOST_SKIPPED // max(1, self._width))
        while at < start - most:
            count = min(start - most - at, max(1, PIECE // max(1, self._width)))
            stream.take(count * self._width)
            at += count
        for row in range(at, start):
            self._skipped[row] = stream.take(self._width)
            if len(self._skipped) > most:
                self._skipped.popitem(last=False)
        data = stream.take((stop - start) * self._width)
        if stop == math.prod(self.shape[:-1]):
            stream.finish()
        else:
            self._stream, self._next = stream, stop
        return data


_DESCR = re.compile(r"""['"]descr['"]\s*:\s*(?:'([^']*)'|"([^"]*)"|(\[))""")
_FORTRAN = re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)""")
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(([\dL,\s]*)\)""")
_TYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|c8|c16|[US]\d{1,8}|V\d{1,8})")


def _header(
    records: NpzRecords, name: str, data: bytes | bytearray
) -> tuple[np.dtype, tuple[int, ...], bool, int]:
    """Return dtype, shape, order and where the data begin; the text of the header is not evaluated."""
    what = f"{records.path}: array {name}"
    long = len(data) > 6 and data[6] > 1
    begin = 12 if long else 10
    if data[:6] != MAGIC or len(data) < begin:
        raise InputError(f"{what} is not in the .npy format; {records.resave}")
    offset = begin + int.from_bytes(data[8:begin], "little")
    text = bytes(data[begin:offset]).decode("latin1")
    descr, fortran, shape = (pattern.search(text) for pattern in (_DESCR, _FORTRAN, _SHAPE))
    if offset > len(data) or not descr or not fortran or not shape:
        raise InputError(f"{what} has a damaged or very long header; {BROKEN}")
    kind = _dtype(records, what, descr)
    sizes = [part.strip().rstrip("L") for part in shape[1].split(",") if part.strip()]
    if len(sizes) > 32 or any(not size.isdigit() or len(size) > 18 for size in sizes):
        raise InputError(f"{what} has a damaged shape; {BROKEN}")
    if not kind.itemsize and math.prod(map(int, sizes)) > 1:
        raise InputError(f"{what} has elements of no size; {BROKEN}")
    return kind, tuple(map(int, sizes)), fortran[1] == "True", offset


def _dtype(records: NpzRecords, what: str, descr: re.Match) -> np.dtype:
    code = descr[1] or descr[2] or ""
    if code == "bfloat16":
        return np.dtype(ml_dtypes.bfloat16)
    if "O" in code:
        raise InputError(
            f"{what} holds Python objects, which can run code when they are loaded; nothing was executed; "
            "save plain numbers (a ragged list: one array each)"
        )
    if descr[3] or not _TYPE.fullmatch(code):
        raise InputError(
            f"{what} has type {show(code or 'with fields')}, which is not read; save plain numbers"
        )
    return np.dtype(code)
