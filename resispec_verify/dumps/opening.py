"""Opening a file without surprises, and printing names that came out of one."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from resispec_verify.errors import InputError

__all__ = ["Crumb", "PathLike", "as_path", "check_file", "key_name", "listing", "open_file", "show"]

LONGEST_NAME = 80
MOST_NAMES = 20

PathLike = str | os.PathLike[str]
"""The path of a file, as callers may give it."""

Crumb = tuple["Crumb", object] | None
"""Where a value lies in nested containers: (where its container lies, its key or index)."""


def show(value: object) -> str:
    """Return a short, one-line, plain-ASCII form of a name found in a file.

    Names in a file are written by whoever made it: they may be megabytes long or carry terminal
    escapes.
    """
    if isinstance(value, str):
        text = ascii(value[: LONGEST_NAME + 1])[1:-1]
    else:
        try:
            text = ascii(value)
        except ValueError:  # an integer of more digits than Python prints
            text = f"a huge {type(value).__name__}"
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 3] + "..."


def key_name(crumb: Crumb) -> str:
    """Return a crumb as ``meta['temperature'][3]``."""
    keys = []
    while crumb is not None and len(keys) < MOST_NAMES:
        crumb, key = crumb
        keys.append(key)
    first, *rest = keys[::-1] or [""]
    return show(first) + "".join(f"[{show(key) if type(key) is int else repr(show(key))}]" for key in rest)


def listing(names: object) -> str:
    """Return at most twenty names as ``a, b, c`` for the end of an error message."""
    shown = [show(name) for name in names]  # type: ignore[attr-defined]
    rest = len(shown) - MOST_NAMES
    return ", ".join(shown[:MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "") if shown else "none"


def as_path(path: object) -> Path:
    """Return what was given as a `Path`; `InputError` where it is none, such as None or a number."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"a path is needed, got {show(path)}; give the name of a file")
    return Path(path)


def check_file(path: str | os.PathLike[str]) -> Path:
    """Return `path` as a `Path` once it is known to be a regular file that is not empty.

    Raises
    ------
    InputError
        If it is missing, a directory, a pipe or device (opening one may block for ever), or empty.
    """
    path = as_path(path)
    try:
        status = path.stat()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({_reason(error)}); check the path") from None
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path}: is a directory; name a dump file in it")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: is not a regular file; save the dump to disk first")
    if status.st_size == 0:
        raise InputError(f"{path}: is empty (0 bytes); record or copy the dump again")
    return path


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading bytes.

    Raises
    ------
    InputError
        As `check_file`, and if the system refuses to open it.
    """
    path = check_file(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be opened ({_reason(error)}); check its permissions") from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
