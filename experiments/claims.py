"""Write docs/explanation/claims.md: its text from claims_template.md, its numbers from the logs in results/.

    python experiments/claims.py [--check]

``--check`` changes nothing and exits with 1 where the page is not current. In the template
``{candidate[PAIR T RULE 1]:.3f}`` and the like stand for numbers: what `values` returns, by its words.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import decoded
import ot_n
import paper
import prefixes
import table_2
from bounds import longest, per_level
from pairs import HERE, RESULTS, Job
from tables import line_logs, logs, markdown

from resispec_verify.tables.specinfer_bound import largest_ratio, most_accepted

PAGE = HERE.parent / "docs" / "explanation" / "claims.md"
PICTURE = HERE.parent / "docs" / "img" / "ot_n.png"
TEMPLATE = HERE / "claims_template.md"


class Asked(dict):
    """Numbers made when they are asked for: the words in the brackets of a placeholder are the arguments."""

    def __init__(self, make: Callable[..., Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, words: str | int) -> Any:
        self[words] = self._make(*map(_number, str(words).split()))
        return self[words]


def _number(word: str) -> Any:
    try:
        return float(word) if "." in word else int(word)
    except ValueError:
        return word


def values(job: Job) -> dict[str, Any]:
    """What a placeholder may name."""
    return {
        "block": Asked(lambda name, number, *words: block(job, name, number, words)),
        **_of_own_text(job),
        **_of_same_prefixes(job),
        **_of_recorded_logits(job),
        **_of_nodes(job),
        **_of_the_paper(),
    }


def _of_own_text(job: Job) -> dict[str, Any]:
    """Lengths where each rule decodes by itself."""
    own = decoded.found(job)

    def lines(pair: str, temperature: float, rule: str, tree: str = "d5b3") -> list[dict[str, Any]]:
        return own[pair, decoded.Run(tree, rule, float(temperature))]

    gains = {name: seen(own, f"{name}+resispec", name) for name in ("sequoia", "eagle")}
    return {
        "own": Asked(lambda *a: decoded.expected(lines(*a))),
        "emitted": Asked(lambda *a: decoded.realised(lines(*a))),
        "steps": Asked(lambda *a: decoded.count(lines(*a))),
        "own_ratio": Asked(
            lambda pair, t, rule, base, tree="d5b3": (
                decoded.expected(lines(pair, t, rule, tree)).value
                / decoded.expected(lines(pair, t, base, tree)).value
            )
        ),
        "verdict_sequoia": gains["sequoia"],
        "verdict_eagle": gains["eagle"],
    }


def _of_same_prefixes(job: Job) -> dict[str, Any]:
    """Lengths of all rules at the same places."""
    prefix_logs = line_logs(job, "prefixes")
    same = prefixes.gathered(prefix_logs)
    ordered = [_falls(same, *setting) for setting in dict.fromkeys(key[:2] for key in same)]
    return {
        "same": Asked(lambda pair, t, rule, tree="d5b3": same[pair, float(t), tree, rule].length),
        "ratio": Asked(
            lambda pair, t, rule, tree="d5b3": same[pair, float(t), tree, rule].ratio(
                same[pair, float(t), tree, "specinfer"]
            )
        ),
        "above": Asked(
            lambda pair, t, tree="d5b3": same[pair, float(t), tree, "resispec"].above(
                same[pair, float(t), tree, "limit"]
            )
        ),
        "shortest": min(line["tokens"] for _, log in prefix_logs for line in log),
        "measured": measured(prefix_logs),
        "wide": wide(same, job.config["prefixes"]["error"]),
        "common": common(same),
        "beyond_limit": ahead(same, "limit"),
        "gains": ahead(same, "specinfer"),
        "eta_specinfer": _eta(same, "specinfer"),
        "eta_optimal": _eta(same, "optimal-sequential"),
        "limit_any": same["poor-skip6", 1.0, "d5b3", "limit of any rule"].length,
        "verdict_trees": f"{sum(ordered)} of {len(ordered)}",
    }


def _of_recorded_logits(job: Job) -> dict[str, Any]:
    """Divergences, acceptance by candidate, and what a step costs."""
    emitted = {log["pair"]: log["results"] for log in logs(job, "table_4")}
    drift = {log["pair"]: log["results"] for log in logs(job, "figure_1")}
    steps = {log["pair"]: log for log in logs(job, "figure_3")}

    def kl(pair: str, temperature: float, rule: str, marginal: str, precision: str, field: str) -> Any:
        wanted = (rule, temperature, marginal, precision)
        names = ("rule", "temperature", "marginal", "precision")
        return next(row[field] for row in emitted[pair] if tuple(map(row.get, names)) == wanted)

    def candidate(pair: str, temperature: float, rule: str, index: int) -> float:
        wanted, names = (rule, temperature, index), ("rule", "temperature", "index")
        return next(
            row["acceptance_conditional"] for row in drift[pair] if tuple(map(row.get, names)) == wanted
        )

    def part(pair: str, name: str) -> float:
        return next(100 * p["share"] for p in steps[pair]["parts"] if p["phase"].startswith(name))

    return {
        "positions": emitted["poor-skip6"][0]["positions"],
        "kl": Asked(kl),
        "kl_printed_max": max(
            abs(row["kl_as_printed_mean"])
            for found in emitted.values()
            for row in found
            if row["precision"] == "float32"
        ),
        "candidate": Asked(candidate),
        "shaping": Asked(part),
    }


def _of_nodes(job: Job) -> dict[str, Any]:
    """Acceptance at single nodes beside its limit."""
    nodes = {(row["pair"], row["temperature"]): row for row in ot_n.summaries(job)}
    whole = [row for found in ot_n.nodes(job).values() for row in found]
    return {
        "nodes": Asked(lambda pair, t, field: nodes[pair, float(t)][field]),
        "node_count": len(whole),
        "node_ratio_max": max(limit / accepted for accepted, limit, _ in whole),
        "near_count": sum(row["near"] for row in nodes.values()),
        "near_max": max(row["near_limit_max"] for row in nodes.values() if row["near"]),
    }


def _of_the_paper() -> dict[str, Any]:
    """What the bounds say of the paper's own figures."""

    def beyond(rows: Any) -> list[Any]:
        return [r for r in rows if r.resispec > longest(r.specinfer, int(r.tree[1]), int(r.tree[3]))]

    llama = [r for r in paper.TABLE_6 if r.target == "Llama-2-7B"]
    others = [r for r in paper.TABLE_6 if r.target != "Llama-2-7B"]
    return {
        "level": Asked(per_level),
        "most": Asked(lambda a, n: most_accepted(per_level(a, 5) if a > 1 else a, n)),
        "largest": Asked(largest_ratio),
        "longest": Asked(longest),
        "mean_most": largest_ratio(3) * per_level(2.51, 5),
        "bounds_table": bounds_table(llama),
        "beyond": len(beyond(llama)),
        "beyond_others": len(beyond(others)),
        "llama": len(llama),
        "others": len(others),
    }


