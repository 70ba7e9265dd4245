"""Write the comparison of rules over trees: measured on random small chains, into docs/explanation/trees.md.

python experiments/trees/optimum.py             # measure, then write the table (a minute)
python experiments/trees/optimum.py --render    # only write the table, from the log
python experiments/trees/optimum.py --check     # exit status 1 where the page is not that of the log
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from measuring import ROWS, SHAPES, SIBLINGS, measure  # noqa: E402

from resispec_verify.rules.registry import SHIPPED  # noqa: E402

ROOT = HERE.parents[1]
RESULTS = HERE.parent / "results" / "trees"
LOG, COST = RESULTS / "optimum.jsonl", RESULTS / "cost.json"
BLOCK = re.compile(r"(<!-- generated: (?P<name>trees-[a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)
CLAIMS = {rule.name: rule.claims_exact for rule in SHIPPED}
#: Of a length and an optimum in floats, what counts as the same: some rules are laid out by bisection.
SAME = 1e-12
DRAWN = {
    "iid": "independent", "without-replacement": "without replacement",
    "best-and-one": "the best and one drawn", "fixed": "the best",
}  # fmt: skip
#: Optima of other families that stand as rows, by the key of the log.
FAMILIES = {"by node": "longest, node by node", "no lookahead": "longest, no look ahead"}
#: What has no row of numbers, and why.
WITHOUT = (
    ("SpecTr-GBV", "no source: the formula reported of it exceeds 1 for one path"),
    ("delayed expansion", "a shape, for any rule: *2 siblings after 1 token*, *2 paths of 2 after 1 token*"),
)


def page_of() -> Path:
    """The page with the table, wherever it lies below docs."""
    (page,) = (ROOT / "docs").rglob("trees.md")
    return page


def lines_of(log: Path) -> list[dict[str, Any]]:
    """The measured lines."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def ratios(lines: Sequence[Any], siblings: str, length: Callable[[Any], Any]) -> list[float]:
    """Length over that of the longest lossless step, where a token can be accepted at all."""
    found = []
    for line in lines:
        best = Fraction(line["optima"][siblings]["whole tree"])
        if best:
            found.append(float(Fraction(length(line)) / best))
    return found


def _cells(values: Sequence[float]) -> list[str]:
    same = sum(abs(value - 1) <= SAME for value in values)
    return [f"{sum(values) / len(values):.4f}", f"{min(values):.4f}", f"{same} of {len(values)}"]


def row(name: str, siblings: str, lines: Sequence[Any], cost: dict[str, Any]) -> list[str]:
    """A rule's line of the table."""
    known = [line for line in lines if name in line["rules"]]
    exact = sum(line["rules"][name]["exact"] for line in known)
    claimed = "exact" if CLAIMS[name.split(",")[0]] else "lossy"
    there = cost["rules"].get(name, {})
    spent = f"{there['order']}; {there['microseconds']:.0f}" if there else "-"
    values = ratios(known, siblings, lambda line: line["rules"][name]["accepted"])
    label = f"[`{name}`](../reference/rules.md#{name.split(',')[0]})" if "," in name else f"`{name}`"
    return [label, DRAWN[siblings], claimed, f"{exact} of {len(known)}", *_cells(values), spent]


def family(key: str, siblings: str, lines: Sequence[Any]) -> list[str]:
    """The line of the longest step of a smaller family."""
    values = ratios(lines, siblings, lambda line: line["optima"][siblings][key])
    return [FAMILIES[key], DRAWN[siblings], "", "by construction", *_cells(values), "a program"]


def table(lines: Sequence[Any], cost: dict[str, Any]) -> str:
    """The comparison."""
    head = ["rule", "siblings", "claimed", "measured exact", "mean", "least", "attains", "order; µs a node"]
    rows = [head, ["---"] * 4 + ["---:"] * 3 + ["---"]]
    rows += [row(one.name, one.siblings, lines, cost) for one in ROWS]
    rows += [family(key, siblings, lines) for key in FAMILIES for siblings in SIBLINGS[:3]]
    rows += [[name, "", "", why, "", "", "", ""] for name, why in WITHOUT]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def by_shape(lines: Sequence[Any]) -> str:
    """Mean length over the longest, rule by shape."""
    rows = [["rule", *SHAPES], ["---", *["---:"] * len(SHAPES)]]
    for one in ROWS:
        cells = []
        for shape in SHAPES:
            known = [line for line in lines if line["shape"] == shape and one.name in line["rules"]]
            values = ratios(known, one.siblings, lambda line, name=one.name: line["rules"][name]["accepted"])
            cells.append(f"{sum(values) / len(values):.4f}" if values else "")
        rows.append([f"`{one.name}`", *cells])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def bounds(lines: Sequence[Any]) -> str:
    """How near the longest step comes to the sum of min(P, pi), by shape and siblings."""
    rows = [["shape", *(DRAWN[siblings] for siblings in SIBLINGS[:3])], ["---", *["---:"] * 3]]
    for shape in SHAPES:
        cells = []
        for siblings in SIBLINGS[:3]:
            here = [line["optima"][siblings] for line in lines if line["shape"] == shape]
            pairs = [(Fraction(one["whole tree"]), Fraction(one["sum of min(P, pi)"])) for one in here]
            shares = [float(a / b) for a, b in pairs if b]
            cells.append(f"{sum(a == b for a, b in pairs)} of {len(pairs)}, {sum(shares) / len(shares):.4f}")
        rows.append([shape, *cells])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def written(text: str, lines: Sequence[Any], cost: dict[str, Any]) -> str:
    """The page with its generated parts replaced."""
    made = {
        "trees-rules": table(lines, cost),
        "trees-shapes": by_shape(lines),
        "trees-bounds": bounds(lines),
    }
    return BLOCK.sub(lambda found: found[1] + made[found["name"]] + "\n" + found[3], text)


def main() -> int:
    """Measure, write or check."""
    parser = argparse.ArgumentParser(description="Rules over trees against the longest lossless step.")
    parser.add_argument("--count", type=int, default=24, help="pairs of chains for each shape")
    parser.add_argument("--render", action="store_true", help="only write the page, from the log")
    parser.add_argument("--check", action="store_true", help="only say whether the page is that of the log")
    asked = parser.parse_args()
    if not (asked.render or asked.check):
        RESULTS.mkdir(parents=True, exist_ok=True)
        found = [measure(shape, number) for shape in SHAPES for number in range(asked.count)]
        LOG.write_text("".join(json.dumps(line) + "\n" for line in found), encoding="utf-8")
    page = page_of()
    text = page.read_text(encoding="utf-8")
    current = written(text, lines_of(LOG), json.loads(COST.read_text(encoding="utf-8")))
    if asked.check:
        print("current" if current == text else f"{page} is not that of the log; run {Path(__file__).name}")
        return int(current != text)
    page.write_text(current, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
