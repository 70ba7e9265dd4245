"""Path sums of ResiSpec as printed, where the arrays live: CUDA kernels if they can, else array functions."""

from __future__ import annotations

import functools
from collections.abc import Callable

from array_api_compat import is_cupy_array

from resispec_verify.arrays import Array
from resispec_verify.device import host
from resispec_verify.device.batched_paths import path_sums, shaped_marginals
from resispec_verify.device.launch import CupyDevice
from resispec_verify.kernels.paths.path_sum import PathSum

__all__ = ["sum_where_arrays_live"]


def sum_where_arrays_live(
    target: Array, draft: Array, candidates: int, gap: float, most_paths: float
) -> PathSum:
    """`batched_paths.shaped_marginals`, with the paths of the kernels on CuPy's arrays of few candidates.

    Parameters
    ----------
    target, draft : float64 array (B, V)
    candidates : int
        ``n >= 1``.
    gap : float
        Mass that may stay unexpanded; 0 expands everything.
    most_paths : float
        Budget of path evaluations a row.
    """
    sums = _sums(target, candidates)
    return shaped_marginals(sums, target, draft, candidates, gap=gap, most_paths=most_paths)


def _sums(target: Array, candidates: int) -> Callable[..., PathSum]:
    if is_cupy_array(target) and candidates <= host.MOST_CANDIDATES:
        return functools.partial(host.path_sums, _kernels())
    return path_sums


@functools.lru_cache(maxsize=1)
def _kernels() -> CupyDevice:
    """Compiled at the first launch, once."""
    return CupyDevice()