def measured(logs: Sequence[tuple[dict[str, Any], list[dict[str, Any]]]]) -> str:
    """How many passages, and how long it took."""
    parts = [
        f"{len({line['prompt'] for line in log})} passages and {sum(line['seconds'] for line in log):.0f} "
        f"seconds with `{head['pair']}`"
        for head, log in logs
    ]
    total = sum(line["seconds"] for _, log in logs for line in log) / 60
    return f"That was {', '.join(parts)}: {total:.0f} minutes of one core in all."


def _compared(same: dict[Any, prefixes.Measured]) -> list[tuple[Any, ...]]:
    """Keys of what is shown of the same prefixes in Tables 1, 3 and 6."""
    trees = {*paper.TABLE_3, *(row.tree for row in paper.TABLE_6)}
    return [key for key in same if key[2] in trees and key[3] in (*prefixes.RULES, "limit")]


def wide(same: dict[Any, prefixes.Measured], aim: float) -> str:
    """The standard errors in Tables 1, 3 and 6 that are larger than they should be, to two digits."""
    keys = _compared(same)
    large = [key for key in keys if round(same[key].length.error, 2) > aim]
    start = f"Of the {len(keys)} standard errors in Tables 1, 3 and 6 on the same prefixes"
    if not large:
        return f"{start}, none is above {aim:g}."
    where: dict[str, dict[str, float]] = {}
    for pair, temperature, tree, rule in large:
        found = where.setdefault(f"`{pair}` at T = {temperature:g}", {})
        found[tree] = max(found.get(tree, 0.0), same[pair, temperature, tree, rule].length.error)
    listed = "; ".join(
        f"{setting}: {', '.join(f'{tree} {error:.2f}' for tree, error in trees.items())}"
        for setting, trees in where.items()
    )
    return f"{start}, {len(large)} are above {aim:g}. The largest of a row: {listed}."


def common(same: dict[Any, prefixes.Measured]) -> str:
    """How well what the verdicts rest on is known: ratios and differences on the same texts."""
    errors: dict[bool, list[float]] = {False: [], True: []}
    gaps = []
    for *row, rule in _compared(same):
        base, bound = same[(*row, "specinfer")], same[(*row, "limit")]
        if rule not in ("specinfer", "limit"):
            errors[rule == "resispec"].append(same[(*row, rule)].ratio(base).error)
            gaps += [same[(*row, rule)].above(bound).error] if rule != "resispec" else []
    return (
        "What differs between texts is common to all rules, so that ratios and differences are known better: "
        f"the errors of ratios to SpecInfer are at most {max(errors[False]):.3f} for exact rules and "
        f"{max(errors[True]):.2f} for ResiSpec, those of exact rules' distances from the limit at most "
        f"{max(gaps):.3f}."
    )


