"""Scalar logs as columns: JSON lines or CSV, a block at a time, every value checked.

A line is one decision about one drafted token. The keys are those of `KEYS`; what else a line holds is not
read, and is named in a note.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from resispec_verify.dumps.opening import as_path, listing, open_file, show
from resispec_verify.errors import InputError

__all__ = ["KEYS", "SUFFIXES", "Block", "blocks", "is_scalar_log"]

#: Suffixes that say that a file is a scalar log.
SUFFIXES = (".jsonl", ".ndjson", ".csv")
_NEEDED = ("p", "q", "accepted")
_SHARES = ("p", "q", "next_p", "next_cdf", "next_target_p", "p_raw", "next_p_raw")
_LOGS = ("reported", "next_reported")
_WHOLE = ("depth", "position", "round", "token", "next_token")
#: Every key that is read. `request` is a number or a text.
KEYS = (*_NEEDED, "u", *_SHARES[2:], *_LOGS, *_WHOLE, "request")
# Bytes that are read at once; a line may not be longer.
_CHUNK = 1 << 22
# A float32 log-softmax rounds to a little above 0, and a cumulative sum to a little above 1.
_ABOVE = 1e-5


@dataclass(frozen=True, eq=False)
class Block:
    """Decisions that follow each other.

    Attributes
    ----------
    line : int64 array (n,)
        Number of each in the file, from 1.
    columns : mapping of float64 arrays (n,)
        By key, those that any of these lines has; NaN where one has none. `accepted` is 0 or 1.
    request : list or None
        Of each line.
    others : frozenset of str
        Keys that are not read.
    """

    line: np.ndarray
    columns: Mapping[str, np.ndarray]
    request: list[Any] | None = None
    others: frozenset[str] = field(default_factory=frozenset)

    def __len__(self) -> int:
        return len(self.line)

    def get(self, key: str) -> np.ndarray:
        """A column ``(n,)``, of NaN where there is none."""
        found = self.columns.get(key)
        return np.full(len(self), np.nan) if found is None else found


def is_scalar_log(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a scalar log: by its suffix, or because its first line is an object with p."""
    path = as_path(path)
    if path.suffix.lower() in SUFFIXES:
        return True
    if not path.is_file():
        return False
    with open_file(path) as file:
        first = file.readline(1 << 12).lstrip(b"\xef\xbb\xbf \t")
    if first[:1] != b"{":
        return False
    try:
        return {"p", "accepted"} <= json.loads(first).keys()
    except (ValueError, AttributeError, RecursionError):
        return False


def blocks(path: str | os.PathLike[str]) -> Iterator[Block]:
    """Read a scalar log, a few megabytes at a time.

    Raises
    ------
    InputError
        A line that is no object, a key that is missing, or a value that cannot be; with the number of the
        line.
    """
    path = as_path(path)
    name, header, empty = str(path), None, True
    for first, lines in _chunks(name, path):
        numbers = np.asarray([first + i for i, line in enumerate(lines) if line.strip()], np.int64)
        texts = [line.strip() for line in lines if line.strip()]
        if path.suffix.lower() == ".csv":
            decoded = [_decoded(name, n, text) for n, text in zip(numbers, texts, strict=True)]
            if header is None and decoded:
                header = _header(name, decoded[0])
                numbers, decoded = numbers[1:], decoded[1:]
            rows = [_csv_row(name, n, text, header) for n, text in zip(numbers, decoded, strict=True)]
        else:
            rows = _objects(name, numbers, texts)
        if rows:
            empty = False
            yield _block(name, numbers, rows)
    if empty:
        raise InputError(f"{name}: holds no decisions; log one line a decision, with {', '.join(_NEEDED)}")


def _chunks(name: str, path: Any) -> Iterator[tuple[int, list[bytes]]]:
    """Whole lines, with the number of the first."""
    number, rest = 1, b""
    with open_file(path) as file:
        while chunk := file.read(_CHUNK):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if len(rest) > _CHUNK:
                raise InputError(
                    f"{name}: line {number + len(lines)} is longer than {_CHUNK} bytes; "
                    "log one line a decision"
                )
            if number == 1 and lines:
                lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
            yield number, lines
            number += len(lines)
    if rest:
        yield number, [rest.removeprefix(b"\xef\xbb\xbf") if number == 1 else rest]


