"""What a public function of Python is handed, checked: arrays, laws, tokens, counts.

The command line checks files and options; this is the same for callers from Python. A check costs two passes
over each row, and is made once, where a value comes in: the functions behind the public ones trust their
arguments, and call each other.
"""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_numpy_array, is_torch_array

from resispec_verify.backends import to_numpy
from resispec_verify.errors import InputError

__all__ = ["MOST_CANDIDATES", "SUM_TOLERANCE", "arrays", "laws", "logits", "real", "token_ids", "whole"]

MOST_CANDIDATES = 1000  # far beyond any engine; more is a slip of the keyboard
# Probabilities in double precision may miss 1 by this much; they are never renormalised.
SUM_TOLERANCE = 1e-9
_OPTIONAL = {"proposal", "drawn_from"}
FLOAT32 = float(np.finfo(np.float32).eps)


def whole(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """A whole number in a range; a bool, a float or a text is none."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InputError(f"{name} must be a whole number, got {shown(value)}")
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"in {least}..{most}"
        raise InputError(f"{name} must be {bounds}, got {value}")
    return int(value)


def real(name: str, value: Any) -> float:
    """A real number, or NaN; a bool or a text is none."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise InputError(f"{name} must be a number, got {shown(value)}")
    return value  # type: ignore[return-value]


def shown(value: Any) -> str:
    """A value in a message: short, and on one line."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"a {type(value).__name__}"


class _Given(NamedTuple):
    """One argument: as an array that the engines take, and how exactly the type that it came in counts.

    Attributes
    ----------
    array : array
        float32 or float64.
    eps, least : float
        Machine epsilon and least positive number of the type that it came in.
    ready : bool
        Whether it came as an array, of a library and on a device.
    """

    array: Any
    eps: float
    least: float
    ready: bool


def arrays(**values: Any) -> dict[str, Any]:
    """Real arrays of one library on one device, float32 or float64; a proposal of None is left out.

    Lists become arrays of the library of the others, and whole numbers float64. Narrower floats (float16,
    bfloat16) become float64: the engines have no kernels for them.

    Raises
    ------
    InputError
        No real numbers, or different libraries or devices; names the argument.
    """
    return {name: given.array for name, given in _together(values).items()}


def _together(values: dict[str, Any]) -> dict[str, _Given]:
    missing = [name for name, value in values.items() if value is None and name not in _OPTIONAL]
    if missing:
        raise InputError(f"{missing[0]} must be an array, got None")
    found = {name: _given(name, value) for name, value in values.items() if value is not None}
    ready = {name: given.array for name, given in found.items() if given.ready}
    if not ready:
        return found
    first, like = next(iter(ready.items()))
    xp, at = array_namespace(like), device(like)
    for name, array in ready.items():
        _check_place(name, array, first, like)
    return {
        name: given if given.ready else given._replace(array=xp.asarray(given.array, device=at))
        for name, given in found.items()
    }


def _check_place(name: str, array: Any, first: str, like: Any) -> None:
    """Two arrays of one library, on one device."""
    if array_namespace(array) is not array_namespace(like):
        raise InputError(
            f"{first} is an array of {_library(like)} and {name} of {_library(array)}; convert one of them"
        )
    if device(array) != device(like):
        raise InputError(
            f"{first} is on device {device(like)} and {name} on {device(array)}; move one of them"
        )


def laws(*, dimensions: int | None = None, **values: Any) -> dict[str, Any]:
    """Probabilities of one shape, the vocabulary last, as `arrays` gives them.

    Each row is finite, not negative, and sums to 1: within 1e-9 in double precision, and else within what
    rounding to the type that it came in can do. Only what came in half precision is normalised, for its rows
    miss 1 by more than a verdict can bear; what others miss is part of the rounding bound.

    Parameters
    ----------
    dimensions : int, optional
        1 for ``(V,)``, 2 for ``(rows, V)``.

    Raises
    ------
    InputError
        Names the argument, the row and the token.
    """
    together = _together(values)
    _check_shapes({name: given.array for name, given in together.items()}, dimensions)
    found = {}
    for name, (array, eps, least, _) in together.items():
        tolerance = _tolerance(eps, least, array.shape[-1])
        xp = array_namespace(array)
        total = xp.sum(array, axis=-1, keepdims=True)
        # NaN fails both comparisons.
        good = (xp.min(array, axis=-1, keepdims=True) >= 0) & (xp.abs(total - 1.0) <= tolerance)
        if not bool(xp.all(good)):
            raise _bad_law(name, to_numpy(array), tolerance)
        found[name] = array / total if eps > FLOAT32 else array
    if len({str(array.dtype) for array in found.values()}) > 1:
        found = {name: array_namespace(a).astype(a, array_namespace(a).float64) for name, a in found.items()}
    return found


def _tolerance(eps: float, least: float, vocab: int) -> float:
    """How far a row of probabilities may sum from 1, given the type it is stored in.

    In double precision `SUM_TOLERANCE`, far above rounding. A softmax in single precision divides by a sum
    that passed through ``128 + log2(V)`` additions, and rounds a few times besides; whatever a narrower type
    is computed from has that error, and then each entry is rounded by half a unit in the last place, or by
    half of the least positive number where that is more.
    """
    if eps < FLOAT32:
        return SUM_TOLERANCE
    computed = (136 + math.log2(max(vocab, 2))) * FLOAT32
    return computed + (0.5 * eps + 0.5 * vocab * least if eps > FLOAT32 else 0.0)


def _bad_law(name: str, rows: np.ndarray, tolerance: float) -> InputError:
    flat = rows.reshape(-1, rows.shape[-1])
    possible = np.isfinite(flat) & (flat >= 0)
    totals = flat.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        good = possible.all(axis=-1) & (np.abs(totals - 1.0) <= tolerance)
    i = int(np.argmin(good))
    where = name if rows.ndim == 1 else f"{name}, row {i}"
    if not possible[i].all():
        x = int(np.argmin(possible[i]))
        return InputError(
            f"{where}: token {x} has probability {flat[i, x]:g}; probabilities must be finite and "
            "non-negative (logits go through pair_from_logits)"
        )
    return InputError(
        f"{where}: probabilities sum to {totals[i]:.12g}, not 1 (tolerance {tolerance:.2g}); divide each row "
        "by its sum if that is what you mean (logits go through pair_from_logits)"
    )


def logits(**values: Any) -> dict[str, Any]:
    """Logits ``(..., V)`` of one shape, as `arrays` gives them.

    Raises
    ------
    InputError
        NaN, +inf, or a row without a finite entry; the row and the token are named.
    """
    found = arrays(**values)
    _check_shapes(found, None, rows=0)
    for name, array in found.items():
        xp = array_namespace(array)
        if not bool(xp.all(xp.isfinite(xp.max(array, axis=-1)))):
            raise _bad_logits(name, to_numpy(array))
    return found


def _bad_logits(name: str, rows: np.ndarray) -> InputError:
    flat = rows.reshape(-1, rows.shape[-1])
    highest = flat.max(axis=-1)
    i = int(np.argmin(np.isfinite(highest)))
    where = name if rows.ndim == 1 else f"{name}, row {i}"
    if highest[i] == -np.inf:
        return InputError(f"{where}: every logit is -inf; at least one token must be possible")
    x = int(np.argmax(np.isnan(flat[i]) | (flat[i] == np.inf)))
    return InputError(f"{where}: the logit of token {x} is {flat[i, x]:g}; logits must be finite or -inf")


def token_ids(name: str, value: Any, vocab: int, shape: tuple[int | None, ...], like: Any) -> Any:
    """Integers in ``0..vocab - 1`` of a shape (None: any length), where the array ``like`` is.

    Raises
    ------
    InputError
        Floats, another shape, or a token outside the vocabulary; the row is named.
    """
    xp = array_namespace(like)
    if _is_array(value):
        _check_place(name, value, "target", like)
    else:
        value = _plain(name, value)
        value = xp.asarray(value if value.size else value.astype(np.int64), device=device(like))
    if not xp.isdtype(value.dtype, "integral"):
        raise InputError(f"{name} must hold whole numbers, token ids; it has dtype {value.dtype}")
    fits = value.ndim == len(shape)
    if not (fits and all(n is None or n == m for n, m in zip(shape, value.shape, strict=True))):
        wanted = ", ".join("n" if n is None else str(n) for n in shape)
        raise InputError(f"{name} must have shape ({wanted}), got {tuple(value.shape)}")
    outside = (value < 0) | (value >= vocab)
    if bool(xp.any(outside)):
        rows = to_numpy(value).reshape(-1, value.shape[-1] if value.ndim else 1)
        i = int(np.argmax(((rows < 0) | (rows >= vocab)).any(axis=-1)))
        bad = int(rows[i][(rows[i] < 0) | (rows[i] >= vocab)][0])
        raise InputError(f"{name}, row {i}: token {bad} is outside the vocabulary 0..{vocab - 1}")
    return value


def _check_shapes(found: dict[str, Any], dimensions: int | None, *, rows: int = 1) -> None:
    """One shape, of so many dimensions (None: at least 1), with tokens and at least so many rows."""
    first, like = next(iter(found.items()))
    for name, array in found.items():
        shape = tuple(array.shape)
        if array.ndim < 1 or (dimensions is not None and array.ndim != dimensions):
            wanted = {1: "(V,)", 2: "(rows, V)"}.get(dimensions or 0, "(..., V)")
            remedy = f"; for one row give {name}[None]" if dimensions == 2 and array.ndim == 1 else ""
            remedy = (
                f"; give {name}.reshape(-1, {shape[-1]})" if dimensions == 2 and array.ndim > 2 else remedy
            )
            raise InputError(f"{name} must have shape {wanted}, got {shape}{remedy}")
        if shape[-1] == 0 or (rows and 0 in shape):
            what = "tokens" if shape[-1] == 0 else "rows"
            raise InputError(f"{name} has no {what}: its shape is {shape}; give at least one")
        if shape != tuple(like.shape):
            raise InputError(
                f"{first} has shape {tuple(like.shape)} but {name} has {shape}; they must match: "
                f"{_matching(name, shape, tuple(like.shape))}"
            )


def _matching(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """What to give instead of an array of another shape."""
    if shape[-1] == wanted[-1] and math.prod(shape) == math.prod(wanted):
        return f"if its rows are the same positions in the same order, give {name}.reshape{wanted}"
    if len(shape) == len(wanted) == 2 and shape == wanted[::-1]:
        return "give both as (rows, V); one has its axes the wrong way round, and .T turns them"
    return "give the same rows, over the same vocabulary, of both"


def _given(name: str, value: Any) -> _Given:
    """One argument as a real array, float32 or float64, of the library it came in."""
    ready = _is_array(value)
    if not ready or is_numpy_array(value):
        value = _plain(name, value)
        if value.dtype.kind in "fV":
            info = ml_dtypes.finfo(value.dtype)  # knows NumPy's own types as well
            wide = value if value.dtype in (np.float64, np.float32) else value.astype(np.float64)
            return _Given(wide, float(info.eps), float(info.smallest_subnormal), ready)
    elif is_torch_array(value):
        if value.layout != array_namespace(value).strided:
            raise InputError(f"{name} is a sparse tensor; give a dense one, {name}.to_dense()")
        value = value.detach()
    xp = array_namespace(value)
    if xp.isdtype(value.dtype, "bool") or xp.isdtype(value.dtype, "complex floating"):
        raise InputError(f"{name} must hold real numbers; it has dtype {value.dtype}")
    if xp.isdtype(value.dtype, "integral"):
        return _Given(xp.astype(value, xp.float64), float(np.finfo(np.float64).eps), 0.0, ready)
    info = xp.finfo(value.dtype)
    least = float(getattr(info, "smallest_normal", info.min)) * float(info.eps)
    kept = value.dtype == xp.float64 or value.dtype == xp.float32
    return _Given(value if kept else xp.astype(value, xp.float64), float(info.eps), max(least, 0.0), ready)


def _plain(name: str, value: Any) -> np.ndarray:
    """A NumPy array of numbers, of anything that is one or becomes one without being misread."""
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{name} is a masked array; fill in what is masked, {name}.filled(...)")
    try:
        array = np.asarray(value)
        if array.dtype.kind == "O" and array.size:
            items = array.reshape(-1)
            if not all(isinstance(x, numbers.Real) and not isinstance(x, bool) for x in items):
                raise TypeError(f"it holds a {next(type(x).__name__ for x in items if not _number(x))}")
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        reason = "rows differ in length" if "inhomogeneous" in reason else reason[:100]
        raise InputError(f"{name} is no array of numbers ({reason}); give rows of equal length") from None
    narrow = (
        array.dtype.kind == "V" and array.dtype.names is None and array.dtype.name.startswith(("bf", "fl"))
    )
    if array.dtype.kind not in "biufc" and not narrow:
        raise InputError(f"{name} is no array of numbers: {shown(value)}; give rows of probabilities")
    return array


def _is_array(value: Any) -> bool:
    """Of a library that the engines know, and so on a device; a list is none."""
    return is_array_api_obj(value)


def _number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _library(array: Any) -> str:
    return type(array).__module__.partition(".")[0]
