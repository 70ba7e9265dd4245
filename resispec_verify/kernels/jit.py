"""`numba.njit` with its cache on disk where there is a place for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

__all__ = ["jit"]


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` without the interpreter lock and with NumPy's rules for division.

    Compiled code is cached beside the package or in the user's cache folder. Where neither can be written
    (a read-only container), it is compiled anew in each process.
    """
    options = {"nogil": True, "error_model": "numpy", **options}

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # "no locator available"
            return numba.njit(**options)(function)

    return decorate
