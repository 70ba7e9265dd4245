"""Where arrays live: NumPy, torch or CuPy, chosen by name. The only module that moves arrays.

Everything above is written once against the array API standard, so a backend is a namespace and a device.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import is_cupy_array, is_torch_array

from resispec_verify.errors import InputError

__all__ = ["BACKENDS", "Backend", "get_backend", "to_numpy"]

BACKENDS = ("auto", "numpy", "torch", "cupy")


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


def get_backend(name: str = "auto") -> Backend:
    """Look a backend up by name.

    Raises
    ------
    InputError
        The library is not installed, or no device answers. Nothing falls back silently; ``auto`` is NumPy.
    """
    if name in ("auto", "numpy"):
        return Backend("numpy", importlib.import_module("array_api_compat.numpy"))
    if name == "torch":
        try:
            return Backend("torch", importlib.import_module("array_api_compat.torch"), "cpu")
        except ImportError:
            raise InputError(
                "--backend torch: torch is not installed; pip install 'resispec-verify[torch]', or use numpy"
            ) from None
    if name == "cupy":
        return _cupy()
    raise InputError(f"unknown backend {name!r}; choose one of {', '.join(BACKENDS)}")


def _cupy() -> Backend:
    try:
        cupy = importlib.import_module("cupy")
        devices = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # a broken CuPy raises nearly anything, on import or on the first query
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"--backend cupy: no CUDA device answers ({reason}); use --backend numpy") from None
    if devices < 1:
        raise InputError("--backend cupy: CuPy is installed but sees no CUDA device; use --backend numpy")
    return Backend("cupy", importlib.import_module("array_api_compat.cupy"))
