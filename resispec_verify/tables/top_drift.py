"""What holds before each candidate of rules with the standard residual, for every completion of unseen tails.

After i rejections the residual of Eq. 1-2 is ``(p - s_i q)_+ / M(s_i)`` with ``s_0 = 0``,
``s_{i+1} = s_i + M(s_i)`` and ``M(s) = sum (p - s q)_+`` (docs/explanation/top-k-bounds.md). So
candidate i + 1 is looked at with
probability M(s_i), and accepted then with ``1 - M(s_{i+1}) / M(s_i)``; the residual's L1 distance from the
draft is twice what that leaves of 1. M(s_i) is what the rule with i candidates rejects: `topk.bounds` has its
ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resispec_verify.dumps import TopPairs
from resispec_verify.errors import InputError
from resispec_verify.rules import Rule, make_rule
from resispec_verify.schema import envelope, plain
from resispec_verify.tables.row import label
from resispec_verify.tables.top_summary import FORM, top_facts
from resispec_verify.topk import bounds
from resispec_verify.topk.known import proof_of

__all__ = ["TopDrift", "check_standard", "top_drift", "top_drift_records", "top_drift_report"]

_STANDARD = ("speculative", "specinfer")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TopDrift:
    """Sums over some positions of one file; low and high in the last axis, a row a candidate.

    Attributes
    ----------
    positions : int
    looked, accepted, total, limit : float64 array (n, 2)
        P(looked at), P(accepted when looked at), P(one of the first is accepted) and the limit.
    """

    positions: int
    looked: Floats
    accepted: Floats
    total: Floats
    limit: Floats


def check_standard(rules: Sequence[Rule]) -> None:
    """Refuse rules of whose residuals lists say nothing.

    Raises
    ------
    InputError
        Another rule than those of Eq. 1-2.
    """
    for rule in rules:
        if rule.name not in _STANDARD or proof_of(rule) is None:
            raise InputError(
                f"--rule {label(rule)}: what it leaves after a rejection needs whole rows; of top-k files "
                "drift has specinfer and speculative; kl and limits say what else holds"
            )


def top_drift(pairs: TopPairs, candidates: int) -> TopDrift:
    """What holds at a block of positions.

    Raises
    ------
    InputError
        As `bounds`.
    """
    rule, size = make_rule("specinfer"), len(pairs)
    left_before = np.ones((size, 2))  # M(s_0)
    looked, accepted, total, limit = np.empty((4, candidates, 2))
    for i in range(candidates):
        found = bounds(pairs, rule, i + 1)
        left = 1.0 - found.acceptance[:, ::-1]
        left = np.minimum(left, left_before)  # M does not rise
        looked[i], total[i], limit[i] = left_before.sum(0), found.acceptance.sum(0), found.limit.sum(0)
        accepted[i] = _accepted(left_before, left).sum(0)
        left_before = left
    return TopDrift(size, looked, accepted, total, limit)


def _accepted(before: Floats, after: Floats) -> Floats:
    """Ends of ``1 - after/before`` where both lie between theirs, and after is at most before."""
    low = np.where(
        before[:, 0] > 0.0, 1.0 - after[:, 1] / np.where(before[:, 0] > 0.0, before[:, 0], 1.0), 0.0
    )
    high = np.where(
        before[:, 1] > 0.0, 1.0 - after[:, 0] / np.where(before[:, 1] > 0.0, before[:, 1], 1.0), 1.0
    )
    return np.stack([np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)], axis=1)


def top_drift_report(
    rules: Sequence[Rule], candidates: int, parts: Sequence[TopDrift], files: Sequence[Any]
) -> dict[str, Any]:
    """The whole report of ``drift`` on top-k files, JSON-ready: means over positions."""
    count = sum(part.positions for part in parts)
    means = {
        name: np.asarray(
            [
                [math.fsum(getattr(part, name)[i, j] for part in parts) / count for j in range(2)]
                for i in range(candidates)
            ]
        )
        for name in ("looked", "accepted", "total", "limit")
    }
    results = [
        plain(
            {
                "rule": rule.name,
                "label": label(rule),
                "options": rule.options(),
                "candidates": rule.verifiable(candidates),
                "positions": count,
                "index": i + 1,
                "looked_at_bounds": means["looked"][i].tolist(),
                "acceptance_conditional_bounds": means["accepted"][i].tolist(),
                "l1_bounds": (2.0 * (1.0 - means["accepted"][i, ::-1])).tolist(),
                "eal_bounds": (1.0 + means["total"][i]).tolist(),
                "limit_bounds": means["limit"][i].tolist(),
            }
        )
        for rule in rules
        for i in range(rule.verifiable(candidates))
    ]
    return envelope("drift", results, form=FORM, dump=top_facts(files))


def top_drift_records(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The results, flat, as ``--csv`` writes them."""
    records = []
    for result in report["results"]:
        flat: dict[str, Any] = {"rule": result["label"]}
        flat |= {name: result[name] for name in ("candidates", "positions", "index")}
        for name, ends in result.items():
            if name.endswith("_bounds"):
                flat |= {f"{name[:-7]}_low": ends[0], f"{name[:-7]}_high": ends[1]}
        records.append(flat)
    return records
