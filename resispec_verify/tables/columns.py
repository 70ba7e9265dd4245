"""Columns of a table: lists with one entry a position, and what is said of each where it is declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

__all__ = ["Columns", "column", "merge", "numbers"]


class Columns:
    """A row of a table; its lists are columns, with one entry a position."""

    def add(self, **columns: Iterable[Any]) -> None:
        """Append positions, column by column."""
        for name, values in columns.items():
            getattr(self, name).extend(values)

    def extend(self, other: Columns) -> None:
        """Append the positions of the same row of another batch or dump."""
        self.add(**{name: values for name, values in vars(other).items() if isinstance(values, list)})

    def sort(self) -> None:
        """Put the positions of one dump in order: batches have them dataset by dataset."""
        position: list[int] = vars(self)["position"]
        order = sorted(range(len(position)), key=position.__getitem__)
        for name, values in vars(self).items():
            if isinstance(values, list) and values:
                setattr(self, name, [values[i] for i in order])


def merge(rows: dict[Any, Any], fresh: dict[Any, Any]) -> None:
    """Pool rows of another dump into ``rows``: those of one key are joined."""
    for key, row in fresh.items():
        if key in rows:
            rows[key].extend(row)
        else:
            rows[key] = row


def column(
    csv: str | None = None, *, kept: bool = True, read: Callable[[Any], Any] | None = None
) -> list[Any]:
    """Declare a column.

    Parameters
    ----------
    csv : str, optional
        What ``kl --csv`` calls it; it leaves out columns without a name there, and keeps this order.
    kept : bool
        Whether journals have it, and what workers send back.
    read : callable, optional
        Makes an entry again of what `plain` made of it.
    """
    return field(default_factory=list, init=False, metadata={"csv": csv, "kept": kept, "read": read})


def numbers(value: Any) -> Any:
    """The value with the texts "inf" and "-inf" as numbers again."""
    if isinstance(value, list):
        return [numbers(v) for v in value]
    return float(value) if value in ("inf", "-inf") else value
