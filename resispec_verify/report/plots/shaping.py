"""The picture of ``explore``: how near the draft a residual can be, and what that is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from resispec_verify.report.plots.palette import GREY, ORANGE, looks
from resispec_verify.report.plots.words import entitle, legend_below
from resispec_verify.tables.shaping import Exploration, curve_points

__all__ = ["plot_exploration"]

# Curves are of no rule, and in greys: colours are the rules'.
INK, MIDDLE = "0.1", "0.5"


def plot_exploration(found: Exploration, title: str = "") -> Figure:
    """L1 against Z, and acceptance against Z, with the budgets that rules choose.

    Parameters
    ----------
    found : Exploration
    title : str
        What the pair is, for the legend.

    Notes
    -----
    Acceptance by all candidates is the curve of two, and beside it that of n where n is not 2.
    """
    figure = Figure(figsize=(11, 5.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    table = found.table(curve_points(found))
    _draw_distance(left, found, table)
    totals = _draw_acceptance(right, found, table)
    for (name, z), style in zip(found.budgets.items(), _styles(found), strict=True):
        if not 0.0 < z <= 1.0:
            continue
        at = int(np.searchsorted(table["Z"], z))
        shown = name if name != "optimal-sequential" else f"{name}, n = {found.candidates}"
        label = f"{shown}: Z = {z:.3g}"
        left.plot([z], [table["l1"][at]], label=label, **style)
        value = totals.get(name)
        if value is not None and np.isfinite(value):
            right.plot([z], [value], label=label, **style)
    entries: dict[str, Any] = {}
    for axes in (left, right):
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(text, handle)
    legend_below(figure, entries, title, most=3)
    entitle(figure, _headline(found))
    return figure


def _styles(found: Exploration) -> list[dict[str, Any]]:
    """A marker a budget, in the rule's colour; the second of a rule is a ring, since they often coincide."""
    names = [name.partition(",")[0] for name in found.budgets]
    styles = []
    for k, (name, look) in enumerate(zip(names, looks((name, None) for name in names), strict=True)):
        style = {"color": look.colour, "marker": look.marker, "linestyle": "none", "zorder": 3}
        ring = {"markersize": 13, "fillstyle": "none", "markeredgewidth": 1.8}
        styles.append(style | (ring if name in names[:k] else {"markersize": 7}))
    return styles


def _headline(found: Exploration) -> str:
    least, best = found.budgets["specinfer"], found.budgets["optimal-sequential"]
    if not 0.0 < least <= 1.0:
        return "Nothing is rejected here: target and draft are alike."
    said = f"An exact round leaves at least {least:.3g} of the mass"
    if best > least * (1 + 1e-9):
        said += f"; with {found.candidates} candidates it is best to leave {best:.3g}"
    return f"{said}."


def _draw_distance(axes: Axes, found: Exploration, table: dict[str, Any]) -> None:
    Z = table["Z"]
    axes.plot(Z, table["l1"], color=INK, label="nearest residual of mass Z")
    if found.hole_rank is not None:
        label = f"with a zero at the rejected token {found.rejected}"
        axes.plot(Z, table["l1_hole"], color=MIDDLE, linestyle="--", label=label)
    for start, end in found.flat:
        axes.axvspan(start, end, color="0.9", zorder=0)
        count, mass = found.zero_target
        axes.text(
            0.5 * (start + end), 0.02, f"flat: p = 0 at {count} tokens (draft mass {mass:.2g})", fontsize=9,
            color=GREY, ha="center", transform=axes.get_xaxis_transform(),
        )  # fmt: skip
    if found.points.z_star > 0:
        axes.axvline(found.points.z_star, color=MIDDLE, linewidth=1, linestyle=":")
        axes.text(found.points.z_star, 0.97, " Z*", fontsize=9, color=GREY, va="top",
                  transform=axes.get_xaxis_transform())  # fmt: skip
    axes.set(xlabel="Z: mass of the residual", ylabel="L1 distance from the draft", xlim=(0, 1.02))
    axes.set_ylim(bottom=0)
    axes.set_title("How near the draft can the residual be?", fontsize=11, loc="left")


def _draw_acceptance(axes: Axes, found: Exploration, table: dict[str, Any]) -> dict[str, float]:
    """The curves; what all candidates accept at the budget of each exact rule, by its name."""
    Z, two, n = table["Z"], table["accepted_by_two"], found.candidates
    axes.plot(Z, table["acceptance"], color=MIDDLE, linestyle="--", label="next candidate, any residual")
    axes.plot(Z, table["acceptance_exact"], color=MIDDLE, label="next candidate, after an exact round")
    totals = {}
    if n == 2:
        axes.plot(Z, two, color=INK, label="both candidates, after an exact round")
        for name in ("specinfer", "optimal-sequential"):
            if 0.0 < found.budgets[name] <= 1.0:
                totals[name] = float(two[np.searchsorted(Z, found.budgets[name])])
    else:
        at, all_of_them = found.accepted_by_all()
        axes.plot(at, all_of_them, color=INK, label=f"all {n} candidates, after an exact round")
        if at.size:
            totals["optimal-sequential"] = float(
                np.interp(found.budgets["optimal-sequential"], at, all_of_them)
            )
    least = found.budgets["specinfer"]
    if least > 0:
        axes.axvspan(0, least, color=ORANGE, alpha=0.08, linewidth=0)
        axes.text(
            0.5 * least, 0.02, "no exact round\nleaves so little", fontsize=9, color=GREY, ha="center",
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
    axes.set(xlabel="Z: mass of the residual", ylabel="acceptance", xlim=(0, 1.02), ylim=(0, 1.02))
    axes.set_title("Is the least Z the best?", fontsize=11, loc="left")
    return totals
