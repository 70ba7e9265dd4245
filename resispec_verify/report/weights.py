"""What `weights` prints, from the command line and from Python."""

from __future__ import annotations

from typing import Any

from resispec_verify.report.table import number, print_lines, printable

__all__ = ["print_weights"]


def print_weights(row: dict[str, Any], console: Any) -> None:
    """Weights of one log under one rule."""
    print_lines(console, [printable(line, None) for line in _lines(row)])


def _lines(row: dict[str, Any]) -> list[str]:
    test, unit = row["mean_test"], "tokens"
    texts = f" of {row['texts']} texts" if row["texts"] else ""
    lines = [
        f"{row['path']}: {row['label']}, n = {row['candidates']}: {row['tokens']} {unit}{texts}",
        f"  mean weight {_ends(row['mean_weight'])}; under the rule {_ends(row['expected_mean_weight'])}",
        f"  effective sample size {_ends(row['effective_size'])} of {row['tokens']} tokens"
        + (f", {_ends(row['effective_size_of_texts'])} of {row['texts']} texts" if row["texts"] else ""),
        f"  greatest weight {_ends(row['greatest_weight'])}; farthest from 1 by at most "
        f"{number(row['farthest_from_1'])}",
        f"  truncated at {row['truncate']:g}: share {_ends(row['truncated_share'])} of the weights; mass cut "
        f"off, mean {_ends(row['truncated_mass']['mean'])}, max {_ends(row['truncated_mass']['max'])}",
        f"  mass of the target that the rule never emits (no weight repairs it): mean "
        f"{_ends(row['lost_mass']['mean'])}, max {_ends(row['lost_mass']['max'])}",
        f"  mean of truncated weights {_ends(test['mean'])}, under the rule {_ends(test['expected'])}: "
        + ("no test: every weight is 1 whatever was drawn" if test["blind"] else
           f"{test['verdict'].replace('-', ' ')} at {test['alpha']:g} (p = {number(test['p_value'])})"),
    ]  # fmt: skip
    if row["impossible"]:
        first = row["first_impossible"]
        where = ", ".join(f"{k} {v}" for k, v in first.items() if v is not None)
        lines.append(
            f"  {row['impossible']} tokens cannot have been drawn by this rule (first: {where}): the rule, "
            "the sampling or the rows are not those that drew them"
        )
    return lines + [f"  {note}" for note in row["notes"]]


def _ends(ends: list[Any]) -> str:
    """An interval, or one number where both ends print alike."""
    low, high = (number(end) for end in ends)
    return low if low == high else f"{low} .. {high}"
