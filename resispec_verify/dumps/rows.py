"""Rows of logits, wherever they lie: in an array, or in something that yields rows only when asked."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeAlias

import ml_dtypes
import numpy as np

from resispec_verify.dumps.formats.mapped import release
from resispec_verify.errors import InputError

__all__ = [
    "FLOATS",
    "Beside",
    "LazyRows",
    "Picked",
    "Rows",
    "Scattered",
    "Stacked",
    "checked_rows",
    "dtype_names",
    "kept_of",
    "padded",
    "rows_of",
    "widened",
]

FLOATS = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.float64))


class LazyRows:
    """Logits ``[..., vocab]`` of which only the rows asked for are read.

    Attributes
    ----------
    shape : tuple of int
        Leading axes are positions in C order.
    dtype : numpy.dtype
        Type of the values `rows` returns.
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return positions ``start`` to ``stop - 1`` as ``[n, vocab]``."""
        raise NotImplementedError

    def where(self, position: int) -> str:
        """Return where a position lies, for the end of "position 7": a file, a step, or nothing."""
        return ""

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        whole = self.rows(0, math.prod(self.shape[:-1])).reshape(self.shape)
        return whole if dtype is None else whole.astype(dtype)  # type: ignore[call-overload]


Rows: TypeAlias = "np.ndarray | LazyRows"


class Stacked(LazyRows):
    """Parts one after the other along the positions; a part is fetched when one of its rows is needed.

    Parameters
    ----------
    part : callable
        Returns part i, of `dtype` and of width ``shape[-1]``.
    counts : sequence of int
        Positions in each part.
    shape, dtype
        Of the whole.
    name : callable
        ``name(i, row)`` is what `where` says of a row of part i.
    """

    def __init__(
        self,
        part: Callable[[int], Rows],
        counts: Sequence[int],
        shape: tuple[int, ...],
        dtype: np.dtype,
        name: Callable[[int, int], str],
    ) -> None:
        self._part, self._name = part, name
        self._ends = list(accumulate(counts))
        self.shape, self.dtype = shape, dtype

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return positions ``start`` to ``stop - 1``, copied."""
        pieces = []
        while start < stop:
            i, local = self._find(start)
            part = self._part(i)
            until = min(stop, self._ends[i])
            # A copy, so that the pages of a mapped part can be given back before the next part is read.
            pieces.append(np.array(rows_of(part, local, local + until - start)))
            release(part)
            start = until
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def where(self, position: int) -> str:
        """Return the part and the row in it."""
        return self._name(*self._find(position))

    def _find(self, position: int) -> tuple[int, int]:
        i = bisect_right(self._ends, position)
        return i, position - (self._ends[i - 1] if i else 0)


class Scattered(LazyRows):
    """Rows of a reduced vocabulary at their places in the whole one; -inf elsewhere.

    Parameters
    ----------
    inner : Rows
        ``[..., n]``.
    tokens : int64 array (n,)
        Where each column goes; no two to the same place.
    vocab : int
        Width of the whole vocabulary.
    """

    def __init__(self, inner: Rows, tokens: np.ndarray, vocab: int) -> None:
        self.inner, self.tokens = inner, tokens
        self.shape = (*inner.shape[:-1], vocab)
        self.dtype = inner.dtype

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return positions ``start`` to ``stop - 1``."""
        narrow = rows_of(self.inner, start, stop)
        wide = np.full((len(narrow), self.shape[-1]), -np.inf, self.dtype)
        wide[:, self.tokens] = narrow
        release(self.inner)
        return wide

    def where(self, position: int) -> str:
        """Return where the row of the reduced vocabulary lies."""
        return self.inner.where(position) if isinstance(self.inner, LazyRows) else ""


class Picked(LazyRows):
    """Some rows of others, in order.

    Parameters
    ----------
    inner : Rows
        ``[..., vocab]``.
    kept : int array (positions,)
        Which of its positions, ascending.
    """

    def __init__(self, inner: Rows, kept: np.ndarray) -> None:
        self.inner, self.kept = inner, kept
        self.shape, self.dtype = (len(kept), inner.shape[-1]), inner.dtype

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return positions ``start`` to ``stop - 1``, copied."""
        kept = self.kept[start:stop]
        runs = np.split(kept, np.flatnonzero(np.diff(kept) != 1) + 1)
        pieces = [np.array(rows_of(self.inner, int(run[0]), int(run[-1]) + 1)) for run in runs if len(run)]
        release(self.inner)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def where(self, position: int) -> str:
        """Return the row of the file, which is another than the position."""
        row = int(self.kept[position])
        inner = self.inner.where(row) if isinstance(self.inner, LazyRows) else ""
        return inner or f"row {row} of the file"


