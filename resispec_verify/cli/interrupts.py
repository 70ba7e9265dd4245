"""Ctrl-C: noticed whatever the code that it falls into makes of it.

Python raises `KeyboardInterrupt` between any two instructions of the main thread, also inside a library's
callback. Numba's wrappers turn it into a `SystemError`, an import into an `ImportError`; a finaliser or a
callback from C prints it and drops it. So the handler here raises as Python's own does and remembers it
besides: once it was called, whatever ends the command is that interrupt, and one that was dropped is raised
again at the next `check`, which the progress of every command calls.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

#: The exit status of an interrupted command, as a shell gives it.
INTERRUPTED = 130


class Interrupts:
    """A context manager in which interrupts are remembered; contexts do not nest.

    Where interrupts are ignored (``nohup``), handled by the program around, or not ours to handle (another
    thread), all of that is left as it is.

    Attributes
    ----------
    seen : bool
        Whether one came.
    note : callable () -> str
        What to say after "interrupted".
    """

    current: "Interrupts | None" = None

    def __init__(self) -> None:
        self.seen = False
        self.ending = False
        self.note: Callable[[], str] = str
        self._undo: list[Callable[[], Any]] = []

    def __enter__(self) -> "Interrupts":
        outer, Interrupts.current = Interrupts.current, self
        self._undo.append(lambda: setattr(Interrupts, "current", outer))
        ours = threading.current_thread() is threading.main_thread()
        if ours and signal.getsignal(signal.SIGINT) in (signal.default_int_handler, at_the_end):
            before, hook = signal.signal(signal.SIGINT, self._handle), sys.unraisablehook
            self._undo.append(lambda: signal.signal(signal.SIGINT, before))
            sys.unraisablehook = lambda dropped: self._dropped(dropped, hook)
            self._undo.append(lambda: setattr(sys, "unraisablehook", hook))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ending = True  # one that comes now is too late to end anything
        while self._undo:
            self._undo.pop()()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        if not self.ending:
            raise KeyboardInterrupt

    def _dropped(self, dropped: Any, hook: Callable[[Any], Any]) -> None:
        """Of what nobody can catch, an interrupt need not be printed: it is remembered."""
        if not (self.seen and isinstance(dropped.exc_value, KeyboardInterrupt)):
            hook(dropped)

    def ends(self, error: BaseException | None) -> bool:
        """Whether it is an interrupt that ends the command; if so, further ones are not raised."""
        self.ending = self.ending or self.seen or isinstance(error, KeyboardInterrupt)
        return self.ending


def check() -> None:
    """Raise `KeyboardInterrupt` where one came before and was dropped on its way."""
    here = Interrupts.current
    if here is not None and here.seen and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def remark(note: Callable[[], str]) -> None:
    """Have something said after "interrupted", if it comes to that."""
    if Interrupts.current is not None:
        Interrupts.current.note = note


def at_the_end(number: int, frame: FrameType | None) -> None:
    """The handler of a process whose work is done, or not begun: no traceback."""
    with contextlib.suppress(OSError):
        os.write(2, b"resispec-verify: interrupted\n")
    os._exit(INTERRUPTED)
