"""`resispec-verify inspect`: what a dump holds."""

from __future__ import annotations

import sys
from typing import Any, Literal

from resispec_verify.cli.output import (
    check_writable,
    files_read,
    print_lines,
    printable,
    table_console,
    write_json,
)
from resispec_verify.cli.parameters import File, Files, Flag
from resispec_verify.errors import InputError
from resispec_verify.schema import envelope

__all__ = ["inspect"]


def inspect(
    paths: Files,
    *,
    pad_vocab: Flag = False,
    shards: Literal["vocab", "positions"] | None = None,
    json: File | None = None,
) -> int:
    """What a dump holds: kind, keys, shapes, dtypes, positions, and what is wrong or odd in its rows.

    Parameters
    ----------
    paths
        One or more dumps: files, or folders, globs or index.json of shards.
    pad_vocab
        Pad the narrower of two vocabularies, as in kl.
    shards
        What the files of a folder are parts of, as in kl.
    json
        Write the report here ("-": standard output).
    """
    from resispec_verify.logged.inspection import inspect_dump

    if not paths:
        raise InputError("nothing to inspect: give one or more dumps")
    check_writable(json=json, inputs=files_read(paths))
    console = table_console(json)
    results, failures = [], []
    for path in paths:
        try:
            results.append(inspect_dump(path, pad_vocab=pad_vocab, shards=shards))
        except InputError as error:
            failures.append(str(error))
    write_json(json, envelope("inspect", results))
    for result in results:
        _print(result, console)
    failures += [problem for result in results for problem in result["problems"]]
    for failure in failures:
        print(f"resispec-verify: error: {failure}", file=sys.stderr)
    return 2 if failures else 0


def _print(result: dict[str, Any], console: Any) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console.print(Text(f"{result['path']}: {result['kind']} dump"), soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("key", "type", "shape", "dtype", "used as"):
        table.add_column(heading, overflow="fold")
    for entry in result["keys"]:
        shape = "" if entry["shape"] is None else str(entry["shape"])
        cells = (printable(entry["key"]), entry["type"], shape, entry["dtype"] or "", entry["used_as"] or "")
        table.add_row(*map(Text, cells))
    console.print(table)
    print_lines(console, [*_facts(result), *result["notes"]])
    if result["ignored"]:
        print_lines(console, [f"not used: {', '.join(map(printable, result['ignored']))}"])
    odd = [oddity["text"] for oddity in result["oddities"] if oddity["text"] not in result["notes"]]
    print_lines(console, [f"odd: {text}" for text in odd])


def _facts(result: dict[str, Any]) -> list[str]:
    what = f"vocabulary {result['vocab']}, {result['dtype']}"
    if "rounds" in result:
        facts = result["rounds"]
        low, high = facts["gamma"]
        drafted = str(low) if low == high else f"{low} to {high}"
        accepted = ", ".join(f"{count} in {times}" for count, times in facts["accepted"].items())
        uniforms = "logged" if facts["uniforms"] else "not logged in all"
        return [
            f"{facts['rounds']} rounds of {drafted} draft tokens, {what}",
            f"accepted: {accepted} rounds; {facts['tokens_per_round']:.2f} tokens a round; "
            f"uniforms {uniforms}",
        ]
    if "tree" in result:
        facts = result["tree"]
        low, high = facts["branching"]
        children = str(low) if low == high else f"{low} to {high}"
        return [
            f"{facts['prefixes']} prefixes, {what}",
            f"trees of {facts['nodes']} nodes with the root, depth {facts['depth']}, {facts['leaves']} "
            f"leaves, {children} children elsewhere",
        ]
    return [] if result["positions"] is None else [f"{result['positions']} positions, {what}"]
