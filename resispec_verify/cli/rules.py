"""`resispec-verify rules`: the rules, what is claimed of them, and what is so."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from resispec_verify.cli.output import check_writable, print_lines, table_console, write_json
from resispec_verify.cli.parameters import Count, File, Number, Text
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from resispec_verify.catalogue.attack import Search

__all__ = ["rules"]

TITLE = "measured: exact marginals in rational arithmetic on a fixed family of pairs"
COLOURS = {"exact": "green", "inexact": "bold red", "exact-if": "yellow"}
# Columns that a narrow terminal can do without, in the order in which they go.
DISPENSABLE = ("source", "candidates")
LONGEST_BUDGET = 86_400  # seconds; more than a day is a slip of the keyboard
ATTACK_DEFAULTS = {"vocab": 5, "candidates": None, "seed": 0, "budget": 20.0}


def rules(
    *,
    attack: Text | None = None,
    vocab: Count | None = None,
    candidates: Count | None = None,
    seed: Count | None = None,
    budget: Number | None = None,
    json: File | None = None,
) -> int:
    """The rules: source, claimed exactness, and exactness measured by the rational oracle.

    Parameters
    ----------
    attack
        Instead of the table: search for the pair of laws on which this rule is most wrong (or, if none is
        found, falls furthest short of the acceptance limit), and print it in small fractions.
    vocab
        For --attack: number of tokens, 2 to 8 (5).
    candidates
        For --attack: number of candidates, or length of a path; several are tried by default.
    seed
        For --attack: of the random starts (0).
    budget
        For --attack: seconds to search (20), at most a day.
    json
        Write the report here ("-": standard output).
    """
    check_writable(json=json)
    given = {"vocab": vocab, "candidates": candidates, "seed": seed, "budget": budget}
    if attack is not None:
        if seed is not None and seed < 0:
            raise InputError(f"--seed must not be negative, got {seed}")
        if budget is not None and not 0 < budget <= LONGEST_BUDGET:
            raise InputError(
                f"--budget must be above 0 and at most {LONGEST_BUDGET} seconds (a day), got {budget:g}"
            )
        settings = ATTACK_DEFAULTS | {key: value for key, value in given.items() if value is not None}
        return _attack(attack, settings, json)
    if unused := [key for key, value in given.items() if value is not None]:
        raise InputError(f"--{unused[0]} is an option of --attack; give --attack NAME, or leave it out")
    from resispec_verify.catalogue.measured import rules_table

    results = rules_table()
    write_json(json, {"schema": 1, "command": "rules", "results": results})
    _print(results, table_console(json))
    return 0


def _record(r: dict[str, Any]) -> dict[str, str]:
    """One line of the table, by column."""
    return {
        "rule": r["rule"],
        "claimed": "exact" if r["claims_exact"] else "lossy",
        "measured": r["measured"],
        "TV max": "-" if r["tv_max"] is None else f"{r['tv_max']:.4f}",
        "candidates": r["proposal"] or "-",
        "source": r["source"] or "-",
    }


def _print(results: list[dict[str, Any]], console: Any) -> None:
    """As a table, with fewer columns on a narrow terminal, or one value a line; nothing is cut off."""
    from rich import box
    from rich.table import Table
    from rich.text import Text as Words

    records = [_record(r) for r in results]
    columns, hidden = list(records[0]), []
    while _width(columns, records) > console.width and len(hidden) < len(DISPENSABLE):
        hidden.append(DISPENSABLE[len(hidden)])
        columns.remove(hidden[-1])
    print_lines(console, [TITLE])
    if _width(columns, records) > console.width:
        for record in records:
            print_lines(console, ["", *(f"  {key}: {value}" for key, value in record.items())])
    else:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(column, justify="right" if column == "TV max" else "left", no_wrap=True)
        for record in records:
            table.add_row(*(Words(record[c], style=COLOURS.get(record[c], "")) for c in columns))
        console.print(table)
        if hidden:
            print_lines(console, [f"(not shown at this width: {', '.join(hidden)}; see --json)"])
    print_lines(console, remarks(results))


def _width(columns: list[str], records: list[dict[str, str]]) -> int:
    return sum(max(len(c), *(len(r[c]) for r in records)) + 3 for c in columns)


def remarks(results: list[dict[str, Any]]) -> list[str]:
    lines = ["exact: on this family. inexact: see the witness, which can be checked by hand."]
    for r in results:
        if r["measured"] == "exact-if":
            lines.append(f"{r['rule']}: exact if {r['condition']}.")
        elif r["measured"] == "not measured":
            lines.append(f"{r['rule']}: not measured: {r['condition']}.")
    return lines + [f"{r['rule']}: {_emits(r['witness'])}" for r in results if r["witness"]]


def _emits(witness: dict[str, Any]) -> str:
    """A witness in words."""
    text = f"target ({', '.join(witness['target'])}), draft ({', '.join(witness['draft'])}), "
    emitted = "emits"
    if chain := witness.get("chain"):
        text += f"{chain} chain, paths of {witness['candidates']}"
        emitted = "emits first"
    else:
        text += f"n = {witness['candidates']}"
    if options := witness.get("options"):
        text += ", " + ", ".join(f"{key} = {value}" for key, value in options.items())
    return f"{text} {emitted} ({', '.join(witness['marginal'])})"


def _attack(name: str, settings: dict[str, Any], json: Any) -> int:
    from resispec_verify.catalogue.attack import attack
    from resispec_verify.catalogue.measured import CATALOGUE

    breaking = CATALOGUE[name].inexact_with if name in CATALOGUE else None
    variants = [None] if breaking is None else [None, breaking]
    searches = [
        attack(
            name,
            vocab=settings["vocab"],
            candidates=settings["candidates"],
            seed=settings["seed"],
            seconds=settings["budget"] / len(variants),
            options=options,
        )
        for options in variants
    ]
    results = [_report(search, settings["seed"]) for search in searches]
    write_json(json, {"schema": 1, "command": "rules", "attack": name, "results": results})
    console = table_console(json)
    for search, r in zip(searches, results, strict=True):
        print_lines(console, _found(search, r))
    return 0


def _report(search: Search, seed: int) -> dict[str, Any]:
    return {
        "rule": search.rule,
        "options": {key: str(value) for key, value in search.options.items()},
        "vocab": search.vocab,
        "seed": seed,
        "trials": search.trials,
        "seconds": search.seconds,
        "tv_max": float(search.best.value) if search.best else 0.0,
        "witness": search.witness,
        "shortfall_max": float(search.shortfall.value) if search.shortfall else None,
        "shortfall_witness": search.shortfall_witness,
    }


def _found(search: Search, r: dict[str, Any]) -> list[str]:
    """What a search found, in words."""
    options = ", ".join(f"{key} = {value}" for key, value in r["options"].items())
    name = f"{search.rule} ({options})" if options else search.rule
    if search.trials == 0:
        return [f"{name}: nothing tried: the budget ended before the first pair; raise --budget"]
    effort = f"{_pairs(search.trials)} of {search.vocab} tokens in {search.seconds:.1f} s"
    if search.best is not None and search.witness is not None:
        witness = {**search.witness, "options": None}
        return [
            f"{name}: inexact; TV {r['tv_max']:.6g} at the worst of {effort}",
            f"  witness in fractions: {_emits(witness)}; TV = {_number(search.witness['tv'])}",
        ]
    lines = [f"{name}: no witness against exactness among {effort}; that is no proof of it"]
    if search.shortfall_witness is not None:
        w = search.shortfall_witness
        lines += [
            f"  acceptance falls short of the limit by {r['shortfall_max']:.6g} at most",
            f"  in fractions: target ({', '.join(w['target'])}), draft ({', '.join(w['draft'])}), "
            f"n = {w['candidates']} accepts {_number(w['acceptance'])}, limit {_number(w['limit'])}",
        ]
    elif search.compared:
        lines.append(f"  acceptance met the limit on {_pairs(search.compared, 'each of ')}")
    return lines


def _pairs(count: int, several: str = "") -> str:
    return "1 pair" if count == 1 else f"{several}{count} pairs"


def _number(text: str) -> str:
    return f"{text} = {float(Fraction(text)):.6g}" if "/" in text else text
