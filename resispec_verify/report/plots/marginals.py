"""The picture of ``kl``: distance from the target by position, and acceptance against the limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from resispec_verify.tables.row import Row, label

__all__ = ["plot_marginals"]

# Okabe and Ito's palette: told apart by colour-blind readers; markers tell it again.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FLOOR = 1e-17  # where a distance of 0 is drawn; below the rounding of any sum of probabilities


def plot_marginals(rows: Sequence[Row]) -> Figure:
    """Total variation of each position, sorted, beside acceptance against the limit.

    Parameters
    ----------
    rows : sequence of Row
        Operational rows; others are left out. Bars span the certified interval of a position.
    """
    rows = [row for row in rows if row.marginal == "operational" and row.position]
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    distance, acceptance = figure.subplots(1, 2)
    for i, row in enumerate(rows):
        style: dict[str, Any] = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[(i + i // len(COLOURS)) % len(MARKERS)],
        }
        verdict = row.overall()
        assert verdict is not None
        _draw_distance(distance, row, f"{_name(row, rows)}: {verdict.value}", style)
        known = [
            (limit, sum(a)) for limit, a in zip(row.limit, row.acceptance, strict=True) if limit is not None
        ]
        acceptance.scatter(
            *zip(*known, strict=True) if known else ([], []),
            s=22,
            alpha=0.8,
            linewidths=0,
            label=_name(row, rows),
            **style,
        )
    _finish_distance(distance, rows)
    _finish_acceptance(acceptance, rows)
    return figure


def _name(row: Row, rows: Sequence[Row]) -> str:
    name = f"{label(row.rule)}, n = {row.candidates}"
    if len({r.temperature for r in rows}) > 1:
        name += f", T = {row.temperature:g}"
    return name if row.dataset is None else f"{name}, {row.dataset}"


def _draw_distance(axes: Axes, row: Row, text: str, style: dict[str, Any]) -> None:
    order = np.argsort(row.tv, kind="stable")
    x = np.arange(1, len(order) + 1)
    tv = np.maximum(np.asarray(row.tv)[order], FLOOR)
    low = np.maximum(np.asarray(row.tv_low)[order], FLOOR)
    high = np.maximum(np.asarray(row.tv_high)[order], FLOOR)
    bars = np.stack([np.clip(tv - low, 0, None), np.clip(high - tv, 0, None)])
    axes.errorbar(x, tv, yerr=bars, fmt="none", ecolor=style["color"], elinewidth=1, alpha=0.5)
    axes.plot(x, tv, linestyle="none", markersize=4.5, markeredgewidth=0, alpha=0.9, label=text, **style)


def _finish_distance(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_yscale("log")
    axes.set_ylim(FLOOR / 2, 2)
    bound = max((b for row in rows for b in row.rounding if math.isfinite(b)), default=0.0)
    if bound > 0:
        axes.axhspan(FLOOR / 2, bound, color="0.9", zorder=0)
        axes.text(0.99, bound, "largest rounding bound", transform=axes.get_yaxis_transform(), ha="right",
                  va="bottom", fontsize=8, color="0.35")  # fmt: skip
    axes.set_xlabel("positions, sorted by each rule's distance")
    axes.set_ylabel("total variation from the target (0 drawn at the floor)")
    axes.set_title("What each rule emits")
    if rows:
        axes.legend(fontsize=8, loc="center", bbox_to_anchor=(0.5, 0.35))


def _finish_acceptance(axes: Axes, rows: Sequence[Row]) -> None:
    axes.plot([0, 1], [0, 1], color="0.3", linewidth=1)
    axes.fill_between([0, 1], [0, 1], [1, 1], color="#D55E00", alpha=0.08, linewidth=0)
    axes.text(0.03, 0.96, "no exact rule can be here", fontsize=8, color="0.35", va="top")
    axes.set(xlim=(0, 1.01), ylim=(0, 1.01), aspect="equal")
    axes.set_xlabel("limit: best acceptance of any exact rule")
    axes.set_ylabel("acceptance: P(a candidate is emitted)")
    axes.set_title("Acceptance against the limit")
    if rows:
        axes.legend(fontsize=8, loc="lower right")
