"""A sampler that calls `os._exit` must not end the process that checks it: with status 0 that looks like
success, above all in pytest.
"""

from __future__ import annotations

import os
import threading
from typing import NoReturn

__all__ = ["ProcessExit", "no_exit"]


class ProcessExit(BaseException):
    """`os._exit` was called by a sampler; the message says with which status."""


class _NoExit:
    """While any thread is inside, `os._exit` raises in those threads, and is itself in all others.

    Others are, say, the timer that ends a test after its time; and a process that the sampler forked must end
    as it always does. A thread that hangs stays inside, so that it cannot end the process later.
    """

    def __init__(self) -> None:
        self.lock, self.process = threading.Lock(), os.getpid()
        self.inside: set[int] = set()
        self.exit = os._exit

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.exit, os._exit, self.process = os._exit, self._raise, os.getpid()
            self.inside.add(threading.get_ident())

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside.discard(threading.get_ident())
            if not self.inside:
                os._exit = self.exit

    def _raise(self, status: int) -> NoReturn:
        if os.getpid() != self.process or threading.get_ident() not in self.inside:
            self.exit(status)
        raise ProcessExit(f"os._exit({status!r}), which ends the process")


#: Of the threads on which samplers run.
no_exit = _NoExit()
