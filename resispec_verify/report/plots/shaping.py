"""The picture of ``explore``: how near the draft a residual can be, and what that is worth."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from resispec_verify.tables.shaping import Exploration, curve_points

__all__ = ["plot_exploration"]

BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
MARKERS = {"specinfer": "s", "optimal-sequential": "o", "resispec, local gap": "D", "resispec, Eq. 13": "v"}


def plot_exploration(found: Exploration, title: str = "") -> Figure:
    """L1 against Z, and acceptance against Z, with the budgets that rules choose.

    Parameters
    ----------
    found : Exploration
    title : str
        What the pair is, for the head of the figure.
    """
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    if title:
        figure.suptitle(title.replace("$", r"\$"), fontsize=11)  # a dollar sign would begin a formula
    left, right = figure.subplots(1, 2)
    table = found.table(curve_points(found))
    Z = table["Z"]
    left.plot(Z, table["l1"], color=BLUE, label="nearest residual, $L1_{min}(Z)$")
    if found.hole_rank is not None:
        label = f"with a zero at the rejected token {found.rejected}"
        left.plot(Z, table["l1_hole"], color=ORANGE, linestyle="--", label=label)
    for start, end in found.flat:
        left.axvspan(start, end, color="0.9", zorder=0)
        count, mass = found.zero_target
        left.text(
            0.5 * (start + end), 0.02, f"flat: p = 0 at {count} tokens (draft mass {mass:.2g})", fontsize=8,
            color="0.35", ha="center", transform=left.get_xaxis_transform(),
        )  # fmt: skip
    if found.points.z_star > 0:
        left.axvline(found.points.z_star, color="0.5", linewidth=1, linestyle=":")
        left.text(found.points.z_star, 0.97, " Z*", fontsize=8, color="0.35", va="top",
                  transform=left.get_xaxis_transform())  # fmt: skip
    left.set(xlabel="Z: mass of the residual", ylabel="L1 distance from the draft", xlim=(0, 1.02))
    left.set_ylim(bottom=0)
    left.set_title("How near the draft can the residual be?", fontsize=10)
    right.plot(Z, table["acceptance"], color=BLUE, label="next candidate, any residual of mass Z")
    right.plot(Z, table["acceptance_exact"], color=GREEN, label="next candidate, after an exact round")
    two = table["accepted_by_two"]
    right.plot(Z, two, color=PINK, linestyle="-.", label="both candidates, exact: $1 - Z$ + what follows")
    least = found.budgets["specinfer"]
    if least > 0:
        right.axvspan(0, least, color=ORANGE, alpha=0.08, linewidth=0)
        right.text(
            0.5 * least, 0.02, "no exact round\nleaves so little", fontsize=8, color="0.35", ha="center",
            transform=right.get_xaxis_transform(),
        )  # fmt: skip
    right.set(xlabel="Z: mass of the residual", ylabel="acceptance", xlim=(0, 1.02), ylim=(0, 1.02))
    right.set_title("Is the least Z the best?", fontsize=10)
    for name, z in found.budgets.items():
        if 0.0 < z <= 1.0:
            at = int(np.searchsorted(Z, z))
            style = {"color": "black", "marker": MARKERS[name], "markersize": 5, "linestyle": "none"}
            shown = name if name != "optimal-sequential" else f"{name}, n = {found.candidates}"
            left.plot([z], [table["l1"][at]], label=f"{shown}: Z = {z:.3g}", **style)
            if np.isfinite(two[at]):
                right.plot([z], [two[at]], **style)
    for axes in (left, right):
        axes.legend(fontsize=8)
    return figure
