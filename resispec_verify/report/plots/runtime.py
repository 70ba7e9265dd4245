"""The picture of ``runtime``: microseconds by phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from resispec_verify.report.plots.palette import GREY, LIGHT_GREY, colour_of
from resispec_verify.report.plots.words import entitle

__all__ = ["plot_runtime"]


def plot_runtime(results: Sequence[dict[str, Any]], title: str = "") -> Figure:
    """Bars: medians; lines: quartiles; the parts of GetProxy carry their share of it.

    Parameters
    ----------
    results : sequence of dict
        The rows that ``runtime --json`` writes.
    title : str
        For the head of the figure.
    """
    figure = Figure(figsize=(7.4, 3.6), layout="constrained")
    axes = figure.subplots()
    owners = list(dict.fromkeys(row["belongs_to"] for row in results))
    colours = dict(zip(owners, ("0.6", COLOURS[1], COLOURS[0]), strict=False))
    y = np.arange(len(results))
    median = np.asarray([row["median_us"] for row in results])
    low, high = np.asarray([row["quartiles_us"] for row in results]).T
    axes.barh(y, median, color=[colours[row["belongs_to"]] for row in results])
    axes.errorbar(
        median, y, xerr=[median - low, high - median], fmt="none", ecolor="0.2", elinewidth=1, capsize=2
    )
    reach = float(max(high.max(), 1e-9))
    for i, row in enumerate(results):
        share = "" if row["share"] is None else f" ({100 * row['share']:.0f} % of GetProxy)"
        axes.text(
            max(median[i], high[i]) + 0.015 * reach, i, f"{median[i]:.0f}{share}", va="center", fontsize=8
        )
    axes.set_yticks(y, [f"{row['belongs_to']}: {row['phase']}" for row in results], fontsize=9)
    axes.invert_yaxis()
    axes.set(xlabel="microseconds (median, quartiles)", xlim=(0, 1.4 * reach))
    if title:
        figure.suptitle(title, fontsize=10, parse_math=False)
    return figure
