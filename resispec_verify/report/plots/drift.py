"""The picture of ``drift``: acceptance and residual by candidate, and what more candidates are worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from resispec_verify.report.plots.palette import looks, temperature_styles
from resispec_verify.report.plots.words import entitle, legend_below, listed, temperature_key, where
from resispec_verify.tables.drift_summary import QUANTILES, DriftRow, certain_gain, mostly_seen
from resispec_verify.tables.row import label

__all__ = ["LARGE", "plot_drift"]

LARGE = 2  # of the panels: the first ones
MOST_BANDS = 3  # more of them hide each other
MOST_IN_HEAD = 4  # rows of which the headline has figures
MOST_DECADES = 6  # of a log axis; what is smaller is drawn at its foot
LIMIT_GREYS = ("0.1", "0.45", "0.65")
# Of each panel: a measure by candidate, if it is one; its head, and its unit. The first two are large.
PANELS = (
    ("acceptance_conditional", "Is each candidate as good as the one before?", "P(accepted | looked at)"),
    (None, "What all candidates are worth", "P(one is accepted) = EAL - 1"),
    ("l1", "Distance of the residual", "L1(residual, draft)"),
    ("kl", "Divergence", "KL(residual || draft), nats"),
    ("blind_spot", "Outside the draft's {top_k} best", "mass of the residual"),
    (None, "One more candidate", "EAL gained"),
)


def plot_drift(rows: Sequence[DriftRow]) -> Figure:
    """Two panels by candidate: acceptance, and its sum against the limit; below L1, KL, blind spot, gain.

    Parameters
    ----------
    rows : sequence of DriftRow
        Colour and marker are the rule's, the line is the temperature's.

    Notes
    -----
    Lines are means over positions; bands, of up to three rows, reach from the lowest to the highest of
    `QUANTILES`. An infinite mean is a triangle at the upper edge, a zero on a log axis one at the lower edge;
    both are named in the legend. Nothing is drawn where no position gets to a candidate, where most of the
    paths to it were not seen, and of gains below what the unseen paths may add.
    """
    figure = Figure(figsize=(11, 8.2), layout="constrained")
    panels = _layout(figure)
    acceptance, total, l1, kl, blind, gain = panels
    measured = dict(zip(("acceptance_conditional", "l1", "kl", "blind_spot"), (acceptance, l1, kl, blind),
                        strict=True))  # fmt: skip
    temperatures = temperature_styles([row.temperature for row in rows])
    drawn_as = looks((row.rule.name, _variant(row)) for row in rows)
    for row, look in zip(rows, drawn_as, strict=True):
        style = {"color": look.colour, "marker": look.marker, **temperatures[row.temperature]}
        results = row.results()
        index = np.asarray([r["index"] for r in results])
        for name, axes in measured.items():
            _mean(axes, index, results, name, style, "_")
            if len(rows) <= MOST_BANDS:
                _band(axes, index, results, name, style["color"])
        total.plot(index, _numbers([r["eal"] for r in results]) - 1.0, label="_", markersize=6, **style)
        gain.plot(index, _numbers([certain_gain(r) for r in results]), label="_", markersize=5, **style)
    named = dict(zip(map(_variant, rows), drawn_as, strict=True))
    for axes in panels:
        for name, look in named.items():
            axes.plot([], [], label=name, markersize=6, color=look.colour, marker=look.marker)
        for key in temperature_key(temperatures):
            axes.add_line(key)
    _limits(total, gain, rows, temperatures)
    _finish(panels, rows)
    if rows:
        legend_below(figure, _entries(figure), _below(rows), most=5)
    entitle(figure, _headline(rows))
    return figure


def _layout(figure: Figure) -> list[Axes]:
    grid = figure.add_gridspec(2, 12, height_ratios=(1.5, 1))
    large = [figure.add_subplot(grid[0, :6]), figure.add_subplot(grid[0, 6:])]
    return large + [figure.add_subplot(grid[1, 3 * k : 3 * k + 3]) for k in range(4)]


def _headline(rows: Sequence[DriftRow]) -> str:
    """What becomes of acceptance from candidate to candidate, and who is above the limit of exact rules."""
    several = len({row.temperature for row in rows}) > 1
    names = [_variant(row) + (f" at T = {row.temperature:g}" if several else "") for row in rows]
    above = [name for name, row in zip(names, rows, strict=True) if _above(row)]
    said = f"{listed(above)}: more is accepted than any exact rule can. " if above else ""
    parts = []
    for name, row in zip(names, rows, strict=True):
        known = [r for r in row.results() if mostly_seen(r, "acceptance_conditional")]
        if known:
            first, last = (known[k]["acceptance_conditional"] for k in (0, -1))
            parts.append(f"{name} from {first:.2f} to {last:.2f} at candidate {known[-1]['index']}")
    if parts and len(rows) <= MOST_IN_HEAD:
        said += f"Acceptance: {'; '.join(parts)}."
    return said.strip() or ("No rule accepts more than an exact one can." if parts else "")


def _above(row: DriftRow) -> bool:
    """Whether the limit is passed for certain, on average, with all candidates."""
    last = row.results()[-1]
    low = (last["eal_bounds"] or [None])[0]
    return last["limit"] is not None and low is not None and low - 1.0 > last["limit"] + 1e-9


def _below(rows: Sequence[DriftRow]) -> str:
    said = f"{where(rows)}. Lines: means over positions"
    if len(rows) <= MOST_BANDS:
        shares = [round(100 * level) for level in (QUANTILES[0], QUANTILES[-1])]
        said += f"; bands: {shares[0]} to {shares[1]} % of positions"
    return said + ". EAL: expected accepted length."


def _entries(figure: Figure) -> dict[str, Any]:
    """Of the legend: each name once."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(text, handle)
    return entries


