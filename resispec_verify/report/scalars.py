"""What `replay` prints of a scalar log, and of log-probabilities that an engine reported."""

from __future__ import annotations

from typing import Any

from resispec_verify.report.table import print_lines, print_records, printable

__all__ = ["print_scalars", "reported_lines"]

# Depths that are printed; the report has all.
_MOST_DEPTHS = 16


def print_scalars(row: dict[str, Any], console: Any) -> None:
    """One result, in words and a small table."""
    stored = ", ".join(f"{key} {kind}" for key, kind in row["precision"].items())
    lines = [
        f"{printable(row['path'], None)}: {row['decisions']} decisions, rule {row['rule']}",
        f"  written as: {stored}",
    ]
    if row["with_uniforms"]:
        lines.append(
            f"  decisions: {row['agree']} of {row['with_uniforms']} agree; "
            f"within rounding: {row['near_ties']}, "
            f"of which {row['near_ties_differing']} went the other way"
        )
    else:
        lines.append("  decisions: not replayed, there are no uniforms")
    if first := row["first_divergence"]:
        lines.append(f"  divergences: {row['divergences']}; the first: {_divergence(first)}")
    print_lines(console, lines)
    rates = [row["acceptance"], *row["acceptance_by_depth"][:_MOST_DEPTHS]]
    print_records(console, "", [_rate(rate) for rate in rates], left=("depth",))
    lines = [_found("acceptances", rate) for rate in rates if rate["verdict"] == "rejected"]
    if test := row["uniforms_test"]:
        lines.append(_found("uniforms", test))
    if row["repeated_uniforms"] or row["repeated_stretches"]:
        lines.append(
            f"  repeated uniforms: {row['repeated_uniforms']} soon after, "
            f"{row['repeated_stretches']} stretches, "
            f"p-value {row['repeated_uniforms_p_value']:.2g}"
        )
    if row["next_tokens_impossible"]:
        lines.append(f"  {row['next_tokens_impossible']} next tokens have probability 0")
    lines += [_found(f"{test['kind']} draws", test) for test in row["next_token_tests"]]
    lines += reported_lines(row["reported_logprobs"], "line")
    statistics = row["statistics"]
    lines.append(
        f"  together: {statistics['verdict']} at alpha {statistics['alpha']:g} over "
        f"{statistics['tests']} tests"
        + ("; that proves nothing exact" if statistics["verdict"] == "not-rejected" else "")
    )
    print_lines(console, [*lines, *(f"  {printable(note, None)}" for note in row["notes"]), ""])


def reported_lines(found: dict[str, Any] | None, unit: str) -> list[str]:
    """On reported log-probabilities, by class; ``unit`` is what the first misfit is named by."""
    if found is None:
        return []
    words = {"agree": "agree", "differs": "differ", "unknown": "have nothing to be held against"}
    convention = f": {found['convention']}" if found["convention"] else ""
    mixed = "; the classes follow different conventions" if found["mixed_conventions"] else ""
    lines = [f"  reported log-probabilities {words[found['verdict']]}{convention}{mixed}"]
    for one in found["classes"]:
        text = f"    {one['class']}: {one['tokens']} tokens, {one['verdict']}"
        if one["fits"]:
            text += f", fit {', '.join(one['fits'])}"
        if one["looks_like"]:
            text += f"; they are those of {' or '.join(one['looks_like'])}"
        if one["first"]:
            first = one["first"]
            text += (
                f"; {one['misfits']} differ from {one['nearest']}, the first at {unit} {first['at']}: "
                "reported "
                f"{_number(first['reported'])}, expected {_number(first['expected'])}"
            )
        lines.append(text)
    return lines


def _number(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _rate(rate: dict[str, Any]) -> dict[str, str]:
    return {
        "depth": "all" if rate["depth"] is None else str(rate["depth"]),
        "decisions": str(rate["decisions"]),
        "accepted": f"{rate['rate']:.4f}",
        "expected": f"{rate['expected_rate']:.4f}",
        "p-value": f"{rate['p_value']:.2g}",
        "verdict": rate["verdict"],
    }


def _found(what: str, test: dict[str, Any]) -> str:
    place = f" at depth {test['depth']}" if test.get("depth") is not None else ""
    count = test.get("draws", test.get("decisions"))
    text = f"  {what}{place}: {count}, {test['verdict']}, p-value {test['p_value']:.2g}"
    if test.get("impossible"):
        return text + f": {test['impossible']} of them impossible"
    if test["verdict"] == "rejected":
        return text + f" after {test['found_after']}; most like: {test['looks_like']}"
    return text


def _divergence(first: dict[str, Any]) -> str:
    coin = "" if first["u"] is None else (
        f"; margin {first['margin']:.6g}, rounding allows {first['allowance']:.6g}"
    )  # fmt: skip
    u = "none" if first["u"] is None else f"{first['u']:.6g}"
    return (
        f"line {first['line']}: p = {first['p']:.6g}, q = {first['q']:.6g}, p/q = {_number(first['ratio'])}, "
        f"u = {u}: logged {first['logged']}, recomputed {first['recomputed']}{coin}"
    )
