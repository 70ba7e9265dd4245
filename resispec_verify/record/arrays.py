"""What is handed to a recorder, as checked NumPy arrays: tensors of torch, arrays and lists."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from resispec_verify.errors import InputError

__all__ = ["DTYPES", "integers", "logits", "plain", "stored"]

DTYPES: dict[str, np.dtype] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}


def as_array(name: str, value: Any) -> np.ndarray:
    """A NumPy array of anything array-like, torch tensors on any device included."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # NumPy has no such type: its bits go over
            return value.contiguous().view(sys.modules["torch"].int16).numpy().view(ml_dtypes.bfloat16)
        return value.numpy()
    if hasattr(value, "get") and hasattr(value, "device") and not isinstance(value, np.ndarray):
        value = value.get()  # CuPy
    try:
        return np.asarray(value)
    except ValueError:
        raise InputError(f"{name} has rows of different lengths; give one array") from None


def logits(name: str, value: Any, dtype: np.dtype, first: int = 0, *, row: str = "row") -> np.ndarray:
    """Logits ``[V]`` or ``[n, V]`` as ``[n, V]`` in the type they are stored in, checked.

    Parameters
    ----------
    name : str
        Named in errors.
    first : int
        Number of the first row, for errors.
    row : str
        What a row is called there.

    Raises
    ------
    InputError
        Another shape, integers, NaN, +inf, a row of only -inf, or a finite value that `dtype` cannot hold.
    """
    array = as_array(name, value)
    if array.dtype.newbyteorder("=") not in DTYPES.values():
        raise InputError(f"{name} has dtype {array.dtype.name}; logits must be floating-point numbers")
    if array.ndim not in (1, 2) or 0 in array.shape:
        raise InputError(f"{name} has shape {list(array.shape)}; logits must be [V] or [n, V], not empty")
    array = array.reshape(-1, array.shape[-1])
    wide = array.astype(np.float32) if array.dtype.itemsize == 2 else array
    highest = wide.max(axis=-1)
    if not np.isfinite(highest).all():
        at = int(np.argmin(np.isfinite(highest)))
        raise InputError(_fault(name, f"{row} {first + at}", wide[at], float(highest[at])))
    return stored(name, wide, dtype, first, row=row)


def stored(name: str, rows: np.ndarray, dtype: np.dtype, first: int = 0, *, row: str = "row") -> np.ndarray:
    """Rows ``[n, V]`` rounded to the type they are stored in.

    Raises
    ------
    InputError
        If a finite value would become infinite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = rows.astype(dtype, copy=False)
    if dtype.itemsize < rows.dtype.itemsize:
        lost = np.isinf(rounded) & ~np.isinf(rows)
        if lost.any():
            at, token = (int(i) for i in np.argwhere(lost)[0])
            wider = "bfloat16 or float32" if dtype == np.float16 else "float64"
            remedy = f"record with dtype {wider}"
            if rows[at, token] < 0:
                remedy += ", or give -inf for tokens that are masked out"
            raise InputError(
                f"{name} at {row} {first + at}, token {token} is {rows[at, token]:g}, which {dtype.name} "
                f"cannot hold; {remedy}"
            )
    return rounded


def integers(name: str, value: Any, shape: tuple[int | None, ...], vocab: int | None) -> np.ndarray:
    """Token ids of the given shape (None: any length), int64.

    Raises
    ------
    InputError
        Another shape, other than integers, or an id outside ``0..vocab - 1``.
    """
    array = as_array(name, value)
    wanted = "[" + ", ".join("n" if n is None else str(n) for n in shape) + "]"
    fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
    if not fits:
        raise InputError(f"{name} has shape {list(array.shape)}; it must be {wanted}")
    if array.dtype.kind not in "iu" and array.size:
        raise InputError(f"{name} has dtype {array.dtype.name}; token ids must be integers")
    array = array.astype(np.int64)
    if vocab is not None and array.size and not 0 <= array.min() <= array.max() < vocab:
        bad = int(array[(array < 0) | (array >= vocab)][0])
        raise InputError(f"{name} holds token {bad}, which is outside the vocabulary 0..{vocab - 1}")
    return array


def plain(where: str, value: Any) -> Any:
    """A copy with NumPy scalars as Python numbers and tensors as arrays; nothing but plain data.

    Raises
    ------
    InputError
        If anything else is in it; its key is named.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(f"{where}[{key!r}]", entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(f"{where}[{i}]", entry) for i, entry in enumerate(value)]
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        return as_array(where, value)
    raise InputError(f"{where} is a {type(value).__name__}; give numbers, strings, lists, dicts or arrays")


def _fault(name: str, where: str, row: np.ndarray, highest: float) -> str:
    if highest == -np.inf:
        return f"{name} at {where} is -inf for every token; give logits that allow at least one token"
    value, found = ("NaN", np.isnan(row)) if np.isnan(highest) else ("+inf", np.isposinf(row))
    return f"{name} has {value} at {where}, token {int(np.argmax(found))}; record finite logits"
