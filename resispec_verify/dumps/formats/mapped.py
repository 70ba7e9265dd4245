"""Arrays that are views of a memory-mapped file, and giving their pages back."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import numpy as np

__all__ = ["c_strides", "is_text", "release", "repeats", "view"]

LAST_CODE_POINT = 0x10FFFF
PAGE = mmap.ALLOCATIONGRANULARITY
LARGEST = 2**62
MOST_AXES = 32


def view(
    buffer: mmap.mmap | bytes,
    dtype: np.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    start: int,
    first: int,
    end: int,
) -> np.ndarray:
    """Return a read-only array on bytes ``[start, end)`` of `buffer`, or raise ValueError.

    Every bound is checked in Python's unbounded integers before NumPy sees a number.

    Parameters
    ----------
    buffer : mmap.mmap or bytes
        Read-only memory.
    dtype : numpy.dtype
        Element type, not object.
    shape, strides : tuple of int
        Both in elements; strides of 0 (expanded) and overlapping views are fine, negative ones are not.
    start, end : int
        The bytes the array may touch.
    first : int
        Offset of element ``[0, ..., 0]`` in elements after `start`.
    """
    numbers = (*shape, *strides, first)
    plain = all(type(number) is int and 0 <= number < LARGEST for number in numbers)
    if not plain or len(shape) != len(strides) or len(shape) > MOST_AXES:
        raise ValueError("its shape, strides or offset are not valid")
    if not math.prod(shape):
        empty = np.empty(shape, dtype)
        empty.flags.writeable = False
        return empty
    last = first + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if start + (last + 1) * dtype.itemsize > end:
        needed = (last + 1) * dtype.itemsize
        raise ValueError(f"shape {list(shape)} needs {needed} bytes but its storage has {end - start}")
    steps = tuple(stride * dtype.itemsize for stride in strides)
    return np.ndarray(shape, dtype, buffer, start + first * dtype.itemsize, steps)


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of an array whose last axis varies fastest."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def repeats(array: np.ndarray) -> bool:
    """Return whether an array has more elements than memory: an expanded tensor, or windows that overlap.

    A small file can hold such an array of any size, so nothing may be allocated by its shape.
    """
    reach = sum((size - 1) * abs(stride) for size, stride in zip(array.shape, array.strides, strict=True))
    return array.size > 0 and reach + array.itemsize < array.nbytes


def is_text(array: np.ndarray) -> bool:
    """Return whether a NumPy string array holds Unicode: NumPy makes broken strings of what does not.

    Checks every element, so the array must be no larger than what may be read.
    """
    if array.dtype.kind != "U" or not array.nbytes:
        return True
    whole = np.frombuffer(array.tobytes(), np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
    return bool(whole.max() <= LAST_CODE_POINT)


def release(array: object) -> None:
    """Drop the pages of a file-mapped array from this process; the next access reads them again.

    Pages that were read stay resident, so that one pass over a dump would otherwise count the whole file
    as memory in use. Does nothing for arrays that are not on a read-only map (a writable one may hold what
    is nowhere else), or where the system has no `madvise`.
    """
    if not isinstance(array, np.ndarray):
        return
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED") or not array.size:
        return
    whole = np.frombuffer(base, np.uint8)
    if whole.flags.writeable:
        return
    origin = whole.__array_interface__["data"][0]
    begin = array.__array_interface__["data"][0] - origin
    end = begin + array.itemsize
    for size, stride in zip(array.shape, array.strides, strict=True):
        begin += min(0, (size - 1) * stride)
        end += max(0, (size - 1) * stride)
    begin -= begin % PAGE
    base.madvise(mmap.MADV_DONTNEED, begin, end - begin)
