"""Tables and lines on a rich console: fewer columns where it is narrow, and nothing cut off."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["csv_text", "number", "print_lines", "print_records", "printable", "safe_line"]

COLOURS = {
    "exact": "green", "inexact": "bold red", "undecided": "yellow", "exact-if": "yellow",
    "proved": "green", "refuted": "bold red", "repaired": "yellow", "failed": "reverse red",
}  # fmt: skip
# Columns that a narrow terminal can do without, in the order in which they go.
DISPENSABLE = ("positions", "KL max", "gap max", "TV max", "limit")
LEFT = ("rule", "dataset", "budget", "dump")

#: What no exact rule accepts more than, on average, of laws that hardly overlap; and of so many positions.
LITTLE, LEAST_POSITIONS = 0.1, 4


def print_records(
    console: Any,
    title: str,
    records: Sequence[dict[str, str]],
    *,
    dispensable: Sequence[str] = DISPENSABLE,
    left: Sequence[str] = LEFT,
) -> None:
    """As a table, with fewer columns on a narrow terminal, or one value a line; nothing is cut off.

    Texts may come from elsewhere: what is not printable is escaped, and what would be a command to CI.

    Parameters
    ----------
    dispensable : sequence of str
        Columns that a narrow terminal can do without, in the order in which they go.
    left : sequence of str
        Columns of words, which begin at their left.
    """
    from rich import box  # here, because `--help` needs none of it
    from rich.table import Table
    from rich.text import Text

    title = safe_line(title)
    records = [{c: safe_line(value) for c, value in record.items()} for record in records]
    columns = list(records[0])
    may_go = [name for name in dispensable if name in columns]
    hidden: list[str] = []
    while _width(columns, records) > console.width and len(hidden) < len(may_go):
        hidden.append(may_go[len(hidden)])
        columns.remove(hidden[-1])
    if title:
        console.print(Text(title), soft_wrap=True)
    if _width(columns, records) > console.width:
        for record in records:
            print_lines(console, ["", *(f"  {key}: {value}" for key, value in record.items())])
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    for record in records:
        table.add_row(*(Text(record[c], style=COLOURS.get(record[c], "")) for c in columns))
    console.print(table)
    if hidden:
        print_lines(console, [f"(not shown at this width: {', '.join(hidden)}; see --json)"])


def _width(columns: Sequence[str], records: Sequence[dict[str, str]]) -> int:
    return sum(max(len(c), *(len(r[c]) for r in records)) + 3 for c in columns)


def number(value: Any) -> str:
    """Four decimals, or a power of ten where these would be lost; text as it is, None as ``-``."""
    if value is None or isinstance(value, str):
        return "-" if value is None else value
    return "0" if value == 0 else (f"{value:.2e}" if abs(value) < 1e-3 else f"{value:.4f}")


def printable(name: object, most: int | None = 80) -> str:
    """A text from elsewhere on one line of a terminal: what is not printable is escaped, the rest cut."""
    shown = str(name) if most is None else str(name)[: most + 1]
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
    return text if most is None or len(text) <= most else text[: most - 3] + "..."


def hardly_overlapping(limits: Iterable[float | None], positions: int) -> list[str]:
    """Say that rows of target and draft hardly overlap, of which no limit of exact rules is LITTLE or more.

    Of a few positions it may be so, and laws by hand are one.
    """
    known = [limit for limit in limits if limit is not None]
    if positions < LEAST_POSITIONS or not known or max(known) >= LITTLE:
        return []
    return [
        f"Target and draft hardly overlap: even exact rules accept {max(known):.4f} at most. Are rows "
        "of both of the same prefixes? 'resispec-verify inspect' looks for rows that are one off."
    ]


def print_lines(console: Any, lines: Iterable[str]) -> None:
    """Print lines as they are, without markup; a name in one cannot begin another, nor be a command to CI."""
    for line in lines:
        console.print(safe_line(line), markup=False, soft_wrap=True)


def safe_line(text: object) -> str:
    """A text that a line may begin with: printable, and no command to GitHub.

    It takes ``::`` at the beginning of a line, and ``##[`` anywhere, for commands of the workflow.
    """
    shown = printable(text, None).replace("##[", "##\\x5b")
    return shown.replace("::", "\\x3a:", 1) if shown.lstrip().startswith("::") else shown


def csv_text(records: Iterable[Mapping[str, Any]]) -> str:
    """Records as CSV with a header line; they are taken one after the other."""
    text, rest = io.StringIO(), iter(records)
    first = next(rest, None)
    writer = csv.DictWriter(text, fieldnames=list(first or ()), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rest if first is None else itertools.chain([first], rest))
    return text.getvalue()
