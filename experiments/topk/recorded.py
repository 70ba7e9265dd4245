"""Recorded logits cut to k tokens: do the intervals hold the full answers, and how wide are they?

    python experiments/topk/recorded.py good-rtn4-N128-fp16.pt mid-win32-N128-fp16.pt ...
    python experiments/topk/recorded.py --render

The full answers come from code that knows nothing of lists: the emitted law's enumeration, the transport
limit and plain sums over all tokens. Writes results/topk/recorded.csv, a line a dump, k and quantity, and
from it the table of docs/explanation/top-k-bounds.md; with --render only the table. Ends with status 1
where an interval misses
an answer.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

import resispec_verify as rv
from resispec_verify import topk
from resispec_verify.dumps import open_dump
from resispec_verify.dumps.kinds.top_rows import TopPairs
from resispec_verify.dumps.rows import rows_of
from resispec_verify.kernels.optimal.transport import transport_limit
from resispec_verify.rules import make_rule
from resispec_verify.verdict import Verdict

HERE = Path(__file__).resolve().parent
LOG = HERE.parent / "results" / "topk" / "recorded.csv"
PAGE = HERE.parents[1] / "docs" / "explanation" / "top-k-bounds.md"
BEGIN, END = "<!-- generated: recorded -->\n", "<!-- end -->"
KS = (20, 100, 1000)
N = 3
RULES = ("specinfer", "optimal-sequential", "k-seq")
BATCH = 16
ROUNDING = 1e-9  # of the full answers in float64, over 49,152 tokens


def softmax(logits: np.ndarray) -> np.ndarray:
    """Rows of probabilities in float64."""
    rows = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return rows / rows.sum(axis=-1, keepdims=True)


def full_answers(p: np.ndarray, q: np.ndarray) -> dict[str, np.ndarray]:
    """Of every quantity, from full rows (B, V)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        kl = np.where(p > 0.0, p * (np.log(p) - np.log(q)), 0.0).sum(axis=1)
    found = {"tv": 0.5 * np.abs(p - q).sum(axis=1), "kl": kl, "limit": transport_limit(p, q, N)}
    for name in RULES:
        found[name] = rv.operational_marginals(make_rule(name), p, q, N).acceptance.sum(axis=1)
    return found


def measure(path: Path) -> list[dict[str, str]]:
    """The lines of one dump."""
    dump = open_dump(path)
    pairs: dict[int, list[TopPairs]] = {k: [] for k in KS}
    answers: dict[str, list[np.ndarray]] = {}
    for start in range(0, dump.positions, BATCH):
        stop = min(start + BATCH, dump.positions)
        p, q = (softmax(rows_of(a, start, stop).astype(np.float64)) for a in (dump.target, dump.draft))
        for name, values in full_answers(p, q).items():
            answers.setdefault(name, []).append(values)
        for k in KS:
            pairs[k].append(TopPairs(topk.cut(p, k), topk.cut(q, k)))
    full = {name: np.concatenate(values) for name, values in answers.items()}
    return [line for k in KS for line in lines(path.stem, k, pairs[k], full)]


def lines(dump: str, k: int, pairs: list[TopPairs], full: dict[str, np.ndarray]) -> list[dict[str, str]]:
    """Of one k: containment and width of every quantity."""
    found = []
    for name, values in full.items():
        rule = make_rule(name if name in RULES else "specinfer")
        column = "acceptance" if name in RULES else name
        ends = np.concatenate([getattr(topk.bounds(part, rule, N), column) for part in pairs])
        room = np.concatenate([topk.bounds(part, rule, N).attained for part in pairs])
        inside = (values >= ends[:, 0] - ROUNDING) & (values <= ends[:, 1] + ROUNDING)
        width = ends[:, 1] - ends[:, 0]
        if name == "kl":  # no upper end: what is left open is how far below the truth the lower one is
            width = values - ends[:, 0]
        found.append(
            {
                "dump": dump, "k": str(k), "quantity": name, "positions": str(len(values)),
                "inside": str(int(inside.sum())), "attained": str(int(room.all(axis=1).sum())),
                "full": f"{values.mean():.4f}", "low": f"{ends[:, 0].mean():.4f}",
                "high": f"{ends[:, 1].mean():.4f}", "width": f"{width.mean():.4f}",
                "widest": f"{width.max():.4f}",
            }
        )  # fmt: skip
    biased = [topk.bounds(part, make_rule("resispec"), N) for part in pairs]
    proved = [verdict is Verdict.INEXACT for part in biased for verdict in part.verdicts]
    low = np.concatenate([part.emitted_tv[:, 0] for part in biased]).mean()
    found.append(
        {"dump": dump, "k": str(k), "quantity": "resispec", "positions": str(len(proved)),
         "inside": str(sum(proved)), "low": f"{low:.4f}"}
    )  # fmt: skip
    return found


FIELDS: tuple[str, ...] = (
    "dump",
    "k",
    "quantity",
    "positions",
    "inside",
    "attained",
    "full",
    "low",
    "high",
    "width",
    "widest",
)
NAMES = {
    "tv": "TV(target, draft)",
    "limit": "limit, n = 3",
    "specinfer": "`specinfer` accepts, n = 3",
    "optimal-sequential": "`optimal-sequential` accepts, n = 3",
    "k-seq": "`k-seq` accepts, n = 3",
    "kl": "KL(target, draft), lower end",
}


def table(log: list[dict[str, str]]) -> str:
    """The page's table: mean and greatest width by k."""
    rows = [
        "| dump | quantity | full | k = 20 | k = 100 | k = 1,000 | inside |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for dump in dict.fromkeys(line["dump"] for line in log):
        for name, text in NAMES.items():
            three = [line for line in log if (line["dump"], line["quantity"]) == (dump, name)]
            cells = [f"{line['width']} ({line['widest']})" for line in three]
            held, of = (sum(int(line[key]) for line in three) for key in ("inside", "positions"))
            rows.append(f"| {dump} | {text} | {three[0]['full']} | {' | '.join(cells)} | {held} of {of} |")
        three = [line for line in log if (line["dump"], line["quantity"]) == (dump, "resispec")]
        cells = [f"{line['inside']} of {line['positions']} (TV >= {line['low']})" for line in three]
        rows.append(f"| {dump} | `resispec` proved inexact, n = 3 |  | {' | '.join(cells)} |  |")
    return "\n".join(rows) + "\n"


def main() -> int:
    """Measure and render."""
    parser = argparse.ArgumentParser(description="Intervals of recorded logits cut to k tokens.")
    parser.add_argument("dumps", nargs="*", type=Path)
    parser.add_argument("--render", action="store_true", help="only write the table from the log")
    asked = parser.parse_args()
    if not asked.render:
        log = [line for path in asked.dumps for line in measure(path)]
        with LOG.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(FIELDS))
            writer.writeheader()
            writer.writerows(log)
    with LOG.open(newline="", encoding="utf-8") as file:
        log = list(csv.DictReader(file))
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + BEGIN + table(log) + END + rest.split(END, 1)[1], encoding="utf-8")
    missed = [line for line in log if line["quantity"] != "resispec" and line["inside"] != line["positions"]]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
