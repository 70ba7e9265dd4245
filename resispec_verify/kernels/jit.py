"""`numba.njit` with its cache on disk where there is a place for one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
from numba.core import event

__all__ = ["jit", "on_compilation"]


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


class _First(event.Listener):
    """Calls once, from whichever thread compiles first."""

    def __init__(self, say: Callable[[bool], Any]) -> None:
        self.say, self.lock, self.said = say, threading.Lock(), False

    def on_start(self, event: Any) -> None:
        """Numba begins to compile: what it finds in its cache on disk is no such event."""
        with self.lock:
            said, self.said = self.said, True
        if not said:
            self.say(event.data["dispatcher"].stats.cache_path is not None)

    def on_end(self, event: Any) -> None:
        """Nothing."""


@contextmanager
def on_compilation(say: Callable[[bool], Any]) -> Iterator[None]:
    """Have ``say`` called at the first function that is really compiled, with whether it will be cached."""
    with event.install_listener("numba:compile", _First(say)):
        yield
