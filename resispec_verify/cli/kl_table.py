"""The table of `resispec-verify kl`, and the remarks under it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from resispec_verify.cli.output import print_lines, printable
from resispec_verify.tables.row import Row, label
from resispec_verify.tables.summary import summarize

__all__ = ["print_records", "print_table"]

COLOURS = {"exact": "green", "inexact": "bold red", "undecided": "yellow"}
MARGINALS_IN_WORDS = {
    "operational": "operational: what the sampler emits",
    "path-identity": "path identity: holds for any proxy, cannot fail",
}


# Columns that a narrow terminal can do without, in the order in which they go.
DISPENSABLE = ("positions", "KL max", "gap max", "TV max", "limit")


def print_table(rows: list[Row], console: Any, facts: Mapping[str, Any]) -> None:
    """Print one table for each kind of marginal, then what a reader must not miss, of the dumps too."""
    for kind, words in MARGINALS_IN_WORDS.items():
        of_kind = [row for row in rows if row.marginal == kind]
        if of_kind:
            records = [_record(row, len({r.dataset for r in rows}) > 1) for row in of_kind]
            print_records(console, f"{words} (KL(marginal || target), nats)", records)
            print_lines(console, remarks(of_kind))
    if padding := facts["padding"]:
        print_lines(
            console,
            [f"Vocabularies were padded: mass on padding {_number(padding['mass_max'])} at most, "
             f"{_number(padding['mass_mean'])} on average."],
        )  # fmt: skip
    print_lines(console, _reading(facts))


def _reading(facts: Mapping[str, Any]) -> list[str]:
    """How the dumps were read, where that is not obvious, and rows that hardly a model gave."""
    lines = [f"{printable(note['path'])}: {printable(note['text'])}" for note in facts["notes"]]
    for found in facts["constant_rows"]:
        first, count = found["positions"][0], len(found["positions"])
        lines.append(
            f"{printable(found['path'])}: a row of equal values at {count} of the positions (first: "
            f"{first}), which count as others do: padding? A mask in the dump leaves them out."
        )
    return lines


def _record(row: Row, with_dataset: bool) -> dict[str, str]:
    """One line of the table, by column."""
    r = summarize(row)
    record = {"dataset": printable(row.dataset or "")} if with_dataset else {}
    record |= {
        "rule": label(row.rule),
        "T": f"{row.temperature:g}",
        "n": str(row.candidates),
        "positions": str(r["positions"]),
        "TV mean": _number(r["tv_mean"]),
        "TV max": _number(r["tv_max"]),
        "KL mean": _number(r["kl_mean"]),
        "KL max": _number(r["kl_max"]),
    }
    if row.marginal == "operational":
        record |= {
            "gap max": _number(r["gap_max"]),
            "acceptance": f"{sum(r['acceptance']):.4f}",
            "limit": "unknown" if r["limit_mean"] is None else f"{r['limit_mean']:.4f}",
            "verdict": r["verdict"],
        }
    return record


def print_records(console: Any, title: str, records: list[dict[str, str]]) -> None:
    """As a table, with fewer columns on a narrow terminal, or one value a line; nothing is cut off."""
    columns = list(records[0])
    hidden = []
    while _width(columns, records) > console.width and len(hidden) < len(DISPENSABLE):
        hidden.append(DISPENSABLE[len(hidden)])
        columns = [column for column in columns if column not in hidden]
    console.print(Text(title), soft_wrap=True)
    if _width(columns, records) > console.width:
        for record in records:
            print_lines(console, ["", *(f"  {key}: {value}" for key, value in record.items())])
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        left = column in ("rule", "dataset", "budget", "dump")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for record in records:
        table.add_row(*(Text(record[c], style=COLOURS.get(record[c], "")) for c in columns))
    console.print(table)
    shown = [name for name in hidden if name in records[0]]
    if shown:
        print_lines(console, [f"(not shown at this width: {', '.join(shown)}; see --json)"])


def _width(columns: list[str], records: list[dict[str, str]]) -> int:
    return sum(max(len(c), *(len(r[c]) for r in records)) + 3 for c in columns)


def _number(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "0" if value == 0 else (f"{value:.2e}" if abs(value) < 1e-3 else f"{value:.4f}")


def remarks(rows: list[Row]) -> list[str]:
    """What a reader must not miss, in words."""
    lines: list[str] = []
    for row in rows:
        if row.marginal == "operational":
            name = f"{label(row.rule)} (T = {row.temperature:g})"
            lines += [f"{name}: {text}" for text in _remarks_on(summarize(row))]
        elif row.kl_printed:
            r = summarize(row)
            lines.append(
                f"{label(row.rule)} (T = {row.temperature:g}): Eq. 28 as printed, in float32: mean "
                f"{r['kl_as_printed_mean']:.1e}, at most {r['kl_as_printed_max']:.1e} either way. That is "
                "rounding, not evidence."
            )
    if any(row.marginal == "operational" for row in rows):
        lines.append("Verdicts are certified: derived rounding bounds plus the unexpanded mass.")
    return lines


def _remarks_on(r: dict[str, Any]) -> list[str]:
    lines = []
    if r["positions_undecidable"]:
        lines.append(
            f"floats cannot tell at {r['positions_undecidable']} of {r['positions']} positions: a residual "
            "of rounding is divided by its own size there; TV and KL are no estimates (bounds in --json)."
        )
    if r["positions_above_limit"]:
        lines.append(
            f"accepts more than any exact rule can at {r['positions_above_limit']} of {r['positions']} "
            f"positions (first: {r['above_limit_position']}); that alone proves it inexact."
        )
    if off := r["support_violation"]:
        lines.append(
            f"emits tokens of target probability 0: mass {_number(off['mass'])} at position "
            f"{off['position']}, most on token {off['token']}; KL is infinite there."
        )
    if silent := r["never_emitted"]:
        tokens = ", ".join(map(str, silent["tokens"])) + (" ..." if len(silent["tokens"]) == 10 else "")
        lines.append(
            f"never emits tokens worth {_number(silent['target_mass'])} of the target at position "
            f"{silent['position']}: {tokens}"
        )
    if r["positions_over_budget"]:
        tv, kl = ([_number(v) for v in r[key]] for key in ("tv_mean_bounds", "kl_mean_bounds"))
        lines.append(
            f"the budget of expansions ended the work at {r['positions_over_budget']} of {r['positions']} "
            f"positions, with up to {_number(r['gap_max'])} unexpanded there; TV mean is certified to lie in "
            f"[{tv[0]}, {tv[1]}], KL mean in [{kl[0]}, {kl[1]}]; raise --max-expansions."
        )
    return lines
