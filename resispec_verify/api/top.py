"""``verify_top``: what is true for every completion of unseen tails; ``kl`` over top-k files from Python."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resispec_verify.api.report import Report
from resispec_verify.api.sources import PathLike
from resispec_verify.api.verify import given_rules
from resispec_verify.dumps import TopPairs, TopPairsDump, open_top_pairs
from resispec_verify.errors import InputError
from resispec_verify.inputs import shown, whole
from resispec_verify.report.top import print_top_verdicts
from resispec_verify.rules import Rule
from resispec_verify.runs.over_top import over_top
from resispec_verify.tables.row import label
from resispec_verify.tables.top_rows import TopQuestion, TopRow, top_records
from resispec_verify.tables.top_summary import summarize_top, top_kl_report
from resispec_verify.threads import cores
from resispec_verify.verdict import Verdict, overall

__all__ = ["TopReport", "verify_top"]

_MEASURES = ("acceptance", "limit", "emitted_tv", "emitted_kl", "tv", "kl")


@dataclass(frozen=True)
class _Side:
    k: int


@dataclass(frozen=True)
class _Handed:
    """Pairs from the caller, as a file of them."""

    given: TopPairs
    path: str = ""
    notes: tuple[str, ...] = ()

    @property
    def positions(self) -> int:
        return len(self.given)

    @property
    def vocab(self) -> int | None:
        return self.given.target.vocab

    @property
    def target(self) -> _Side:
        return _Side(self.given.target.tokens.shape[1])

    @property
    def draft(self) -> _Side:
        return _Side(self.given.draft.tokens.shape[1])

    def pairs(self, start: int, stop: int) -> TopPairs:
        part = slice(start, stop)
        return TopPairs(self.given.target[part], self.given.draft[part])


@dataclass(frozen=True, repr=False)
class TopReport(Report):
    """What is known of rules from lists of the most probable tokens, by rule; of one rule, as attributes.

    ``report["resispec"]`` is the report of one rule, and iterating gives them one by one. Every pair of
    numbers holds the mean over positions for every completion of the unseen tails.
    """

    rows: Sequence[TopRow]
    files: Sequence[Any]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[TopReport]:
        return (TopReport([row], self.files) for row in self.rows)

    def __getitem__(self, rule: str) -> TopReport:
        rows = [row for row in self.rows if rule in (label(row.rule), row.rule.name)]
        if not rows:
            known = ", ".join(label(row.rule) for row in self.rows)
            raise InputError(f"no rule {rule!r} in this report (there are: {known})")
        return TopReport(rows, self.files)

    @property
    def verdict(self) -> Verdict:
        """Exact, inexact or undecided, over all positions of all rules in the report."""
        return overall(row.verdict for row in self.rows)

    @property
    def tv_bounds(self) -> tuple[float, float]:
        """The mean total variation of the emitted law from the target lies between these."""
        return self._pair("tv_mean_bounds")

    @property
    def kl_bounds(self) -> tuple[float, float]:
        """The mean of KL(marginal || target), in nats, lies between these."""
        return self._pair("kl_mean_bounds")

    @property
    def acceptance_bounds(self) -> tuple[float, float]:
        """P(a candidate is accepted), mean over positions, lies between these."""
        return self._pair("acceptance_mean_bounds")

    @property
    def limit_bounds(self) -> tuple[float, float] | None:
        """The mean acceptance that no exact rule can exceed lies between these; None if unknown."""
        return None if self._one()["limit_mean_bounds"] is None else self._pair("limit_mean_bounds")

    @property
    def least_k(self) -> int | None:
        """The shortest lists that decide the verdict; None where these do not."""
        return self._one()["least_k"]

    @property
    def positions(self) -> list[dict[str, Any]]:
        """One dictionary a position and rule: the lines of ``--csv``."""
        return list(top_records(self.rows, _MEASURES))

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``kl`` on top-k files; infinities are the text "inf"."""
        return top_kl_report(self.rows, self.files)

    def _one(self) -> Mapping[str, Any]:
        if len(self.rows) != 1:
            names = ", ".join(label(row.rule) for row in self.rows)
            raise InputError(f"the report has several rules ({names}): take one, as in report[NAME]")
        return summarize_top(self.rows[0])

    def _pair(self, name: str) -> tuple[float, float]:
        low, high = (float(value) for value in self._one()[name])
        return low, high

    def _print(self, console: Any) -> None:
        print_top_verdicts(self.to_dict(), console)


def verify_top(
    target: PathLike | TopPairsDump | TopPairs | Sequence[PathLike],
    *,
    rule: str | Rule | Sequence[str | Rule],
    candidates: int = 3,
    jobs: int | None = None,
) -> TopReport:
    """What a rule emits and accepts, as intervals that hold for every completion of unseen tails.

    Parameters
    ----------
    target : path, paths, TopPairsDump, or TopPairs
        A file of top-k pairs, or several; or lists of target and draft in memory.
    rule : str, Rule, or sequence of them
        As `verify` takes them.
    candidates : int
        Candidates at each position (n); fewer for rules that verify fewer.
    jobs : int, optional
        Threads; results are the same for any number. Default: the cores at hand.

    Returns
    -------
    TopReport

    Raises
    ------
    InputError
        Anything that cannot be read or makes no sense, in one line.
    """
    rules = given_rules(rule, candidates)
    question = TopQuestion(rules, candidates, columns=True, shortest=True)
    threads = cores() if jobs is None else whole("jobs", jobs, 1)
    files = _files(target)
    answers = []
    for one in files:
        answers += over_top(one, question.answer, (0, one.positions), threads)
    return TopReport(question.rows(answers), files)


def _files(target: Any) -> list[Any]:
    """What is asked about, opened."""
    if isinstance(target, TopPairs):
        if not len(target):
            raise InputError("target has no positions: give at least one")
        return [_Handed(target)]
    several = [target] if isinstance(target, (str, os.PathLike, TopPairsDump)) else target
    if not isinstance(several, (list, tuple)) or not several:
        raise InputError(f"target must be the path of a top-k file, or TopPairs; got {shown(target)}")
    files = [one if isinstance(one, TopPairsDump) else open_top_pairs(one) for one in several]
    names = [os.path.realpath(one.path) for one in files]
    if twice := [one.path for i, one in enumerate(files) if names[i] in names[:i]]:
        raise InputError(f"{twice[0]}: given twice; its positions would count twice")
    return files
