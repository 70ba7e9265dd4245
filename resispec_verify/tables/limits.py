"""Acceptance beside the limits: what no exact rule, and no sequential exact rule, can exceed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.backends import to_numpy
from resispec_verify.distributions import Pair
from resispec_verify.evidence.enumeration import Budget, operational_marginals
from resispec_verify.kernels.optimal.sequential import levels, overlap
from resispec_verify.rules import Rule
from resispec_verify.rules.proposals import Iid, Proposal
from resispec_verify.tables.distinct import check_support
from resispec_verify.tables.marginals import double, label

__all__ = ["LimitRow", "add_limits"]

_Limits = tuple[list[float | None], list[float | None]]


@dataclass
class LimitRow:
    """One line: a rule at a temperature and a number of candidates; lists have one entry a position.

    ``accepted`` is placed acceptance less its certified error, a lower bound where paths were left
    unexpanded; ``accepted + gap`` is one from above.
    """

    rule: Rule
    temperature: float
    candidates: int
    accepted: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    rounding: list[float] = field(default_factory=list)
    limit: list[float | None] = field(default_factory=list)
    sequential_limit: list[float | None] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    source: list[str] = field(default_factory=list)

    def extend(self, other: LimitRow) -> None:
        """Append the positions of the same row of another dump."""
        for name, values in vars(other).items():
            if isinstance(values, list):
                getattr(self, name).extend(values)

    def above(self) -> list[int]:
        """Indices where the acceptance is above the limit by more than rounding: proof of inexactness."""
        rows = zip(self.accepted, self.limit, self.rounding, strict=True)
        return [i for i, (a, limit, e) in enumerate(rows) if limit is not None and a > limit + 2 * e]

    def result(self) -> dict[str, Any]:
        """The row of ``"results"``."""
        above = self.above()
        return {
            "rule": self.rule.name,
            "options": self.rule.options(),
            "temperature": self.temperature,
            "candidates": self.candidates,
            "positions": len(self.accepted),
            "acceptance_mean": float(np.mean(self.accepted)),
            "acceptance_mean_bounds": [
                float(np.mean(self.accepted)),
                float(np.mean(np.minimum(np.asarray(self.accepted) + self.gap, 1.0))),
            ],
            "acceptance_gap_max": max(self.gap),
            "limit_mean": _mean(self.limit),
            "limit_kind": self.rule.proposal.name,
            "sequential_limit_mean": _mean(self.sequential_limit),
            "above_limit": len(above),
            "cannot_be_exact": bool(above),
            "witness_position": self.position[above[0]] if above else None,
            "witness_path": (self.source[above[0]] or None) if above else None,
        }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def add_limits(
    rows: dict[tuple[str, float], LimitRow],
    rules: tuple[Rule, ...],
    pair: Pair,
    candidates: int,
    *,
    positions: np.ndarray,
    temperature: float = 1.0,
    source: str = "",
    budget: Budget | None = None,
) -> None:
    """Append the acceptance and the limits of one batch to ``rows``, keyed by rule label and temperature.

    An acceptance that rounding puts above 1 is 1.

    Parameters
    ----------
    pair : Pair
        Arrays ``(B, V)``.
    candidates : int
        ``n >= 1``.
    budget : Budget, optional
        For rules that must enumerate; the default stops early, since a lower bound above the limit is proof.

    Raises
    ------
    InputError
        A rule whose candidates must differ, at a position with fewer tokens to draw.
    """
    check_support(rules, candidates, pair, positions, source)
    budget = budget or Budget(gap=1e-2, most_paths=1e6, most_states=200, until_decided=False)
    known: list[tuple[Proposal, int, _Limits]] = []
    for rule in rules:
        n = rule.verifiable(candidates)
        found = operational_marginals(
            rule, pair.target, pair.draft, n, drawn_from=pair.proposal, budget=budget
        )
        # By the proposal itself: two of a user's may have one name.
        limits = next((found for other, m, found in known if m == n and other == rule.proposal), None)
        if limits is None:
            limits = _limits(rule, pair, n, len(positions))
            known.append((rule.proposal, n, limits))
        row = rows.setdefault((label(rule), temperature), LimitRow(rule, temperature, n))
        accepted = to_numpy(found.acceptance).astype(np.float64).sum(axis=-1)
        error = n * np.asarray(found.acceptance_error or 0.0)
        row.accepted += np.clip(accepted - error, 0.0, 1.0).tolist()
        row.gap += (to_numpy(found.gap).astype(np.float64) + 2.0 * error).tolist()
        row.rounding += to_numpy(found.rounding).astype(np.float64).tolist()
        row.limit += limits[0]
        row.sequential_limit += limits[1]
        row.position += positions.tolist()
        row.source += [source] * len(positions)


def _limits(rule: Rule, pair: Pair, n: int, rows: int) -> _Limits:
    """The limit of the rule's own proposal, and of sequential rules where candidates are i.i.d."""
    limit = rule.proposal.limit(double(pair.target), double(pair.drawn_from), n)
    joint: list[float | None] = [None] * rows if limit is None else to_numpy(limit).tolist()
    if not isinstance(rule.proposal, Iid):
        return joint, [None] * rows
    xp = array_namespace(pair.target)
    first = xp.astype(levels(pair.target, pair.drawn_from, n)[..., 0], pair.target.dtype)
    sequential = overlap(pair.target, pair.drawn_from, first)
    return joint, to_numpy(sequential).astype(np.float64).tolist()
