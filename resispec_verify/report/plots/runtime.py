"""The picture of ``runtime``: microseconds by phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from resispec_verify.report.plots.palette import GREY, LIGHT_GREY, colour_of
from resispec_verify.report.plots.words import entitle

__all__ = ["plot_runtime"]

PLAIN = ("specinfer", "residual")
EVERY = "every rule"  # whose work is no rule's alone


def plot_runtime(results: Sequence[dict[str, Any]], title: str = "") -> Figure:
    """Bars: medians; lines: quartiles; the parts of GetProxy carry their share of it.

    Parameters
    ----------
    results : sequence of dict
        The rows that ``runtime --json`` writes.
    title : str
        What was measured.
    """
    figure = Figure(figsize=(7.4, 3.6), layout="constrained")
    axes = figure.subplots()
    owners = dict.fromkeys(row["belongs_to"] for row in results)
    colours = {owner: LIGHT_GREY if owner == EVERY else colour_of(owner) for owner in owners}
    y = np.arange(len(results))
    median = np.asarray([row["median_us"] for row in results])
    low, high = np.asarray([row["quartiles_us"] for row in results]).T
    axes.barh(y, median, color=[colours[row["belongs_to"]] for row in results])
    axes.errorbar(
        median, y, xerr=[median - low, high - median], fmt="none", ecolor=GREY, elinewidth=1, capsize=2
    )
    reach = float(max(high.max(), 1e-9))
    for i, row in enumerate(results):
        share = "" if row["share"] is None else f" ({100 * row['share']:.0f} % of GetProxy)"
        axes.text(
            max(median[i], high[i]) + 0.015 * reach, i, f"{median[i]:.0f}{share}", va="center", fontsize=8
        )
    axes.set_yticks(y, [f"{row['belongs_to']}: {row['phase']}" for row in results], fontsize=9)
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.4 * reach))
    axes.set_xlabel("microseconds (median, quartiles)", parse_math=False)
    if title:
        entitle(figure, _headline(results))
        figure.supxlabel(title, x=0.012, ha="left", fontsize=9.5, color=GREY, parse_math=False)
    return figure


def _headline(results: Sequence[dict[str, Any]]) -> str:
    parts = sum(row["median_us"] for row in results if row["share"] is not None)
    plain = sum(row["median_us"] for row in results if (row["belongs_to"], row["phase"]) == PLAIN)
    if not parts or not plain:
        return ""
    return f"GetProxy takes {parts / plain:.2g} times as long as SpecInfer's residual"
