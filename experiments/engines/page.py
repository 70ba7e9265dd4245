"""The table of docs/reference/engines.md, from the results of `run.py` and the judgements of the wrappers.

    python experiments/engines/page.py [--check]

It is the part between two marks; the rest of the page is prose. ``--check`` changes nothing and exits with 1
where the table is not current. A row without a result or a judgement, a result without a row, and a judgement
that contradicts its verdict are errors.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import survey
from run import OUT, ROOT

PAGE = ROOT / "docs" / "reference" / "engines.md"
BEGIN = "<!-- survey: begin, written by experiments/engines/page.py -->"
END = "<!-- survey: end -->"
COLUMNS = (
    "engine", "version or commit", "configuration", "judgement", "law", "independence", "ends",
    "TV above this would have been found", "draws", "seconds", "style", "command",
)  # fmt: skip


class PageError(Exception):
    """What does not fit together, in one line."""


def results(folder: Path = OUT) -> dict[tuple[str, str], dict[str, Any]]:
    """What `run.py` wrote, by wrapper and row."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {(one["wrapper"], one["row"]): one for one in found}


def judged(
    engines: dict[str, survey.Engine], found: dict[tuple[str, str], dict[str, Any]]
) -> list[tuple[dict[str, Any], survey.Judgement]]:
    """Every row with its judgement.

    Raises
    ------
    PageError
        Rows, results and judgements that do not fit.
    """
    rows = []
    for name, engine in engines.items():
        for one in engine.configurations:
            where = f"{name}:{one.name}"
            if (name, one.name) not in found:
                raise PageError(f"{where} has no result; run it, or delete the row")
            result, judgement = found[name, one.name], one.judgement
            if judgement is None:
                raise PageError(
                    f"{where} was {result['verdict']} and has no judgement; write one into its wrapper"
                )
            if not fits(judgement, result):
                ends = result["ends"]["verdict"]
                raise PageError(
                    f"{where} is judged {judgement.what!r}; its verdict is {result['verdict']!r}, "
                    f"at the ends of the uniforms {ends!r}"
                )
            rows.append((result, judgement))
    known = {(name, one.name) for name, engine in engines.items() for one in engine.configurations}
    if orphans := sorted(set(found) - known):
        raise PageError(f"a result of {':'.join(orphans[0])}, which is no row; delete it")
    return rows


def table(rows: list[tuple[dict[str, Any], survey.Judgement]]) -> str:
    """The marked part, with its marks."""
    lines = [BEGIN, "", _line(COLUMNS), "|---" * len(COLUMNS) + "|"]
    lines += [_line(_cells(result, judgement)) for result, judgement in rows]
    machines = sorted({result["machine"] for result, _ in rows})
    lines += ["", f"Machine: {'; '.join(machines)}. `-` stands for not reached or not asked.", "", END]
    return "\n".join(lines)


def _cells(result: dict[str, Any], judgement: survey.Judgement) -> list[str]:
    tv = result["detectable_tv"]
    why = f"**{judgement.what}**: {judgement.reason}"
    if judgement.reproduction:
        why += f" Reproduction: `experiments/engines/reproductions/{judgement.reproduction}.py`."
    if judgement.upstream:
        why += f" Upstream: {_upstream(judgement.upstream)}."
    configuration = result["configuration"] + (f" ({result['note']})" if result["note"] else "")
    return [
        result["engine"],
        result["version"] or _commit(result["commit"]),
        configuration,
        why,
        *(_short(result[part]) for part in ("law", "independence")),
        _ends(result["ends"]),
        "-" if tv is None else f"{tv:.3f} ({result['detectable_on'] or 'declared draft'})",
        f"{result['draws']:,}",
        f"{result['seconds']:.0f}",
        result["style"],
        f"`{result['command'].removeprefix('python experiments/engines/')}`",
    ]


def _commit(commit: str | None) -> str:
    """Ten digits, and whether the clone was changed."""
    return "not installed" if commit is None else commit[:10] + commit[40:]


def fits(judgement: survey.Judgement, result: dict[str, Any]) -> bool:
    """Whether a judgement agrees with the verdict, and with what happens at the ends of float32's uniforms.

    A fault there, once in some 2^25 draws, is one, or the judgement's reason speaks of the uniform; what
    comes once in 2^53 draws only stands in its column.
    """
    often = result["ends"]["log2_probability"]
    if often is not None and often >= survey.OFTEN and result["verdict"] == "not-rejected":
        if judgement.what == "fault":
            return True
        if "uniform" not in judgement.reason:
            return False
    return result["verdict"] in survey.JUDGEMENTS[judgement.what]


def _ends(found: dict[str, Any]) -> str:
    if found["verdict"] == "not-tested":
        return "-"
    return found["verdict"].replace("-", " ") + (f", {found['often']}" if found["often"] else "")


def _short(part: str) -> str:
    return "-" if part in ("not reached", "open") else part.replace("-", " ")


def _upstream(report: str) -> str:
    repository, number, issue = report.partition("#")
    return f"[{report}](https://github.com/{repository}/issues/{issue})" if number else report


def _line(cells: Any) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", r"\|").split()) for cell in cells) + " |"


def page(text: str, part: str) -> str:
    """The page with its marked part replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise PageError(f"{PAGE.name} lacks the marks {BEGIN} and {END}")
    return before + part + after


def main() -> int:
    """Write it, or with ``--check`` compare."""
    try:
        old = PAGE.read_text(encoding="utf-8")
        new = page(old, table(judged(survey.wrappers(), results())))
    except PageError as error:
        print(f"page.py: {error}", file=sys.stderr)
        return 1
    if sys.argv[1:] == ["--check"]:
        print("current" if old == new else "stale: run python experiments/engines/page.py")
        return int(old != new)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
