"""What every ``--json`` report has in common: its number, its command, and numbers that JSON can say."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["SCHEMA", "envelope", "plain"]

#: Within a number, keys are added and never removed, renamed or given another meaning.
SCHEMA = 1


def envelope(command: str, results: Sequence[Mapping[str, Any]], **facts: Any) -> dict[str, Any]:
    """The whole report of a command, JSON-ready; ``facts`` are what concerns all its results."""
    return plain({"schema": SCHEMA, "command": command, **facts, "results": list(results)})


def plain(value: Any) -> Any:
    """The value of dictionaries, lists, texts and numbers; infinities are the strings "inf" and "-inf"."""
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value
