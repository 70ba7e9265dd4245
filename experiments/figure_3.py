"""Figure 3: where the time of a step goes; here on one CPU thread.

Left: a step of each method, with and without ResiSpec, in drafting, the target's pass over the tree, and
everything else: probabilities of all nodes on the way, tests, residuals, draws. Right: the three parts of
ResiSpec's GetProxy for one rejection. The paper's are from a GPU, where the proportions are others: a CPU is
slow at the models and not at vectors of 49,152 numbers.

    python experiments/figure_3.py
"""

from __future__ import annotations

import json
import sys

import numpy as np
import torch
from decoded import topology_of
from matplotlib.figure import Figure
from pairs import Job, ModelPair, main
from recorded import dump
from tables import logs, markdown, page, save

from resispec_verify.backends import get_backend
from resispec_verify.decoding import decode_steps, tree_model
from resispec_verify.dumps import open_dump
from resispec_verify.report.plots.palette import BLUE, ORANGE
from resispec_verify.rules import make_rule
from resispec_verify.tables.runtime import results, time_steps

METHODS = (
    ("d5b3", "specinfer"), ("d5b3", "resispec"), ("sequoia64", "sequoia"), ("sequoia64", "sequoia+resispec"),
    ("sequoia64", "eagle"), ("sequoia64", "eagle+resispec"),
)  # fmt: skip
PHASES = ("draft_seconds", "target_seconds", "verify_seconds")
NAMES = ("drafting", "target pass", "acceptance and residuals")


def measure(job: Job, pair: ModelPair) -> None:
    """Medians over steps after the first, which compiles kernels and reads the prompt."""
    settings, opened = job.config["runtime"], pair.open()
    models = tree_model(opened.target), tree_model(opened.draft)
    prompts = [opened.encode(text) for text in job.prompts(settings["prompts"])]
    steps = []
    for tree, rule in METHODS:
        taken = [
            step
            for number, prompt in enumerate(prompts)
            for step in list(
                decode_steps(
                    *models, prompt, rule=make_rule(rule), topology=topology_of(job, tree),
                    tokens=settings["tokens"], seed=job.config["seed"] + number,
                )
            )[1:]
        ]  # fmt: skip
        medians = {phase: float(np.median([getattr(step, phase) for step in taken])) for phase in PHASES}
        steps.append({"tree": tree, "rule": rule, "steps": len(taken)} | medians)
    rows = open_dump(dump(job, pair, 1.0)).batch(0, 1)
    parts = results(
        time_steps(rows.target[0], rows.draft[0], backend=get_backend("numpy"), repeats=settings["repeats"])
    )
    path = job.results / f"figure_3-{pair.name}.json"
    log = pair.describe() | {"threads": torch.get_num_threads(), "steps": steps, "parts": parts}
    path.write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")


def render(job: Job) -> None:
    """Two panels for the first pair, a table for all."""
    found = logs(job, "figure_3")
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
    y, start = np.arange(len(METHODS)), np.zeros(len(METHODS))
    for phase, name, colour in zip(PHASES, NAMES, ("0.75", BLUE, ORANGE), strict=True):
        milliseconds = np.asarray([1e3 * row[phase] for row in found[0]["steps"]])
        left.barh(y, milliseconds, left=start, color=colour, label=name)
        start = start + milliseconds
    left.set_yticks(y, [f"{row['rule']}, {row['tree']}" for row in found[0]["steps"]])
    left.invert_yaxis()
    left.set(
        xlabel="milliseconds a step, median",
        title=f"{found[0]['pair']}, {found[0]['device']}, threads: {found[0]['threads']}",
    )
    left.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.4, -0.18), ncols=3, fontsize=9)
    shares = [(part["phase"], part["share"]) for part in found[0]["parts"] if part["share"] is not None]
    bars = right.bar(
        [name.replace(" ", "\n") for name, _ in shares], [100 * s for _, s in shares], color="0.6"
    )
    right.bar_label(bars, fmt="%.0f %%")
    right.margins(y=0.12)
    right.set(ylabel="% of GetProxy", title="One rejection of ResiSpec")
    save(figure, job.results / "figure_3")
    rows = [
        (
            log["pair"],
            row["rule"],
            row["tree"],
            row["steps"],
            *(f"{1e3 * row[phase]:.0f}" for phase in PHASES),
        )
        for log in found
        for row in log["steps"]
    ]
    parts = [
        (log["pair"], part["belongs_to"], part["phase"], f"{part['median_us']:.0f}",
         "" if part["share"] is None else f"{100 * part['share']:.0f} %")
        for log in found
        for part in log["parts"]
    ]  # fmt: skip
    page(
        job.results / "figure_3.md",
        "Figure 3: time of a step",
        __doc__.split("\n\n")[1] + "\n",
        "![Time of a step by phase, and the parts of GetProxy](figure_3.png)\n",
        "Milliseconds, medians:\n",
        markdown(("pair", "rule", "tree", "steps", *NAMES), rows, left=3),
        "Microseconds for one rejection, medians (`resispec-verify runtime`):\n",
        markdown(("pair", "rule", "part", "µs", "of GetProxy"), parts, left=3),
    )


if __name__ == "__main__":
    sys.exit(main(__file__, (measure,), render))
