"""Host code of the kernels in ``replay.cu``: allocation, order of launches, chunks that bound the memory.

Written against a `Device`, so that the tests run the same lines on NumPy arrays with the kernels compiled for
the CPU.

Sums are made in another order than on the CPU, and those made by atomic additions in no fixed one: results
differ between runs in their last digits. All terms are non-negative, so a sum of N of them is off by at most
N - 1 roundings in any order: the bound that `evidence` puts on path sums, which allows one for each path,
holds here too.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.device import batched_paths
from resispec_verify.device.batched_paths import chunks, collected, room_for
from resispec_verify.device.launch import Device
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.residuals import density_ratio
from resispec_verify.kernels.paths.path_sum import PathSum

__all__ = [
    "MOST_CANDIDATES",
    "block_summation_error",
    "path_sums",
    "shaped_marginals",
    "softmax",
    "specinfer_rounds",
]

MOST_ROUNDS = 16  # MAX_ROUNDS of replay.cu
MOST_CANDIDATES = 3  # a path holds at most MAX_HOLES = 2 earlier rejections
_PATH_DOUBLES = 8  # sizeof(Path) / 8
_SHARE = 3  # Path.share, in doubles
_ROW_THREADS, _PATH_THREADS = 1024, 64


def softmax(device: Device, logits: Array, *, temperature: float = 1.0, bfloat16: bool = False) -> Array:
    """Softmax in float64 of rows of logits.

    Parameters
    ----------
    logits : array (B, V) of the device
        float16, float32 or float64; or the bits of bfloat16 as uint16. At least one finite entry a row.
    temperature : float
        ``> 0``.
    bfloat16 : bool
        That uint16 are the bits of bfloat16, which CuPy has no name for.

    Returns
    -------
    float64 array (B, V)

    Raises
    ------
    InputError
        Another dtype, or a temperature that is not positive.
    """
    xp = device.xp
    if not temperature > 0:
        raise InputError(f"temperature must be above 0 on the GPU, got {temperature:g}; use --backend numpy")
    name = "bfloat16" if bfloat16 and logits.dtype == xp.uint16 else str(logits.dtype)
    if name not in ("float16", "bfloat16", "float32", "float64"):
        raise InputError(f"logits have dtype {name}; give float16, bfloat16, float32 or float64")
    rows, vocab = logits.shape
    out = xp.empty((rows, vocab), dtype=xp.float64)
    threads = min(device.most_threads, _ROW_THREADS)
    logits = xp.ascontiguousarray(logits)
    device.launch(f"softmax_{name}", rows, threads, logits, out, np.int64(vocab), np.float64(temperature))
    return out


def block_summation_error(vocab: int, threads: int) -> int:
    """Roundings on the way of one term of a row sum: a thread's own terms, then a tree over the threads."""
    return math.ceil(vocab / threads) + math.ceil(math.log2(threads))


def specinfer_rounds(device: Device, target: Array, draft: Array, rounds: int) -> tuple[Array, Array]:
    """SpecInfer's operational marginal, all rounds of a row in one kernel.

    Parameters
    ----------
    target, draft : float64 array (B, V)
        Of the device.
    rounds : int
        Candidates, ``0 <= rounds <= 16``; 1 is speculative sampling.

    Returns
    -------
    placed : float64 array (B, V)
    accepted : float64 array (B, rounds)
        Probability that candidate ``i + 1`` is the one emitted.

    Raises
    ------
    InputError
        Too many rounds.
    """
    if not 0 <= rounds <= MOST_ROUNDS:
        raise InputError(f"{rounds} candidates on the GPU; give 0 to {MOST_ROUNDS}, or use --backend numpy")
    xp = device.xp
    rows, vocab = target.shape
    target, draft = xp.ascontiguousarray(target), xp.ascontiguousarray(draft)
    placed, accepted = xp.empty_like(target), xp.empty((rows, rounds), dtype=xp.float64)
    threads = min(device.most_threads, _ROW_THREADS)
    sizes = np.int64(vocab), np.int32(rounds)
    device.launch("specinfer_rounds", rows, threads, target, draft, placed, accepted, *sizes)
    return placed, accepted


