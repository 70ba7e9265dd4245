"""Operational marginals from path sums where the arrays live (`Rule.sum_paths_on_device`).

A batch of positions at a time. What comes out is bounded as on the CPU; other paths are left out, so that
bounds differ within the gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from array_api_compat import array_namespace, device

from resispec_verify.arrays import Array
from resispec_verify.backends import on_cpu, to_numpy
from resispec_verify.evidence.marginal import Marginals, of_path_sum, tv_interval
from resispec_verify.rules.interface import Rule
from resispec_verify.verdict import Verdict, judge_all

__all__ = ["settled_on_device"]


def settled_on_device(
    rule: Rule, target: Array, draft: Array, candidates: int, gaps: Sequence[float], most_paths: float
) -> dict[int, Marginals]:
    """Marginals of single rows ``(1, V)``, by row: those that their own device settles.

    A row is settled where the first gap is reached and the verdict decided, or the last gap is reached. The
    others are left to the CPU, whose path sums need fewer paths: they merge them. On a CPU all are.

    Parameters
    ----------
    target, draft : array (B, V)
        Candidates are drawn from ``draft``.
    candidates : int
        ``n >= 0``.
    gaps : sequence of float
        To be tried one after the other while the verdict is undecided, in descending order.
    most_paths : float
        Path evaluations a row, for each gap.
    """
    settled: dict[int, Marginals] = {}
    if on_cpu(target) or candidates < 1:
        return settled
    xp = array_namespace(target, draft)
    rows, spent = np.arange(target.shape[0]), np.zeros(target.shape[0], np.int64)
    for gap in gaps:
        index = xp.asarray(rows, device=device(target))
        shown = xp.take(target, index, axis=0)
        p, q = (xp.astype(some, xp.float64) for some in (shown, xp.take(draft, index, axis=0)))
        sums = rule.sum_paths_on_device(p, q, candidates, gap, most_paths)
        if sums is None:
            break
        found = of_path_sum(sums, p, q, candidates, gaps[0])
        spent[rows] += found.expansions
        left = to_numpy(found.gap)
        low, high = (to_numpy(v) for v in tv_interval(found, shown))
        verdicts = judge_all(low, high, to_numpy(found.rounding))
        decided = np.asarray([verdict is not Verdict.UNDECIDED for verdict in verdicts])
        done = (left <= gaps[-1]) | ((left <= gaps[0]) & decided)
        for k in np.flatnonzero(done).tolist():
            settled[int(rows[k])] = replace(found.row(k), expansions=[int(spent[rows[k]])])
        rows = rows[~done & (left <= gap)]
        if rows.size == 0:
            break
    return settled
