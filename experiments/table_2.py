"""Table 2: Sequoia and EAGLE with and without ResiSpec, and exact optimal rules, on one tree at T = 1.

Every rule decodes its own text over the same tree of 64 nodes, which dynamic programming found for Sequoia's
acceptance (``resispec-verify tree --grow``). No EAGLE head is at hand: EAGLE is emulated by the draft's top-k
tokens as siblings, tested as EAGLE-2 tests them. For fixed siblings that test is already the best exact rule;
so the optimal sequential rule stands here with i.i.d. siblings. There is no throughput: no GPU.

    python experiments/table_2.py --jobs 2
"""

from __future__ import annotations

import sys

import decoded
import paper
from decoded import Run, expected, realised
from pairs import Job, main
from tables import markdown, page, write_csv

TREE = "sequoia64"
HEAD = (
    "pair", "rule", "siblings", "accepted length", "tokens / target pass", "tok/s (GPU)", "steps",
    "the paper's accepted length",
)  # fmt: skip
RULES = {
    "specinfer": ("i.i.d.", None),
    "optimal-sequential": ("i.i.d.", None),
    "sequoia": ("without replacement", "Sequoia"),
    "sequoia+resispec": ("without replacement", "Sequoia+ResiSpec"),
    "eagle": ("top-k", "EAGLE"),
    "eagle+resispec": ("top-k", "EAGLE+ResiSpec"),
}


def render(job: Job) -> None:
    """One row for each pair and rule."""
    own, rows, records = decoded.found(job), [], []
    for pair in dict.fromkeys(pair for pair, run in own if run.tree == TREE):
        for rule, (siblings, name) in RULES.items():
            lines = own[pair, Run(TREE, rule, 1.0)]
            length, emitted = expected(lines), realised(lines)
            theirs = paper.TABLE_2[name][0] if name else ""
            steps = decoded.count(lines)
            speed = decoded.throughput(lines)
            rows.append((pair, rule, siblings, length, emitted, speed, steps, theirs))
            records.append(
                {
                    "pair": pair, "rule": rule, "siblings": siblings, "accepted_length": length.value,
                    "standard_error": length.error, "tokens_per_pass": emitted.value,
                    "tokens_per_pass_error": emitted.error, "tokens_per_second": speed, "steps": steps,
                    "prompts": len(lines),
                }
            )  # fmt: skip
    write_csv(job.results / "table_2.csv", records)
    theirs = [(name, *numbers) for name, numbers in paper.TABLE_2.items()]
    page(
        job.results / "table_2.md",
        "Table 2: with other methods, T = 1",
        __doc__.split("\n\n")[1] + "\n",
        markdown(HEAD, rows, left=3),
        "The paper (Sequoia: Llama-2-7B with JF68M; EAGLE: Llama-2-7B-Chat with its EAGLE head):\n",
        markdown(("method", "accepted length", "tok/s"), theirs),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(__file__, (decoded.measure,), render))
