"""The table of `resispec-verify kl`, and the remarks under it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resispec_verify.cli.output import print_lines

if TYPE_CHECKING:
    from resispec_verify.analysis.marginals import Row

__all__ = ["print_table"]

MARGINALS_IN_WORDS = {
    "operational": "operational: what the sampler emits",
    "path-identity": "path identity: holds for any proxy, cannot fail",
}


def print_table(rows: list[Row], console: Any) -> None:
    """Print one table for each kind of marginal, then what a reader must not miss."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from resispec_verify.analysis.marginals import label
    from resispec_verify.analysis.summary import summarize

    several = len({row.dataset for row in rows}) > 1
    colours = {"exact": "green", "inexact": "bold red", "undecided": "yellow"}
    for kind, words in MARGINALS_IN_WORDS.items():
        of_kind = [row for row in rows if row.marginal == kind]
        if not of_kind:
            continue
        table = Table(title=words, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        headings = ["rule", "T", "n", "positions", "TV mean", "TV max", "KL mean (nats)", "KL max"]
        if kind == "operational":
            headings += ["gap max", "acceptance", "limit", "verdict"]
        for i, heading in enumerate((["dataset"] if several else []) + headings):
            table.add_column(heading, justify="left" if i == 0 else "right", no_wrap=True)
        for row in of_kind:
            r = summarize(row)
            cells = [label(row.rule), f"{row.temperature:g}", str(row.candidates), str(r["positions"])]
            cells += [_number(r[key]) for key in ("tv_mean", "tv_max", "kl_mean", "kl_max")]
            if kind == "operational":
                accepted = sum(r["acceptance"])
                cells += [_number(r["gap_max"]), f"{accepted:.4f}", f"{r['limit_mean']:.4f}"]
            verdict = [Text(r["verdict"], style=colours[r["verdict"]])] if r["verdict"] else []
            table.add_row(*([row.dataset or ""] if several else []), *cells, *verdict)
        console.print(table)
        print_lines(console, _remarks(of_kind))


def _number(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "0" if value == 0 else (f"{value:.2e}" if abs(value) < 1e-3 else f"{value:.4f}")


def _remarks(rows: list[Row]) -> list[str]:
    """What a reader must not miss, in words."""
    from resispec_verify.analysis.marginals import label
    from resispec_verify.analysis.summary import summarize

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