def ahead(same: dict[Any, prefixes.Measured], of: str) -> str:
    """In how many rows ResiSpec is longer than a rule, or a bound, by more than two standard errors."""
    rows = [key[:3] for key in _compared(same) if key[3] == "resispec"]
    gaps = [same[(*row, "resispec")].above(same[(*row, of)]) for row in rows]
    return f"{sum(gap.value > 2 * gap.error for gap in gaps)} of {len(gaps)} rows"


def seen(own: dict[Any, Any], rule: str, base: str) -> str:
    """Whether a rule is longer than another on the tree of Table 2 by more than two standard errors."""
    verdicts = []
    for pair in dict.fromkeys(pair for pair, run in own if run.tree == table_2.TREE):
        first, second = (decoded.expected(own[pair, decoded.Run(table_2.TREE, r, 1.0)]) for r in (rule, base))
        verdicts.append(first.value - second.value > 2 * math.hypot(first.error, second.error))
    return "holds" if all(verdicts) else "is not seen" if not any(verdicts) else "is seen on some pairs"


def _falls(same: dict[Any, prefixes.Measured], pair: str, temperature: float) -> bool:
    """Whether ResiSpec's ratio to SpecInfer falls from deep and narrow trees to flat and wide ones."""
    found = [
        same[pair, temperature, tree, "resispec"].ratio(same[pair, temperature, tree, "specinfer"]).value
        for tree in paper.TABLE_3
    ]
    return sorted(found, reverse=True) == found


def _eta(same: dict[Any, prefixes.Measured], rule: str) -> str:
    """In how many settings the efficiency falls from 2 candidates to 4 and to 8."""
    falls = []
    for pair, temperature in dict.fromkeys(key[:2] for key in same):
        length = {n: same[pair, temperature, f"d4b{n}", rule].length.value for n in (1, 2, 4, 8)}
        eta = [(length[n] - length[n // 2]) / (n - n // 2) for n in (2, 4, 8)]
        falls.append(sorted(eta, reverse=True) == eta)
    return f"{sum(falls)} of {len(falls)}"


def block(job: Job, name: str, number: int, words: Sequence[Any]) -> str:
    """A table of a page of results, counted from 1; with words only the rows that have one in a cell."""
    text = (job.results / f"{name}.md").read_text(encoding="utf-8")
    tables = [part for part in text.split("\n\n") if part.startswith("|")]
    head, line, *rows = tables[number - 1].strip().split("\n")
    kept = [
        row for row in rows if not words or set(map(str, words)) & {cell.strip() for cell in row.split("|")}
    ]
    return "\n".join([head, line, *kept]) + "\n"


def bounds_table(rows: Sequence[paper.Lengths]) -> str:
    """Reported lengths of the paper beside the longest that an exact rule could have."""
    head = ("data", "T", "tree", "SpecInfer", "ResiSpec", "longest exact", "ResiSpec above it")
    cells = []
    for r in rows:
        bound = longest(r.specinfer, int(r.tree[1]), int(r.tree[3]))
        above = "yes" if r.resispec > bound else ""
        cells.append((r.data, f"{r.temperature:g}", r.tree, r.specinfer, r.resispec, f"{bound:.3f}", above))
    return markdown(head, cells, left=3)


def page(job: Job) -> str:
    """The page as it should be."""
    text = TEMPLATE.read_text(encoding="utf-8").format_map(values(job))
    return "\n\n".join(map(_filled, text.rstrip("\n").split("\n\n"))) + "\n"


def _filled(paragraph: str) -> str:
    """A paragraph of prose, its lines filled again; anything else as it is."""
    if paragraph.lstrip("\n").startswith(("|", "#", ">", "-", "!")):
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), 118, break_long_words=False, break_on_hyphens=False)


def main() -> int:
    """Write, or check."""
    config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
    current = page(Job(config, RESULTS, Path()))
    if "--check" in sys.argv:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == current
        same = same and PICTURE.exists() and PICTURE.read_bytes() == (RESULTS / PICTURE.name).read_bytes()
        print("current" if same else f"{PAGE} is not current; run python experiments/claims.py")
        return 0 if same else 1
    PAGE.write_text(current, encoding="utf-8")
    shutil.copyfile(RESULTS / PICTURE.name, PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
