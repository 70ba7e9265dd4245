"""What an answer looks like: a table in a terminal and in a notebook, a dictionary for everything else."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Report", "shown"]

_WIDTH = 200  # a table takes what it needs; nothing is cut off


class Report:
    """An answer. ``print`` it, look at it in a notebook, or take `to_dict`.

    Attributes
    ----------
    title : str
        What was asked, in one line.
    """

    title: str = ""

    def to_dict(self) -> dict[str, Any]:
        """What the command of the same name writes with ``--json``."""
        raise NotImplementedError

    def _records(self) -> list[dict[str, str]]:
        """The lines of the table, each by column; all with the same columns."""
        raise NotImplementedError

    def _remarks(self) -> Sequence[str]:
        """What a reader must not miss, in words."""
        return ()

    def _table(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        records = self._records()
        table = Table(title=self.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for column in records[0] if records else ():
            table.add_column(column, justify="left" if column in ("rule", "input", "test") else "right")
        for record in records:
            table.add_row(*(Text(value) for value in record.values()))
        if remarks := self._remarks():
            table.caption, table.caption_justify = Text("\n".join(remarks)), "left"
        return table

    def __repr__(self) -> str:
        from rich.console import Console

        out = io.StringIO()
        Console(file=out, width=_WIDTH, color_system=None).print(self._table())
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n")

    def _repr_mimebundle_(
        self, include: Sequence[str], exclude: Sequence[str], **options: Any
    ) -> Mapping[str, str]:
        """For notebooks: rich's own rendering of the table."""
        return self._table()._repr_mimebundle_(include, exclude, **options)


def shown(value: float | str | None) -> str:
    """A number in a table."""
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return value
    return "0" if value == 0 else f"{value:.2e}" if abs(value) < 1e-3 else f"{value:.4f}"
