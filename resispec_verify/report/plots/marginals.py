"""The picture of ``kl``: distance from the target by position, and acceptance against the limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from resispec_verify.report.plots.palette import GREY, ORANGE, looks, temperature_styles
from resispec_verify.report.plots.words import (
    entitle,
    legend_below,
    listed,
    percent,
    temperature_key,
    where,
)
from resispec_verify.tables.means import mean
from resispec_verify.tables.row import Row, label

__all__ = ["in_one_line", "plot_marginals"]

FLOOR = 1e-17  # where a distance of 0 is drawn; below the rounding of any sum of probabilities
CORNER = 0.4  # all points within so much of 0 or 1: the axes end there
LEAST_AXIS = 1e-3
SAID = {"inexact": "not exact", "undecided": "undecided", "exact": "exact"}


def plot_marginals(rows: Sequence[Row]) -> Figure:
    """Total variation of each position, sorted, beside acceptance against the limit.

    Parameters
    ----------
    rows : sequence of Row
        Operational rows; others are left out. Bars span the certified interval of a position.
    """
    rows = [row for row in rows if row.marginal == "operational" and row.position]
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    distance, acceptance = figure.subplots(1, 2, width_ratios=(1.25, 1))
    temperatures = temperature_styles([row.temperature for row in rows])
    styles = []
    for row, look in zip(rows, looks((row.rule.name, _variant(row)) for row in rows), strict=True):
        style: dict[str, Any] = {"color": look.colour, "marker": look.marker, **temperatures[row.temperature]}
        styles.append(style)
        _draw_distance(distance, row, style)
        known = [
            (limit, sum(a)) for limit, a in zip(row.limit, row.acceptance, strict=True) if limit is not None
        ]
        acceptance.plot(
            [limit for limit, _ in known], [accepted for _, accepted in known], markersize=5.5, alpha=0.85,
            label="_", **style | {"linestyle": "none"},
        )  # fmt: skip
    _finish_distance(distance, rows)
    _finish_acceptance(acceptance)
    for axes in (distance, acceptance):
        _name(axes, rows, styles, temperatures)
    handles, names = distance.get_legend_handles_labels()
    if names:
        legend_below(figure, dict(zip(names, handles, strict=True)), where(rows))
    entitle(figure, in_one_line(rows))
    return figure


def in_one_line(rows: Sequence[Row]) -> str:
    """The verdicts in a sentence, what is wrong first."""
    rows = [row for row in rows if row.marginal == "operational" and row.position]
    several = len({row.temperature for row in rows}) > 1
    parts = []
    for verdict, said in SAID.items():
        names: dict[str, list[Row]] = {}
        for row in rows:
            if _verdict(row) == verdict:
                names.setdefault(_variant(row), []).append(row)
        shown = []
        for name, found in names.items():
            settings = [row for row in rows if _variant(row) == name]
            more = [_temperatures(found)] if several and len(found) < len(settings) else []
            if verdict == "inexact":
                worst = max(mean(row.tv) for row in found)
                share = ("up to " if len(found) > 1 else "") + percent(worst)
                more.append(f"{share} of the mass on wrong tokens")
            shown.append(f"{name} ({', '.join(more)})" if more else name)
        if shown:
            parts.append(f"{said}: {listed(shown)}")
    text = ". ".join(part[0].upper() + part[1:] for part in parts)
    return f"{text}." if text else ""


def _verdict(row: Row) -> str:
    found = row.overall()
    assert found is not None
    return found.value


def _variant(row: Row) -> str:
    return label(row.rule) if row.dataset is None else f"{label(row.rule)}, {row.dataset}"


def _name(
    axes: Axes,
    rows: Sequence[Row],
    styles: Sequence[dict[str, Any]],
    temperatures: dict[float, dict[str, Any]],
) -> None:
    """Entries of the legend: rules with their verdicts, then temperatures."""
    several = len({row.candidates for row in rows}) > 1
    found: dict[str, dict[str, list[Row]]] = {}
    first: dict[str, dict[str, Any]] = {}
    for row, style in zip(rows, styles, strict=True):
        found.setdefault(_variant(row), {}).setdefault(_verdict(row), []).append(row)
        first.setdefault(_variant(row), style)
    for name, by_verdict in found.items():
        parts = [
            verdict + (f" at {_temperatures(which)}" if len(by_verdict) > 1 else "")
            for verdict, which in by_verdict.items()
        ]
        n = next(iter(by_verdict.values()))[0].candidates
        shown = f"{name}, n = {n}" if several else name
        style: dict[str, Any] = first[name] | {"linestyle": "none", "fillstyle": "full"}
        axes.plot([], [], markersize=7, label=f"{shown}: {', '.join(parts)}", **style)
    for key in temperature_key(temperatures):
        axes.add_line(key)


def _temperatures(rows: Sequence[Row]) -> str:
    return "T = " + listed([f"{row.temperature:g}" for row in rows])


def _draw_distance(axes: Axes, row: Row, style: dict[str, Any]) -> None:
    order = np.argsort(row.tv, kind="stable")
    x = np.arange(1, len(order) + 1)
    tv = np.maximum(np.asarray(row.tv)[order], FLOOR)
    low = np.maximum(np.asarray(row.tv_low)[order], FLOOR)
    high = np.maximum(np.asarray(row.tv_high)[order], FLOOR)
    bars = np.stack([np.clip(tv - low, 0, None), np.clip(high - tv, 0, None)])
    axes.errorbar(x, tv, yerr=bars, fmt="none", ecolor=style["color"], elinewidth=1, alpha=0.5)
    axes.plot(x, tv, linewidth=1, markersize=5.5, alpha=0.85, label="_", **style)


def _finish_distance(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_yscale("log")
    axes.set_ylim(FLOOR / 2, 2)
    bound = max((b for row in rows for b in row.rounding if math.isfinite(b)), default=0.0)
    if bound > 0:
        axes.axhspan(FLOOR / 2, bound, color="0.92", zorder=0)
        axes.axhline(bound, color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            "exact below this line: rounding alone", (0.985, bound),
            xycoords=axes.get_yaxis_transform(), xytext=(0, -5), textcoords="offset points", ha="right",
            va="top", fontsize=9, color=GREY,
        )  # fmt: skip
    axes.set_xlabel("positions, sorted by each rule's distance")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.set_ylabel("total variation; 0 is drawn on the lower edge")
    axes.set_title("How far is what it emits from the target?", fontsize=11, loc="left")


def _finish_acceptance(axes: Axes) -> None:
    shown = [np.asarray(data, float) for line in axes.get_lines() for data in line.get_data()]
    low, high = _corner(np.concatenate(shown) if shown else np.zeros(0))
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="_")
    axes.fill_between([0, 1], [0, 1], [1, 1], color=ORANGE, alpha=0.08, linewidth=0)
    axes.text(
        0.02, 0.8, "no exact\nrule can\nbe here", fontsize=9, color=GREY, va="top", transform=axes.transAxes
    )
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set_xlabel("limit: the best acceptance of any exact rule")
    axes.set_ylabel("P(a candidate is accepted)")
    axes.set_title("Acceptance against the limit", fontsize=11, loc="left")


def _corner(values: np.ndarray) -> tuple[float, float]:
    """The ends of both axes: 0 to 1, or the corner at either end in which all values are."""
    if values.size and values.min() > 1.0 - CORNER:
        return max(0.0, 1.0 - 1.3 * (1.0 - float(values.min()))), 1.0 + 0.02 * CORNER
    if values.size and values.max() < CORNER:
        return 0.0, max(1.3 * float(values.max()), LEAST_AXIS)
    return 0.0, 1.02
