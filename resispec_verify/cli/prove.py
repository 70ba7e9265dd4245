"""`resispec-verify prove`: the statements behind the tool, proved, repaired or refuted again."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from resispec_verify.cli.output import check_writable, print_lines, progress, table_console, write_json
from resispec_verify.cli.parameters import File, Text
from resispec_verify.schema import envelope

if TYPE_CHECKING:
    from resispec_verify.proofs import Proved

__all__ = ["prove"]

COLOURS = {"refuted": "bold red", "repaired": "yellow", "failed": "reverse red"}
COQ = "Coq: theorems of proofs/coq in the repository, checked by make -C proofs and not by this command."


def prove(statement: Text | None = None, /, *, json: File | None = None) -> int:
    """Prove, repair or refute each statement of the paper, and print the ledger.

    Parameters
    ----------
    statement
        Only this one, with its argument, every check, and the counterexamples: theorem-1, "Eq. 12", ...
    json
        Write the report here ("-": standard output).
    """
    from resispec_verify import proofs

    check_writable(json=json)
    names = list(proofs.TITLES) if statement is None else [proofs.find(statement)]
    done = []
    with progress("proofs", len(names)) as advance:
        for name in names:
            done.append(proofs.prove(name))
            advance(1)
    write_json(json, envelope("prove", [line.result() for line in done]))
    console = table_console(json)
    if statement is None:
        _print_ledger(done, console)
    else:
        print_lines(console, _words(done[0]))
    return 1 if any(line.report.status == "failed" for line in done) else 0


def _print_ledger(done: list[Proved], console: Any) -> None:
    """One line a statement."""
    from rich import box
    from rich.table import Table
    from rich.text import Text as Words

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("statement", "status", "method", "seconds"):
        table.add_column(column, justify="right" if column == "seconds" else "left", no_wrap=True)
    for line in done:
        status = Words(line.report.status, style=COLOURS.get(line.report.status, "green"))
        table.add_row(line.name, status, line.report.method, f"{line.seconds:.1f}")
    console.print(table)
    failed = [line.name for line in done if line.report.status == "failed"]
    refuted = [line.name for line in done if line.report.status == "refuted"]
    print_lines(
        console,
        [
            f"{len(done)} statements in {sum(line.seconds for line in done):.1f} s; "
            + (f"FAILED: {', '.join(failed)}" if failed else "each reached its status"),
            f"refuted as printed: {', '.join(refuted)}; prove NAME shows argument, checks, counterexamples.",
            COQ,
        ],
    )


def _words(line: Proved) -> list[str]:
    """A whole report."""
    from resispec_verify.proofs import TITLES

    report = line.report
    shown = [
        f"{TITLES[line.name]} ({line.name}): {report.status}",
        *textwrap.wrap(report.statement, 110, initial_indent="  ", subsequent_indent="  "),
        f"method: {report.method}; {line.seconds:.1f} s",
        "checks:",
        *(f"  [{'ok' if passed else 'FAILED'}] {name}" for name, passed in report.checks),
        "argument:",
        *(f"  {words}" for words in report.lines),
        f"left to words, or open: {report.left}",
    ]
    if report.coq:
        shown += [f"Coq: {', '.join(report.coq)}", COQ]
    return shown
