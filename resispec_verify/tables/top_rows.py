"""Rules at positions of which only the most probable tokens were logged: intervals, and what is kept of them.

A `TopPart` holds what some positions gave: sums and extremes, and the columns themselves only where they are
asked for, so that a million positions take some MB.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resispec_verify.dumps import TopPairs
from resispec_verify.rules import Rule, make_rule
from resispec_verify.tables.row import label
from resispec_verify.topk import Bounds, bounds, least_k
from resispec_verify.verdict import Tier, Verdict

__all__ = ["MEASURES", "TopPart", "TopQuestion", "TopRow", "top_records"]

#: The intervals of a position, as `Bounds` names them, and the limit of rules that look at one by one.
MEASURES = ("acceptance", "limit", "sequential_limit", "emitted_tv", "emitted_kl", "tv", "kl")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TopPart:
    """What some positions of one file gave, under one rule.

    Attributes
    ----------
    path : str
    start : int
        The first position.
    positions : int
    sums, largest : dict of str to float64 array (2,)
        Of the low and of the high ends, by measure; those that are not known are left out.
    width : float32 array (positions,)
        Of the intervals of the acceptance.
    counts : dict of Verdict to int
    inexact, above : int or None
        The first position that is inexact for certain, and the first that is above the limit for certain.
    many_above : int
    attained : int64 array (2,)
        At how many positions the two extreme completions exist.
    columns : dict of str to float64 array (positions, 2)
        Empty where they were not asked for.
    verdicts : list of Verdict
        Likewise.
    proof, tier, tight
        As `Bounds` has them.
    """

    path: str
    start: int
    positions: int
    sums: dict[str, Floats]
    largest: dict[str, Floats]
    width: NDArray[np.float32]
    counts: dict[Verdict, int]
    inexact: int | None
    above: int | None
    many_above: int
    attained: NDArray[np.int64]
    columns: dict[str, Floats]
    verdicts: list[Verdict]
    proof: str | None
    tier: Tier
    tight: dict[str, tuple[bool, bool]]


@dataclass
class TopRow:
    """One rule over all positions.

    Attributes
    ----------
    rule : Rule
    candidates : int
        As many as it verifies.
    parts : list of TopPart
        In order of files and positions.
    least_k : int or None
        The shortest lists that decide the verdict; None where these do not.
    """

    rule: Rule
    candidates: int
    parts: list[TopPart]
    least_k: int | None = None

    @property
    def proof(self) -> str | None:
        """Where it is proved that the rule is exact for every pair of laws."""
        return self.parts[0].proof

    @property
    def tight(self) -> dict[str, tuple[bool, bool]]:
        """Whether the ends of a measure are attained where the completions exist."""
        return self.parts[0].tight

    @property
    def positions(self) -> int:
        """Positions in all."""
        return sum(part.positions for part in self.parts)

    @property
    def verdict(self) -> Verdict:
        """Over all positions."""
        if any(part.counts[Verdict.INEXACT] for part in self.parts):
            return Verdict.INEXACT
        undecided = any(part.counts[Verdict.UNDECIDED] for part in self.parts)
        return Verdict.UNDECIDED if undecided else Verdict.EXACT


class TopQuestion:
    """Rules that are asked about positions, block by block, from any thread.

    Parameters
    ----------
    rules : sequence of Rule
    candidates : int
        ``n >= 1``; fewer for rules that verify fewer.
    sequential : bool
        Whether the limit of rules that look at candidates one by one is wanted.
    columns : bool
        Whether the intervals of every position are kept.
    shortest : bool
        Whether the shortest lists that decide are looked for.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        candidates: int,
        *,
        sequential: bool = False,
        columns: bool = False,
        shortest: bool = False,
    ) -> None:
        self.rules, self.candidates, self.sequential = tuple(rules), candidates, sequential
        self.columns, self.shortest = columns, shortest
        self._least: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def asked(self) -> tuple[tuple[Rule, ...], int]:
        """Rules and candidates."""
        return self.rules, self.candidates

    def answer(self, path: str, start: int, pairs: TopPairs) -> list[TopPart]:
        """What the positions of a block give, a part a rule.

        Raises
        ------
        InputError
            As `bounds`.
        """
        limits: dict[int, Floats] = {}
        answers = []
        for rule in self.rules:
            n = rule.verifiable(self.candidates)
            found = bounds(pairs, rule, n)
            known = {name: getattr(found, name) for name in MEASURES if hasattr(found, name)}
            if rule.proposal.name != "iid":
                del known["limit"]
            elif self.sequential:
                if n not in limits:
                    limits[n] = bounds(pairs, make_rule("optimal-sequential"), n).acceptance
                known["sequential_limit"] = limits[n]
            if self.shortest and found.proof is None and found.verdict is Verdict.INEXACT:
                self._look(rule, n, pairs)
            answers.append(self._part(path, start, found, known))
        return answers

    def rows(self, answers: Sequence[Sequence[TopPart]]) -> list[TopRow]:
        """All that was answered, in order, as a row a rule."""
        rows = []
        for i, rule in enumerate(self.rules):
            parts = [answer[i] for answer in answers]
            least = 1 if parts[0].proof is not None else self._least.get(label(rule))
            rows.append(TopRow(rule, rule.verifiable(self.candidates), parts, least))
        return rows

    def _look(self, rule: Rule, n: int, pairs: TopPairs) -> None:
        """Look for lists of this block that decide, shorter than those before: the least is kept."""
        name = label(rule)
        with self._lock:
            before = self._least.get(name)
        found = least_k(pairs, rule, n, None if before is None else before - 1) if before != 1 else None
        if found is not None:
            with self._lock:
                self._least[name] = min(found, self._least.get(name, found))

    def _part(self, path: str, start: int, found: Bounds, known: dict[str, Floats]) -> TopPart:
        inexact = [verdict is Verdict.INEXACT for verdict in found.verdicts]
        over = (
            known["acceptance"][:, 0] > known["limit"][:, 1]
            if "limit" in known
            else np.zeros(len(found), bool)
        )
        return TopPart(
            path, start, len(found),
            {name: values.sum(axis=0) for name, values in known.items()},
            {name: values.max(axis=0) for name, values in known.items()},
            np.diff(known["acceptance"], axis=1)[:, 0].astype(np.float32),
            {verdict: found.verdicts.count(verdict) for verdict in Verdict},
            start + inexact.index(True) if any(inexact) else None,
            start + int(np.argmax(over)) if over.any() else None,
            int(over.sum()),
            found.attained.sum(axis=0),
            known if self.columns else {},
            found.verdicts if self.columns else [],
            found.proof, found.tier, found.tight,
        )  # fmt: skip


def top_records(rows: Sequence[TopRow], measures: Sequence[str]) -> Iterator[dict[str, object]]:
    """One record a position and rule, of the columns that were kept: what ``--csv`` writes."""
    for row in rows:
        for part in row.parts:
            for i, verdict in enumerate(part.verdicts):
                record: dict[str, object] = {
                    "rule": label(row.rule),
                    "candidates": row.candidates,
                    "path": part.path,
                    "position": part.start + i,
                }
                for name in measures:
                    ends = part.columns[name][i].tolist() if name in part.columns else ("", "")
                    record |= {f"{name}_low": ends[0], f"{name}_high": ends[1]}
                yield record | {"verdict": verdict.value}
