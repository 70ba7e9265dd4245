"""What `limits`, `check` and `replay` print, from the command line and from Python."""

from __future__ import annotations

from typing import Any

from resispec_verify.report.cases import Case
from resispec_verify.report.scalars import reported_lines
from resispec_verify.report.table import (
    hardly_overlapping,
    number,
    print_lines,
    print_records,
    printable,
    safe_line,
)
from resispec_verify.sampler_check.lines import at_an_end_only, lines
from resispec_verify.sampler_check.settings import CheckResult

__all__ = ["check_cases", "print_check", "print_limits", "print_replay"]

COLOURS = {"rejected": "bold red", "error": "bold red", "not-rejected": "yellow"}


def print_limits(results: list[dict[str, Any]], console: Any) -> None:
    """Acceptance beside the limits, of the results of ``limits``."""

    def shown(value: float | None) -> str:
        return "unknown" if value is None else f"{value:.4f}"

    records = [
        {
            "rule": r["label"],
            "T": f"{r['temperature']:g}",
            "n": str(r["candidates"]),
            "positions": str(r["positions"]),
            "acceptance": (">= " if r["acceptance_gap_max"] >= 5e-5 else "") + f"{r['acceptance_mean']:.4f}",
            "sequential limit": shown(r["sequential_limit_mean"]),
            "limit": shown(r["limit_mean"]),
            "above": str(r["above_limit"]),
        }
        for r in results
    ]
    print_records(console, "acceptance (P(a candidate is emitted)) beside the limits of exact rules", records)
    lines = [
        f"{r['label']} (T = {r['temperature']:g}): cannot be exact: accepts more than any exact rule can at "
        f"position {r['witness_position']}"
        for r in results
        if r["cannot_be_exact"]
    ]
    few = max((r["positions"] for r in results), default=0)
    print_lines(console, [*lines, *hardly_overlapping((r["limit_mean"] for r in results), few)])


def print_check(sampler: str, result: CheckResult, console: Any) -> None:
    """The verdict on a sampler, and how sure one may be."""
    console.print(f"{safe_line(printable(sampler))}: ", end="", markup=False)
    console.print(result.verdict.replace("-", " "), style=COLOURS[result.verdict], end="")
    console.print(
        f"{at_an_end_only(result)} ({result.draws} draws, {result.seconds:.1f} s, stopped: {result.stopped})",
        markup=False,
    )
    print_lines(console, [printable(line, None) for line in lines(result)])
    rows = [row for row in result.inputs if row["rows"] is None]
    if result.witness is None and len(rows) > 1 and any(row["draws"] for row in rows):
        print_records(
            console,
            "total variation that would have been found, by input",
            [_stream(row, failed=any(row["error"] for row in rows)) for row in rows],
            dispensable=("tail", "single tokens"),
            left=("input", "failed"),
        )


def check_cases(sampler: str, result: CheckResult) -> list[Case]:
    """The demand that a sampler is not rejected; where it has a file, a failure is shown there."""
    name, _, function = sampler.rpartition(":")
    told = None
    if result.verdict != "not-rejected":
        told = f"{result.verdict}{at_an_end_only(result)}: " + "\n".join(lines(result))
    report = result.result()
    facts = {
        key: report[key]
        for key in ("verdict", "draws", "alpha", "power", "detectable_tv", "not_reached", "stopped", "seed")
    }
    file = name if name.endswith(".py") and function.isidentifier() else None
    return [Case(sampler, "must not be rejected", told, result.verdict == "error", facts, file)]


def _stream(row: dict[str, Any], *, failed: bool) -> dict[str, str]:
    """What the draws on one input exclude."""
    drawn = row["draws"] > 0
    found = {
        "input": printable(row["input"], 48),
        "draws": str(row["draws"]),
        "TV": f"{row['detectable_tv']:.4f}" if drawn else "-",
        "groups": str(row["cells"]) if drawn else "-",
        "single tokens": f"{row['detectable_tv_tokens']:.4f}" if drawn else "-",
        "tail": number(row["detectable_tail"]),
    }
    # What it raised is said above, once.
    return found | {"failed": "yes" if row["error"] else ""} if failed else found


