"""The array libraries that everything is run on, and what "one result" means.

The right value is NumPy's on the same input; libraries may differ by rounding only, so each comparison has
the derived bound of what is compared. Libraries on a GPU carry the marker `gpu`; they are
collected where there is one.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from array_api_compat import array_namespace, device, is_cupy_array, is_torch_array
from devices import cuda_is_collected

from resispec_verify.backends import get_backend
from resispec_verify.errors import InputError

VOCAB, ROWS = 6, 3


@dataclass(frozen=True)
class Library:
    """An array library, and the device its arrays are made on."""

    name: str
    module: str
    place: str | None = None
    read_only: bool = False
    gpu: bool = False

    def array(self, values: Any, dtype: str | None = None) -> Any:
        values = np.array(values, dtype=dtype)
        if self.module == "numpy":
            values.flags.writeable = not self.read_only
            return values
        xp = importlib.import_module(self.module)
        if self.place is None:
            return xp.asarray(values)
        return xp.asarray(values, device=xp.device(self.place) if self.gpu else xp.Device(self.place))

    def needed(self) -> None:
        """Skip, with a reason, where the library or its device is not there."""
        if self.module == "cupy":
            try:
                get_backend("cupy")
            except InputError as error:
                pytest.skip(str(error))
        elif self.module != "numpy":
            module = pytest.importorskip(self.module)
            if self.gpu and not module.cuda.is_available():
                pytest.skip("torch sees no CUDA device")


LIBRARIES = [
    Library("numpy", "numpy"),
    Library("read-only", "numpy", read_only=True),
    Library("strict", "array_api_strict"),
    # Memory that NumPy cannot read, like a GPU's: nothing may move there or back behind the caller's back.
    Library("strict, another device", "array_api_strict", place="device1"),
    Library("torch", "torch"),
    Library("cupy", "cupy", gpu=True),
    Library("torch-cuda", "torch", place="cuda", gpu=True),
]


def settings(*left_out: str) -> list[Any]:
    """Parameters (library, dtype) for all libraries that are here, but the named ones."""
    # In float64 only: read-only rows, which compile every kernel again, and strict arrays on the processor.
    # These take the way that torch's take in both types, and strict arrays elsewhere do not mix types either.
    return [
        pytest.param(
            (library, dtype),
            id=f"{library.name}-{dtype}",
            marks=[pytest.mark.gpu] if library.gpu else [],
        )
        for library in LIBRARIES
        for dtype in ("float64", "float32")
        if library.name not in left_out
        and (dtype == "float64" or library.name not in ("read-only", "strict"))
        if cuda_is_collected() or not library.gpu
    ]


def to_numpy(array: Any) -> np.ndarray:
    """Back to NumPy, from memory that it cannot read too."""
    if isinstance(array, np.ndarray):
        return array
    if is_cupy_array(array):
        return array.get()
    if is_torch_array(array):
        return array.cpu().numpy()
    xp = array_namespace(array)
    if "array_api_strict" in xp.__name__:
        array = xp.asarray(array, device=xp.Device("CPU_DEVICE"))
    return np.from_dlpack(array)


def eps(dtype: str) -> float:
    return float(np.finfo(dtype).eps)


def pair(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Sixty-fourths: exact in either precision, with zeros on both sides, a tie, and a row with p = q."""
    target = np.array([[20, 4, 8, 0, 16, 16], [1, 1, 1, 1, 0, 60], [12, 12, 12, 12, 12, 4]]) / 64
    draft = np.array([[4, 20, 8, 16, 16, 0], [16, 16, 16, 0, 8, 8], [12, 12, 12, 12, 12, 4]]) / 64
    return target.astype(dtype), draft.astype(dtype)


def logits(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((ROWS, VOCAB)) * 3
    rows[0, 2] = -np.inf
    rows[1, 1] = rows[1, 4] = rows[1].max()  # a tie for the best
    return rows.astype(dtype)


def check_like(result: Any, like: Any, *, same_dtype: bool = True) -> None:
    assert array_namespace(result) is array_namespace(like)
    assert device(result) == device(like)
    if same_dtype:
        assert result.dtype == like.dtype


def assert_close(result: Any, right: np.ndarray, bound: float) -> None:
    computed, right = to_numpy(result), np.asarray(right)
    assert computed.shape == right.shape
    np.testing.assert_array_equal(np.isinf(computed), np.isinf(right))
    finite = np.isfinite(right)
    error = np.abs(computed[finite].astype(np.float64) - right[finite].astype(np.float64))
    assert error.size == 0 or float(error.max()) <= bound


class Unchanged:
    """Inputs that must be the same, bit for bit, after the block."""

    def __init__(self, *arrays: Any) -> None:
        self.arrays = arrays

    def __enter__(self) -> None:
        self.before = [to_numpy(array).copy() for array in self.arrays]

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is None:
            for array, before in zip(self.arrays, self.before, strict=True):
                np.testing.assert_array_equal(to_numpy(array), before)
