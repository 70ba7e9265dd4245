"""`resispec-verify compare`: two target dumps of the same prefixes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from resispec_verify.cli.kl_settings import make_reading
from resispec_verify.cli.output import (
    check_writable,
    files_read,
    print_lines,
    progress,
    say_left_out,
    table_console,
    write_csv,
    write_json,
)
from resispec_verify.cli.parameters import Count, File, Flag, Number, Text
from resispec_verify.errors import InputError

__all__ = ["compare"]

# Rows of the table: its columns are KL(A || B), KL(B || A), TV and p_B - p_A.
ROWS = ("mean", "max", "99.9", "99", "95", "90", "median", "10", "5", "1", "0.1", "min")


def compare(
    a: Path,
    b: Path,
    /,
    *,
    temperature: Number | None = None,
    positions: Text | None = None,
    batch: Count | None = None,
    tail: Count = 5,
    shards: Literal["vocab", "positions"] | None = None,
    input: Literal["logits", "probabilities", "log-probabilities"] | None = None,
    json: File | None = None,
    csv: File | None = None,
    max_tv: Number | None = None,
    require_same_top: Flag = False,
) -> int:
    """Two target dumps of the same prefixes: logit differences, TV, KL both ways, flips and near-ties.

    Parameters
    ----------
    a
        The base, such as the decode pass: a dump, its shards, or a base file of llama.cpp.
    b
        The other, such as the verify pass.
    temperature
        Sampling temperature of the probabilities, above 0. Default: what the dumps state, or else 1.
    positions
        Range A:B of positions, 0-based, B excluded.
    batch
        Positions at a time.
    tail
        How many of the worst positions to list.
    shards
        What the files of a folder are parts of, where they do not say it.
    input
        What the rows of both dumps are. Default: logits; rows that look like something else are refused.
    json
        Write the report here ("-": standard output).
    csv
        Write one line a position here.
    max_tv
        Exit with 1 if the total variation of any position exceeds this.
    require_same_top
        Exit with 1 if the best token flips anywhere, near-ties not counted.
    """
    from resispec_verify.logged.compare import compare_dumps
    from resispec_verify.logged.compare_summary import compare_report, comparison_records

    check_writable(json=json, csv=csv, inputs=files_read([a, b]))
    if max_tv is not None and not 0 <= max_tv <= 1:
        raise InputError(f"--max-tv must be in [0, 1], got {max_tv:g}")
    if tail < 0:
        raise InputError(f"--tail must not be negative, got {tail}")
    if temperature == 0:
        raise InputError("--temperature must be above 0; flips of the best token do not depend on it")
    reading = make_reading(
        None if temperature is None else [temperature],
        (None, None, None),
        (None, None, None),
        None,
        "float64",
        positions,
        batch,
    )
    with progress(str(b), None) as advance:
        result = compare_dumps(
            a, b, temperature=temperature, positions=(reading.start, reading.stop), batch=batch,
            shards=shards, kind=input, advance=advance,
        )  # fmt: skip
    for side in (result.a, result.b):
        say_left_out(side)
    report = compare_report(result, tail)
    write_json(json, report)
    write_csv(csv, list(comparison_records(result)))
    print_lines(table_console(json, csv), _lines(report))
    row = report["results"][0]
    over = max_tv is not None and row["tv_max"] > max_tv
    return 1 if over or (require_same_top and row["flips"]) else 0


def _number(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    return "0" if value == 0 else f"{value:.2e}" if abs(value) < 1e-3 else f"{value:.4f}"


def _with_error(entry: dict[str, Any], key: str = "value") -> str:
    error = entry["standard_error"]
    return _number(entry[key]) + ("" if error is None else f" ± {_number(error)}")


def _resolved(value: Any, *steps: float | None) -> str:
    """A difference, or ``< step`` where the step of a quantised dump hides it."""
    step = max((step for step in steps if step is not None), default=0.0)
    return f"< {_number(step)}" if not isinstance(value, str) and value < step else _number(value)


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
        f"{row['positions']} positions, vocabulary {a['vocab']}, T = {row['temperature']:g}",
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
        known = ", ".join(f"{name} {_number(side['step'])}" for name, side in (("A", a), ("B", b)))
        floors = ", ".join(f"{name} {_number(side['floor'])}" for name, side in (("A", a), ("B", b)))
        lines.insert(3, f"step: {known}; floor: {floors}; unknown below a step")
    if row["support_differs"]:
        lines.append(f"tokens excluded (-inf) in only one dump at {row['support_differs']} positions")
    if ppl := row["perplexity"]:
        lines.append(f"perplexity A: {_with_error(ppl['a'])}; B: {_with_error(ppl['b'])}")
        lines.append(f"ln(perplexity B / perplexity A): {_with_error(ppl['ln_ratio'])}")
    columns = ("kl", "kl_reverse", "tv", "delta_p")
    heads = ("KL(A || B)", "KL(B || A)", "TV", "p_B - p_A")
    lines += ["", "          " + "".join(f"{head:>14}" for head in heads)]
    for name in ROWS:
        lines.append(f"  {name:8}" + "".join(f"{_number(table[c][name]):>14}" for c in columns))
        if name == "mean":
            errors = (_number(table[c]["standard_error"]) for c in columns)
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
            f"  {e['position']}: KL {_number(e['kl'])}, TV {_number(e['tv'])}, best {e['top_a']} in A "
            f"(by {_resolved(e['gap_a'], steps[0])}), {e['top_b']} in B "
            f"(by {_resolved(e['gap_b'], steps[1])}): {e['status']}"
        )
    return lines
