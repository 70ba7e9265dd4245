"""``limits``: acceptance beside what no exact rule can exceed; the command ``limits`` from Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from resispec_verify.api.report import Report
from resispec_verify.api.sources import Asked, PathLike
from resispec_verify.api.verify import given_rules
from resispec_verify.arrays import ArrayLike
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import FlatDump
from resispec_verify.report.answers import print_limits
from resispec_verify.rules import Rule
from resispec_verify.tables.limits import add_limits, limits_report, summarize_limits
from resispec_verify.tables.row import Row

__all__ = ["LimitsReport", "limits"]


@dataclass(frozen=True, repr=False)
class LimitsReport(Report):
    """Acceptance and limits, by rule."""

    rows: Sequence[Row]

    @property
    def limit(self) -> float | None:
        """The acceptance that no exact rule can exceed, of the first rule's candidates; None if unknown."""
        return summarize_limits(self.rows[0])["limit_mean"]

    @property
    def sequential_limit(self) -> float | None:
        """The same for rules that look at candidates one by one; None if unknown."""
        return summarize_limits(self.rows[0])["sequential_limit_mean"]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``limits``."""
        return limits_report(self.rows)

    def _print(self, console: Any) -> None:
        print_limits(self.to_dict()["results"], console)


def limits(
    target: ArrayLike | PathLike | FlatDump | Sequence[PathLike],
    draft: ArrayLike | None = None,
    *,
    rule: str | Rule | Sequence[str | Rule] = "optimal-sequential",
    candidates: int = 3,
    sampling: Sampling | Sequence[Sampling] | None = None,
    proposal: ArrayLike | Sampling | None = None,
    input: str | None = None,
    positions: slice | range | None = None,
) -> LimitsReport:
    """Acceptance of rules beside what no exact rule can exceed; a rule above the limit cannot be exact.

    Parameters are those of `verify`. The default rule is the best one that looks at i.i.d. candidates one by
    one, so that its acceptance is its limit.

    Returns
    -------
    LimitsReport

    Raises
    ------
    InputError
        As `verify`.
    """
    rules = given_rules(rule, candidates)
    rows: dict[tuple[str, float], Row] = {}
    asked = Asked(target, draft, proposal, sampling, input, positions)
    for batch in asked.pairs():
        add_limits(rows, rules, batch, candidates)
    return LimitsReport(list(rows.values()))
