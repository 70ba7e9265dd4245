"""Calling samplers from outside: copies of the inputs, checked outputs, a time limit."""

from __future__ import annotations

import contextvars
import math
import os
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from array_api_compat import is_cupy_array, is_torch_array

from resispec_verify.backends import to_numpy
from resispec_verify.rules.foreign import muted, reason_of
from resispec_verify.sampler_check.exits import ProcessExit, no_exit

__all__ = ["Caller", "SamplerError", "SamplerHangs", "tokens_of"]

T = TypeVar("T")
# Where installed code lies, and this package.
_LIBRARIES = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")}
    | {str(Path(__file__).parents[1]) + os.sep}
)


class SamplerError(Exception):
    """The sampler did not do what a sampler does; the message says what."""


class SamplerHangs(SamplerError):
    """A call did not return; it goes on beside the run, so that no other is made."""


class Caller:
    """Runs a sampler under guard.

    Parameters
    ----------
    sampler : callable
    limit : float
        Seconds one call may take.
    called_as : str
        How it is called, in words, for a sampler that takes other arguments.

    Attributes
    ----------
    until : float
        When the run is to end, by `time.monotonic`; never, unless set.
    notes : list of str
        What was odd, without being the end.
    calls : int
    """

    def __init__(self, sampler: Callable[..., Any], limit: float, called_as: str = "") -> None:
        self.called_as = called_as
        self.sampler, self.limit, self.until = sampler, limit, math.inf
        self.notes: list[str] = []
        self.calls = 0
        self._started: float | None = None
        self._process = os.getpid()

    @property
    def late(self) -> bool:
        """Whether the time of the run is over."""
        return time.monotonic() >= self.until

    def note(self, text: str) -> None:
        """Remember an oddity, once."""
        if text not in self.notes:
            self.notes.append(text)

    def call(self, *arguments: Any) -> Any:
        """One call, inside of `run`; what it raises is a `SamplerError`, exits included."""
        self.calls += 1
        self._started = time.monotonic()
        try:
            with np.errstate(all="ignore"):
                return _fetched(self.sampler(*arguments))
        except ProcessExit as error:
            raise SamplerError(f"called {error}{self._place(error)}") from None
        except BaseException as error:
            raise SamplerError(f"raised {reason_of(error)}{self._place(error)}") from None
        finally:
            self._started = None
            if os.getpid() != self._process:
                os._exit(1)  # a fork that came out of the sampler must not go on with the run

    def _place(self, error: BaseException) -> str:
        """Where it was raised: the innermost frame outside of installed packages; and how it was called, if
        that may be the cause.
        """
        frames = traceback.extract_tb(error.__traceback__)[1:]
        own = [frame for frame in frames if not _installed(frame.filename)]
        place = f" at {_near(own[-1].filename)}:{own[-1].lineno} in {own[-1].name}" if own else ""
        # What another argument than the one expected leads to: rng[:, 0], or uniforms.random().
        told = isinstance(error, (TypeError, AttributeError)) and (own or not frames)
        return f"{place}; called as {self.called_as}" if told and self.called_as else place

    def run(self, job: Callable[[], T]) -> T:
        """Do a job that makes calls, and give up when one does not return in time.

        The job runs on a thread of its own, because a call that hangs cannot be ended from outside; that
        thread is left behind. What the sampler prints goes to standard error.

        Raises
        ------
        SamplerError
            A call took too long, or the job raised it.
        """
        outcome: list[tuple[bool, Any]] = []
        done = threading.Event()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                with no_exit:
                    outcome.append((True, context.run(job)))
            except BaseException as error:
                outcome.append((False, error))
            finally:
                done.set()

        with muted:
            threading.Thread(target=work, daemon=True, name="resispec-verify sampler").start()
            while not done.wait(min(0.2, self.limit / 4)):
                started = self._started
                if started is not None and time.monotonic() - started > self.limit:
                    raise SamplerHangs(f"did not return within {self.limit:g} s")
        good, value = outcome[0]
        if not good:
            raise value
        return value

    def some(self, draw: Callable[[], T], calls: int, until: float = math.inf) -> list[T]:
        """The results of so many draws, at least one, or of fewer where the run, or ``until``, is over."""

        def job() -> list[T]:
            found = [draw()]
            while len(found) < calls and time.monotonic() < min(self.until, until):
                found.append(draw())
            return found

        return self.run(job)


def _installed(path: str) -> bool:
    """Whether code is a library's or this package's, and not somebody's own."""
    return path.startswith((*_LIBRARIES, "<"))


def _near(path: str) -> str:
    """A path from here, where it lies below."""
    return path.removeprefix(os.getcwd() + os.sep)


def _fetched(result: Any) -> Any:
    """Arrays of a device on the CPU: what runs there ends here, within the time of the call."""
    if isinstance(result, tuple):
        return tuple(map(_fetched, result))
    if isinstance(result, list) and result and hasattr(result[0], "dtype"):
        return [_fetched(one) for one in result]
    if is_cupy_array(result) or is_torch_array(result):
        return to_numpy(result)
    return result


def tokens_of(
    result: Any, rows: int, vocab: int, *, columns: int | None = None, what: str = "tokens", low: int = -1
) -> np.ndarray:
    """The result of a call as int64 ``(rows,)``, or ``(rows, columns)``.

    Parameters
    ----------
    result : array-like of integers
    vocab : int
        Entries must be in ``[0, vocab)``.
    low : int
        With ``columns``, the least entry.

    Raises
    ------
    SamplerError
        Not an array, a wrong shape, no integers, NaN, or an entry out of range.
    """
    if result is None:
        raise SamplerError(f"returned None for {what}; is a return missing?")
    try:
        found = np.asarray(result)
    except Exception as error:
        raise SamplerError(f"returned {what} that are no array: {reason_of(error)}") from None
    if isinstance(result, tuple):
        raise SamplerError(
            f"returned a tuple of {len(result)} for {what}; a tuple is (tokens, accepted); tokens alone "
            "are an array or a list"
        )
    shape = (rows,) if columns is None else (rows, columns)
    if found.shape != shape:
        raise SamplerError(f"returned {what} of shape {found.shape}, not {shape}")
    if found.dtype.kind == "f" and np.isnan(found).any():
        raise SamplerError(f"returned NaN for {what}")
    if found.dtype.kind not in "iu":
        raise SamplerError(f"returned {what} of type {found.dtype}, not integers")
    low = 0 if columns is None else low
    bad = (found < low) | (found >= vocab)
    if bad.any():
        value = int(found[bad][0])
        raise SamplerError(f"returned {what} with an entry {value}, outside of {low}..{vocab - 1}")
    return found.astype(np.int64)