def path_sums(
    device: Device,
    target: Array,
    draft: Array,
    candidates: int,
    theta: Array = 0.0,
    *,
    room: int | None = None,
) -> PathSum:
    """`batched_paths.path_sums` by the kernels of ``replay.cu``.

    Parameters
    ----------
    target, draft : float64 array (B, V)
        Of the device.
    candidates : int
        ``1 <= n <= 3``.
    theta
        See `batched_paths.path_sums`.
    room : int, optional
        Paths held at once by each number of rejections, at 72 bytes each; at least ``V + 2``.

    Raises
    ------
    InputError
        Another number of candidates, or too little room for one path's rejections.
    """
    rows, vocab = target.shape
    if not 1 <= candidates <= MOST_CANDIDATES:
        raise InputError(f"{candidates} candidates on the GPU; give 1 to 3, or use --backend numpy")
    room = room_for(rows, vocab, MOST_CANDIDATES) if room is None else room
    if room < vocab + 2:
        raise InputError(f"room for {room} paths; a vocabulary of {vocab} needs at least {vocab + 2}")
    return _KernelWalk(device, target, draft, candidates, theta, room).run()


def shaped_marginals(
    device: Device, target: Array, draft: Array, candidates: int, *, gap: float, most_paths: float
) -> PathSum:
    """`batched_paths.shaped_marginals` with the paths of `path_sums`."""
    sums = functools.partial(path_sums, device)
    return batched_paths.shaped_marginals(sums, target, draft, candidates, gap=gap, most_paths=most_paths)


class _KernelWalk:
    """Paths of one batch of rows, one number of rejections after the other."""

    def __init__(
        self, device: Device, target: Array, draft: Array, candidates: int, theta: Array, room: int
    ) -> None:
        xp = device.xp
        self.device, self.xp, self.n, self.room = device, xp, candidates, room
        self.rows, self.vocab = target.shape
        ratio = density_ratio(target, draft)
        self.ranked = xp.argsort(ratio, axis=-1)
        columns = [xp.take_along_axis(values, self.ranked, axis=-1) for values in (ratio, target, draft)]
        self.order = xp.zeros((self.rows, 5, self.vocab + 1), dtype=xp.float64)
        for k, values in enumerate(columns):
            self.order[:, k, :-1] = values
        self.order[:, 3, 1:] = xp.cumsum(columns[2], axis=-1)
        self.order[:, 4, 1:] = xp.cumsum(columns[1], axis=-1)
        self.sums = xp.zeros((self.rows, 3, self.vocab + 1), dtype=xp.float64)
        self.tallies = xp.zeros((self.rows, 3, candidates + 1), dtype=xp.float64)
        theta = np.broadcast_to(np.asarray(theta, np.float64), (self.rows, candidates + 1))
        self.theta = xp.array(theta, order="C")

    def run(self) -> PathSum:
        roots, cost = self._paths(self.rows)
        self._launch("start_paths", self._blocks(self.rows), np.int64(self.rows), roots, cost)
        self._finish(roots, cost, 0)
        return self._collect(roots[:, _SHARE])

    def _finish(self, parents: Array, cost: Array, level: int) -> None:
        """Place everything that extends ``parents``, which reject ``level`` candidates."""
        threads = _ROW_THREADS if level == 0 else _PATH_THREADS
        if level == self.n - 1:
            grid = parents.shape[0], min(self.device.most_threads, threads)
            self._launch("reject_last", grid, parents, np.int64(0))
            return
        costs = to_numpy(cost)
        for first, last in chunks(costs, self.room):
            children, child_cost = self._paths(int(costs[first:last].sum()))
            count = self.xp.zeros(1, dtype=self.xp.int64)
            grid = last - first, min(self.device.most_threads, threads)
            at = np.int64(first), self.theta, np.int32(level)
            self._launch("expand_paths", grid, parents, *at, children, child_cost, count)
            kept = int(count[0])
            if kept == 0:
                continue
            children, child_cost = children[:kept, :], child_cost[:kept]
            self._finish(children, child_cost, level + 1)
            self._launch("close_paths", self._blocks(kept), children, np.int64(kept), parents)

    def _paths(self, count: int) -> tuple[Array, Array]:
        """Room for paths, and for how many rejections each has ahead."""
        return self.xp.empty((count, _PATH_DOUBLES)), self.xp.empty(count, dtype=self.xp.int64)

    def _blocks(self, items: int) -> tuple[int, int]:
        threads = min(self.device.most_threads, 256)
        return math.ceil(items / threads), threads

    def _launch(self, kernel: str, grid: tuple[int, int], *arguments: Any) -> None:
        common = self.order, self.sums, self.tallies, np.int64(self.vocab), np.int32(self.n)
        self.device.launch(kernel, *grid, *common, *arguments)

    def _collect(self, share: Any) -> PathSum:
        sums = (self.sums[:, k, :] for k in range(3))
        mass = collected(self.order[:, 1, :-1], self.order[:, 2, :-1], self.ranked, share, *sums)
        return PathSum(mass, self.tallies[:, 0, : self.n], self.tallies[:, 1, :], self.tallies[:, 2, 0])
