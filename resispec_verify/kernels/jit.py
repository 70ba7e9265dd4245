"""`numba.njit` at the first use of a function, with its cache on disk where there is a place for one.

Numba takes longer to import than most commands take to run, and small laws need no compiled code at all:
inside `uncompiled`, what has an array source is computed by that.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Kernel", "inline", "jit", "may_compile", "on_compilation", "uncompiled"]

_lock = threading.RLock()
_told: list[_First] = []  # who is to be told of the first compilation
_listening: list[Any] = []  # numba's listener, once numba is there
_without: list[object] = []  # the open contexts of `uncompiled`


class Kernel:
    """A function that is handed to numba when it is first called, or first met in a function that is.

    All that numba asks of a dispatcher is answered by the one behind it.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], cache: bool) -> None:
        functools.update_wrapper(self, function)
        self.options, self.cache = options, cache

    @functools.cached_property
    def dispatcher(self) -> Any:
        """Numba's own."""
        with _lock:
            njit = _numba().njit
            try:
                return njit(cache=self.cache, **self.options)(self.__wrapped__)
            except RuntimeError:  # "no locator available"
                return njit(**self.options)(self.__wrapped__)

    def __call__(self, *arguments: Any) -> Any:
        """What the compiled function returns."""
        return self.dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dispatcher, name)


def jit(*, inner: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` without the interpreter lock and with NumPy's rules for division.

    Compiled code is cached beside the package or in the user's cache folder. Where neither can be written
    (a read-only container), it is compiled anew in each process.

    Parameters
    ----------
    inner : bool
        Only compiled functions call it: the part that takes Python's arguments apart is not compiled.
    **options
        Numba's.
    """
    plain = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "no_cpython_wrapper": inner}
    options = {**plain, **options}
    return lambda function: Kernel(function, options, True)


def inline(function: Callable[..., Any]) -> Any:
    """A function that becomes part of each compiled one that calls it."""
    return Kernel(function, {"inline": "always"}, False)


def _numba() -> Any:
    """Numba; those who wait to be told of compilations are told from now on."""
    import numba
    from numba.core import event

    class Listener(event.Listener):
        """Numba begins to compile: what it finds in its cache on disk is no such event."""

        def on_start(self, event: Any) -> None:
            for first in tuple(_told):
                first(event.data["dispatcher"].stats.cache_path is not None)

        def on_end(self, event: Any) -> None:
            """Nothing."""

    with _lock:
        if not _listening:
            _listening.append(Listener())
            event.register("numba:compile", _listening[0])
    return numba


class _First:
    """Calls once, from whichever thread compiles first."""

    def __init__(self, say: Callable[[bool], Any]) -> None:
        self.say, self.said = say, False

    def __call__(self, cached: bool) -> None:
        with _lock:
            said, self.said = self.said, True
        if not said:
            self.say(cached)


@contextmanager
def on_compilation(say: Callable[[bool], Any]) -> Iterator[None]:
    """Have ``say`` called at the first function that is really compiled, with whether it will be cached."""
    if "numba" in sys.modules:
        _numba()
    first = _First(say)
    _told.append(first)
    try:
        yield
    finally:
        _told.remove(first)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Take array sources in the place of compiled code, in this process: for laws of a few tokens."""
    here = object()
    _without.append(here)
    try:
        yield
    finally:
        _without.remove(here)


def may_compile() -> bool:
    """Whether a function that has an array source may take its compiled one."""
    return not _without
