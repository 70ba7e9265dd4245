"""The pictures of an audit: evidence over tokens, and frequencies against the law or the reference."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from resispec_verify.report.plots.palette import BLUE, GREY, ORANGE
from resispec_verify.report.plots.position import drawable

__all__ = ["finite", "plot_cuts", "plot_evidence", "plot_prefixes"]

ENGINE, REFERENCE = ORANGE, BLUE
COLOURS = {"engine": ENGINE, "reference": REFERENCE}
SIZE = (5.2, 3.7)
FONT = 10.0
# From here on a linear axis would leave one of the two curves, or the line, at its very edge.
APART = 6.0
LONGEST = 30  # characters of a label of tokens
ROW = 0.46  # inches of first tokens


def plot_evidence(path: Mapping[str, Sequence[Sequence[float]]], line: float, unit: str = "tokens") -> Figure:
    """The evidence against the engine, and against the reference in the control.

    Parameters
    ----------
    path : mapping of str to sequence of (count, log10 of the evidence)
        "engine" and "reference"; either may be missing.
    line : float
        log10 of the evidence at which one is rejected.
    unit : str
        What is counted.

    Notes
    -----
    The counts are on a log axis where one curve is much shorter than the other or crosses the line early,
    the evidence is where it goes far above the line: linear up to the line, decades of it above.
    """
    figure, axes = _figure(SIZE)
    curves = {name: [(x, float(y)) for x, y in path.get(name, ()) if finite(y)] for name in COLOURS}
    curves = {name: points for name, points in curves.items() if points}
    ends = [points[-1][0] for points in curves.values()]
    most, top = max(ends, default=1), max((y for points in curves.values() for _, y in points), default=0.0)
    crossing = min((x for points in curves.values() for x, y in points if y >= line), default=None)
    if most > APART * min([*ends, most if crossing is None else crossing], default=1):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        axes.xaxis.set_minor_formatter(lambda x, _: "")
    bottom = min((y for points in curves.values() for _, y in points), default=0.0)
    _height(axes, bottom, top, line)
    axes.set_xlim(1 if axes.get_xscale() == "log" else 0, max(most, 2) * 1.02)
    axes.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    axes.axhline(line, color=GREY, linewidth=1.2, linestyle=(0, (5, 3)))
    for name, points in curves.items():
        axes.plot(*zip(*points, strict=True), color=COLOURS[name], linewidth=2, label=name)
    _name_curves(axes, curves)
    # Where no curve is: before it crosses the line above, after it below.
    early = crossing is not None and _across(axes, crossing) < 0.5
    axes.annotate(
        f"rejected from {line:.1f} on", (0.985 if early else 0.015, line),
        xycoords=axes.get_yaxis_transform(), xytext=(0, -5 if early else 4), textcoords="offset points",
        ha="right" if early else "left", va="top" if early else "bottom", fontsize=FONT, color=GREY,
    )  # fmt: skip
    axes.set_xlabel(unit, fontsize=FONT)
    axes.set_ylabel("log10 of the evidence", fontsize=FONT)
    return figure


def finite(value: Any) -> bool:
    """Whether it is a number of which a picture can be made: reports have "inf", and None where none is."""
    return value is not None and math.isfinite(float(value))


def _figure(size: tuple[float, float]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.tick_params(labelsize=FONT)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _height(axes: Axes, bottom: float, top: float, line: float) -> None:
    """The scale and the limits of the evidence, with room for the names above and below the curves."""
    if top <= APART * line:
        span = max(top, line) - min(bottom, 0.0)
        axes.set_ylim(min(bottom, 0.0) - 0.13 * span, max(top, line) + 0.13 * span)
        return
    axes.set_yscale("symlog", linthresh=line, linscale=1.0)
    axes.set_ylim(min(bottom, 0.0) - 0.35 * line, top * 2)
    low = [x for x in (-5, 0, 5) if min(bottom, 0.0) - 0.35 * line <= x < line]
    axes.set_yticks([*low, *(x for x in (10, 30, 100, 300, 1000) if line * 1.2 < x <= top * 2)])
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _across(axes: Axes, x: float) -> float:
    """How far to the right, of 1."""
    return float(axes.transAxes.inverted().transform(axes.transData.transform((x, 0.0)))[0])


def _name_curves(axes: Axes, curves: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """At their ends: the higher one above, the lower one below."""
    order = sorted(curves, key=lambda name: -curves[name][-1][1])
    for i, name in enumerate(order):
        x, y = curves[name][-1]
        below = i > 0
        at = _across(axes, x)
        axes.annotate(
            "reference (control)" if name == "reference" else name, (x, y), xytext=(0, -6 if below else 6),
            textcoords="offset points", ha="right" if at > 0.7 else "left" if at < 0.3 else "center",
            va="top" if below else "bottom", color=COLOURS[name], fontsize=FONT, fontweight="bold",
        )  # fmt: skip


def plot_cuts(cuts: Sequence[Mapping[str, Any]]) -> Figure:
    """What was drawn below each cut of the laws, minus what was due there.

    Parameters
    ----------
    cuts : sequence of mapping
        ``at``, the mass of the most probable tokens, ``seen``, the frequency of the draws among them, and
        ``detectable``: a shift of that much would have been found; 1 where none would. Those without draws
        are left out.
    """
    figure, axes = _figure(SIZE)
    drawn = [cut for cut in cuts if finite(cut["seen"])]
    moved = [float(cut["seen"]) - cut["at"] for cut in drawn]
    bars = [(i, float(cut["detectable"])) for i, cut in enumerate(drawn) if cut["detectable"] < 1]
    if bars:
        places, sizes = zip(*bars, strict=True)
        axes.bar(
            places, [2 * size for size in sizes], 0.86, bottom=[-size for size in sizes], color="0.87",
            zorder=0, label="would not surely have been found",
        )  # fmt: skip
    axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    axes.vlines(range(len(moved)), 0, moved, color=ENGINE, linewidth=1.6)
    axes.plot(range(len(moved)), moved, "o", color=ENGINE, markersize=6, label="seen minus due")
    most = max([0.01, *map(abs, moved), *(size for _, size in bars)]) * 1.12
    axes.set(ylim=(-most, most), xlim=(-0.7, max(len(drawn), 1) - 0.3))
    axes.set_xticks(range(len(drawn)), [f"{cut['at']:g}" for cut in drawn], rotation=60)
    axes.set_xlabel("mass of the most probable tokens", fontsize=FONT)
    axes.set_ylabel("frequency of the draws minus mass", fontsize=FONT)
    return figure


def plot_prefixes(prefixes: Sequence[Mapping[str, Any]]) -> Figure:
    """First tokens, how often each of the two had them.

    Parameters
    ----------
    prefixes : sequence of mapping
        ``prompt``, ``tokens`` and the frequencies ``seen`` of the engine and ``due`` of the reference.
    """
    figure, axes = _figure((SIZE[0], 1.1 + ROW * max(len(prefixes), 1)))
    rows = range(len(prefixes))
    seen, due = ([float(one[name]) for one in prefixes] for name in ("seen", "due"))
    axes.hlines(rows, seen, due, color="0.7", linewidth=2, zorder=1)
    axes.plot(due, rows, "s", color=REFERENCE, markersize=7, label="reference")
    axes.plot(seen, rows, "o", color=ENGINE, markersize=7, label="engine")
    most = max([0.01, *seen, *due])
    axes.set(xlim=(-0.03 * most, 1.06 * most), ylim=(len(prefixes) - 0.3, -0.75))
    axes.set_yticks(rows, [_words(one) for one in prefixes], parse_math=False, fontsize=FONT - 1)
    axes.grid(axis="x", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("frequency", fontsize=FONT)
    # The first row differs most; one name above and one below cannot meet.
    for name, values, colour, up in (("engine", seen, ENGINE, 7), ("reference", due, REFERENCE, -7)):
        if values:
            at = values[0] / most
            axes.annotate(
                name, (values[0], 0), xytext=(0, up), textcoords="offset points", color=colour, fontsize=FONT,
                fontweight="bold", ha="left" if at < 0.2 else "right" if at > 0.8 else "center",
                va="bottom" if up > 0 else "top",
            )  # fmt: skip
    return figure


def _words(one: Mapping[str, Any]) -> str:
    tokens = one["tokens"]
    texts = all(isinstance(token, str) for token in tokens)
    text = json.dumps("".join(tokens) if texts else list(tokens), ensure_ascii=False)
    return f"{drawable(text, LONGEST)}\nprompt {one['prompt'] + 1}"
