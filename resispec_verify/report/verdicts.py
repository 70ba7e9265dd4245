"""Verdicts as tables, and what a reader of them must not miss."""

from collections.abc import Mapping, Sequence
from typing import Any

from resispec_verify.report.table import hardly_overlapping, number, print_lines, print_records, printable
from resispec_verify.tables.means import known_mean
from resispec_verify.tables.row import Row, label
from resispec_verify.tables.summary import summarize

#: Mass that no model leaves on tokens which only fill up its rows.
MUCH_ON_PADDING = 0.01
MARGINALS_IN_WORDS = {
    "operational": "operational: what the sampler emits",
    "path-identity": "path identity: holds for any proxy, cannot fail",
}


def print_verdicts(rows: Sequence[Row], console: Any, facts: Mapping[str, Any]) -> None:
    """Print one table for each kind of marginal, then what a reader must not miss, of the dumps too."""
    for kind, words in MARGINALS_IN_WORDS.items():
        of_kind = [row for row in rows if row.marginal == kind]
        if of_kind:
            records = [_record(row, len({r.dataset for r in rows}) > 1) for row in of_kind]
            print_records(console, f"{words} (KL(marginal || target), nats)", records)
            print_lines(console, remarks(of_kind))
    if padding := facts["padding"]:
        print_lines(console, _padded(padding))
    limits = [limit for row in rows for limit in [known_mean(row.limit)] if row.limit]
    print_lines(console, hardly_overlapping(limits, facts["positions"]))
    print_lines(console, _reading(facts))


def _padded(padding: Mapping[str, float]) -> list[str]:
    """The mass on tokens that one of the two lacks; where there is much, they are words to it."""
    lines = [
        f"Vocabularies were padded: mass on padding {number(padding['mass_max'])} at most, "
        f"{number(padding['mass_mean'])} on average."
    ]
    if padding["mass_max"] > MUCH_ON_PADDING:
        lines.append(
            "That is not padding: one of the two uses tokens that the other does not have. Are both of one "
            "tokenizer?"
        )
    return lines


def _reading(facts: Mapping[str, Any]) -> list[str]:
    """How the dumps were read, where that is not obvious, and rows that hardly a model gave."""
    lines = [f"{printable(note['path'])}: {printable(note['text'], None)}" for note in facts["notes"]]
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
    }
    if row.until == "verdict":
        return record | _bounds(r)
    record |= {
        "TV mean": number(r["tv_mean"]),
        "TV max": number(r["tv_max"]),
        "KL mean": number(r["kl_mean"]),
        "KL max": number(r["kl_max"]),
    }
    if row.marginal == "operational":
        record |= {
            "gap max": number(r["gap_max"]),
            "acceptance": f"{sum(r['acceptance']):.4f}",
            "limit": "unknown" if r["limit_mean"] is None else f"{r['limit_mean']:.4f}",
            "verdict": r["verdict"],
        }
    return record


def _bounds(r: dict[str, Any]) -> dict[str, str]:
    """What is known where the work ended at the verdict: intervals, not estimates."""
    tv, kl = ([number(v) for v in r[key]] for key in ("tv_mean_bounds", "kl_mean_bounds"))
    accepted = [f"{v:.4f}" for v in r["acceptance_total_bounds"]]
    return {
        "TV mean": f"{tv[0]} to {tv[1]}",
        "KL mean": f"{kl[0]} to {kl[1]}",
        "gap max": number(r["gap_max"]),
        "acceptance": f"{accepted[0]} to {accepted[1]}",
        "limit": "unknown" if r["limit_mean"] is None else f"{r['limit_mean']:.4f}",
        "verdict": r["verdict"],
    }


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
        lines.append("Verdicts are certified: each TV is known to within rounding and the gap.")
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
            f"emits tokens of target probability 0: mass {number(off['mass'])} at position "
            f"{off['position']}, most on token {off['token']}; KL is infinite there."
        )
    if silent := r["never_emitted"]:
        tokens = ", ".join(map(str, silent["tokens"])) + (" ..." if len(silent["tokens"]) == 10 else "")
        lines.append(
            f"never emits tokens worth {number(silent['target_mass'])} of the target at position "
            f"{silent['position']}: {tokens}"
        )
    if r.get("until") == "verdict":
        lines.append(
            f"the work ended where the verdict was certain, with up to {number(r['gap_max'])} unexpanded: "
            "what is shown are certified bounds; leave out --until for more."
        )
    if r["positions_over_budget"]:
        tv, kl = ([number(v) for v in r[key]] for key in ("tv_mean_bounds", "kl_mean_bounds"))
        lines.append(
            f"the budget of expansions ended the work at {r['positions_over_budget']} of {r['positions']} "
            f"positions, with up to {number(r['gap_max'])} unexpanded there; TV mean is certified to lie in "
            f"[{tv[0]}, {tv[1]}], KL mean in [{kl[0]}, {kl[1]}]; raise --max-expansions."
        )
    return lines
