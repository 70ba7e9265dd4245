"""Small values of rounds and trees, checked: whole numbers, token ids, uniforms."""

from __future__ import annotations

import numpy as np

from resispec_verify.dumps.formats.mapped import refuse_repeats
from resispec_verify.dumps.kinds.keys import what as describe
from resispec_verify.dumps.opening import show
from resispec_verify.dumps.rows import FLOATS
from resispec_verify.errors import InputError

__all__ = ["integer", "integers", "no_token", "prompt_name", "uniforms"]


def integer(where: str, value: object, low: int, high: int | None) -> int:
    """Return one whole number: a Python int, or an array with one element.

    Parameters
    ----------
    where : str
        "path: round 3: accepted"; begins errors.
    low, high : int
        Both allowed; `high` of None is no bound.

    Raises
    ------
    InputError
        If it is not a whole number, or outside.
    """
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size == 1:
        value = int(value.reshape(-1)[0])
    if type(value) is not int:
        raise InputError(f"{where} is {_shown(value)}; save a whole number")
    if value < low or (high is not None and value > high):
        bound = f"{low}..{high}" if high is not None else f"{low} and above"
        raise InputError(f"{where} is {show(value)}, outside {bound}; record it again")
    return value


def integers(where: str, value: object, shape: tuple[int, ...] | None, low: int, high: int) -> np.ndarray:
    """Return whole numbers as a new int64 array.

    Parameters
    ----------
    where : str
        Begins errors.
    value : object
        An integer array, or a list of integers; an empty one may be of any type.
    shape : tuple of int or None
        What it must be; None for any one-dimensional shape.
    low, high : int
        Both allowed.

    Raises
    ------
    InputError
        If it is something else, or an element is outside; its index is named.
    """
    if isinstance(value, (list, tuple)) and all(type(item) is int and abs(item) < 2**62 for item in value):
        value = np.asarray(value, np.int64)
    if not isinstance(value, np.ndarray) or (value.size and value.dtype.kind not in "iu"):
        raise InputError(f"{where} is {_shown(value)}; save an integer tensor")
    if value.shape != shape and not (shape is None and value.ndim == 1):
        need = "one-dimensional" if shape is None else list(shape)
        raise InputError(f"{where} is {list(value.shape)}, but must be {need}")
    refuse_repeats(where, value)
    outside = (value < low) | (value > high)
    if value.size and outside.any():
        index = tuple(int(i) for i in np.argwhere(outside)[0])
        shown = index[0] if len(index) == 1 else list(index)
        raise InputError(f"{where}: {value[index]} at {shown} is outside {low}..{high}; record it again")
    return value.astype(np.int64)


def uniforms(where: str, value: object, count: int) -> np.ndarray:
    """Return uniform numbers as a new float64 array ``(count,)``.

    Raises
    ------
    InputError
        If they are not `count` floating-point numbers in [0, 1). A two-byte type may have rounded one to 1.
    """
    if isinstance(value, (list, tuple)) and all(type(item) is float for item in value):
        value = np.asarray(value, np.float64)
    if isinstance(value, float):
        value = np.asarray([value])
    if not isinstance(value, np.ndarray) or value.dtype.newbyteorder("=") not in FLOATS:
        raise InputError(f"{where} is {_shown(value)}; save a floating-point tensor")
    if value.shape != (count,) and not (count == 1 and value.size == 1):
        raise InputError(f"{where} is {list(value.shape)}, but must be {[count]}")
    numbers = value.reshape(-1).astype(np.float64)
    below = numbers <= 1 if value.dtype.itemsize == 2 else numbers < 1
    inside = (numbers >= 0) & below
    if not inside.all():
        i = int(np.argmin(inside))
        raise InputError(f"{where}: {numbers[i]:g} at {i} is outside [0, 1); record the uniforms as float64")
    return numbers


def prompt_name(where: str, value: object) -> int | str | None:
    """A number or a name, which formats of arrays hold as an array of one."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iuU":
        value = value.reshape(-1)[0].item()
    if value is None or (isinstance(value, (int, str)) and not isinstance(value, bool)):
        return value
    raise InputError(f"{where}: prompt is {describe(value)}; save the number of the prompt, or its name")


def no_token(token: object) -> bool:
    """Whether this is the whole number -1: arrays have no other word for no token."""
    if isinstance(token, np.ndarray):
        return token.dtype.kind == "i" and token.size == 1 and int(token.reshape(-1)[0]) == -1
    return type(token) is int and token == -1


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{show(value.dtype.name)} {list(value.shape)}"
    return describe(value)
