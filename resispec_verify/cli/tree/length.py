"""`resispec-verify tree length`: how many tokens a step over recorded trees emits, beside its bounds."""

from typing import Any

from resispec_verify.cli.options.acceptance import AcceptanceOptions, demands_in_words, unmet
from resispec_verify.cli.options.outputs import OutputOptions
from resispec_verify.cli.options.sources import DumpOptions
from resispec_verify.cli.over_dumps import finish
from resispec_verify.cli.parameters import DumpFile, Names, PartTrees
from resispec_verify.cli.tree.costs import (
    CostOption,
    assumptions,
    choices,
    in_words,
    shown_price,
    with_price,
)
from resispec_verify.cli.tree.recorded import DrawnOptions, evaluated, parsed, shortened
from resispec_verify.errors import InputError
from resispec_verify.report.table import DISPENSABLE, print_lines, print_records
from resispec_verify.schema import envelope
from resispec_verify.tables.acceptance_band import expectation
from resispec_verify.tables.row import label
from resispec_verify.tables.trees import TreeRow

# Columns that a narrow terminal can do without, in the order in which they go.
_DISPENSABLE = ("sd", "limit +-", "by candidate", "any rule", "limit")


def length(
    *files: DumpFile,
    dumps: DumpOptions = DumpOptions(),
    rule: Names | None = None,
    topology: PartTrees | None = None,
    drawn: DrawnOptions = DrawnOptions(),
    price: CostOption = CostOption(),
    demands: AcceptanceOptions = AcceptanceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Accepted length of a step over recorded trees, the final token included, beside its bounds.

    Parameters
    ----------
    dumps.logits
        The same as FILE: tree dumps.
    rule
        A rule; repeat for several. Default: all for candidates drawn as those of the dump.
    output.csv
        Write one line a prefix here.
    """
    paths = dumps.joined(files).paths
    output.check([*paths, *([price.cost] if price.cost else [])], acceptance_out=demands.acceptance_out)
    demands.check(rule)
    trees = parsed(topology)
    if not paths:
        raise InputError("nothing to measure: give FILE..., one or more tree dumps")
    cost = price.read()
    if cost is not None:
        for tree in trees:
            cost.of(tree)  # what is too large is said before the work
    rows, failures = evaluated(paths, rule, trees, drawn)
    if rows:
        results = [with_price(row, cost) for row in rows]
        if demands.given:
            for result, row in zip(results, rows, strict=True):
                result["expected"] = _expected(row, demands)
        if demands.acceptance_out:
            demands.write_rates([(r["reached"][1:], _facts(r)) for r in results])
        best = choices(rows, results, cost) if cost else []
        console = output.write(
            envelope("tree", results, **({"best": best} if cost else {})),
            lambda: [record for row in rows for record in _records(row)],
        )
        kinds = ", ".join(dict.fromkeys(r["siblings"] for r in results))
        title = f"accepted length of a step, final token included (siblings: {kinds})"
        print_records(
            console, title, [_record(r) for r in results], dispensable=_DISPENSABLE if cost else DISPENSABLE
        )
        if cost:
            print_lines(console, [*map(in_words, best), f"{assumptions(cost)} +- is of the length alone."])
        if demands.given:
            unit = "prefixes, taken as independent"
            print_lines(console, [line for r in results for line in demands_in_words(r, unit)])
            return finish(failures, int(unmet(results)))
    return finish(failures)


def _expected(row: TreeRow, demands: AcceptanceOptions) -> dict[str, Any]:
    """Of what was drafted the share that is accepted, which is told apart on paths only."""
    tokens = row.topology.levels - 1
    if row.topology.nodes != tokens + 1 or not tokens:
        raise InputError(
            "--min-acceptance and --drafted are about paths of draft tokens, and "
            f"{shortened(str(row.topology))} is none; give --topology d4b1, say, for three draft tokens"
        )
    share = [min(max((length - 1) / tokens, 0.0), 1.0) for length in row.length]
    return expectation(demands.demand(tokens), share, share, list(zip(row.source, row.prefix, strict=True)))


def _facts(result: dict[str, Any]) -> dict[str, Any]:
    """What the rates were measured on."""
    if len(result["reached"]) < 2:
        raise InputError("--acceptance-out needs draft tokens, and the tree is its root alone")
    named = ("label", "temperature", "top_k", "top_p", "min_p", "siblings", "topology", "prefixes")
    return {name: result[name] for name in named}


def _records(row: TreeRow) -> list[dict[str, Any]]:
    """Lines of the CSV, one a prefix."""
    shared = {
        "rule": label(row.rule),
        "temperature": row.sampling.temperature,
        "siblings": row.siblings,
        "topology": str(row.topology),
    }
    columns = {
        "path": row.source,
        "prefix": row.prefix,
        "accepted_length": row.length,
        "limit": ["" if value is None else value for value in row.limit],
        "limit_any": ["" if value is None else value for value in row.limit_any],
    }
    return [shared | dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]


def _record(r: dict[str, Any]) -> dict[str, str]:
    """A line of the table."""

    def number(value: float | None) -> str:
        return "unknown" if value is None else f"{value:.3f}"

    return {
        "rule": r["label"],
        "tree": shortened(r["topology"]),
        "T": f"{r['temperature']:g}",
        "cost": str(r["cost"]),
        "prefixes": str(r["prefixes"]),
        "length": number(r["accepted_length_mean"]),
        "+-": number(r["accepted_length_se"]),
        "sd": number(r["accepted_length_sd"]),
        "by candidate": " ".join("-" if a is None else f"{a:.3f}" for a in r["acceptance"]),
        "limit": number(r["limit_mean"]),
        "limit +-": number(r["limit_se"]),
        "any rule": number(r["limit_any_mean"]),
        **(shown_price(r) if "step_ms" in r else {}),
    }
