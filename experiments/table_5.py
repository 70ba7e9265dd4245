"""Table 5: what more candidates are worth at a depth of 4 levels, all rules on the same prefixes.

EAL is the accepted length on the tree of 4 levels with N children a node; the efficiency is the gain over
half as many candidates, for each candidate added.

    python experiments/table_5.py --jobs 2
"""

from __future__ import annotations

import sys

import paper
import prefixes
from pairs import Job, main
from tables import markdown, page, write_csv

RULES = ("specinfer", "resispec", "optimal-sequential")
COUNTS = (1, 2, 4, 8)


def render(job: Job) -> None:
    """One row for each pair, temperature and rule."""
    same, rows, records = prefixes.found(job), [], []
    for pair, temperature in dict.fromkeys((key[0], key[1]) for key in same):
        for rule in (*RULES, "limit"):
            found = [same.get((pair, temperature, f"d4b{n}", rule)) for n in COUNTS]
            means = [f.length if f else None for f in found]
            cells = []
            for i, n in enumerate(COUNTS):
                mean, before = means[i], means[i - 1] if i else None
                gain = mean.value - before.value if mean and before else None
                cells.append("" if mean is None else str(mean))
                cells += [] if not i else ["" if gain is None else f"{gain / (n - COUNTS[i - 1]):.3f}"]
                if mean is not None:
                    records.append(
                        {
                            "pair": pair, "temperature": temperature, "rule": rule, "candidates": n,
                            "accepted_length": mean.value, "standard_error": mean.error,
                            "gain": "" if gain is None else gain,
                            "efficiency": "" if gain is None else gain / (n - COUNTS[i - 1]),
                        }
                    )  # fmt: skip
            rows.append((pair, f"{temperature:g}", rule, *cells))
    write_csv(job.results / "table_5.csv", records)
    head = ("pair", "T", "rule", "N = 1", "N = 2", "η", "N = 4", "η", "N = 8", "η")
    values = [
        str(v) for n, (eal, eta) in paper.TABLE_5.items() for v in ((eal, f"{eta:.3f}") if eta else (eal,))
    ]
    rows.append(("paper: Llama-2-7B, JF68M", "", "SpecInfer", *values))
    page(
        job.results / "table_5.md",
        "Table 5: accepted length and efficiency η by number of candidates, 4 levels",
        __doc__.split("\n\n")[1] + "\n",
        markdown(head, rows, left=3),
    )


if __name__ == "__main__":
    sys.exit(main(__file__, (prefixes.measure,), render))
