"""Measures every cost of docs/howto/scale.md, and writes the page with its picture and table.

    python benchmarks/run.py [--dump FILE] [--quick] [--page docs/howto/scale.md]
        [--only TEXT --kept FILE] [--redraw CSV]

Needs the extra ``bench`` (pytest-benchmark, which does the timing). Each ratio is of two things timed in
turns, so that both see the same machine. Without ``--page`` the figures are only printed; with it, the growth
curves go to ``img/performance-growth.png`` and ``.csv`` beside it. ``--quick`` only shows that it runs: its
figures mean nothing.

In pieces: ``--only start_up --kept FILE`` measures the tests whose names hold that text (pytest's ``-k``) and
puts them into FILE, in the place of earlier figures; what is printed and written is made of all in FILE.
``--redraw docs/img/performance-growth.csv`` measures nothing and draws the picture beside the file.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from resispec_verify.dumps import open_dump
from resispec_verify.errors import InputError
from resispec_verify.report.plots.palette import looks
from resispec_verify.report.plots.words import legend_below

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "smollm2-skip6-N8-fp16.pt"
AXES = {"V": "tokens V (one position, n = 3)", "n": "candidates n (one position)", "N": "positions N (n = 3)"}

HEADS = {
    "V": "A larger vocabulary", "n": "More candidates", "N": "A longer dump",
}  # fmt: skip
OPTIONS = (
    "-qx -p no:cacheprovider -p no:xdist --disable-warnings -o filterwarnings=default "
    "-o python_files=bench_*.py --benchmark-quiet --benchmark-disable-gc"
)


def measure(dump: Path, quick: bool, only: str) -> list[dict[str, Any]]:
    """Benchmarks, in the order of the files; ends the program where one fails."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        options = [*OPTIONS.split(), f"--dump={dump}", f"--benchmark-json={results}", *["--quick"][:quick]]
        options += ["-k", only] if only else []
        status = pytest.main([*options, *(str(HERE / f"bench_{name}.py") for name in ("ratios", "growth"))])
        if status:
            raise SystemExit(int(status))
        return json.loads(results.read_text(encoding="utf-8"))["benchmarks"]


