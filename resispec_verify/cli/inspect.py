"""`resispec-verify inspect`: what a dump holds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from resispec_verify.cli.output import check_writable, print_lines, table_console, write_json
from resispec_verify.errors import InputError

__all__ = ["inspect"]


def inspect(
    paths: Annotated[list[Path], Parameter(consume_multiple=True)],
    *,
    pad_vocab: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
) -> int:
    """What a dump holds: kind, keys, shapes, dtypes, positions, and problems in its rows.

    Parameters
    ----------
    paths
        One or more dumps.
    pad_vocab
        Pad the narrower of two vocabularies, as in kl.
    json
        Write the report here ("-": standard output).
    """
    from resispec_verify.analysis.inspection import inspect_dump

    check_writable(json)
    console = table_console(json)
    results, failures = [], []
    for path in paths:
        try:
            results.append(inspect_dump(path, pad_vocab=pad_vocab))
        except InputError as error:
            failures.append(str(error))
    write_json(json, {"schema": 1, "command": "inspect", "results": results})
    for result in results:
        _print(result, console)
    failures += [problem for result in results for problem in result["problems"]]
    for failure in failures:
        print(f"resispec-verify: error: {failure}", file=sys.stderr)
    return 2 if failures else 0


def _print(result: dict[str, Any], console: Any) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title=f"{result['path']}: {result['kind']} dump", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("key", "type", "shape", "dtype", "used as"):
        table.add_column(heading, no_wrap=True)
    for entry in result["keys"]:
        shape = "" if entry["shape"] is None else str(entry["shape"])
        table.add_row(entry["key"], entry["type"], shape, entry["dtype"] or "", entry["used_as"] or "")
    console.print(table)
    lines = []
    if result["positions"] is not None:
        lines.append(f"{result['positions']} positions, vocabulary {result['vocab']}, {result['dtype']}")
    print_lines(console, [*lines, *result["notes"]])
