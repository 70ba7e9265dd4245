"""Code of a user's: what it prints goes to standard error, what it raises becomes one line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from resispec_verify.errors import InputError

__all__ = ["guarded", "muted", "reason_of"]

_LONGEST_REASON = 160


class _Muted:
    """Standard output goes to standard error while any thread is inside; the last one out restores it."""

    def __init__(self) -> None:
        self.lock, self.inside, self.stdout = threading.Lock(), 0, sys.stdout

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.stdout, sys.stdout = sys.stdout, sys.stderr
            self.inside += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                sys.stdout = self.stdout


#: A report may be written to standard output: what foreign code prints must not get into it.
muted = _Muted()


def reason_of(error: BaseException) -> str:
    """The kind of an error and its message on one line, cut; its message may itself fail."""
    kind = type(error).__name__
    try:
        text = " ".join(f"{kind}: {error}".split())
    except Exception:
        text = kind
    text = text.removesuffix(":")
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Run foreign code: what it prints goes to standard error, what it raises becomes one line.

    A rule that exits would make a run look like a success, so `SystemExit` is an error too; an interrupt from
    the keyboard is not.
    """
    try:
        with muted:
            yield
    except KeyboardInterrupt:
        raise
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
    except BaseException as error:
        raise InputError(f"{what} raised {reason_of(error)}") from None
