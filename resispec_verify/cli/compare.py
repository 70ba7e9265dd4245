"""`resispec-verify compare`: two target dumps of the same prefixes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resispec_verify.cli.options.group import check_range, check_share
from resispec_verify.cli.options.outputs import CaseOptions, OutputOptions
from resispec_verify.cli.options.readings import InputOption, RangeOptions, TemperatureOption, make_reading
from resispec_verify.cli.options.sources import OpeningOptions
from resispec_verify.cli.output import files_read, progress, say_notes
from resispec_verify.cli.parameters import Count, Flag, Number
from resispec_verify.cli.top_compare import compare_of_top
from resispec_verify.dumps import is_top
from resispec_verify.errors import InputError
from resispec_verify.logged.compare import compare_dumps
from resispec_verify.logged.compare_summary import compare_report, comparison_records
from resispec_verify.report.demands import compare_cases
from resispec_verify.report.table import number, print_lines

# Rows of the table: its columns are KL(A || B), KL(B || A), TV and p_B - p_A.
ROWS = ("mean", "max", "99.9", "99", "95", "90", "median", "10", "5", "1", "0.1", "min")


@dataclass(frozen=True, kw_only=True)
class ComparedOptions(OpeningOptions, InputOption, RangeOptions, TemperatureOption):
    """Which rows, and how they are read.

    Attributes
    ----------
    temperature
        Sampling temperature of the probabilities, above 0. Default: what the dumps state, or else 1.
    input
        What the rows of both dumps are. Default: logits, refused where they look like probabilities.
    """


@dataclass(frozen=True, kw_only=True)
class LikenessOptions(CaseOptions):
    """What the exit status is to say."""

    max_tv: Number | None = None
    """Exit with 1 if the total variation of any position exceeds this."""
    require_same_top: Flag = False
    """Exit with 1 if the best token flips anywhere, near-ties not counted."""

    def judged(self, a: Path, b: Path, row: dict[str, Any]) -> int:
        """Say whether a result meets them; the exit status."""
        cases = compare_cases((a, b), row, max_tv=self.max_tv, require_same_top=self.require_same_top)
        return self.tell("compare", cases)


def compare(
    a: Path,
    b: Path,
    /,
    *,
    rows: ComparedOptions = ComparedOptions(),
    tail: Count = 5,
    demands: LikenessOptions = LikenessOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Two target dumps of the same prefixes: logit differences, TV, KL both ways, flips and near-ties.

    Parameters
    ----------
    a
        The base, such as the decode pass: a dump, its shards, or a base file of llama.cpp.
    b
        The other, such as the verify pass.
    tail
        How many of the worst positions to list.
    """
    output.check(files_read([a, b]), junit=demands.file())
    check_share(max_tv=demands.max_tv)
    check_range(0, tail=tail)
    t = rows.temperature
    if t == 0:
        raise InputError("--temperature must be above 0; flips of the best token do not depend on it")
    reading = make_reading([] if t is None else [t], positions=rows.positions, batch=rows.batch)
    tops = is_top(a), is_top(b)
    if any(tops):
        return compare_of_top((a, b), tops, rows, (reading.start, reading.stop), tail, demands, output)
    with progress(str(b), None) as advance:
        result = compare_dumps(
            a, b, temperature=t, positions=(reading.start, reading.stop), batch=rows.batch,
            shards=rows.shards, kind=rows.input, pad_vocab=rows.pad_vocab, advance=advance,
        )  # fmt: skip
    for side in (result.a, result.b):
        say_notes(side)
    report = compare_report(result, tail)
    print_lines(output.write(report, lambda: list(comparison_records(result))), _lines(report))
    return demands.judged(a, b, report["results"][0])


def _with_error(entry: dict[str, Any], key: str = "value") -> str:
    error = entry["standard_error"]
    return number(entry[key]) + ("" if error is None else f" ± {number(error)}")


def _resolved(value: Any, *steps: float | None) -> str:
    """A difference, or ``< step`` where the step of a quantised dump hides it."""
    step = max((step for step in steps if step is not None), default=0.0)
    return f"< {number(step)}" if not isinstance(value, str) and value < step else number(value)