def together(kept: Path | None, fresh: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was measured earlier and now, by test; kept for the next time."""
    if kept is None:
        return fresh
    earlier = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    found = {one["fullname"]: one for one in [*earlier, *fresh]}
    kept.write_text(json.dumps([*found.values()]), encoding="utf-8")
    return [*found.values()]


def duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.2f} ms"


def line(found: dict[str, Any]) -> str:
    """One row of the table of ratios."""
    info, seconds = found["extra_info"], np.asarray(found["stats"]["data"])
    ratios = seconds / info["unit"] if info["unit"] else np.zeros(0)
    low, middle, high = np.percentile(ratios, [25, 50, 75]) if ratios.size else [np.nan] * 3
    each, by_row = seconds / info["positions"], info["by_row"]
    cells = (
        info["cost"],
        info["over"],
        "" if info["goal"] is None else info["goal"],
        f"{middle:.2f}" if ratios.size else "",
        f"{low:.2f} to {high:.2f}" if ratios.size > 1 else "",
        f"{ratios.max():.2f}" if by_row else "",
        f"{info['bytes'] / 2**20:.0f} MiB" if "bytes" in info else duration(float(np.median(each))),
        duration(each.max()) if by_row else "",
    )
    return f"| {' | '.join(map(str, cells))} |"


def curves(benchmarks: list[dict[str, Any]]) -> dict[str, dict[str, np.ndarray]]:
    """Sizes and median seconds ``(2, points)``, by axis and rule."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for b in benchmarks:
        if "against" in (info := b["extra_info"]):
            curve = found.setdefault(info["against"], {}).setdefault(info["rule"], {})
            curve[info["size"]] = b["stats"]["median"]
    return {
        against: {rule: np.asarray([*zip(*points.items(), strict=True)]) for rule, points in by_rule.items()}
        for against, by_rule in found.items()
    }


def exponent(points: np.ndarray) -> float:
    """Slope of log(seconds) against log(size), by least squares."""
    sizes, seconds = np.log(points)
    return float(np.polyfit(sizes, seconds, 1)[0]) if len(sizes) > 1 else np.nan


def draw(growth: dict[str, dict[str, np.ndarray]], path: Path) -> None:
    """One panel an axis, log-log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    panels = figure.subplots(1, len(growth), squeeze=False)[0]
    rules = list(dict.fromkeys(rule for by_rule in growth.values() for rule in by_rule))
    style = dict(zip(rules, looks((rule.partition(",")[0], rule) for rule in rules), strict=True))
    for axes, (against, by_rule) in zip(panels, growth.items(), strict=True):
        slopes = []
        for rule, points in by_rule.items():
            look = style[rule]
            axes.plot(*points, marker=look.marker, color=look.colour, label=rule, markersize=5)
            slopes.append((float(points[1, -1]), f" {exponent(points):.2f}", look.colour))
        for (_, text, colour), y in zip(sorted(slopes), _apart(axes, sorted(slopes)), strict=True):
            axes.annotate(text, (1.0, y), xycoords="axes fraction", color=colour, va="center", fontsize=9)
        axes.set_xscale("log", base=2)
        axes.set(yscale="log", xlabel=AXES[against], ylabel="seconds")
        axes.set_title(HEADS[against], fontsize=11, loc="left")
        axes.grid(alpha=0.3)
    entries = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    legend_below(figure, entries, "Medians; at the right of each line its exponent, by least squares.")
    with matplotlib.rc_context({"savefig.dpi": 110}):
        figure.savefig(path, metadata={"Software": None})


def _apart(axes: Axes, ends: list[tuple[float, str, str]]) -> list[float]:
    """Heights of labels, of 1, from the lowest: where the lines end, and no two on each other."""
    axes.set_yscale("log")
    low, high = np.log10(axes.get_ylim())
    found: list[float] = []
    for end, *_ in ends:
        here = (np.log10(end) - low) / (high - low)
        found.append(max(here, found[-1] + 0.05) if found else here)
    return found


def write_points(growth: dict[str, dict[str, np.ndarray]], path: Path) -> None:
    """The points of the picture, as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["against", "rule", "size", "seconds"])
        for against, by_rule in growth.items():
            for rule, points in by_rule.items():
                writer.writerows([against, rule, int(size), f"{s:.6g}"] for size, s in points.T)


