"""Figure 2: where the mass of the target goes when the first candidate is rejected, at a real position.

The paper's figure is a drawing. This is the recorded position of each pair at T = 1 at which the first
candidate is most nearly as often rejected as it is on average, and the token that is most often rejected
there; in the names of tokens Ġ is a blank.

    python experiments/figure_2.py
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from pairs import Job, ModelPair, main
from recorded import dump, token_texts
from tables import logs, markdown, page, save

from resispec_verify.distributions import Sampling
from resispec_verify.dumps import open_dump
from resispec_verify.report.plots.position import plot_position
from resispec_verify.rules import make_rule
from resispec_verify.tables.position import look_at

RULES = ("resispec", "specinfer", "optimal-sequential")
CANDIDATES, TOKENS = 3, 10


def measure(job: Job, pair: ModelPair) -> None:
    """The position token by token."""
    rows = open_dump(dump(job, pair, 1.0))
    batch = rows.batch(0, rows.positions)
    target, draft = (Sampling(1.0).probabilities(part, dtype=np.float64) for part in batch[:2])
    rejected = 1.0 - np.minimum(target, draft).sum(axis=-1)
    i = int(np.argmin(np.abs(rejected - rejected.mean())))
    found = look_at(target[i], draft[i], [make_rule(name) for name in RULES], CANDIDATES)
    names = token_texts(pair, found.tokens(TOKENS).tolist())
    log = pair.describe() | {
        "position": i, "vocab": int(target.shape[-1]), "first_rejected": float(rejected[i]),
        "first_rejected_mean": float(rejected.mean()), "rejected": found.rejected,
        "next_accepted": found.next_accepted, "l1": found.l1, "names": list(found.series()),
        "records": found.records(TOKENS, names),
    }  # fmt: skip
    path = job.results / f"figure_2-{pair.name}.json"
    path.write_text(json.dumps(log, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Logged:
    """A position out of a log, as far as `plot_position` asks."""

    log: dict[str, Any]

    @property
    def rejected(self) -> int:
        """The rejected token."""
        return self.log["rejected"]

    @property
    def next_accepted(self) -> dict[str, float]:
        """P(the next candidate is accepted), by rule."""
        return self.log["next_accepted"]

    def series(self) -> list[str]:
        """Names of the laws."""
        return self.log["names"]

    def records(self, most: int, names: Any = None) -> list[dict[str, Any]]:
        """One record a token."""
        return self.log["records"]


def render(job: Job) -> None:
    """One figure a pair, and what the next candidate is worth."""
    parts, rows = [], []
    for log in logs(job, "figure_2"):
        title = f"{log['pair']}, T = 1, position {log['position']}"
        save(plot_position(Logged(log), title, most=TOKENS), job.results / f"figure_2-{log['pair']}")  # type: ignore[arg-type]
        parts.append(f"![Mass by token, {log['pair']}](figure_2-{log['pair']}.png)\n")
        for rule in RULES:
            rows.append(
                (log["pair"], rule, log["position"], f"{log['first_rejected']:.3f}", log["rejected"],
                 f"{log['next_accepted'][rule]:.3f}", f"{log['l1'][rule]:.3f}")
            )  # fmt: skip
    head = (
        "pair", "rule", "position", "P(first is rejected)", "rejected token", "P(next is accepted)",
        "L1(residual, draft)",
    )  # fmt: skip
    page(
        job.results / "figure_2.md",
        "Figure 2: the residual after the first rejection",
        __doc__.split("\n\n")[1] + "\n",
        *parts,
        markdown(head, rows, left=2),
    )


if __name__ == "__main__":
    sys.exit(main(__file__, (measure,), render))