def _vocabulary(a: dict[str, Any], b: dict[str, Any]) -> str:
    """The vocabulary of both, or of each where they differ."""
    if a["vocab"] == b["vocab"]:
        return f"vocabulary {a['vocab']}"
    return f"vocabularies {a['vocab']} and {b['vocab']}"


def _lines(report: dict[str, Any]) -> list[str]:
    """The whole report in lines of at most about 79 columns."""
    a, b, row = report["a"], report["b"], report["results"][0]
    at, table, logits = row["max_abs_logit_at"], row["table"], row["logit_difference"]
    steps = [side["step"] for side in (a, b)]
    quantised = any(step is not None for step in steps)
    units = f"one ulp of {row['precision']}" + (" or one step" if quantised else "")
    lines = [
        f"A: {a['path']} ({a['dtype']})",
        f"B: {b['path']} ({b['dtype']})",
        f"{row['positions']} positions, {_vocabulary(a, b)}, T = {row['temperature']:g}",
        f"largest logit difference: {_resolved(row['max_abs_logit'], *steps)} (position {at['position']}, "
        f"token {at['token']}); after log-softmax {_resolved(row['max_abs_log_probability'], *steps)}",
        f"logit difference, 99 % / median: {_resolved(logits['99'], *steps)} / "
        f"{_resolved(logits['median'], *steps)}",
        f"flips of the best token: {row['flips']}; near-ties, within {units}: "
        f"{row['near_ties']} ({row['near_tie_flips']} flipped)",
        f"same best token: {_with_error(table['same_top'])}",
        f"RMS of p_B - p_A: {_with_error(table['delta_p_rms'])}",
    ]
    if quantised:
        known = ", ".join(f"{name} {number(side['step'])}" for name, side in (("A", a), ("B", b)))
        floors = ", ".join(f"{name} {number(side['floor'])}" for name, side in (("A", a), ("B", b)))
        lines.insert(3, f"step: {known}; floor: {floors}; unknown below a step")
    for name in "AB":
        if (only := row[f"only_in_{name.lower()}"]) and only["tokens"]:
            lines.append(
                f"tokens only in {name}: {only['tokens']}; mass on them: mean {number(only['mass_mean'])}, "
                f"max {number(only['mass_max'])} (position {only['position']})"
            )
    if row["support_differs"]:
        lines.append(f"tokens excluded (-inf) in only one dump at {row['support_differs']} positions")
    if ppl := row["perplexity"]:
        lines.append(f"perplexity A: {_with_error(ppl['a'])}; B: {_with_error(ppl['b'])}")
        lines.append(f"ln(perplexity B / perplexity A): {_with_error(ppl['ln_ratio'])}")
    columns = ("kl", "kl_reverse", "tv", "delta_p")
    heads = ("KL(A || B)", "KL(B || A)", "TV", "p_B - p_A")
    lines += ["", "          " + "".join(f"{head:>14}" for head in heads)]
    for name in ROWS:
        lines.append(f"  {name:8}" + "".join(f"{number(table[c][name]):>14}" for c in columns))
        if name == "mean":
            errors = (number(table[c]["standard_error"]) for c in columns)
            lines.append("  ± s.e.  " + "".join(f"{error:>14}" for error in errors))
    lines.append(f"p_B - p_A is of the {row['delta_p_of']}; KL in nats")
    worst = [e for e in row["worst"] if e["tv"] > 0]
    return [*lines, *_listed("worst positions by KL(A || B)", worst, steps),
            *_listed("flips, the clearest first", row["flip_list"], steps)]  # fmt: skip


def _listed(title: str, entries: list[dict[str, Any]], steps: list[float | None]) -> list[str]:
    if not entries:
        return []
    lines = ["", f"{title}:"]
    for e in entries:
        lines.append(
            f"  {e['position']}: KL {number(e['kl'])}, TV {number(e['tv'])}, best {e['top_a']} in A "
            f"(by {_resolved(e['gap_a'], steps[0])}), {e['top_b']} in B "
            f"(by {_resolved(e['gap_b'], steps[1])}): {e['status']}"
        )
    return lines
