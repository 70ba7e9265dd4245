"""A journal of finished work: what a run that was ended, however hard, need not do again.

A text file of JSON lines. The first says what the work is; each further one is a finished piece of it. A line
is written at once and is on the disk before the next piece begins, so that a process that is killed leaves at
most one half-written line, the last, which is dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError

try:
    import fcntl
except ImportError:  # Windows: two runs on one journal are not told apart there
    fcntl = None

__all__ = ["Journal"]

ANOTHER = "name another file to start anew"


class Journal:
    """A journal, created where there is none and continued where there is one; a context manager.

    Parameters
    ----------
    path : Path
    header : mapping
        What the work is: plain values, the same for every run that may share the journal.

    Attributes
    ----------
    entries : list
        The finished pieces found in the file, in the order in which they were finished.

    Raises
    ------
    InputError
        The file is not a journal, is damaged, is of other work, or another run is writing to it.
    OSError
        It cannot be written to.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path = path
        self.entries: list[Any] = []
        first = _line(header)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            self._lock()
            self._read(first, json.loads(first))
        except BaseException:
            os.close(self._file)
            raise

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add a finished piece; when this returns it is on the disk."""
        self._write(_line(entry))

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def _lock(self) -> None:
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise InputError(f"{self.path}: is not a regular file; {ANOTHER}")
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{self.path}: another run is writing to it; wait for it, or {ANOTHER}"
            ) from None
        except OSError:  # a file system without locks
            return

    def _read(self, first: bytes, header: Mapping[str, Any]) -> None:
        with open(self._file, "rb", closefd=False) as file:
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        # Only what this program can have left half-written is ever cut off.
        if not whole and not first.startswith(data):
            raise InputError(f"{self.path}: is not a journal; {ANOTHER}")
        lines = whole.splitlines()
        if lines:
            found = _parsed(lines[0])
            if not isinstance(found, dict) or found.get("journal") != header["journal"]:
                raise InputError(f"{self.path}: is not a journal of this kind; {ANOTHER}")
            for key, value in header.items():
                if not _same(found.get(key), value):
                    raise InputError(f"{self.path}: {_difference(key, found.get(key), value)}; {ANOTHER}")
        for number, line in enumerate(lines[1:], 2):
            entry = _parsed(line)
            if not isinstance(entry, dict):
                raise InputError(f"{self.path}: line {number} is damaged; delete it, or {ANOTHER}")
            self.entries.append(entry)
        if len(whole) < len(data):
            os.ftruncate(self._file, len(whole))
        if not whole:
            self._write(first)

    def _write(self, line: bytes) -> None:
        """Write a line to the disk, as a whole or not at all."""
        before = os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            raise OSError(error.errno, error.strerror, str(self.path)) from None


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _same(was: Array, now: Array) -> bool:
    """Whether two are equal; an option that one release did not have is as one that was not given."""
    if isinstance(was, dict) and isinstance(now, dict):
        return all(was.get(key) == now.get(key) for key in {**was, **now})
    return was == now


def _difference(key: str, was: Array, now: Array) -> str:
    """What is different about the work, in words."""
    if isinstance(was, dict) and isinstance(now, dict):
        key, was, now = next((k, was.get(k), now.get(k)) for k in {**was, **now} if was.get(k) != now.get(k))
        return f"was begun with --{key.replace('_', '-')} {_shown(was)}, not {_shown(now)}"
    if key == "dumps" and isinstance(was, list):
        paths, ours = ([dump["path"] for dump in dumps] for dumps in (was, now))
        if paths != ours:
            return f"is of {_shown(', '.join(paths))}, not of {_shown(', '.join(ours))}"
        changed = next(path for path, a, b in zip(paths, was, now, strict=True) if a != b)
        return f"{_shown(changed)} has changed since it was begun"
    return f"was begun by {key} {_shown(was)}, not {_shown(now)}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    text = ascii(text)[1:-1]
    return text if len(text) <= 80 else text[:40] + "..." + text[-37:]
