"""Rows of per-position numbers to the plain dictionaries that ``--json`` writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from resispec_verify.distributions import Sampling
from resispec_verify.schema import envelope, plain
from resispec_verify.tables.against import standard_error
from resispec_verify.tables.means import known_mean, mean
from resispec_verify.tables.reading import Reading
from resispec_verify.tables.row import Row, label
from resispec_verify.verdict import Tier, Verdict

__all__ = ["kl_report", "may_exceed", "position_records", "summarize"]

KL_DIRECTION = "KL(marginal || target)"


def summarize(row: Row, reading: Reading | None = None) -> dict[str, Any]:
    """One object of ``"results"``: means over positions, certified bounds, verdict, and how it was read."""
    operational = row.marginal == "operational"
    worst = max(range(len(row.kl)), key=row.kl.__getitem__)
    result = {
        "rule": row.rule.name,
        "label": label(row.rule),
        "options": row.rule.options(),
        "marginal": row.marginal,
        "temperature": row.temperature,
        "candidates": row.candidates,
        "positions": len(row.kl),
        "dataset": row.dataset,
        **({} if reading is None else {"reading": _laws(row, reading)}),
        "kl_mean": mean(row.kl),
        "kl_max": max(row.kl),
        "tv_mean": mean(row.tv),
        "tv_max": max(row.tv),
        "gap_max": max(row.gap),
        "kl_mean_bounds": [mean(ends) for ends in zip(*row.certified_kl(), strict=True)],
        "tv_mean_bounds": [mean(ends) for ends in zip(*row.certified_tv(), strict=True)],
        "acceptance": [mean(column) for column in zip(*row.acceptance, strict=True)] if operational else None,
        "limit_mean": known_mean(row.limit),
        "limit_kind": row.rule.proposal.name,
        "verdict": row.overall(),
        "worst_position": row.position[worst],
        "worst_path": row.source[worst] or None,
        "expansions": sum(row.expansions) if operational else None,
    }
    if operational:
        result |= _operational_details(row)
        result |= {} if row.until is None else {"until": row.until}
    elif row.rule.budget_holds() is not None:
        result |= {"capped_budgets": row.capped, "proxy_excess_max": row.proxy_excess}
    if row.kl_printed:
        result["kl_as_printed_mean"] = mean(row.kl_printed)
        result["kl_as_printed_max"] = max(map(abs, row.kl_printed))
    return plain(result)


def _laws(row: Row, reading: Reading) -> dict[str, Any]:
    """How rows became laws: all that makes them others at the same temperature."""
    samplings = sorted(row.samplings, key=lambda one: json.dumps(_settings(one), sort_keys=True))
    declared = [one.draft_sampling for one in samplings]
    drawn = [reading.proposal_sampling(one) or one for one in declared]
    return {
        "sampling": [_settings(one) for one in samplings],
        "proposal": None if drawn == declared else [_settings(one) for one in drawn],
        "input": reading.kind or "logits",
        "precision": reading.precision,
    }


def _settings(sampling: Sampling) -> dict[str, Any]:
    """The temperature, and what does something."""
    idle = {"top_p": 1.0, "min_p": 0.0}
    found = {name: value for name, value in sampling.plain().items() if value != idle.get(name)}
    if found.keys() <= {"temperature", "order"}:  # of one step there is one order
        found = {}
    return plain({"temperature": sampling.temperature, **found})


def _operational_details(row: Row) -> dict[str, Any]:
    above = row.above_limit()
    off = max(range(len(row.off_support)), key=row.off_support.__getitem__)
    silent = max(range(len(row.never_emitted)), key=row.never_emitted.__getitem__)
    return {
        "tier": Tier.CERTIFIED,
        "rounding_max": max(row.rounding),
        "standard_errors": {
            "tv": standard_error(row.tv),
            "acceptance": standard_error([sum(each) for each in row.acceptance]),
            "limit": standard_error(row.limit),
        },
        "verdict_counts": {v.value: row.verdict.count(v) for v in Verdict},
        "positions_undecidable": len(row.undecidable()),
        "positions_over_budget": sum(row.exhausted),
        "acceptance_total_bounds": [mean(ends) for ends in zip(*row.certified_acceptance(), strict=True)],
        "positions_above_limit": len(above),
        "above_limit_position": row.position[above[0]] if above else None,
        "support_violation": None
        if row.off_support[off] <= 0
        else {
            "position": row.position[off],
            "token": row.off_support_token[off],
            "mass": row.off_support[off],
        },
        "never_emitted": None
        if row.never_emitted[silent] <= row.rounding[silent]
        else {
            "position": row.position[silent],
            "target_mass": row.never_emitted[silent],
            "tokens": row.never_emitted_tokens[silent],
        },
    }


def kl_report(
    rows: Iterable[Row], reading: Reading, dump: Mapping[str, Any], seconds: Mapping[str, float]
) -> dict[str, Any]:
    """The whole report of ``kl``, JSON-ready."""
    return envelope(
        "kl",
        [summarize(row, reading) for row in rows],
        kl_direction=KL_DIRECTION,
        dump=dump,
        seconds={phase: round(s, 6) for phase, s in seconds.items()},
    )


def may_exceed(row: Row, most: float | None) -> bool:
    """Whether the total variation may exceed ``most`` anywhere; a demand of 0 is met by an exact rule."""
    if most is None or row.marginal != "operational":
        return False
    rows = zip(row.certified_tv(), row.verdict, strict=True)
    return any(high > most and verdict is not Verdict.EXACT for (_, high), verdict in rows)


def position_records(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """One record a position and row: what ``--csv`` writes and ``--plot`` draws."""
    return [record for row in rows for record in row.records()]
