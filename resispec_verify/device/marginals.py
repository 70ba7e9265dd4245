"""Path sums where the arrays live, for a rule that compiled code sums on a CPU: ResiSpec as printed.

A batch of positions at a time: CUDA kernels on CuPy's arrays where they have room for the candidates, else
array functions. What comes out is bounded as on the CPU; other paths are left out, so that bounds differ
within the gap.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_cupy_array

from resispec_verify import device as gpu
from resispec_verify.backends import on_cpu, to_numpy
from resispec_verify.device.batched_paths import path_sums, shaped_marginals
from resispec_verify.evidence.marginal import Marginals, rounding_bound, tv_interval
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.rules.interface import Rule
from resispec_verify.verdict import Verdict, judge_all

__all__ = ["device_marginals"]


def device_marginals(
    rule: Rule, target: Any, draft: Any, candidates: int, gaps: Sequence[float], most_paths: float
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
        To be tried one after the other while the verdict is undecided.
    most_paths : float
        Path evaluations a row, for each gap.
    """
    settled: dict[int, Marginals] = {}
    if on_cpu(target) or rule.device_paths() != "shaped" or candidates < 1:
        return settled
    xp = array_namespace(target, draft)
    p, q = (xp.astype(rows, xp.float64, copy=False) for rows in (target, draft))
    sums = _sums(target, candidates)
    rows, spent = np.arange(target.shape[0]), np.zeros(target.shape[0])
    for gap in gaps:
        index = xp.asarray(rows, device=device(target))
        some_p, some_q = (xp.take(values, index, axis=0) for values in (p, q))
        found = shaped_marginals(sums, some_p, some_q, candidates, gap=gap, most_paths=most_paths)
        spent[rows] += to_numpy(found.paths)
        # As on the CPU: prefix sums are sequential or shorter, and each path is one more addition.
        roundings = 3.0 * p.shape[-1] + found.paths + 24
        bound = rounding_bound(some_p, some_q, candidates, roundings, float(np.finfo(np.float64).eps))
        first = xp.minimum(some_p, some_q)
        all_rows = Marginals(
            found.mass,
            first,
            found.unexpanded,
            found.acceptance,
            bound,
            expansions=spent[rows].astype(int).tolist(),
            exhausted=[False] * len(rows),
        )
        left = to_numpy(all_rows.gap)
        low, high = (to_numpy(v) for v in tv_interval(all_rows, xp.take(target, index, axis=0)))
        verdicts = judge_all(low, high, to_numpy(bound))
        open_rows = []
        for k, (row, verdict) in enumerate(zip(rows.tolist(), verdicts, strict=True)):
            if left[k] <= gaps[-1] or (left[k] <= gaps[0] and verdict is not Verdict.UNDECIDED):
                settled[row] = _row(all_rows, k)
            elif left[k] <= gap:
                open_rows.append(row)
        rows = np.asarray(open_rows, np.int64)
        if rows.size == 0:
            break
    return settled


def _sums(target: Any, candidates: int) -> Callable[..., PathSum]:
    if is_cupy_array(target) and candidates <= gpu.MOST_CANDIDATES:
        return functools.partial(gpu.path_sums, _kernels())
    return path_sums


@functools.lru_cache(maxsize=1)
def _kernels() -> gpu.CupyDevice:
    """Compiled at the first launch, once."""
    return gpu.CupyDevice()


def _row(marginals: Marginals, k: int) -> Marginals:
    names = ("placed", "first", "unexpanded", "acceptance", "rounding")
    arrays = (getattr(marginals, name)[k : k + 1, ...] for name in names)
    return Marginals(*arrays, expansions=[marginals.expansions[k]], exhausted=[False])
