"""Copies to the device that overlap with computing: two slots, pinned memory, a stream of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from resispec_verify.arrays import Array

__all__ = ["staged"]


def staged(batches: Iterable[tuple[np.ndarray, ...]], cupy: Any) -> Iterator[tuple[Any, ...]]:
    """Copy batches to the device, each while the one before it is computed on.

    Parameters
    ----------
    batches : iterable of tuples of NumPy arrays
        Read one ahead of what is yielded. Later batches have the dtypes of the first, and at most its rows.
    cupy : module

    Yields
    ------
    tuple of CuPy arrays
        Of the same shapes, valid in work put on the current stream until the next batch is asked for.
    """
    computing = cupy.cuda.get_current_stream()
    copying = cupy.cuda.Stream(non_blocking=True)
    slots: list[_Slot] = []
    waiting: _Slot | None = None
    for i, batch in enumerate(batches):
        if len(slots) < 2:
            slots.append(_Slot(batch, cupy))
            copying.wait_event(computing.record())  # the memory may have been in use on that stream
        slot = slots[i % 2]
        slot.fill(batch, copying)
        if waiting is not None:
            yield waiting.ready(computing)
            waiting.computed.record(computing)
        waiting = slot
    if waiting is not None:
        yield waiting.ready(computing)


class _Slot:
    """Room for one batch on both sides, and the two events that guard it."""

    def __init__(self, batch: tuple[np.ndarray, ...], cupy: Any) -> None:
        self.pinned = [
            np.frombuffer(cupy.cuda.alloc_pinned_memory(a.nbytes), a.dtype, math.prod(a.shape)).reshape(
                a.shape
            )
            for a in batch
        ]
        self.arrays = [cupy.empty(a.shape, dtype=a.dtype) for a in batch]
        self.copied, self.computed = cupy.cuda.Event(), cupy.cuda.Event()
        self.rows = 0

    def fill(self, batch: tuple[np.ndarray, ...], copying: Array) -> None:
        """Start copying a batch; returns as soon as the host's part is done."""
        self.copied.synchronize()  # the copy before still reads the pinned memory
        copying.wait_event(self.computed)  # and kernels the device's
        self.rows = len(batch[0])
        for pinned, array, values in zip(self.pinned, self.arrays, batch, strict=True):
            pinned[: self.rows] = values
            array[: self.rows].set(pinned[: self.rows], stream=copying)
        self.copied.record(copying)

    def ready(self, computing: Array) -> tuple[Any, ...]:
        """The batch, for work on ``computing``."""
        computing.wait_event(self.copied)
        return tuple(array[: self.rows] for array in self.arrays)
