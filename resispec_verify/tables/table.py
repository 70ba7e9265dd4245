"""What some positions of one dump gave: joined in any order, and plain enough for JSON or a network.

A table holds numbers by position and no array over the vocabulary, so that it is small wherever it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from resispec_verify.distributions import Sampling
from resispec_verify.rules import Rule
from resispec_verify.schema import plain
from resispec_verify.tables.columns import numbers
from resispec_verify.tables.marginals import Evaluation, evaluate
from resispec_verify.tables.reading import Clock, PairBatch
from resispec_verify.tables.row import Row, label

__all__ = ["Table", "pool"]


@dataclass
class Table:
    """Rows over some positions of one dump.

    Attributes
    ----------
    by_sampling : dict
        ``(dataset, sampling)`` to ``(rule label, kind of marginal)`` to `Row`.
    padding : list of float
        Where vocabularies were padded: the wider model's mass on the padded tokens, by position.
    seconds : dict
        Time by phase.
    constant : list of int
        Positions with a row of equal values: padding, perhaps.
    """

    by_sampling: dict[tuple[str | None, Sampling], dict[tuple[str, str], Row]] = field(default_factory=dict)
    padding: list[float] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    constant: list[int] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """All rows, in order of first appearance."""
        return [row for rows in self.by_sampling.values() for row in rows.values()]

    def evaluate(self, batch: PairBatch, evaluation: Evaluation, clock: Clock) -> None:
        """Evaluate a batch of positions and append them."""
        self.constant = sorted({*self.constant, *batch.constant})
        rows = self.by_sampling.setdefault((batch.dataset, batch.sampling), {})
        evaluate(batch, evaluation, rows, clock=clock)

    def extend(self, other: Table) -> None:
        """Append the positions of another part of the same dump."""
        for key, rows in other.by_sampling.items():
            mine = self.by_sampling.setdefault(key, {})
            for name, row in rows.items():
                mine.setdefault(name, row.empty()).extend(row)
        self.padding += other.padding
        self.constant += other.constant
        for phase, seconds in other.seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def plain(self) -> dict[str, Any]:
        """The table as dictionaries, lists, texts and numbers; infinities are texts."""
        tables = [
            {"sampling": _plain(sampling), "rule": name, **row.plain()}
            for (_, sampling), rows in self.by_sampling.items()
            for (name, _), row in rows.items()
        ]
        facts = {"padding": self.padding, "seconds": self.seconds, "constant": self.constant}
        return {"tables": tables, **plain(facts)}

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any], rules: Sequence[Rule], source: str) -> Table:
        """Undo `plain`.

        Parameters
        ----------
        rules : sequence of Rule
            Those that were evaluated.
        source : str
            The dump's path, the `Row.source` of every position.

        Raises
        ------
        KeyError, TypeError, ValueError
            What is stored is not a table of these rules.
        """
        known = {label(rule): rule for rule in rules}
        table = cls(
            padding=numbers(stored["padding"]),
            seconds=dict(stored["seconds"]),
            constant=list(stored.get("constant", [])),
        )
        for one in stored["tables"]:
            sampling = _sampling(one["sampling"])
            row = Row.from_plain(one, known[one["rule"]], sampling.temperature, source)
            row.samplings[sampling] = None
            table.by_sampling.setdefault((row.dataset, sampling), {})[one["rule"], row.marginal] = row
        return table


# What journals of all releases have of a sampling: these, in a list, where nothing else is set.
_FIRST = ("temperature", "top_k", "top_p", "min_p")


def _plain(sampling: Sampling) -> list[Any] | dict[str, Any]:
    found = sampling.plain()
    if set(found) <= set(_FIRST):
        return [getattr(sampling, name) for name in _FIRST]
    return plain(found)


def _sampling(stored: Any) -> Sampling:
    if isinstance(stored, list):
        stored = dict(zip(_FIRST, stored, strict=True))
    return Sampling(**{name: numbers(value) for name, value in dict(stored).items()})


def pool(tables: Iterable[Table]) -> list[Row]:
    """Join the rows of several dumps; those that carry a dataset stay apart."""
    joined: dict[tuple[Any, ...], Row] = {}
    for row in (row for table in tables for row in table.rows):
        key = (row.dataset, row.rule, row.marginal, row.temperature, row.candidates)
        joined.setdefault(key, row.empty()).extend(row)
    return list(joined.values())
