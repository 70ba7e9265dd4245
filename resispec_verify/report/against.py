"""What changed since an earlier report, on a terminal and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resispec_verify.report.page import PageSection
from resispec_verify.report.table import number, print_lines, print_records
from resispec_verify.tables.against import UNSAID, Change

__all__ = ["changes_in_words", "changes_section", "print_changes"]

_NAMES = {"tv": "TV mean", "acceptance": "acceptance", "limit": "limit", "verdict": "verdict"}


def changes_in_words(changes: Sequence[Change], alpha: float, *, unsaid: bool = False) -> str:
    """The sentence that comes first; ``unsaid``: the earlier report does not say its filters."""
    verdicts = [c for c in changes if c.said == "certified"]
    said = [f"{c.row}: {c.before} before, {c.now} now" for c in verdicts]
    said += [f"{c.row}: {c.said}" for c in changes if c.said in ("new", "gone")]
    moved = [c for c in changes if c.said == "significant"]
    said += [
        f"{c.row}: {_NAMES[c.measure]} {number(c.before)} before, {number(c.now)} now (significant)"
        for c in moved
    ]
    some = sum(c.said == "not significant" for c in changes)
    untested = sum(c.said == "not tested" for c in changes)
    ends = [f"{some} changes are not significant"] if some else []
    ends += [f"{untested} could not be tested"] if untested else []
    said = said or ["no verdict changed, and no number significantly"]
    words = "; ".join([*said, *ends]) + f" (alpha {alpha:g} over all tests)."
    return f"{words} The earlier report {UNSAID}." if unsaid else words


def _records(changes: Sequence[Change]) -> list[dict[str, str]]:
    def shown(value: Any) -> str:
        return "" if value is None else value if isinstance(value, str) else number(value)

    return [
        {
            "row": c.row, "of": _NAMES[c.measure], "before": shown(c.before), "now": shown(c.now),
            "change": c.said, "test": c.how, "p-value": "" if c.p_value is None else f"{c.p_value:.2g}",
        }
        for c in changes
    ]  # fmt: skip


def print_changes(
    changes: Sequence[Change], alpha: float, old: object, console: Any, *, unsaid: bool = False
) -> None:
    """The sentence, and the table."""
    print_lines(console, [f"against {old}: {changes_in_words(changes, alpha, unsaid=unsaid)}"])
    print_records(console, "", _records(changes), dispensable=("test",), left=("row", "of", "change", "test"))


def changes_section(
    changes: Sequence[Change], alpha: float, old: object, *, unsaid: bool = False
) -> PageSection:
    """The same as a section of the page."""
    caption = (
        f"{changes_in_words(changes, alpha, unsaid=unsaid)} Of means over positions: none where certified "
        "intervals overlap; else a t-test over positions, paired where both runs hold the same positions of "
        "the same files."
    )
    return PageSection(f"What changed since {old}", caption, [], _records(changes))
