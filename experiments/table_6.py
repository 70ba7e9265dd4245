"""Table 6: other model pairs, trees d5b3 and d4b4, all rules on the same prefixes.

Mean accepted lengths, final token included. There is no throughput: nothing here ran on a GPU.

    python experiments/table_6.py --jobs 2
"""

from __future__ import annotations

import sys

import paper
import prefixes
from pairs import Job, main
from tables import markdown, page, write_csv


def render(job: Job) -> None:
    """One row for each pair, temperature and tree, and the paper's."""
    head, rows, records = prefixes.compared(job, ["d5b3", "d4b4"])
    write_csv(job.results / "table_6.csv", records)
    theirs = [
        (f"{r.target}, {r.draft}", f"{r.temperature:g}", r.data, r.tree, r.specinfer, r.resispec,
         f"{r.resispec / r.specinfer:.2f}", r.specinfer_throughput, r.resispec_throughput)
        for r in paper.TABLE_6
    ]  # fmt: skip
    names = (
        "pair",
        "T",
        "data",
        "tree",
        "SpecInfer",
        "ResiSpec",
        "ratio",
        "SpecInfer tok/s",
        "ResiSpec tok/s",
    )
    page(
        job.results / "table_6.md",
        "Table 6: accepted length for three pairs",
        __doc__.split("\n\n")[1] + "\n",
        markdown(head, rows, left=3),
        "The paper:\n",
        markdown(names, theirs, left=4),
    )


if __name__ == "__main__":
    sys.exit(main(__file__, (prefixes.measure,), render))
