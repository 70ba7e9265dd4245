"""What some positions of one dump gave: joined in any order, and plain enough for JSON or a network.

A part holds numbers by position and no array over the vocabulary, so that it is small wherever it goes. Going
through `Part.plain` and back changes no bit: Python prints a float so that it reads back as itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any

from resispec_verify.distributions import Sampling
from resispec_verify.rules import Rule
from resispec_verify.tables.marginals import Row, label
from resispec_verify.tables.summary import plain
from resispec_verify.verdict import Verdict

__all__ = ["Part", "Span"]

#: Positions ``first..last - 1``, as ``(first, last)``.
Span = tuple[int, int]

# Rebuilt from what is known anyway.
_LABELS = {"rule", "marginal", "temperature", "dataset", "source"}


@dataclass
class Part:
    """Rows over some positions of one dump.

    Attributes
    ----------
    tables : dict
        ``(dataset, sampling)`` to ``(rule label, kind of marginal)`` to `Row`.
    padding : list of float
        Where vocabularies were padded: the wider model's mass on the padded tokens, by position.
    seconds : dict
        Time by phase.
    constant : list of int
        Positions with a row of equal values.
    """

    tables: dict[tuple[str | None, Sampling], dict[tuple[str, str], Row]] = field(default_factory=dict)
    padding: list[float] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    constant: list[int] = field(default_factory=list)

    def extend(self, other: Part) -> None:
        """Append the positions of another part of the same dump."""
        for key, rows in other.tables.items():
            mine = self.tables.setdefault(key, {})
            for name, row in rows.items():
                mine.setdefault(name, row.empty()).extend(row)
        self.padding += other.padding
        self.constant += other.constant
        for phase, seconds in other.seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def rows(self) -> list[Row]:
        """All rows, in order of first appearance."""
        return [row for rows in self.tables.values() for row in rows.values()]

    def plain(self) -> dict[str, Any]:
        """The part as dictionaries, lists, texts and numbers; infinities are texts."""
        tables = [
            {
                "dataset": dataset,
                "sampling": list(astuple(sampling)),
                "rule": name,
                "marginal": marginal,
                **{key: value for key, value in vars(row).items() if key not in _LABELS},
                "verdict": [verdict.value for verdict in row.verdict],
            }
            for (dataset, sampling), rows in self.tables.items()
            for (name, marginal), row in rows.items()
        ]
        facts = {"padding": self.padding, "seconds": self.seconds, "constant": self.constant}
        return plain({"tables": tables, **facts})

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any], rules: Sequence[Rule], source: str) -> Part:
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
            What is stored is not a part of these rules.
        """
        known = {label(rule): rule for rule in rules}
        names = {f.name for f in fields(Row)} - _LABELS
        part = cls(
            padding=_numbers(stored["padding"]),
            seconds=dict(stored["seconds"]),
            constant=list(stored.get("constant", [])),
        )
        for table in stored["tables"]:
            sampling = Sampling(*table["sampling"])
            values = {name: _numbers(table[name]) for name in names}
            values["verdict"] = [Verdict(verdict) for verdict in table["verdict"]]
            row = Row(
                known[table["rule"]],
                table["marginal"],
                sampling.temperature,
                dataset=table["dataset"],
                source=[source] * len(table["position"]),
                **values,
            )
            tables = part.tables.setdefault((row.dataset, sampling), {})
            tables[table["rule"], row.marginal] = row
        return part


def _numbers(value: Any) -> Any:
    """The value with the texts "inf" and "-inf" as numbers again."""
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    return float(value) if value in ("inf", "-inf") else value
