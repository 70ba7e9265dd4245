"""Table 1: accepted length on the 3-branch tree of 5 levels, d5b3 (121 nodes, at most 5 tokens a step).

Each rule on its own text, and all of them on the same prefixes. Accepted lengths count the final token, as
the paper's do. Throughput is only given for pairs that were run on a GPU; tokens for each pass of the target
stand in its place.

    python experiments/table_1.py --jobs 2
"""

from __future__ import annotations

import sys

import decoded
import paper
import prefixes
from decoded import Run, expected, realised
from pairs import Job, main
from tables import markdown, page, write_csv

TREE = "d5b3"
OWN = """## Each rule on its own text

Mean accepted length given the tree of each step, with its standard error by prompt; in brackets the tokens
emitted for each pass of the target, and the number of steps. Throughput is shown for pairs run on a GPU.
"""
SAME = """## All rules on the same prefixes

Expected accepted length, mean over the places of texts of the target, with its standard error by text.
*limit*: the bound of exact rules that decide node by node, on the same texts. The CSV also has that of all
exact rules, those that look ahead included. The last columns are ratios, and a difference, on the same texts:
what differs between texts is common to both, so that they are known better than the lengths.
"""


def render(job: Job) -> None:
    """Own text, same prefixes, and the paper's table."""
    own, rows, records = decoded.found(job), [], []
    for pair in dict.fromkeys(pair for pair, _ in own):
        for temperature in dict.fromkeys(run.temperature for p, run in own if (p, run.tree) == (pair, TREE)):
            logs = {rule: own[pair, Run(TREE, rule, temperature)] for rule in prefixes.RULES}
            cells = []
            for rule, lines in logs.items():
                length, emitted, steps = expected(lines), realised(lines), decoded.count(lines)
                speed = decoded.throughput(lines)
                cells.append(f"{length} ({emitted.value:.2f}; {steps}{speed and f'; {speed} tok/s'})")
                records.append(
                    {
                        "pair": pair, "temperature": temperature, "rule": rule,
                        "accepted_length": length.value, "standard_error": length.error,
                        "tokens_per_pass": emitted.value, "tokens_per_pass_error": emitted.error,
                        "tokens_per_second": speed, "steps": steps, "prompts": len(lines),
                    }
                )  # fmt: skip
            gain = expected(logs["resispec"]).value / expected(logs["specinfer"]).value
            rows.append((pair, f"{temperature:g}", *cells, f"{gain:.2f}"))
    head, same_rows, same_records = prefixes.compared(job, [TREE])
    write_csv(job.results / "table_1-own.csv", records)
    write_csv(job.results / "table_1.csv", same_records)
    theirs = [
        (r.data, f"{r.temperature:g}", r.specinfer, r.resispec, f"{r.resispec / r.specinfer:.2f}",
         r.specinfer_throughput, r.resispec_throughput) for r in paper.TABLE_1
    ]  # fmt: skip
    page(
        job.results / "table_1.md",
        "Table 1: accepted length, d5b3",
        __doc__.split("\n\n")[1] + "\n",
        OWN,
        markdown(("pair", "T", *prefixes.RULES, "resispec / specinfer"), rows),
        SAME,
        markdown(head, same_rows, left=3),
        "## The paper: Llama-2-7B with JF68M\n",
        markdown(
            ("data", "T", "SpecInfer", "ResiSpec", "ratio", "SpecInfer tok/s", "ResiSpec tok/s"), theirs
        ),
    )


if __name__ == "__main__":
    sys.exit(main(__file__, (prefixes.measure, decoded.measure), render))
