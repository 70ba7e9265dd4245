"""Write the ledger and the statements of the proofs into docs/explanation/theory.md, by running every proof.

    python docs/make_theory.py [--check]

``--check`` changes nothing and exits with 1 where the page is not current; seconds are not compared.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from written import with_part, write_or_check

from resispec_verify.proofs import TITLES, Proved, prove_all

PAGE = Path(__file__).parent / "explanation" / "theory.md"
SECONDS = re.compile(r"\b\d+\.\d(?= \|$| s in all\.$)", re.MULTILINE)


def row(line: Proved) -> str:
    """One line of the ledger."""
    report, name = line.report, line.name
    coq = ", ".join(f"`{entry.split(': ')[1]}`" for entry in report.coq)
    cells = (TITLES[name], f"`{name}`", report.status, ", ".join(report.methods), coq, f"{line.seconds:.1f}")
    return "| " + " | ".join(cells) + " |"


def section(line: Proved) -> str:
    """Claim, argument, counterexamples and gaps of one statement."""
    report = line.report
    shown = [*textwrap.wrap(report.statement, 100), "", *report.lines, "", f"Left: {report.left}."]
    if report.coq:
        shown += textwrap.wrap(f"Coq: {', '.join(report.coq)}.", 100)
    checks = f"{len(report.checks)} machine checks"
    head = f"`{line.name}`: **{report.status}** ({report.method}), {checks}."
    return "\n".join([f"### {TITLES[line.name]}", "", head, "", "```text", *shown, "```", ""])


def page(text: str, lines: Sequence[Proved]) -> str:
    """The page with its generated parts replaced."""
    head = ["| statement | `prove` | status | method | Coq | seconds |", "|---|---|---|---|---|---:|"]
    total = sum(line.seconds for line in lines)
    made = {
        "ledger": [*head, *map(row, lines), "", f"{len(lines)} statements, {total:.1f} s in all."],
        "statements": map(section, lines),
    }
    for name, made_lines in made.items():
        text = with_part(text, name, "\n".join(made_lines))
    return text


def comparable(text: str) -> str:
    """The text with the seconds masked."""
    return SECONDS.sub("~", text)


def main() -> int:
    """Write, or check."""
    current = page(PAGE.read_text(encoding="utf-8"), list(prove_all()))
    return write_or_check(PAGE, current, "python docs/make_theory.py", comparable)


if __name__ == "__main__":
    sys.exit(main())