class Beside(LazyRows):
    """The same positions with their vocabulary in parts, side by side.

    Parameters
    ----------
    part : callable
        Returns part i, of `dtype`.
    count : int
        Parts.
    shape, dtype
        Of the whole.
    """

    def __init__(
        self, part: Callable[[int], Rows], count: int, shape: tuple[int, ...], dtype: np.dtype
    ) -> None:
        self._part, self._count = part, count
        self.shape, self.dtype = shape, dtype

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return positions ``start`` to ``stop - 1``, copied."""
        pieces = []
        for i in range(self._count):
            part = self._part(i)
            pieces.append(np.array(rows_of(part, start, stop)))
            release(part)
        return np.concatenate(pieces, axis=-1)


def kept_of(rows: Rows) -> tuple[np.ndarray, int]:
    """Which positions of the file, or of all parts, these are, and how many it has; no rows are read."""
    if isinstance(rows, Picked):
        kept, stored = kept_of(rows.inner)
        return kept[rows.kept], stored
    if isinstance(rows, Beside):
        return kept_of(rows._part(0))
    if isinstance(rows, Stacked):
        found, at = [], 0
        for i in range(len(rows._ends)):
            kept, stored = kept_of(rows._part(i))
            found.append(kept + at)
            at += stored
        return np.concatenate(found), at
    if isinstance(rows, Scattered):
        return kept_of(rows.inner)
    stored = math.prod(rows.shape[:-1])
    return np.arange(stored), stored


def rows_of(array: Rows, start: int, stop: int) -> np.ndarray:
    """Return positions ``start`` to ``stop - 1`` as ``[n, vocab]``, of the stored type, perhaps a view."""
    if isinstance(array, LazyRows):
        return array.rows(start, stop)
    # Flattening the leading axes of a strided array would copy all of it; this copies the rows asked for.
    if array.ndim == 1:
        return array[None]
    if array.ndim == 2:
        return array[start:stop]
    return array[np.unravel_index(np.arange(start, stop), array.shape[:-1])]


def widened(rows: np.ndarray) -> np.ndarray:
    """Return a fresh, contiguous, native float32 or float64 copy; float16 and bfloat16 widen exactly."""
    if rows.dtype == np.float16 and rows.dtype.isnative:
        # NumPy's own conversion takes two to three times as long where it does not use the processor's.
        return np.take(_HALVES, rows.view(np.uint16))
    wide = np.float64 if rows.dtype.itemsize == 8 else np.float32
    with np.errstate(invalid="ignore"):  # signalling NaNs; they are reported with their position
        return rows.astype(wide, order="C", copy=True)


def padded(rows: np.ndarray, width: int) -> np.ndarray:
    """Return rows ``[n, narrower]`` as ``[n, width]``, with -inf for the tokens that they do not have."""
    if rows.shape[-1] == width:
        return rows
    wide = np.full((len(rows), width), -np.inf, rows.dtype)
    wide[:, : rows.shape[-1]] = rows
    return wide


def dtype_names(*arrays: Rows) -> str:
    """Return the stored type of rows, or those of target and draft, such as ``float16/float32``."""
    return "/".join(dict.fromkeys(getattr(rows, "stored", rows.dtype.name) for rows in arrays))


def checked_rows(
    path: str | os.PathLike[str], key: str, array: Rows, start: int, stop: int, unit: str = "position"
) -> np.ndarray:
    """Return positions ``start`` to ``stop - 1``, widened and checked.

    Parameters
    ----------
    path, key, unit
        Named in errors: "path: key has NaN at unit 3, token 5".

    Raises
    ------
    InputError
        If a row has NaN or +inf, or only -inf.
    """
    rows = widened(rows_of(array, start, stop))
    # What was copied need not stay resident: else a pass over a dump counts all of it as memory in use.
    release(array)
    # One reduction finds all three faults, because NaN propagates through max.
    highest = rows.max(axis=-1)
    bad = np.flatnonzero(~np.isfinite(highest))
    if bad.size:
        row = int(bad[0])
        where = f"{unit} {start + row}{_place(array, start + row)}"
        raise InputError(f"{path}: {_fault(key, where, rows[row], float(highest[row]))}")
    return rows


def _place(array: Rows, position: int) -> str:
    """Where a position lies in the file, in brackets, if it is not simply its row."""
    if isinstance(array, LazyRows):
        place = array.where(position)
        if place or array.ndim <= 2:
            return f" ({place})" if place else ""
    if array.ndim <= 2:
        return ""
    return f" (index {[int(i) for i in np.unravel_index(position, array.shape[:-1])]})"


def _fault(key: str, where: str, row: np.ndarray, highest: float) -> str:
    if highest == -np.inf:
        return f"{key} at {where} is -inf for every token; log logits that allow at least one token"
    value, faulty = ("NaN", np.isnan) if np.isnan(highest) else ("+inf", np.isposinf)
    token = int(np.argmax(faulty(row)))
    return f"{key} has {value} at {where}, token {token}; log finite logits, or leave the position out"


def _halves() -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        table = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    table.flags.writeable = False
    return table


_HALVES = _halves()
