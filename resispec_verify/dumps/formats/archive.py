"""The zip container of a `.pt` or `.npz` file, memory-mapped: where the bytes of each record lie."""

from __future__ import annotations

import mmap
import os
import re
import struct
import zipfile
from pathlib import Path
from typing import BinaryIO, ClassVar

from resispec_verify.dumps.opening import listing, open_file, show
from resispec_verify.errors import InputError

__all__ = ["Archive", "ZipRecords"]

LOCAL_HEADER = struct.Struct("<4s5H3L2H")
LOCAL_MAGIC = b"PK\x03\x04"
ENCRYPTED = 0x1
UTF8_NAME = 0x800


class ZipRecords:
    """A zip file, mapped read-only; its descriptor is closed and arrays on `buffer` keep the map alive.

    Attributes
    ----------
    path : Path
        The file.
    buffer : mmap.mmap
        The whole file, read-only.
    records : dict of str to zipfile.ZipInfo
        By name, as the directory says; nothing in it is checked but that names are unique.
    """

    resave: ClassVar[str]
    """What to do about a file that is not right."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with open_file(path) as file:
            self._size = os.fstat(file.fileno()).st_size
            self.records = self._directory(file)
            self._check()
            try:
                self.buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise InputError(
                    f"{self.path}: cannot be memory-mapped ({error}); copy it to a local disk"
                ) from None

    def stored(self, record: str, name: str) -> tuple[int, int]:
        """Return where the bytes of a record begin and end in the file.

        Parameters
        ----------
        record : str
            A key of `records`.
        name : str
            What errors call it.

        Raises
        ------
        InputError
            If the record is compressed or encrypted or reaches beyond the end of the file, or its local
            header does not match the directory.
        """
        info = self.records[record]
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            self._refuse_encrypted(info, name)
            raise InputError(
                f"{self.path}: record {name} is compressed, so it cannot be memory-mapped; {self.resave}"
            )
        return self.extent(record, name)

    def extent(self, record: str, name: str) -> tuple[int, int]:
        """Return where a record's bytes, compressed or not, begin and end; raises as `stored`."""
        info = self.records[record]
        self._refuse_encrypted(info, name)
        start = self._data_start(info, name)
        if start + info.compress_size > self._size:
            raise InputError(
                f"{self.path}: record {name} says {info.compress_size} bytes from byte {start} on, but the "
                f"file has only {self._size} bytes; copy or record it again"
            )
        return start, start + info.compress_size

    def _refuse_encrypted(self, info: zipfile.ZipInfo, name: str) -> None:
        if info.flag_bits & ENCRYPTED:
            raise InputError(f"{self.path}: record {name} is encrypted; {self.resave}")

    def _data_start(self, info: zipfile.ZipInfo, name: str) -> int:
        # The extra field of the local header (torch aligns storages with it) is not the directory's.
        broken = InputError(f"{self.path}: the header of record {name} is damaged; copy or record it again")
        begin = info.header_offset
        if not 0 <= begin <= self._size - LOCAL_HEADER.size:
            raise broken
        fields = LOCAL_HEADER.unpack_from(self.buffer, begin)
        magic, flags, method, name_size, extra_size = (fields[i] for i in (0, 2, 3, 9, 10))
        begin += LOCAL_HEADER.size
        raw = self.buffer[begin : begin + name_size]
        local = raw.decode("utf-8" if flags & UTF8_NAME else "cp437", "replace")
        if magic != LOCAL_MAGIC or method != info.compress_type or local != info.orig_filename:
            raise broken
        return begin + name_size + extra_size

    def _directory(self, file: BinaryIO) -> dict[str, zipfile.ZipInfo]:
        head = file.read(4)
        if not LOCAL_MAGIC.startswith(head):
            raise InputError(f"{self.path}: {self._not_zip(head)}")
        try:
            with zipfile.ZipFile(file) as archive:
                infos = archive.infolist()
        except Exception as error:  # zipfile raises struct.error, ValueError and others on damaged files
            raise InputError(
                f"{self.path}: truncated or damaged: {self._size} bytes without a valid zip directory "
                f"({show(str(error))}); copy or record it again"
            ) from None
        records: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            if info.filename in records:
                raise InputError(f"{self.path}: has two records named {show(info.filename)}; {self.resave}")
            records[info.filename] = info
        return records

    def _check(self) -> None:
        """Refuse zip files that are not of this kind, before anything is mapped."""

    def _not_zip(self, head: bytes) -> str:
        raise NotImplementedError


class Archive(ZipRecords):
    """A `.pt` zip file whose records are stored uncompressed.

    Attributes
    ----------
    prefix : str
        The folder inside the archive that holds ``data.pkl``; records are named without it.
    """

    resave = "re-save it with torch.save(obj, path)"

    def __contains__(self, record: str) -> bool:
        return f"{self.prefix}/{record}" in self.records

    def read(self, record: str) -> bytes:
        """Return a copy of the bytes of one small record, such as ``data.pkl``."""
        start, end = self.span(record)
        return self.buffer[start:end]

    def span(self, record: str) -> tuple[int, int]:
        """Return where the bytes of a record begin and end in the file.

        Raises
        ------
        InputError
            If the record is missing, and as `stored`.
        """
        if record not in self:
            raise InputError(f"{self.path}: record {show(record)} is missing from the archive; {self.resave}")
        return self.stored(f"{self.prefix}/{record}", show(record))

    def _check(self) -> None:
        found = [name[:-9] for name in self.records if re.fullmatch(r"[^/]+/data\.pkl", name)]
        if len(found) != 1:
            raise InputError(
                f"{self.path}: a zip file, but not one of torch.save (no single data.pkl; its records: "
                f"{listing(self.records)}); {self.resave}"
            )
        if f"{found[0]}/constants.pkl" in self.records:
            raise InputError(f"{self.path}: is a TorchScript module, not saved tensors; {self.resave}")
        self.prefix = found[0]

    def _not_zip(self, head: bytes) -> str:
        return f"is not a PyTorch zip file ({self._size} bytes, begins with {head!r}); {self.resave}"
