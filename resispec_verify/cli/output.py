"""Writing results: checked before the run, atomic after it, nothing half-written."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from resispec_verify.errors import InputError

__all__ = ["check_writable", "stdout_is", "table_console", "write_csv", "write_json", "write_text"]


def stdout_is(path: Path | None) -> bool:
    """Whether an output path means standard output."""
    return path is not None and str(path) == "-"


def check_writable(*paths: Path | None) -> None:
    """Raise `InputError` where an output could not be written, before any work is done."""
    named = [path for path in paths if path is not None]
    if sum(str(path) == "-" for path in named) > 1:
        raise InputError("only one output can go to standard output ('-')")
    files = [path for path in named if str(path) != "-"]
    if len({path.absolute() for path in files}) < len(files):
        raise InputError(f"two outputs have the same path {files[0]}; give each its own")
    for path in files:
        folder = path.parent
        if path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder; give a file name")
        if not folder.is_dir():
            raise InputError(f"cannot write {path}: the folder {folder} does not exist; create it first")
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from None
        if path.exists() and not os.access(path, os.W_OK):
            raise InputError(f"cannot write {path}: permission denied")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write text to a path, or to standard output for ``-``."""
    if str(path) == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_bytes(path, text.encode())


def write_json(path: Path | None, report: Mapping[str, Any]) -> None:
    """Write a report; NaN is a defect and raises."""
    if path is not None:
        write_text(path, json.dumps(report, indent=2, allow_nan=False) + "\n")


def write_csv(path: Path | None, records: Sequence[Mapping[str, Any]]) -> None:
    """Write records as CSV with a header line."""
    if path is None:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    write_text(path, text.getvalue())


def table_console(*outputs: Path | None) -> Any:
    """A rich console for tables: standard output, or standard error when a report goes to the former."""
    from rich.console import Console

    taken = any(stdout_is(path) for path in outputs)
    console = Console(stderr=taken, highlight=False)
    # Into a file or a pipe nothing is gained by wrapping at 80 columns.
    return console if console.is_terminal else Console(stderr=taken, highlight=False, width=160)


def print_lines(console: Any, lines: Iterable[str]) -> None:
    """Print lines as they are, without markup."""
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
