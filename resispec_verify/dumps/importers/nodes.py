"""Values of a JSON document with where they lie, so that an error says what is wrong where."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from resispec_verify.dumps.formats.jsons import parse_json
from resispec_verify.dumps.opening import open_file, show
from resispec_verify.errors import InputError

__all__ = ["Node", "documents"]

MOST_JSON = 1 << 26
"""Bytes of one document: parsed, it takes some ten times as much."""
LARGEST_TOKEN = 2**31 - 1
LINES = (".jsonl", ".ndjson")


@dataclass(frozen=True)
class Node:
    """A value and where it lies: "answer.json: choices[0].logprobs"."""

    value: object
    where: str

    def refuse(self, message: str) -> InputError:
        """The error to raise about this value."""
        return InputError(f"{self.where}: {message}")

    def get(self, key: str) -> Node | None:
        """What an object has under a key; None where that is missing or null."""
        value = self.object().get(key)
        return None if value is None else Node(value, _under(self.where, key))

    def need(self, key: str) -> Node:
        """As `get`, and an error where it is missing."""
        found = self.get(key)
        if found is None:
            raise self.refuse(f"has no {key}; is it of another format? (--from)")
        return found

    def object(self) -> dict:
        """The value, which must be an object."""
        if not isinstance(self.value, dict):
            raise self._wrong("an object")
        return self.value

    def entries(self) -> list[Node]:
        """The entries of a list."""
        if not isinstance(self.value, list):
            raise self._wrong("a list")
        return [Node(value, f"{self.where}[{i}]") for i, value in enumerate(self.value)]

    def number(self) -> float:
        """A number, -inf included."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong("a number")
        try:
            number = float(value)
        except OverflowError:
            raise self._wrong("a number") from None
        if math.isnan(number) or number == math.inf:
            raise self.refuse(f"is {number}; log finite log-probabilities")
        return number

    def whole(self, high: int = LARGEST_TOKEN) -> int:
        """A whole number from 0 to `high`."""
        value = self.value
        if type(value) is not int or not 0 <= value < high:
            raise self._wrong("a whole number that is not negative")
        return value

    def text(self) -> str:
        """A text."""
        if not isinstance(self.value, str):
            raise self._wrong("a text")
        return self.value

    def ids(self) -> list[int]:
        """A list of token ids."""
        return [entry.whole() for entry in self.entries()]

    def _wrong(self, wanted: str) -> InputError:
        value = self.value
        shown = show(value) if isinstance(value, (str, int, float)) else type(value).__name__
        return self.refuse(f"is {shown}, and must be {wanted}; is it of another format? (--from)")


def _under(where: str, key: str) -> str:
    return (
        f"{where}: {show(key)}" if where.endswith(LINES) or "[" not in where[-40:] else f"{where}.{show(key)}"
    )


def documents(path: Path) -> Iterator[Node]:
    """The JSON documents of a file: one, the entries of a list, or one a line of a .jsonl file.

    Raises
    ------
    InputError
        A file that is missing, too long to hold, or not JSON.
    """
    with open_file(path) as file:
        if path.suffix.lower() in LINES:
            number = 0
            while line := file.readline(MOST_JSON + 1):
                number += 1
                if line.strip():
                    where = f"{path}: line {number}"
                    yield Node(parse_json(_decoded(line, where), where, MOST_JSON), where)
            return
        if os.fstat(file.fileno()).st_size > MOST_JSON:
            raise InputError(
                f"{path}: has more than {MOST_JSON >> 20} MiB of JSON; write one answer a line (.jsonl)"
            )
        data = file.read()
    whole = Node(parse_json(_decoded(data, str(path)), str(path), MOST_JSON), str(path))
    yield from whole.entries() if isinstance(whole.value, list) else [whole]


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{where}: is not UTF-8; write the JSON again") from None
