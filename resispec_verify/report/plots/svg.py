"""Figures as SVG inside a page: text stays text, greys and colours follow the page's theme."""

from __future__ import annotations

import io
import re
from html import escape
from textwrap import fill
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.legend import Legend
from matplotlib.text import Text

__all__ = ["inline_svg", "panels"]

GREY_STEPS = 10
# Colours that are too dark on a dark page get a variable of their own; the page says what they are.
NAMED = {
    "#0072b2": "blue", "#d55e00": "orange", "#009e73": "green", "#cc79a7": "pink", "#e69f00": "yellow",
    "#56b4e9": "sky",
}  # fmt: skip
_GREY = re.compile(r"#([0-9a-f]{2})\1\1\b")
_NAMED = re.compile("|".join(NAMED))
_MOST_MARKS = 4000  # more in a panel become one picture instead of one element each
_LARGER = 1.15  # text of a panel that may be as narrow as a phone


def inline_svg(figure: Figure, prefix: str, label: str = "") -> str:
    """The figure as an ``<svg>`` element.

    Parameters
    ----------
    figure : Figure
    prefix : str
        Put before every id: several elements of a page must not share one.
    label : str
        Read out instead of the picture.

    Returns
    -------
    str
        Greys are ``var(--g0)`` (black) to ``var(--g10)`` (white), the palette ``var(--blue)`` and so on; what
        is black by default is left to the style of the page.
    """
    buffer = io.StringIO()
    figure.patch.set_alpha(0.0)
    for axes in figure.axes:
        if not axes.get_visible():
            continue
        axes.patch.set_alpha(0.0)
        legend = axes.get_legend()
        if legend is not None:
            legend.get_frame().set(alpha=0.85)
        marked = [line for line in axes.lines if line.get_marker() not in ("None", "", None)]
        marks = sum(np.size(line.get_xdata()) for line in marked)
        marks += sum(max(len(np.asarray(c.get_offsets())), len(c.get_paths())) for c in axes.collections)
        if marks > _MOST_MARKS:
            for artist in (*marked, *axes.collections):
                artist.set_rasterized(True)
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "resispec-verify"}
    with matplotlib.rc_context(settings):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]*)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]*)\)", rf"url(#{prefix}-\1)", text)
    text = re.sub(r'href="#([^"]*)"', rf'href="#{prefix}-\1"', text)
    text = _GREY.sub(lambda m: f"var(--g{round(int(m[1], 16) / 255 * GREY_STEPS)})", text)
    text = _NAMED.sub(lambda m: f"var(--{NAMED[m[0]]})", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def panels(figure: Figure, prefix: str, size: tuple[float, float] = (4.9, 3.9)) -> list[str]:
    """Each axes of a figure as a picture of its own, so that a page can set them one below the other.

    Parameters
    ----------
    figure : Figure
        Taken apart: it is of no further use.
    prefix : str
        Of the ids.
    size : tuple of float
        Of a panel without its legend, in inches.
    """
    found, every = [], list(figure.axes)
    figure.suptitle("")
    figure.supxlabel("")
    formulas = set()
    for legend in (*(axes.get_legend() for axes in every), *figure.legends):
        if legend is not None:
            formulas |= {text.get_text() for text in legend.get_texts() if text.get_parse_math()}
            legend.remove()
    for i, kept in enumerate(every):
        for axes in every:
            axes.set_visible(axes is kept)
        kept.set_subplotspec(GridSpec(1, 1, figure=figure)[0])
        figure.set_size_inches(*size)
        legend = _legend_below(figure, kept, formulas)
        for text in kept.findobj(Text):
            text.set_fontsize(float(text.get_fontsize()) * _LARGER)
        kept.tick_params(labelsize=9 * _LARGER)
        kept.set_xlabel(fill(kept.get_xlabel(), 44))
        kept.set_ylabel(fill(kept.get_ylabel(), 36))
        found.append(inline_svg(figure, f"{prefix}{i}", kept.get_title()))
        if legend is not None:
            legend.remove()
    return found


def _legend_below(figure: Figure, axes: Axes, formulas: set[str]) -> Legend | None:
    """Below the axes, where it hides nothing, and the figure higher by as much."""
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return None
    columns = 2 if max(map(len, labels)) < 30 and len(labels) > 2 else 1
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.2 * -(-len(labels) // columns) + 0.1)
    legend = figure.legend(
        handles, labels, loc="outside lower left", ncols=columns, fontsize=9.5, frameon=False,
        borderaxespad=0.2,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(text.get_text() in formulas)
    return legend