def read_points(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """What `write_points` wrote."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            curve = found.setdefault(row["against"], {}).setdefault(row["rule"], [])
            curve.append((float(row["size"]), float(row["seconds"])))
    return {
        against: {rule: np.asarray(points).T for rule, points in by_rule.items()}
        for against, by_rule in found.items()
    }


def machine() -> str:
    """What the figures depend on; no names."""
    packages = ("numpy", "scipy", "numba", "torch", "pytest-benchmark")
    found = [f"{name} {version(name)}" for name in packages if name != "torch" or "torch" in sys.modules]
    return ", ".join(
        [f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}", *found]
    )


def page(dump: Path, quick: bool, load: float, benchmarks: list[dict[str, Any]]) -> str:
    """The performance page."""
    growth = curves(benchmarks)
    rules = {rule: None for by_rule in growth.values() for rule in by_rule}
    slopes = [
        [f"{exponent(by_rule[rule]):.2f}" if rule in by_rule else "" for by_rule in growth.values()]
        for rule in rules
    ]
    doubts = {
        "Made with `--quick`: these figures mean nothing.": quick,
        "The machine was busy: its load average was above 1.5 when this began.": load > 1.5,
    }
    return PAGE.format(
        dump=dump.name,
        warnings="".join(f"\n```{{warning}}\n{text}\n```\n" for text, so in doubts.items() if so),
        machine=machine(),
        load=load,
        rows="\n".join(line(b) for b in benchmarks if "cost" in b["extra_info"]),
        axes=" | ".join(growth),
        dashes=" --- |" * len(growth),
        slopes="\n".join(
            f"| {' | '.join([rule, *cells])} |" for rule, cells in zip(rules, slopes, strict=True)
        ),
    )


PAGE = """\
{warnings}
Times depend on the machine and its load; ratios less, though other work slows a long measurement more than
a short one. These figures are written by one command:

```console
$ pip install '.[bench]'
$ python benchmarks/run.py --dump {dump} --page docs/howto/scale.md
```

Any flat dump will do; `record` makes one, and without `--dump` it is the bundled example. At most 128
positions are looked at. Leave the machine alone while it runs (some minutes). The figures below are from
`{dump}`, on {machine}; load average when it began: {load:.1f}.

There are no figures for a GPU yet: see [GPU](../reference/backends.md#gpu).

### Ratios

Of two things timed in turns in the same run, by
[pytest-benchmark](https://pytest-benchmark.readthedocs.io). Softmaxes are in float64. The *middle half* is
from the first quartile of the ratios to the third: over rounds, or over the positions of the dump where there
is a *highest*. The last columns are times for one position; `kl`'s and the start-up's are for the whole
command.

| cost | over | goal at most | ratio, median | middle half | highest | cost, median | highest |
| --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

ResiSpec's cost varies by orders of magnitude between positions: it is the number of pairs of tokens that can
be rejected one after the other, large where target and draft are both nearly flat. `--max-expansions` bounds
the work, and the certified gap says what was left out.

### Growth

![Time against V, n and N, log-log](../img/performance-growth.png)

Exponents fitted by least squares to the logarithms ([the points](../img/performance-growth.csv)). V: random
laws, a disturbed Zipf law; n: the dump's first position; N: the dump's first positions, as `kl` evaluates
them on one thread. `resispec` has n = 2 and gap 1e-3 throughout. What a call costs by itself flattens the
curves at small sizes.

| rule | {axes} |
| --- |{dashes}
{slopes}
"""


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dump", type=Path, default=EXAMPLE)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--markdown", type=Path, help="write a page of its own here, and its picture to img/ beside it"
    )
    parser.add_argument(
        "--page", type=Path, help="write between the marks of this page, and the picture to ../img/"
    )
    parser.add_argument("--only", default="", help="tests whose names hold this, as pytest's -k")
    parser.add_argument("--kept", type=Path, help="JSON file to which results are added")
    parser.add_argument("--redraw", type=Path, metavar="CSV", help="only draw the points of this file again")
    arguments = parser.parse_args()
    if arguments.redraw:
        draw(read_points(arguments.redraw), arguments.redraw.with_suffix(".png"))
        return
    if arguments.only and (arguments.markdown or arguments.page) and not arguments.kept:
        parser.error("--only measures a part: with --markdown and --page it needs --kept")
    try:
        open_dump(arguments.dump)
    except InputError as error:
        sys.stderr.write(f"benchmarks/run.py: error: {error}\n")
        raise SystemExit(2) from None
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    benchmarks = together(arguments.kept, measure(arguments.dump, arguments.quick, arguments.only))
    text = page(arguments.dump, arguments.quick, load, benchmarks)
    print(text)
    if arguments.markdown:
        picture = arguments.markdown.parent / "img" / "performance-growth.png"
        draw(curves(benchmarks), picture)
        write_points(curves(benchmarks), picture.with_suffix(".csv"))
        alone = text.replace("### ", "## ").replace("(../img/", "(img/")
        arguments.markdown.write_text(f"# What it costs\n\n{alone}", encoding="utf-8")
    if arguments.page:
        picture = arguments.page.parent.parent / "img" / "performance-growth.png"
        draw(curves(benchmarks), picture)
        write_points(curves(benchmarks), picture.with_suffix(".csv"))
        sys.path.append(str(HERE.parent / "docs"))
        from written import with_part

        page_text = arguments.page.read_text(encoding="utf-8")
        arguments.page.write_text(with_part(page_text, "performance", text), encoding="utf-8")


if __name__ == "__main__":
    main()
