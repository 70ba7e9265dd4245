"""``verify``: what rules really emit, against the target; the command ``kl`` from Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from resispec_verify.api.report import Report
from resispec_verify.api.sources import Asked, PathLike
from resispec_verify.arrays import ArrayLike
from resispec_verify.backends import get_backend
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import FlatDump
from resispec_verify.errors import InputError
from resispec_verify.evidence.expansion import Budget
from resispec_verify.inputs import MOST_CANDIDATES, whole
from resispec_verify.report.verdicts import print_verdicts
from resispec_verify.rules import Rule
from resispec_verify.rules.given import check_counts, given_rule
from resispec_verify.rules.spec import rule_text
from resispec_verify.runs.facts import facts_of, facts_of_arrays
from resispec_verify.runs.over_dumps import evaluate_dump
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import Clock, Reading
from resispec_verify.tables.row import Row, label
from resispec_verify.tables.summary import kl_report, position_records, summarize
from resispec_verify.tables.table import Table, pool
from resispec_verify.verdict import Verdict, overall

__all__ = ["VerifyReport", "given_rules", "verify"]


@dataclass(frozen=True, repr=False)
class VerifyReport(Report):
    """What rules emit, by rule; of one rule, its numbers as attributes.

    ``report["resispec"]`` is the report of one rule: by the label that is printed, or by its name or text.
    Iterating gives the results one by one. Bounds on TV and acceptance are certified, rounding included;
    those on KL hold the mass that was not followed, and are up to rounding.
    """

    rows: Sequence[Row]
    reading: Reading
    facts: dict[str, Any]
    seconds: dict[str, float]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[VerifyReport]:
        return (VerifyReport([row], self.reading, self.facts, self.seconds) for row in self.rows)

    def __getitem__(self, rule: str) -> VerifyReport:
        rows = [row for row in self.rows if rule == label(row.rule)]
        rows = rows or [row for row in self.rows if rule in (row.rule.name, rule_text(row.rule))]
        if not rows:
            known = ", ".join(dict.fromkeys(label(row.rule) for row in self.rows))
            raise InputError(f"no rule {rule!r} in this report (there are: {known})")
        return VerifyReport(rows, self.reading, self.facts, self.seconds)

    def __contains__(self, rule: object) -> bool:
        return any(rule in (label(row.rule), row.rule.name, rule_text(row.rule)) for row in self.rows)

    @property
    def verdict(self) -> Verdict:
        """Exact, inexact or undecided, over all positions of all rules in the report.

        Exact only if all are; inexact if one is.
        """
        return overall([verdict for row in self.rows for verdict in row.verdict])

    @property
    def tv_bounds(self) -> tuple[float, float]:
        """The mean total variation from the target lies between these."""
        return self._pair("tv_mean_bounds")

    @property
    def kl_bounds(self) -> tuple[float, float]:
        """The mean of KL(marginal || target), in nats, lies between these, up to rounding."""
        return self._pair("kl_mean_bounds")

    @property
    def acceptance(self) -> float:
        """P(a candidate is accepted), mean over positions."""
        return sum(self._one()["acceptance"])

    @property
    def acceptance_bounds(self) -> tuple[float, float]:
        """The same lies between these."""
        return self._pair("acceptance_total_bounds")

    @property
    def limit(self) -> float | None:
        """The mean acceptance that no exact rule can exceed with such candidates; None if unknown."""
        return self._one()["limit_mean"]

    @property
    def positions(self) -> list[dict[str, Any]]:
        """One dictionary a position and rule: the lines of ``--csv``."""
        return position_records(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``kl``; infinities are the text "inf"."""
        return kl_report(self.rows, self.reading, self.facts, self.seconds)

    def _one(self) -> dict[str, Any]:
        if len(self.rows) != 1:
            names = ", ".join(f"{label(row.rule)} at T = {row.temperature:g}" for row in self.rows)
            raise InputError(
                f"the report has several results ({names}): take one, as in "
                f"report[{label(self.rows[0].rule)!r}], or go through them: for one in report"
            )
        return summarize(self.rows[0])

    def _pair(self, name: str) -> tuple[float, float]:
        low, high = (float(value) for value in self._one()[name])
        return low, high

    def _print(self, console: Any) -> None:
        print_verdicts(self.rows, console, self.facts)


