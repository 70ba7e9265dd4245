"""What the dumps of a run are: the ``"dump"`` of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resispec_verify.dumps import FlatDump
from resispec_verify.tables.table import Table

__all__ = ["facts_of", "facts_of_arrays"]


def facts_of(dumps: Sequence[FlatDump], tables: Sequence[Table]) -> dict[str, Any]:
    """Facts about dumps and what they gave, one table a dump."""
    padding = [mass for table in tables for mass in table.padding]
    return {
        "paths": [str(dump.path) for dump in dumps],
        "positions": sum(dump.positions for dump in dumps),
        "vocab": max((dump.vocab for dump in dumps), default=0),
        "dtype": "/".join(dict.fromkeys(dump.dtype for dump in dumps)),
        "padding": {"mass_mean": sum(padding) / len(padding), "mass_max": max(padding)} if padding else None,
        "notes": [{"path": str(dump.path), "text": note} for dump in dumps for note in dump.notes],
        "left_out": sum(dump.left_out for dump in dumps),
        "constant_rows": [
            {"path": str(dump.path), "positions": table.constant}
            for dump, table in zip(dumps, tables, strict=True)
            if table.constant
        ],
    }


def facts_of_arrays(positions: int, vocab: int | None = None, notes: Sequence[str] = ()) -> dict[str, Any]:
    """The same of rows that came as arrays, or by hand; ``notes`` say how they are read."""
    said = [{"path": "the rows", "text": note} for note in notes]
    return facts_of([], []) | {"positions": positions, "vocab": vocab, "dtype": "float64", "notes": said}