def _finish(panels: Sequence[Axes], rows: Sequence[DriftRow]) -> None:
    """Heads, units and limits of the axes."""
    acceptance, total, l1, kl, blind, gain = panels
    for k, (axes, (name, head, unit)) in enumerate(zip(panels, PANELS, strict=True)):
        large = k < LARGE
        axes.set_title(
            head.format(top_k=rows[0].top_k if rows else "k"), fontsize=11 if large else 9.5, loc="left"
        )
        axes.set_ylabel(unit, fontsize=10 if large else 9)
        axes.set_xlabel("candidates" if name is None else "candidate", fontsize=10 if large else 9)
        if not large:
            axes.tick_params(labelsize=8.5)
    for axes in (acceptance, blind, total):
        axes.set_ylim(-0.02, 1.02)
    l1.set_ylim(0, 2.04)
    kl.set_ylim(bottom=0)
    _log(gain)
    _mark_infinite(kl)
    most = max((row.candidates for row in rows), default=1)
    for axes in panels:
        axes.set_xlim(0.6, most + 0.4)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))


def _variant(row: DriftRow) -> str:
    return label(row.rule) if row.dataset is None else f"{label(row.rule)}, {row.dataset}"


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """Floats, with NaN for what is not known."""
    return np.asarray([np.nan if v is None else float(v) for v in values], np.float64)


def _mean(
    axes: Axes, index: np.ndarray, results: list[dict[str, Any]], name: str, style: dict[str, Any], text: str
) -> None:
    mean = _numbers([r[name] if mostly_seen(r, name) else None for r in results])
    axes.plot(index, np.where(np.isfinite(mean), mean, np.nan), label=text, markersize=5, **style)
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


def _limits(
    total: Axes, gain: Axes, rows: Sequence[DriftRow], temperatures: dict[float, dict[str, Any]]
) -> None:
    """What no exact rule exceeds, once for each way of drawing candidates: a grey each."""
    drawn, proposals = [], list(dict.fromkeys(row.rule.proposal.name for row in rows))
    for row in rows:
        key = (row.rule.proposal.name, row.temperature, row.dataset)
        limits = row.limits()
        if limits is None or key in drawn:
            continue
        drawn.append(key)
        style: dict[str, Any] = {"linewidth": 1.3, "zorder": 1}
        style["color"] = LIMIT_GREYS[proposals.index(row.rule.proposal.name) % len(LIMIT_GREYS)]
        style["linestyle"] = temperatures[row.temperature]["linestyle"]
        text = f"limit of exact rules, {row.rule.proposal.name}"
        if len(temperatures) > 1:
            text += f", T = {row.temperature:g}"
        index = np.arange(1, len(limits) + 1)
        total.plot(index, limits, label=text, **style)
        gain.plot(index, np.diff(limits, prepend=0.0), label=text, **style)
