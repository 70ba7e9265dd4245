"""The picture of ``drift``: acceptance and residual by candidate, and what more candidates are worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from resispec_verify.report.plots.marginals import COLOURS, MARKERS
from resispec_verify.tables.drift_summary import QUANTILES, DriftRow, certain_gain, mostly_seen
from resispec_verify.tables.row import label

__all__ = ["plot_drift"]

GREY = "0.35"
MOST_BANDS = 3  # more of them hide each other
MOST_DECADES = 6  # of a log axis; what is smaller is drawn at its foot


def plot_drift(rows: Sequence[DriftRow], title: str = "") -> Figure:
    """Six panels by candidate: acceptance, L1, KL, blind spot, cumulative acceptance, gain.

    Parameters
    ----------
    rows : sequence of DriftRow
        A colour and a marker each.
    title : str
        For the head of the figure.

    Notes
    -----
    Lines are means over positions; bands, of up to three rows, reach from the lowest to the highest of
    `QUANTILES`. An infinite mean is a triangle at the upper edge, a zero on a log axis one at the lower edge;
    both are named in the legend. Nothing is drawn where no position gets to a candidate, where most of the
    paths to it were not seen, and of gains below what the unseen paths may add.
    """
    figure = Figure(figsize=(12, 8.2), layout="constrained")
    said = "lines: means over positions"
    if len(rows) <= MOST_BANDS:
        shares = [round(100 * level) for level in (QUANTILES[0], QUANTILES[-1])]
        said += f"; bands: {shares[0]} to {shares[1]} % of positions"
    if title:
        figure.suptitle(title, fontsize=11, parse_math=False)
    panels = figure.subplots(2, 3).ravel()
    acceptance, l1, kl, blind, total, gain = panels
    measures = (
        (acceptance, "acceptance_conditional", "P(accepted | looked at)", "Acceptance of each candidate"),
        (l1, "l1", "L1(residual, draft)", "Distance of the residual"),
        (kl, "kl", "KL(residual || draft), nats", "Divergence of the residual"),
        (blind, "blind_spot", "mass of the residual", "Blind spot of the draft"),
    )
    for i, row in enumerate(rows):
        marker = MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]  # as many of both: no pair comes twice
        style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "marker": marker, "markersize": 5}
        results = row.results()
        index = np.asarray([r["index"] for r in results])
        for axes, name, _, _ in measures:
            _mean(axes, index, results, name, style, _name(row, rows))
            if len(rows) <= MOST_BANDS:
                _band(axes, index, results, name, style["color"])
        eal = _numbers([r["eal"] for r in results])
        total.plot(index, eal - 1.0, label=_name(row, rows), **style)
        gain.plot(index, _numbers([certain_gain(r) for r in results]), label=_name(row, rows), **style)
    _limits(total, gain, rows)
    for axes, _, unit, head in measures:
        axes.set(ylabel=unit)
        axes.set_title(head, fontsize=10)
    if rows:
        blind.set_title(f"Blind spot: outside the draft's {rows[0].top_k} best tokens", fontsize=10)
    acceptance.set_ylim(0, 1.02)
    blind.set_ylim(0, 1.02)
    l1.set_ylim(0, 2.04)
    kl.set_ylim(bottom=0)
    total.set(xlabel="candidates", ylabel="P(one is accepted) = EAL - 1", ylim=(0, 1.02))
    total.set_title("What all candidates are worth", fontsize=10)
    gain.set(xlabel="candidates", ylabel="EAL gained by the last candidate")
    gain.set_title("What one more candidate is worth", fontsize=10)
    _log(gain)
    _mark_infinite(kl)
    most = max((row.candidates for row in rows), default=1)
    for axes in panels:
        axes.set_xlim(0.6, most + 0.4)
        axes.set_xticks(range(1, most + 1))
        if axes not in (total, gain):
            axes.set_xlabel("candidate")
    _legend(figure, said)
    return figure


def _legend(figure: Figure, title: str) -> None:
    """One for all panels."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(text, handle)
    if entries:
        handles = list(entries.values())
        legend = figure.legend(
            handles, list(entries), loc="outside lower center", fontsize=9, ncols=3, frameon=False,
            title=title, title_fontsize=9,
        )  # fmt: skip
        for text in legend.get_texts():
            text.set_parse_math(False)