# More than eight parameters: each is one question that a user asks, and most have an answer by default.
def verify(
    target: ArrayLike | PathLike | FlatDump | Sequence[PathLike],
    draft: ArrayLike | None = None,
    *,
    rule: str | Rule | Sequence[str | Rule],
    candidates: int = 3,
    sampling: Sampling | Sequence[Sampling] | None = None,
    proposal: ArrayLike | Sampling | None = None,
    input: str | None = None,
    positions: slice | range | None = None,
    budget: Budget | None = None,
) -> VerifyReport:
    """What a rule really emits, how far that is from the target, and whether it is exact.

    Parameters
    ----------
    target : array (V,) or (..., V), path, paths, or FlatDump
        Rows of the target; or a dump of target and draft, or several.
    draft : array (..., V), optional
        Rows of the draft that is declared to the rule; left out with a dump.
    rule : str, Rule, or sequence of them
        A name, perhaps with options, such as ``"specinfer"`` or ``"resispec:budget=floor"``; or a rule of
        your own.
    candidates : int
        Candidates at each position (n); fewer for rules that verify fewer.
    sampling : Sampling or sequence, optional
        Temperature and filters of target and draft. Default: what the dump states, or else temperature 1.
    proposal : array (..., V) or Sampling, optional
        What candidates are really drawn from, where it is not the declared draft.
    input : {"logits", "probabilities", "log-probabilities"}, optional
        What the rows are. Default: of arrays, probabilities if all lie in [0, 1] and sum to 1, and logits if
        none do; of a dump, logits. Refused where either could be meant.
    positions : slice or range, optional
        Which positions, 0-based.
    budget : Budget, optional
        Of work, for rules whose paths have to be expanded.

    Returns
    -------
    VerifyReport

    Raises
    ------
    InputError
        Anything that cannot be read or makes no sense, in one line.

    Examples
    --------
    >>> import resispec_verify as rv
    >>> report = rv.verify([0.3, 0.4, 0.3], [0.6, 0.3, 0.1], rule="specinfer", candidates=2)
    >>> report.verdict
    <Verdict.EXACT: 'exact'>
    """
    asked = Asked(target, draft, proposal, sampling, input, positions)
    rules = given_rules(rule, candidates)
    evaluation = Evaluation(rules, candidates, identity=False, budget=budget or Budget())
    return _verified(asked, evaluation)


def _verified(asked: Asked, evaluation: Evaluation) -> VerifyReport:
    clock, dumps, reading = Clock(), asked.dumps(), asked.reading()
    if dumps is None:
        table = Table()
        for batch in asked.array_pairs():
            table.evaluate(batch, evaluation, clock)
        found = pool([table])
        reading = replace(reading, kind=asked.kind())
        facts = facts_of_arrays(len(found[0].position), notes=asked.notes())
        return VerifyReport(found, reading, facts, clock.seconds)
    done = [evaluate_dump(dump, reading, evaluation, backend=get_backend("numpy")) for dump in dumps]
    for table in done:
        clock.add(table.seconds)
    return VerifyReport(pool(done), reading, facts_of(dumps, done), clock.seconds)


def given_rules(rule: str | Rule | Sequence[str | Rule], candidates: int) -> tuple[Rule, ...]:
    """One rule or several, by name or as they are, for so many candidates.

    Raises
    ------
    InputError
        As `given_rule`; none at all, two with one label, or a number of candidates that one cannot verify.
    """
    whole("candidates", candidates, 1, MOST_CANDIDATES)
    several = rule if isinstance(rule, Sequence) and not isinstance(rule, str) else [rule]
    rules = tuple(given_rule(one) for one in several)
    names = [label(one) for one in rules]
    if not rules or len(set(names)) < len(names):
        raise InputError(f"rule must be one or several different rules, got {', '.join(names) or 'none'}")
    check_counts(rules, candidates, "candidates=")
    return rules
