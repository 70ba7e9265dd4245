"""Acceptance beside the limits: what no exact rule, and no sequential exact rule, can exceed.

The rows are those of ``kl``, with one column more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from resispec_verify.evidence.enumeration import Budget
from resispec_verify.rules import Rule
from resispec_verify.schema import envelope
from resispec_verify.tables.marginals import Evaluation, evaluate
from resispec_verify.tables.means import known_mean, mean
from resispec_verify.tables.reading import Clock, PairBatch
from resispec_verify.tables.row import Row, label

__all__ = ["add_limits", "limit_records", "limits_report", "summarize_limits"]


def add_limits(
    rows: dict[tuple[str, float], Row],
    rules: tuple[Rule, ...],
    batch: PairBatch,
    candidates: int,
    *,
    budget: Budget | None = None,
) -> None:
    """Append the acceptance and the limits of one batch to ``rows``, keyed by rule label and temperature.

    Parameters
    ----------
    candidates : int
        ``n >= 1``.
    budget : Budget, optional
        For rules that must enumerate; the default is that of ``kl``.

    Raises
    ------
    InputError
        A rule whose candidates must differ, at a position with fewer tokens to draw.
    """
    evaluation = Evaluation(
        rules, candidates, identity=False, budget=budget or Budget(), sequential_limit=True
    )
    found: dict[tuple[str, str], Row] = {}
    evaluate(batch, evaluation, found, clock=Clock())
    for row in found.values():
        rows.setdefault((label(row.rule), row.temperature), row.empty()).extend(row)


def summarize_limits(row: Row) -> dict[str, Any]:
    """One object of ``"results"``; the acceptance is a lower bound where paths were left unexpanded."""
    above = row.above_limit()
    low, high = mean(row.accepted_low), mean(row.accepted_high)
    return {
        "rule": row.rule.name,
        "label": label(row.rule),
        "options": row.rule.options(),
        "temperature": row.temperature,
        "candidates": row.candidates,
        "positions": len(row.position),
        "acceptance_mean": low,
        "acceptance_mean_bounds": [low, high],
        "acceptance_gap_max": max(_gaps(row)),
        "limit_mean": known_mean(row.limit),
        "limit_kind": row.rule.proposal.name,
        "sequential_limit_mean": known_mean(row.sequential_limit),
        "above_limit": len(above),
        "cannot_be_exact": bool(above),
        "witness_position": row.position[above[0]] if above else None,
        "witness_path": (row.source[above[0]] or None) if above else None,
    }


def limits_report(rows: Iterable[Row]) -> dict[str, Any]:
    """The whole report of ``limits``, JSON-ready."""
    return envelope("limits", [summarize_limits(row) for row in rows])


def limit_records(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """One record a position and row: what ``--csv`` writes."""
    records = []
    for row in rows:
        columns = zip(
            row.source, row.position, row.accepted_low, _gaps(row), row.limit, row.sequential_limit,
            strict=True,
        )  # fmt: skip
        records += [
            {
                "rule": label(row.rule),
                "temperature": row.temperature,
                "candidates": row.candidates,
                "path": source,
                "position": position,
                "acceptance": acceptance,
                "gap": gap,
                "limit": "" if limit is None else limit,
                "sequential_limit": "" if sequential is None else sequential,
            }
            for source, position, acceptance, gap, limit, sequential in columns
        ]
    return records


def _gaps(row: Row) -> list[float]:
    """How much more may be accepted than is sure, by position."""
    return [high - low for low, high in zip(row.accepted_low, row.accepted_high, strict=True)]