def _decoded(name: str, number: int, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise InputError(f"{name}: line {number} is not UTF-8; write it again") from None


def _objects(name: str, numbers: np.ndarray, texts: list[bytes]) -> list[dict[str, Any]]:
    """All lines in one call of the parser; one by one only to say which is wrong."""
    if all(text[:1] == b"{" and text[-1:] == b"}" for text in texts):
        joined = b"[" + b",".join(texts) + b"]"
        try:
            rows = json.loads(joined, parse_constant=_constant)
        except (ValueError, RecursionError):
            rows = []
        # Every key has its colon: no more of them than keys are kept, and no key is there twice.
        if len(rows) == len(texts) and joined.count(b":") == sum(map(len, rows)):
            return rows
    return [_object(name, number, text) for number, text in zip(numbers, texts, strict=True)]


def _object(name: str, number: int, text: bytes) -> dict[str, Any]:
    try:
        row = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{name}: line {number} is not valid JSON ({show(str(error))}); write one object a line"
        ) from None
    if not isinstance(row, dict):
        raise InputError(f"{name}: line {number} is {show(row)}; write one object a line")
    return row


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a key is there twice")
    return row


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _header(name: str, text: str) -> list[str]:
    header = [cell.strip() for cell in next(csv.reader([text]))]
    if len(set(header)) < len(header) or not set(_NEEDED) <= set(header):
        raise InputError(
            f"{name}: line 1 must name the columns, each once, with {', '.join(_NEEDED)}; "
            f"it is {listing(header)}"
        )
    return header


_WORDS = {"true": True, "false": False, "True": True, "False": False, "1": True, "0": False}


def _csv_row(name: str, number: int, text: str, header: list[str] | None) -> dict[str, Any]:
    cells = next(csv.reader([text]))
    if header is None or len(cells) != len(header):
        raise InputError(
            f"{name}: line {number} has {len(cells)} cells, and line 1 names {len(header or ())}"
        )
    row: dict[str, Any] = {}
    for key, cell in zip(header, cells, strict=True):
        cell = cell.strip()
        if key not in KEYS or not cell:
            row[key] = None
        elif key == "accepted":
            row[key] = _WORDS.get(cell, cell)
        elif key == "request":
            row[key] = cell
        else:
            row[key] = _number(cell, whole=key in _WHOLE)
    return row


def _number(cell: str, *, whole: bool) -> Any:
    try:
        return int(cell) if whole else float(cell)
    except ValueError:
        return cell


def _block(name: str, numbers: np.ndarray, rows: list[dict[str, Any]]) -> Block:
    there = set().union(*rows)
    columns: dict[str, np.ndarray] = {}
    for key in KEYS[:-1]:
        if key not in there and key not in _NEEDED:
            continue
        values = [row.get(key) for row in rows]
        if key in _NEEDED or any(value is not None for value in values):
            columns[key] = _column(name, numbers, key, values)
    others = frozenset(there - set(KEYS))
    request = [row.get("request") for row in rows]
    if set(map(type, request)) == {type(None)}:
        return Block(numbers, columns, None, others)
    for i, value in enumerate(request):
        if type(value) not in (int, str, type(None)):
            raise _bad(name, numbers[i], "request", value, "log a number or a text")
    if None in request:
        i = request.index(None)
        raise InputError(f"{name}: line {numbers[i]} has no request, and others have; log it on every line")
    return Block(numbers, columns, request, others)


def _column(name: str, numbers: np.ndarray, key: str, values: list[Any]) -> np.ndarray:
    """One key of all lines, as float64."""
    allowed, wanted = _wanted(key)
    if not set(map(type, values)) <= allowed:
        i = next(i for i, value in enumerate(values) if type(value) not in allowed)
        if values[i] is None:
            raise InputError(f"{name}: line {numbers[i]} has no {key}; log {wanted}")
        raise _bad(name, numbers[i], key, values[i], f"log {wanted}")
    try:
        column = np.asarray(values, np.float64)
    except OverflowError:
        i = next(i for i, value in enumerate(values) if type(value) is int and abs(value) > 2**63)
        raise _bad(name, numbers[i], key, values[i], f"log {wanted}") from None
    there = np.asarray([value is not None for value in values]) if type(None) in allowed else True
    low, high = _limits(key)
    inside = (column >= low) & (column <= high)
    wrong = there & ~inside
    if np.any(wrong):
        i = int(np.argmax(wrong))
        raise _bad(name, numbers[i], key, values[i], f"log {wanted}")
    return np.minimum(column, 1.0) if key in _SHARES else column


def _wanted(key: str) -> tuple[set[type], str]:
    if key == "accepted":
        return {bool}, "accepted as true or false"
    if key in _WHOLE:
        return {int, type(None)}, f"{key} as a whole number from 0"
    if key in _LOGS:
        return {float, int, type(None)}, f"{key} as a finite log-probability, at most 0"
    if key == "u":
        return {float, int, type(None)}, "u as the uniform number in [0, 1]"
    if key == "q":
        return {float, int}, "q as the draft's probability of the drafted token, 1 for drafts without a law"
    if key in _NEEDED:
        return {float, int}, f"{key} as a probability in [0, 1]"
    return {float, int, type(None)}, f"{key} as a probability in [0, 1]"


def _limits(key: str) -> tuple[float, float]:
    if key in _LOGS:
        return -1e30, _ABOVE
    return 0.0, 2.0**53 if key in _WHOLE else 1.0 if key == "u" else 1.0 + _ABOVE


def _bad(name: str, number: Any, key: str, value: Any, remedy: str) -> InputError:
    return InputError(f"{name}: line {number}: {key} is {show(value)}; {remedy}")