def print_replay(row: dict[str, Any], console: Any) -> None:
    """What a reader needs of one result of ``replay``, in words and one small table."""
    temperature = "by round" if row["temperature"] is None else f"{row['temperature']:g}"
    lines = [
        f"{row['path']}: {row['rounds']} rounds, rule {row['label']}, T = {temperature}",
        f"  tokens: {row['tokens_emitted']}, {row['tokens_per_round']:.4g} a round"
        + (f"; the output of {row['rounds_cut']} rounds was cut" if row["rounds_cut"] else ""),
        _decisions_in_words(row),
        f"  next tokens: {row['next_tokens_possible']} of {row['next_tokens']} possible"
        + (f", {row['next_tokens_redrawn']} of them redrawn exactly" if row["next_tokens_redrawn"] else ""),
    ]
    if first := row["first_divergence"]:
        lines.append(f"  divergences: {row['divergences']}; the first: {_divergence_in_words(first)}")
    if row["acceptance_by_position"]:
        lines += _position_lines(row)
    tests = (row["draft_token_test"], *row["next_token_tests"])
    lines += [_draws_in_words(test) for test in tests if test]
    lines += reported_lines(row["reported_logprobs"], "round")
    statistics = row["statistics"]
    lines.append(f"  acceptance rates: {row['acceptance_verdict']}")
    lines.append(
        f"  together: {statistics['verdict']} at alpha {statistics['alpha']:g} over "
        f"{statistics['tests']} tests"
        + ("; that proves nothing exact" if statistics["verdict"] == "not-rejected" else "")
    )
    if row["undraftable_tokens"]:
        lines.append(
            f"  {row['undraftable_tokens']} draft tokens cannot come from the declared draft, whatever "
            "rounding did: they were drawn from something else"
        )
    if row["repeated_uniforms"]:
        chance = row["repeated_uniforms_p_value"]
        lines.append(f"  {row['repeated_uniforms']} rounds repeat the uniforms of an earlier round"
                     + ("" if chance is None else f", p-value {chance:.2g}"))  # fmt: skip
    print_lines(console, [*lines, *(f"  {printable(note)}" for note in row["notes"]), ""])


def _decisions_in_words(row: dict[str, Any]) -> str:
    if not row["decisions"]:
        return "  decisions: not replayed, there are no uniforms"
    text = f"  decisions: {row['agree']} of {row['decisions']} agree"
    if row["near_ties"]:
        text += (
            f"; within the rounding of {row['dtype']} logits: {row['near_ties']}, of which "
            f"{row['near_ties_differing']} went the other way"
        )
    return text


def _draws_in_words(test: dict[str, Any]) -> str:
    """One line on the law of the draft, residual or bonus draws."""
    text = f"  {test['kind']} draws: {test['draws']}, {test['verdict']}, p-value {test['p_value']:.2g}"
    if test["impossible"]:
        return text + f": {test['impossible']} of them impossible"
    if test["verdict"] == "rejected":
        return text + f" after {test['found_after']}; most like: {test['looks_like']}"
    if test["detectable_tv"] >= 1:
        return text + "; too few to exclude any law"
    return text + f"; a TV of {test['detectable_tv']:.2f} would have been found"


def _divergence_in_words(first: dict[str, Any]) -> str:
    def shown(name: str) -> str:
        value = first[name]
        return "none" if value is None else value if isinstance(value, str) else f"{value:.6g}"

    node = "" if first["node"] is None else f", node {first['node']}"
    where = f"round {first['round']}, index {first['index']}{node}, token {first['token']}"
    if first["kind"] != "acceptance":
        source = "residual" if first["kind"] == "residual" else "target"
        drawn = "" if first["u"] is None else f", its uniform {shown('u')} draws {first['recomputed']}"
        return f"{where} cannot come from the {source} (p = {shown('p')}, q = {shown('q')}){drawn}"
    margin = "" if first["margin"] is None else (
        f"; margin {shown('margin')}, rounding allows {shown('allowance')}"
    )  # fmt: skip
    ratio = "p/q" if first["node"] is None else "threshold"
    return (
        f"{where}: p = {shown('p')}, q = {shown('q')}, {ratio} = {shown('ratio')}, u = {shown('u')}: logged "
        f"{first['logged']}, recomputed {first['recomputed']}{margin}"
    )


def _position_lines(row: dict[str, Any]) -> list[str]:
    """Acceptances by position beside their expectation, in 75 columns.

    The p-values are those the verdict uses, which hold for one continued text; --json has the exact ones too.
    """
    lines = ["  position  reached  accepted  expected  p-value   over drafts  p-value"]
    for entry in row["acceptance_by_position"]:
        over, p = entry["expected_over_drafts"], entry["p_value_sequential_over_drafts"]
        tail = "          -        -" if over is None else f"{over:11.2f}  {p:7.2g}"
        lines.append(
            f"  {entry['position']:8d}  {entry['reached']:7d}  {entry['accepted']:8d}  "
            f"{entry['expected']:8.2f}  {entry['p_value_sequential']:7.2g}   {tail}"
        )
    return lines
