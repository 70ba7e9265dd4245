"""Table 4: KL divergence from the target, as the paper computes it and of what the samplers emit.

The paper's number is the path identity of its Appendix B, which is the target for any proxy: what is left of
it is rounding. Beside it stands the operational KL, of what the sampler emits, with certified bounds. Both on
logits recorded along text sampled from the target.

    python experiments/table_4.py
"""

from __future__ import annotations

import json
import sys
from typing import Any

import paper
from pairs import Job, ModelPair, main
from recorded import dump, report
from tables import logs, markdown, page

RULES = ("resispec", "specinfer")


def measure(job: Job, pair: ModelPair) -> None:
    """The reports of ``kl`` in float64, and of its path identity in float32, at each temperature."""
    results: list[dict[str, Any]] = []
    for temperature in job.config["temperatures"]:
        settings = job.config["recorded"]
        options = ["kl", "--logits", dump(job, pair, temperature), "--candidates", settings["candidates"]]
        options += [part for rule in RULES for part in ("--rule", rule)]
        single = ("--precision", "float32", "--marginal", "path-identity")
        for precision, more in (("float64", ()), ("float32", single)):
            for row in report(job, *options, *more)["results"]:
                del row["worst_path"]  # of this machine
                results.append(row | {"precision": precision})
    path = job.results / f"table_4-{pair.name}.json"
    path.write_text(json.dumps(pair.describe() | {"results": results}, indent=1) + "\n", encoding="utf-8")


def render(job: Job) -> None:
    """The table, the paper's values below it."""
    rows = []
    for log in logs(job, "table_4"):
        found = {(r["temperature"], r["rule"], r["marginal"], r["precision"]): r for r in log["results"]}
        for temperature in sorted({key[0] for key in found}, reverse=True):
            for rule in RULES:
                emitted = found[temperature, rule, "operational", "float64"]
                low, high = emitted["kl_mean_bounds"]
                rows.append(
                    (
                        log["pair"], rule, f"{temperature:g}", emitted["positions"],
                        f"{found[temperature, rule, 'path-identity', 'float32']['kl_as_printed_mean']:.1e}",
                        f"{found[temperature, rule, 'path-identity', 'float64']['kl_mean']:.1e}",
                        bounds(low, high), f"{emitted['tv_mean']:.3f}", emitted["verdict"],
                    )
                )  # fmt: skip
    head = (
        "pair", "rule", "T", "positions", "identity, float32", "identity, float64", "operational KL", "TV",
        "verdict",
    )  # fmt: skip
    theirs = [
        (rule, data, *(f"{value:.2e}" for value in values)) for (rule, data), values in paper.TABLE_4.items()
    ]
    page(
        job.results / "table_4.md",
        "Table 4: KL divergence from the target, nats, three candidates",
        __doc__.split("\n\n")[1] + "\n",
        markdown(head, rows, left=2),
        "The paper (Llama-2-7B with JF68M), which computes the identity:\n",
        markdown(("rule", "data", "KL, T = 1", "KL, T = 0.6"), theirs, left=2),
    )


def bounds(low: float, high: float) -> str:
    """Certified bounds as text."""
    if high < 1e-9:
        return f"{high:.1e}"
    return f"{low:.4f} to {high:.4f}" if high - low >= 5e-5 else f"{high:.4f}"


if __name__ == "__main__":
    sys.exit(main(__file__, (measure,), render))
