"""How much more than SpecInfer an exact rule could accept, at every measured node: OT_3 beside SpecInfer.

The nodes are places of the texts of the target that all rules are compared on. Both numbers are exact for the
two laws at the node. The curve is the largest limit that laws with such an acceptance of SpecInfer can have
(docs/explanation/optimal-rules.md).

    python experiments/ot_n.py --render
"""

from __future__ import annotations

import sys

import numpy as np
import paper
import prefixes
from bounds import per_level
from matplotlib.figure import Figure
from pairs import Job, main
from tables import line_logs, markdown, mean, page, save, write_csv

from resispec_verify.report.plots.palette import MARKERS
from resispec_verify.tables.specinfer_bound import largest_ratio, most_accepted

CANDIDATES = 3
THEIRS, CLAIMED = per_level(2.51, 5), per_level(4.68, 5)  # Table 1, T = 1, CNN/DM
NEAR = 0.05
COLOURS = ("#7e53bc", "#1496ae", "#ae7c02")  # of pairs, which are no rules


def nodes(job: Job) -> dict[tuple[str, float], np.ndarray]:
    """By pair and temperature: acceptance of SpecInfer, OT_3 and number of the text, ``(nodes, 3)``."""
    found: dict[tuple[str, float], list[tuple[float, float, int]]] = {}
    for head, log in line_logs(job, "prefixes"):
        for line in log:
            rows = found.setdefault((head["pair"], line["temperature"]), [])
            rows += [(a, limit, line["prompt"]) for a, limit in line["nodes"]]
    return {key: np.asarray(rows) for key, rows in found.items()}


def summaries(job: Job) -> list[dict[str, float | str | int]]:
    """One row for each pair and temperature."""
    rows = []
    for (pair, temperature), found in nodes(job).items():
        accepted, limit, prompts = found.T
        near = np.abs(accepted - THEIRS) <= NEAR
        rows.append(
            {
                "pair": pair, "temperature": temperature, "nodes": len(found),
                "specinfer": mean(accepted, prompts).value, "specinfer_error": mean(accepted, prompts).error,
                "limit": mean(limit, prompts).value, "limit_error": mean(limit, prompts).error,
                "ratio_of_means": limit.sum() / accepted.sum(),
                "largest_ratio": float(np.max(limit / accepted)),
                "near": int(near.sum()),
                "near_limit_mean": float(limit[near].mean()) if near.any() else float("nan"),
                "near_limit_max": float(limit[near].max()) if near.any() else float("nan"),
                "above_claimed": int((limit >= CLAIMED).sum()),
            }
        )  # fmt: skip
    return rows


def render(job: Job) -> None:
    """A cloud of nodes below the curve, and means."""
    found, rows = nodes(job), summaries(job)
    figure = Figure(figsize=(9.6, 4.8), layout="constrained")
    temperatures = sorted({key[1] for key in found}, reverse=True)
    panels = figure.subplots(1, len(temperatures), sharey=True, squeeze=False)[0]
    grid = np.linspace(0, 1, 401)
    for axes, temperature in zip(panels, temperatures, strict=True):
        pairs = [key for key in found if key[1] == temperature]
        for key, colour, marker in zip(pairs, COLOURS, MARKERS, strict=False):
            accepted, limit, _ = found[key].T
            axes.plot(
                accepted, limit, linestyle="", marker=marker, color=colour, alpha=0.35,
                markersize=4, markeredgewidth=0, label=key[0],
            )  # fmt: skip
        curve = [most_accepted(a, CANDIDATES) for a in grid]
        axes.plot(grid, curve, color="0.1", label="the most that any exact rule can")
        axes.plot([0, 1], [0, 1], color="0.6", linestyle=":", label="SpecInfer")
        star = {"color": "black", "markersize": 13, "label": "Table 1, CNN/DM, if levels are alike"}
        for row in paper.TABLE_1:
            if (row.data, row.temperature) == ("CNN/DM", temperature):
                axes.plot([per_level(row.specinfer, 5)], [per_level(row.resispec, 5)], "*", **star)
        axes.set(xlabel="SpecInfer accepts", xlim=(0, 1.01), ylim=(0, 1.02), title=f"T = {temperature:g}")
        axes.grid(color="0.92")
    panels[0].set_ylabel("limit of exact rules, OT_3")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    save(figure, job.results / "ot_n")
    write_csv(job.results / "ot_n.csv", rows)
    table = [
        (
            r["pair"], f"{r['temperature']:g}", r["nodes"],
            *(f"{r[name]:.3f} ± {r[f'{name}_error']:.3f}" for name in ("specinfer", "limit")),
            f"{r['ratio_of_means']:.3f}", f"{r['largest_ratio']:.3f}",
            r["near"], *(f"{r[n]:.3f}" if r["near"] else "" for n in ("near_limit_mean", "near_limit_max")),
        )
        for r in rows
    ]  # fmt: skip
    head = (
        "pair", "T", "nodes", "SpecInfer accepts", "OT_3", "ratio of means", "largest ratio",
        f"nodes within {NEAR} of {THEIRS:.3f}", "mean OT_3 there", "largest OT_3 there",
    )  # fmt: skip
    ratio, most = largest_ratio(CANDIDATES), most_accepted(THEIRS, CANDIDATES)
    page(
        job.results / "ot_n.md",
        "The limit OT_3 beside SpecInfer's acceptance",
        __doc__.split("\n\n")[1] + "\n",
        "![OT_3 against SpecInfer's acceptance](ot_n.png)\n",
        markdown(head, table),
        f"No pair of laws has a ratio above {ratio:.4f}; where SpecInfer accepts {THEIRS:.3f}, none has a "
        f"limit above {most:.3f}.\n",
    )


if __name__ == "__main__":
    sys.exit(main(__file__, (prefixes.measure,), render))
