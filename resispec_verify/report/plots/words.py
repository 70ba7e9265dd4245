"""What stands around a picture: the headline, and what it is a picture of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, Protocol

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from resispec_verify.report.plots.palette import GREY

__all__ = ["entitle", "legend_below", "listed", "percent", "temperature_key", "where"]

MOST_FILES = 3


class Placed(Protocol):
    """A row over positions of files."""

    temperature: float
    candidates: int
    source: list[str]
    position: list[int]


def entitle(figure: Figure, headline: str) -> None:
    """A headline at the top left."""
    if headline:
        figure.suptitle(
            fill(headline, int(9.5 * figure.get_size_inches()[0])), x=0.012, ha="left", fontsize=12.5,
            fontweight="bold", parse_math=False,
        )  # fmt: skip


def where(rows: Sequence[Placed]) -> str:
    """The files, how many positions, n and T."""
    files = list(dict.fromkeys(Path(path).name for row in rows for path in row.source if path))
    shown = ", ".join(files[:MOST_FILES])
    if len(files) > MOST_FILES:
        shown += f" and {len(files) - MOST_FILES} more"
    many = max((len(row.position) for row in rows), default=0)
    parts = [shown] if shown else []
    parts.append(f"{many} position{'' if many == 1 else 's'}")
    for name, values in (
        ("n", {row.candidates for row in rows}), ("T", {row.temperature for row in rows}),
    ):  # fmt: skip
        if values:
            parts.append(f"{name} = {listed([f'{value:g}' for value in sorted(values, reverse=True)])}")
    return ", ".join(parts)


def listed(names: Sequence[str]) -> str:
    """In a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def percent(share: float) -> str:
    """Two digits of a share."""
    return f"{100 * share:.2g} %"


def temperature_key(styles: dict[float, dict[str, Any]], marker: str = "o") -> list[Line2D]:
    """Entries of a legend that say which line is which temperature; none where there is one."""
    if len(styles) < 2:
        return []
    return [
        Line2D([], [], color=GREY, marker=marker, label=f"T = {temperature:g}", **style)
        for temperature, style in styles.items()
    ]


def legend_below(figure: Figure, entries: Mapping[str, Any], below: str, most: int = 4) -> None:
    """One legend for all panels, below them, headed by what it is a picture of.

    Parameters
    ----------
    figure : Figure
    entries : mapping of str to artist
        By what is written beside it.
    below : str
        The head.
    most : int
        Columns.
    """
    width = figure.get_size_inches()[0]
    room = max(1, int(11.5 * width // (max(map(len, entries), default=0) + 7)))
    legend = figure.legend(
        list(entries.values()), list(entries), loc="outside lower left",
        ncols=min(most, room, len(entries) or 1), fontsize=9.5, frameon=False, handlelength=2.8,
        title=fill(below, int(12.5 * width)), alignment="left", title_fontsize=9.5,
    )  # fmt: skip
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)
    legend.get_title().set_color(GREY)
