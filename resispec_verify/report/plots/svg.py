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

from resispec_verify.report.plots.palette import ON_DARK

__all__ = ["inline_svg", "panels"]

GREY_STEPS = 10
_GREY = re.compile(r"#([0-9a-f]{2})\1\1\b")
_NAMED = re.compile(f"#({'|'.join(colour[1:] for colour in ON_DARK)})")
_MOST_MARKS = 4000  # more in a panel become one picture instead of one element each
_LARGE, _SMALL = (4.9, 3.9), (3.7, 3.1)  # of a panel without its legend, in inches
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
        Greys are ``var(--g0)`` (black) to ``var(--g10)`` (white), a colour of the palette such as #0072b2
        ``var(--c0072b2)``; what is black by default is left to the style of the page.
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
    text = _NAMED.sub(lambda m: f"var(--c{m[1]})", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def panels(figure: Figure, prefix: str, large: int | None = None) -> list[str]:
    """Each axes of a figure as a picture of its own, so that a page can set them one below the other.

    Parameters
    ----------
    figure : Figure
        Taken apart: it is of no further use.
    prefix : str
        Of the ids.
    large : int, optional
        So many of the first are large; the others are small, and their legends say only what the first's
        does not.
    """
    found, every = [], list(figure.axes)
    figure.suptitle("")
    figure.supxlabel("")
    formulas, said = set(), set()
    for legend in (*(axes.get_legend() for axes in every), *figure.legends):
        if legend is not None:
            formulas |= {text.get_text() for text in legend.get_texts() if text.get_parse_math()}
            legend.remove()
    for i, kept in enumerate(every):
        for axes in every:
            axes.set_visible(axes is kept)
        kept.set_subplotspec(GridSpec(1, 1, figure=figure)[0])
        small = large is not None and i >= large
        figure.set_size_inches(*(_SMALL if small else _LARGE))
        legend = _legend_below(figure, kept, formulas, said if small else set())
        said |= set(kept.get_legend_handles_labels()[1])
        for text in kept.findobj(Text):
            text.set_fontsize(float(text.get_fontsize()) * _LARGER)
        kept.tick_params(labelsize=9 * _LARGER)
        kept.set_xlabel(fill(kept.get_xlabel(), 44))
        kept.set_ylabel(fill(kept.get_ylabel(), 36))
        found.append(inline_svg(figure, f"{prefix}{i}", kept.get_title("left") or kept.get_title()))
        if legend is not None:
            legend.remove()
    return found


def _legend_below(figure: Figure, axes: Axes, formulas: set[str], said: set[str]) -> Legend | None:
    """Below the axes, where it hides nothing, and the figure higher by as much."""
    entries = [one for one in zip(*axes.get_legend_handles_labels(), strict=True) if one[1] not in said]
    if not entries:
        return None
    handles, labels = zip(*entries, strict=True)
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
