"""`resispec-verify inspect`: what a dump holds."""

from typing import Any

from resispec_verify.cli.options.outputs import JsonOption
from resispec_verify.cli.options.sources import OpeningOptions, check_words
from resispec_verify.cli.output import files_read
from resispec_verify.cli.over_dumps import collected, finish
from resispec_verify.cli.parameters import Files
from resispec_verify.errors import InputError
from resispec_verify.logged.inspection import inspect_dump
from resispec_verify.report.scalars import reported_lines
from resispec_verify.report.table import print_lines, print_records, printable
from resispec_verify.schema import envelope


def inspect(
    paths: Files, *, opening: OpeningOptions = OpeningOptions(), output: JsonOption = JsonOption()
) -> int:
    """What a dump holds: kind, keys, shapes, dtypes, positions, and what is wrong or odd in its rows.

    Parameters
    ----------
    paths
        One or more dumps: files, or folders, globs or index.json of shards.
    opening.pad_vocab
        Pad the narrower of two vocabularies, as in kl.
    opening.shards
        What the files of a folder are parts of, as in kl.
    """
    if not paths:
        raise InputError("nothing to inspect: give one or more dumps")
    check_words(paths)
    output.check(files_read(paths))
    results, failures = collected(
        paths, lambda path: inspect_dump(path, pad_vocab=opening.pad_vocab, shards=opening.shards)
    )
    console = output.write(envelope("inspect", results))
    for result in results:
        _print(result, console)
    return finish([*failures, *(problem for result in results for problem in result["problems"])])


def _print(result: dict[str, Any], console: Any) -> None:
    records = [
        {
            "key": printable(entry["key"]),
            "type": entry["type"],
            "shape": "" if entry["shape"] is None else str(entry["shape"]),
            "dtype": entry["dtype"] or "",
            "used as": entry["used_as"] or "",
        }
        for entry in result["keys"]
    ]
    title = f"{result['path']}: {result['kind']} dump"
    if records:
        print_records(console, title, records, left=tuple(records[0]))
    else:
        print_lines(console, [title])
    print_lines(console, [*_facts(result), *result["notes"]])
    print_lines(console, reported_lines(result.get("reported_logprobs"), "position"))
    if result["ignored"]:
        print_lines(console, [f"not used: {', '.join(map(printable, result['ignored']))}"])
    odd = [oddity["text"] for oddity in result["oddities"] if oddity["text"] not in result["notes"]]
    print_lines(console, [f"odd: {text}" for text in odd])


def _facts(result: dict[str, Any]) -> list[str]:
    known = "unknown" if result["vocab"] is None else result["vocab"]
    what = f"vocabulary {known}, {result['dtype']}"
    if "top" in result:
        facts = result["top"]
        tails = (f"{name} {facts[f'{name}_tail']['mean']:.3g}" for name in ("target", "draft"))
        return [
            f"{result['positions']} positions, at most {' and '.join(map(str, facts['k']))} tokens listed "
            f"of target and draft, {what}",
            f"mean probability of the others: {', '.join(tails)}",
        ]
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
