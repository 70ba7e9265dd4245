"""`resispec-verify prove`: the statements behind the tool, proved, repaired or refuted again."""

import textwrap
from typing import Any

from resispec_verify import proofs
from resispec_verify.cli.options.outputs import JsonOption
from resispec_verify.cli.output import progress
from resispec_verify.cli.parameters import Text
from resispec_verify.proofs import TITLES, Proved
from resispec_verify.report.table import print_lines, print_records
from resispec_verify.schema import envelope

COQ = "Coq: theorems of proofs/coq in the repository, checked by make -C proofs and not by this command."


def prove(statement: Text | None = None, /, *, output: JsonOption = JsonOption()) -> int:
    """Prove, repair or refute each statement of the paper, and print the ledger.

    Parameters
    ----------
    statement
        Only this one, with its argument, every check, and the counterexamples: theorem-1, "Eq. 12", ...
    """
    output.check()
    names = list(proofs.TITLES) if statement is None else [proofs.find(statement)]
    done = []
    with progress("proofs", len(names)) as advance:
        for name in names:
            done.append(proofs.prove(name))
            advance(1)
    results = [line.result() for line in done]
    console = output.write(envelope("prove", results))
    if statement is None:
        _print_ledger(done, console)
    else:
        print_lines(console, _words(done[0]))
    return 1 if any(line.report.status == "failed" for line in done) else 0


def _print_ledger(done: list[Proved], console: Any) -> None:
    """One line a statement."""
    records = [
        {
            "statement": line.name,
            "status": line.report.status,
            "method": line.report.method,
            "seconds": f"{line.seconds:.1f}",
        }
        for line in done
    ]
    print_records(console, "", records, left=("statement", "status", "method"))
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
