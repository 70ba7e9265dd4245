"""Rows of intervals to the plain dictionaries that ``kl --json`` and ``limits --json`` write of top-k files.

They are reports of their own kind, which ``"form": "top-k"`` says: intervals stand where others have numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from resispec_verify.schema import envelope, plain
from resispec_verify.tables.row import label
from resispec_verify.tables.top_rows import TopRow
from resispec_verify.verdict import Verdict

__all__ = [
    "FORM", "summarize_top", "summarize_top_limits", "top_facts", "top_kl_report",
    "top_limits_report",
]  # fmt: skip

FORM = "top-k"
_LEVELS = {"median": 0.5, "90": 0.9, "99": 0.99}


def summarize_top(row: TopRow) -> dict[str, Any]:
    """One object of ``"results"`` of ``kl``: ends of means over positions, for every completion."""
    first = next((part for part in row.parts if part.inexact is not None), None)
    return plain(
        {
            **_head(row),
            "tv_mean_bounds": _mean(row, "emitted_tv"),
            "tv_max_bounds": _most(row, "emitted_tv"),
            "kl_mean_bounds": _mean(row, "emitted_kl"),
            "kl_max_bounds": _most(row, "emitted_kl"),
            "acceptance_mean_bounds": _mean(row, "acceptance"),
            "acceptance_width": _widths(row),
            "limit_mean_bounds": _mean(row, "limit"),
            "limit_kind": row.rule.proposal.name,
            "verdict": row.verdict,
            "tier": row.parts[0].tier,
            "proof": row.proof,
            "verdict_counts": {v.value: sum(part.counts[v] for part in row.parts) for v in Verdict},
            "inexact_position": None if first is None else first.inexact,
            "inexact_path": None if first is None else first.path,
            "least_k": row.least_k,
            "target_draft_tv_mean_bounds": _mean(row, "tv"),
            "target_draft_kl_mean_bounds": _mean(row, "kl"),
            **_reach(row),
        }
    )


def summarize_top_limits(row: TopRow) -> dict[str, Any]:
    """One object of ``"results"`` of ``limits``: above the limit only what is so for every completion."""
    above = next((part for part in row.parts if part.above is not None), None)
    return plain(
        {
            **_head(row),
            "acceptance_mean_bounds": _mean(row, "acceptance"),
            "acceptance_width": _widths(row),
            "limit_mean_bounds": _mean(row, "limit"),
            "limit_kind": row.rule.proposal.name,
            "sequential_limit_mean_bounds": _mean(row, "sequential_limit"),
            "above_limit": sum(part.many_above for part in row.parts),
            "cannot_be_exact": above is not None,
            "witness_position": None if above is None else above.above,
            "witness_path": None if above is None else above.path,
            **_reach(row),
        }
    )


def top_kl_report(rows: Sequence[TopRow], files: Sequence[Any]) -> dict[str, Any]:
    """The whole report of ``kl`` on top-k files, JSON-ready."""
    results = [summarize_top(row) for row in rows]
    return envelope("kl", results, form=FORM, kl_direction="KL(marginal || target)", dump=top_facts(files))


def top_limits_report(rows: Sequence[TopRow], files: Sequence[Any]) -> dict[str, Any]:
    """The whole report of ``limits`` on top-k files, JSON-ready."""
    return envelope("limits", [summarize_top_limits(row) for row in rows], form=FORM, dump=top_facts(files))


def top_facts(files: Sequence[Any]) -> dict[str, Any]:
    """What the files hold; they have a path, positions, sides with a k, a vocabulary and notes."""
    return {
        "paths": [one.path for one in files],
        "positions": sum(one.positions for one in files),
        "vocab": sorted({one.vocab for one in files if one.vocab is not None}),
        "k": [max(one.target.k for one in files), max(one.draft.k for one in files)],
        "notes": [{"path": one.path, "text": note} for one in files for note in one.notes],
    }


def _head(row: TopRow) -> dict[str, Any]:
    return {
        "rule": row.rule.name,
        "label": label(row.rule),
        "options": row.rule.options(),
        "candidates": row.candidates,
        "positions": row.positions,
    }


def _reach(row: TopRow) -> dict[str, Any]:
    """Where the completions exist between which everything lies, and which ends they attain."""
    hardest, easiest = (int(sum(part.attained[i] for part in row.parts)) for i in range(2))
    return {"hardest_exists": hardest, "easiest_exists": easiest, "tight": row.tight}


def _mean(row: TopRow, measure: str) -> Any:
    """The ends of the mean; None where the measure is not known."""
    if measure not in row.parts[0].sums:
        return None
    ends = ([float(part.sums[measure][i]) for part in row.parts] for i in range(2))
    return [math.inf if any(map(math.isinf, end)) else math.fsum(end) / row.positions for end in ends]


def _most(row: TopRow, measure: str) -> list[float]:
    return [max(float(part.largest[measure][i]) for part in row.parts) for i in range(2)]


def _widths(row: TopRow) -> dict[str, float]:
    """How wide the intervals of the acceptance are."""
    low, high = _mean(row, "acceptance")
    widths = np.concatenate([part.width for part in row.parts])
    levels = np.quantile(widths, list(_LEVELS.values()), method="inverted_cdf")
    return {"mean": high - low, "max": float(widths.max())} | dict(zip(_LEVELS, levels.tolist(), strict=True))
