"""Table 3: trees of like verification cost, all rules on the same prefixes.

The paper's table has throughputs, which say how long a step takes as well as how many tokens it gives. Here
are the tokens of a step, in mean accepted length, final token included.

    python experiments/table_3.py --jobs 2
"""

from __future__ import annotations

import sys

import paper
import prefixes
from pairs import Job, main
from tables import markdown, page, write_csv


def render(job: Job) -> None:
    """One row for each pair, temperature and tree."""
    head, rows, records = prefixes.compared(job, list(paper.TABLE_3))
    write_csv(job.results / "table_3.csv", records)
    theirs = [(tree, *numbers) for tree, numbers in paper.TABLE_3.items()]
    page(
        job.results / "table_3.md",
        "Table 3: trees of like cost",
        __doc__.split("\n\n")[1] + "\n",
        markdown(head, rows, left=3),
        "The paper (Llama-2-7B with JF68M; it names neither data nor temperature):\n",
        markdown(("tree", "cost", "ResiSpec tok/s", "SpecInfer tok/s", "ratio"), theirs),
    )


if __name__ == "__main__":
    sys.exit(main(__file__, (prefixes.measure,), render))
