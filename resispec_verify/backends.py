"""Where arrays live: NumPy, torch or CuPy, chosen by name. The only module that moves arrays.

Everything above is written once against the array API standard, so a backend is a namespace and a device.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from array_api_compat import device, is_cupy_array, is_numpy_array, is_torch_array

from resispec_verify.errors import InputError

__all__ = ["BACKENDS", "Backend", "BackendName", "add_at", "get_backend", "on_cpu", "to_numpy"]

#: What `get_backend` takes.
BackendName = Literal["auto", "numpy", "torch", "cupy"]
BACKENDS: tuple[str, ...] = get_args(BackendName)


@dataclass(frozen=True)
class Backend:
    """An array namespace and the device its arrays are made on."""

    name: str
    xp: Any
    device: Any = None

    def asarray(self, array: np.ndarray) -> Any:
        """Move a NumPy array to this backend without changing its dtype."""
        if self.name == "numpy":
            return array
        if not array.flags.writeable:  # torch warns about memory it could write to
            array = array.copy()
        return self.xp.asarray(array, device=self.device)


def to_numpy(array: Any) -> np.ndarray:
    """Bring an array of any backend to NumPy; a copy only where it must be."""
    if isinstance(array, np.ndarray):
        return array
    if is_cupy_array(array):
        return array.get()
    if is_torch_array(array):
        return array.detach().cpu().numpy()
    first = array.__array_namespace__().__array_namespace_info__().devices()[0]
    return np.asarray(array.to_device(first))


def on_cpu(array: Any) -> bool:
    """Whether the array lies in the processor's memory, where compiled code can read it."""
    if is_cupy_array(array):
        return False
    if is_numpy_array(array):
        return True
    if is_torch_array(array):
        return array.device.type == "cpu"
    return device(array) == array.__array_namespace__().__array_namespace_info__().devices()[0]


def add_at(array: Any, index: Any, values: Any) -> Any:
    """``array[index[k]] += values[k]`` for every k, also where an index occurs more than once.

    The standard has no such function. On a GPU the additions are atomic, in no fixed order; nothing else of
    the result depends on the library.

    Parameters
    ----------
    array : floating (m,)
        Not to be used afterwards: the result may share its memory.
    index : int64 (k,)
        ``0 <= index < m``.
    values : (k,)
        Of the array's dtype.

    Returns
    -------
    array (m,)
        Of the same library, dtype and device.
    """
    if is_torch_array(array):
        return array.index_add_(0, index, values)
    if is_cupy_array(array) or is_numpy_array(array):
        (importlib.import_module("cupy") if is_cupy_array(array) else np).add.at(array, index, values)
        return array
    total = to_numpy(array).copy()
    np.add.at(total, to_numpy(index), to_numpy(values))
    return array.__array_namespace__().asarray(total, device=device(array))


def get_backend(name: str = "auto") -> Backend:
    """Look a backend up by name.

    Raises
    ------
    InputError
        The library is not installed or does not work, or no device answers. Nothing falls back silently:
        ``auto`` is NumPy, which always works, and does not look for CuPy.
    """
    if name in ("auto", "numpy"):
        return Backend("numpy", importlib.import_module("array_api_compat.numpy"))
    if name == "torch":
        try:
            return Backend("torch", importlib.import_module("array_api_compat.torch"), "cpu")
        except Exception as error:  # a broken installation raises nearly anything
            raise InputError(
                f"--backend torch: looked for torch: {_reason(error)}; "
                "pip install 'resispec-verify[torch]', or use --backend numpy"
            ) from None
    if name == "cupy":
        return _cupy()
    raise InputError(f"unknown backend {name!r}; choose one of {', '.join(BACKENDS)}")


def _cupy() -> Backend:
    """CuPy, of which anything can fail: its import, the driver behind it, the first query of a device."""
    try:
        cupy = importlib.import_module("cupy")
    except Exception as error:
        raise InputError(
            f"--backend cupy: looked for the package cupy: {_reason(error)}; "
            "install the CuPy of your CUDA version, or use --backend numpy"
        ) from None
    try:
        devices = int(cupy.cuda.runtime.getDeviceCount())
        if devices > 0:
            return Backend("cupy", importlib.import_module("array_api_compat.cupy"))
        reason = "there is none"
    except Exception as error:
        reason = _reason(error)
    raise InputError(f"--backend cupy: looked for a CUDA device: {reason}; use --backend numpy")


def _reason(error: Exception) -> str:
    """What an exception says, on one line."""
    return " ".join(str(error).split()) or type(error).__name__