def _name(row: DriftRow, rows: Sequence[DriftRow]) -> str:
    name = f"{label(row.rule)}, {len(row.position)} positions"
    if len({r.temperature for r in rows}) > 1:
        name += f", T = {row.temperature:g}"
    return name if row.dataset is None else f"{name}, {row.dataset}"


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """Floats, with NaN for what is not known."""
    return np.asarray([np.nan if v is None else float(v) for v in values], np.float64)


def _mean(
    axes: Axes, index: np.ndarray, results: list[dict[str, Any]], name: str, style: dict[str, Any], text: str
) -> None:
    mean = _numbers([r[name] if mostly_seen(r, name) else None for r in results])
    axes.plot(index, np.where(np.isfinite(mean), mean, np.nan), label=text, **style)
    infinite = index[np.isinf(mean)]
    if infinite.size:
        axes.plot(infinite, np.full(infinite.shape, np.inf), linestyle="none", color=style["color"],
                  marker="^", gid="infinite")  # fmt: skip


def _band(axes: Axes, index: np.ndarray, results: list[dict[str, Any]], name: str, colour: str) -> None:
    nothing = [None] * len(QUANTILES)
    quantiles = [r["quantiles"][name] if mostly_seen(r, name) else nothing for r in results]
    low, high = (_numbers([q[k] for q in quantiles]) for k in (0, -1))
    inside = np.isfinite(low) & np.isfinite(high)
    axes.fill_between(index, low, high, where=inside, color=colour, alpha=0.13, linewidth=0)


def _mark_infinite(axes: Axes) -> None:
    """Draw infinite means as triangles at the upper edge."""
    first = True
    for line in axes.get_lines():
        if line.get_gid() == "infinite":
            line.set_ydata(np.full(len(np.atleast_1d(line.get_xdata())), 0.97))
            line.set_transform(axes.get_xaxis_transform())
            line.set(label="infinite" if first else "_", markersize=8)
            first = False


def _log(axes: Axes) -> None:
    """A log axis on which a zero, or what is far below the rest, is a triangle at the lower edge."""
    lines = [line for line in axes.get_lines() if line.get_linestyle() != "none"]
    values = [np.asarray(line.get_ydata(), np.float64) for line in lines]
    positive = [v for ys in values for v in ys[np.isfinite(ys) & (ys > 0)]]
    if not positive:
        return
    top = max(positive)
    foot = max(min(positive), top * 10.0**-MOST_DECADES) / 2
    axes.set_yscale("log")
    axes.set_ylim(foot, 2 * top)
    label = "0, or below the axis"
    for line, ys in zip(lines, values, strict=True):
        low = ys < 2 * foot * (1 - 1e-9)
        if low.any():
            x = np.asarray(line.get_xdata())[low]
            line.set_ydata(np.where(low, np.nan, ys))
            axes.plot(x, np.full(x.shape, 0.03), transform=axes.get_xaxis_transform(), linestyle="none",
                      color=line.get_color(), marker="v", markersize=8, label=label)  # fmt: skip
            label = "_"


def _limits(total: Axes, gain: Axes, rows: Sequence[DriftRow]) -> None:
    """What no exact rule exceeds, once for each way of drawing candidates."""
    drawn = []
    for row in rows:
        key = (row.rule.proposal.name, row.temperature, row.dataset)
        limits = row.limits()
        if limits is None or key in drawn:
            continue
        drawn.append(key)
        style: dict[str, Any] = {"color": "0.3", "linewidth": 1, "zorder": 1}
        style["linestyle"] = ("--", ":", "-.", (0, (1, 4)))[(len(drawn) - 1) % 4]
        text = f"limit of exact rules, {row.rule.proposal.name}"
        if len({r.temperature for r in rows}) > 1:
            text += f", T = {row.temperature:g}"
        index = np.arange(1, len(limits) + 1)
        total.plot(index, limits, label=text, **style)
        gain.plot(index, np.diff(limits, prepend=0.0), label=text, **style)
