"""One row of the table of ``kl`` and ``limits``: its per-position columns are declared here and nowhere else.

Pooling, journals, what workers send back and ``--csv`` follow from the declarations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.rules import Rule
from resispec_verify.rules.interface import Described
from resispec_verify.schema import plain
from resispec_verify.tables.columns import Columns, column, numbers
from resispec_verify.verdict import Verdict, overall, resolution

__all__ = ["Row", "label"]

_UNDECIDABLE = resolution(float(np.finfo(np.float32).eps))


@dataclass
class Row(Columns):
    """A rule, a kind of marginal and a temperature, over the positions seen so far, in order.

    A column that does not apply is empty: all from ``rounding`` on, but the limits, for the path identity.

    Attributes
    ----------
    marginal : {"operational", "path-identity"}
    kl_printed
        Eq. 28 as printed, where the working precision is not float64.
    tv_low, tv_high
        Bounds without rounding, on which verdicts rest; `certified_tv` has it. Likewise of ``accepted``.
    acceptance
        Estimate by candidate.
    sequential_limit
        Where it was asked for; None where candidates are not i.i.d.
    capped : int
        Budgets cut to what was left off the rejected token, in the path identity.
    proxy_excess : float
        Largest ``|sum k - 1|`` there.
    until : str or None
        "verdict" where the work ended as soon as that was certain.
    samplings : dict
        Its keys are the samplings that positions had, in order; they share the temperature.
    """

    rule: Rule
    marginal: str
    temperature: float
    candidates: int
    dataset: str | None = None
    source: list[str] = column("path", kept=False)
    position: list[int] = column("position")
    kl: list[float] = column("kl")
    kl_printed: list[float] = column()
    kl_low: list[float] = column("kl_low")
    kl_high: list[float] = column("kl_high")
    tv: list[float] = column("tv")
    tv_low: list[float] = column("tv_low")
    tv_high: list[float] = column("tv_high")
    gap: list[float] = column("gap")
    rounding: list[float] = column()
    acceptance: list[list[float]] = column("acceptance")
    accepted_low: list[float] = column()
    accepted_high: list[float] = column()
    limit: list[float | None] = column("limit")
    sequential_limit: list[float | None] = column(kept=False)
    verdict: list[Verdict] = column("verdict", read=Verdict)
    expansions: list[int] = column("expansions")
    exhausted: list[bool] = column()
    off_support: list[float] = column()
    off_support_token: list[int] = column()
    never_emitted: list[float] = column()
    never_emitted_tokens: list[list[int]] = column()
    capped: int = 0
    proxy_excess: float = 0.0
    until: str | None = None
    samplings: dict[Sampling, None] = field(default_factory=dict)

    def empty(self) -> Row:
        """The same row without positions."""
        return Row(
            self.rule, self.marginal, self.temperature, self.candidates, self.dataset, until=self.until
        )

    def extend(self, other: Row) -> None:
        """Append the positions of the same row of another batch or dump."""
        super().extend(other)
        self.note(other.capped, other.proxy_excess)
        self.samplings.update(other.samplings)

    def note(self, capped: int, proxy_excess: float) -> None:
        """Add what the path identity saw of proxies."""
        self.capped += capped
        self.proxy_excess = max(self.proxy_excess, proxy_excess)

    def certified_tv(self) -> list[tuple[float, float]]:
        """Bounds on the total variation by position, rounding included."""
        return self._widened(self.tv_low, self.tv_high)

    def certified_acceptance(self) -> list[tuple[float, float]]:
        """Bounds on the total acceptance by position, rounding included."""
        return self._widened(self.accepted_low, self.accepted_high)

    def _widened(self, low: list[float], high: list[float]) -> list[tuple[float, float]]:
        slack = self.rounding or [0.0] * len(low)
        rows = zip(low, high, slack, strict=True)
        return [(max(a - e, 0.0), min(b + e, 1.0)) for a, b, e in rows]

    def certified_kl(self) -> list[tuple[float, float]]:
        """Bounds on the KL divergence by position, up to rounding.

        Where rounding is bounded by more than float32's resolution, what the total variation implies:
        Pinsker's inequality from below, and nothing from above.
        """
        slack = self.rounding or [0.0] * len(self.kl)
        rows = zip(self.kl_low, self.kl_high, slack, self.certified_tv(), strict=True)
        return [
            (low, high) if e <= _UNDECIDABLE else (2.0 * tv[0] ** 2, math.inf) for low, high, e, tv in rows
        ]

    def undecidable(self) -> list[int]:
        """Positions at which rounding may be all there is: what is printed of them is no estimate."""
        return [i for i, e in zip(self.position, self.rounding, strict=False) if e > _UNDECIDABLE]

    def overall(self) -> Verdict | None:
        """The verdict over all positions; None for the path identity, which decides nothing."""
        return overall(self.verdict) if self.marginal == "operational" else None

    def above_limit(self) -> list[int]:
        """Indices where more is accepted than the limit, beyond rounding: each proves inexactness."""
        numbers = enumerate(zip(self.accepted_low, self.limit, self.rounding, strict=True))
        return [i for i, (a, limit, e) in numbers if limit is not None and a > limit + 2 * e]

    def records(self) -> list[dict[str, Any]]:
        """One record a position, with the columns that ``--csv`` names; bounds have the rounding in them."""
        kl, tv = self.certified_kl(), self.certified_tv()
        shown: dict[str, list[Any]] = {
            "kl_low": [low for low, _ in kl],
            "kl_high": [high for _, high in kl],
            "tv_low": [low for low, _ in tv],
            "tv_high": [high for _, high in tv],
            "acceptance": [sum(each) for each in self.acceptance],
            "verdict": [verdict.value for verdict in self.verdict],
        }
        nothing = [None] * len(self.position)
        columns = [shown.get(name, getattr(self, name)) or nothing for name in _CSV]
        labels = {
            "rule": label(self.rule),
            "marginal": self.marginal,
            "temperature": self.temperature,
            "candidates": self.candidates,
            "dataset": self.dataset or "",
        }
        return [
            labels | {name: "" if v is None else v for name, v in zip(_CSV.values(), entry, strict=True)}
            for entry in zip(*columns, strict=True)
        ]

    def plain(self) -> dict[str, Any]:
        """The row as dictionaries, lists, texts and numbers; its labels are those that differ by row.

        Going through it and back changes no bit: Python prints a float so that it reads back as itself.
        """
        labels = ("marginal", "candidates", "dataset", "capped", "proxy_excess")
        if self.until is not None:
            labels += ("until",)
        return plain({name: getattr(self, name) for name in (*labels, *_KEPT)})

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any], rule: Rule, temperature: float, source: str) -> Row:
        """Undo `plain`; ``source`` is the path of every position.

        Raises
        ------
        KeyError, TypeError, ValueError
            What is stored is not a row.
        """
        row = cls(
            rule,
            stored["marginal"],
            temperature,
            stored["candidates"],
            stored["dataset"],
            until=stored.get("until"),
        )
        for name, read in _KEPT.items():
            values = numbers(stored[name])
            if len(values) not in (0, len(stored["position"])):
                raise ValueError(name)
            row.add(**{name: values if read is None else map(read, values)})
        row.source += [source] * len(row.position)
        row.note(stored["capped"], numbers(stored["proxy_excess"]))
        return row


_COLUMNS = {f.name: f.metadata for f in fields(Row) if f.metadata}
_CSV = {name: said["csv"] for name, said in _COLUMNS.items() if said["csv"]}
_KEPT = {name: said["read"] for name, said in _COLUMNS.items() if said["kept"]}


def label(rule: Described) -> str:
    """The rule's name with the options that are not the default."""
    changed = [f"{key}={value}" for key, value in rule.changed_options().items()]
    return f"{rule.name}[{','.join(changed)}]" if changed else rule.name
