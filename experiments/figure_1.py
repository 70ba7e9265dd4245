"""Figure 1: how often each candidate is accepted, given that it is reached.

Expectations at each recorded position, by ``resispec-verify drift``, averaged over the positions; no sampling
noise but that of the positions. Candidates are i.i.d. from the draft.

    python experiments/figure_1.py
"""

from __future__ import annotations

import json
import sys

from matplotlib.figure import Figure
from pairs import Job, ModelPair, main
from recorded import dump, report
from tables import logs, markdown, page, save

from resispec_verify.report.plots.palette import MARKERS, colour_of

RULES = ("specinfer", "resispec", "optimal-sequential")
NOTE = """Where a mean over all rejection paths is not known exactly its certified bounds are given.

The paper (CNN/DM; Llama-2-7B and Vicuna-7B with Llama-68M) gives a plot without numbers. It says that
"acceptance drops sharply after the first candidate, leaving later candidates with near-zero marginal
utility".
"""
KEPT = (
    "rule", "temperature", "index", "positions", "looked_at", "acceptance_conditional",
    "acceptance_conditional_bounds", "acceptance_gap", "eal", "eal_bounds", "limit",
)  # fmt: skip


def measure(job: Job, pair: ModelPair) -> None:
    """What ``drift`` reports at each temperature."""
    results = []
    for temperature in job.config["temperatures"]:
        options = ["drift", "--logits", dump(job, pair, temperature)]
        options += ["--candidates", job.config["recorded"]["drift_candidates"]]
        found = report(job, *options, *(part for rule in RULES for part in ("--rule", rule)))["results"]
        results += [{key: row[key] for key in KEPT} for row in found]
    path = job.results / f"figure_1-{pair.name}.json"
    path.write_text(json.dumps(pair.describe() | {"results": results}, indent=1) + "\n", encoding="utf-8")


def render(job: Job) -> None:
    """One panel a temperature; a colour for each rule, a marker for each pair."""
    found = logs(job, "figure_1")
    temperatures = sorted({row["temperature"] for log in found for row in log["results"]}, reverse=True)
    figure = Figure(figsize=(9.6, 4.6), layout="constrained")
    panels = figure.subplots(1, len(temperatures), sharey=True, squeeze=False)[0]
    table = []
    for axes, temperature in zip(panels, temperatures, strict=True):
        for log, marker in zip(found, MARKERS, strict=False):
            for rule in RULES:
                rows = [r for r in log["results"] if (r["rule"], r["temperature"]) == (rule, temperature)]
                seen = [
                    row for row in rows if row["acceptance_gap"] is not None and row["acceptance_gap"] <= 0.5
                ]
                axes.plot(
                    [row["index"] for row in seen], [row["acceptance_conditional"] for row in seen],
                    color=colour_of(rule), marker=marker, label=f"{rule}, {log['pair']}",
                )  # fmt: skip
                table.append((log["pair"], rule, f"{temperature:g}", *map(_cell, rows)))
        axes.set(xlabel="candidate", ylim=(0, 1.02), title=f"T = {temperature:g}")
        axes.set_xticks(range(1, 1 + max(row["index"] for row in found[0]["results"])))
        axes.grid(color="0.92")
    panels[0].set_ylabel("P(accepted | reached)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    save(figure, job.results / "figure_1")
    candidates = [f"candidate {i}" for i in range(1, len(table[0]) - 2)]
    page(
        job.results / "figure_1.md",
        "Figure 1: P(candidate i is accepted, given that it is reached)",
        __doc__.split("\n\n")[1] + "\n",
        "![Acceptance by candidate](figure_1.png)\n",
        markdown(("pair", "rule", "T", *candidates), table, left=2),
        NOTE,
    )


def _cell(row: dict) -> str:
    low, high = row["acceptance_conditional_bounds"]
    return f"{row['acceptance_conditional']:.3f}" if high - low < 1e-3 else f"{low:.3f} to {high:.3f}"


if __name__ == "__main__":
    sys.exit(main(__file__, (measure,), render))
