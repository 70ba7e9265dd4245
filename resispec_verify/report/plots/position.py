"""The picture of one position: target, draft, and what rules leave after one rejection."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from resispec_verify.report.plots.palette import looks
from resispec_verify.report.plots.words import entitle, legend_below
from resispec_verify.tables.position import Position

__all__ = ["drawable", "plot_position"]

HATCHES = ("", "", "////", "....", "xxxx", "\\\\\\\\")
LONGEST = 28  # characters of a token's label


def plot_position(
    found: Position, title: str = "", names: dict[int, str] | None = None, most: int = 12
) -> Figure:
    """Grouped bars by token: draft, target, and the residual of each rule.

    Parameters
    ----------
    found : Position
    title : str
        What the pair is, for the legend; without it no headline either: a page has its own.
    names : dict, optional
        Text of tokens.
    most : int
        Tokens shown; the others are one group.
    """
    records = found.records(most, names)
    series = list(found.series())
    figure = Figure(
        figsize=(6.4, 1.9 + 0.2 * len(series) + 0.075 * len(records) * (len(series) + 1)),
        layout="constrained",
    )
    axes = figure.subplots()
    height = 0.84 / len(series)
    y = np.arange(len(records), dtype=float)
    # A rule with options has their colour too, and a hatch that tells it from the plain one.
    names_of_rules = [name.removeprefix("residual, ") for name in series[2:]]
    drawn_as = looks((name.partition("[")[0], name) for name in names_of_rules)
    colours = ["0.75", "0.3", *(look.colour for look in drawn_as)]
    for i, name in enumerate(series):
        text = name
        if i >= 2:
            rule = name.removeprefix("residual, ")
            text = f"{name}: next accepted {found.next_accepted[rule]:.3f}"
        axes.barh(
            y + (i - (len(series) - 1) / 2) * height, [record[name] for record in records], height,
            color=colours[i], label=text, hatch=HATCHES[i % len(HATCHES)], edgecolor="white",
            linewidth=0,
        )  # fmt: skip
    axes.set_yticks(y, [_label(record, found.rejected) for record in records], parse_math=False, fontsize=9)
    axes.set_ylim(len(records) - 0.4, -0.6)
    axes.set(xlabel="probability", xlim=(0, None))
    axes.grid(axis="x", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    handles, texts = axes.get_legend_handles_labels()
    legend_below(figure, dict(zip(texts, handles, strict=True)), title, most=2)
    if title:
        token = next((r for r in records if r["token"] == found.rejected), {"token": found.rejected})
        entitle(figure, f"What is left after token {_label(token, -1)} was rejected")
    return figure


def _label(record: Mapping[str, object], rejected: int) -> str:
    text = drawable(str(record.get("text", "")))
    label = f"{text}  {record['token']}" if text else str(record["token"])
    return f"rejected: {label}" if record["token"] == rejected else label


def drawable(text: str, most: int = LONGEST) -> str:
    """A token's text as the font can draw it, cut where it is too long."""
    text = "".join(c if _drawable(c) else c.encode("unicode_escape").decode() for c in text[: most + 1])
    return text if len(text) <= most else text[: most - 3] + "..."


def _drawable(character: str) -> bool:
    """Whether the font has a glyph: a missing one is a box, and a warning."""
    font = get_font(findfont(FontProperties()))
    return character.isprintable() and font.get_char_index(ord(character)) != 0
