"""The other process of `check_apart`: it loads a sampler, checks it, and says what it finds through a pipe.

The job comes in through standard input and answers leave through standard output. Both are taken away before
the sampler is loaded: what that prints goes to standard error, and it finds nothing to read.
"""

import contextlib
import dataclasses
import os
import pickle
import sys
import threading
import time
from typing import Any

from resispec_verify.cli.user_rules import choose_rules
from resispec_verify.cli.user_samplers import load_policy, load_sampler
from resispec_verify.errors import InputError
from resispec_verify.sampler_check.check import check_sampler

# Seconds between signs of life.
_BEAT = 0.5


def run() -> None:
    """Do the job; never returns."""
    job = pickle.load(sys.stdin.buffer)
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # code in C writes to file descriptor 1
    sys.argv = ["resispec-verify check"]
    lock = threading.Lock()

    def send(kind: str, value: Any = None) -> None:
        with lock:
            pipe.write(pickle.dumps((kind, value)))
            pipe.flush()

    def beat() -> None:
        try:
            while True:
                send("alive")
                time.sleep(_BEAT)
        except (OSError, ValueError):
            os._exit(1)  # the parent is gone

    threading.Thread(target=beat, daemon=True, name="resispec-verify signs of life").start()
    try:
        answer: tuple[str, Any] = "result", _checked(job, send)
    except InputError as error:
        answer = "bad input", str(error)
    except KeyboardInterrupt:  # no terminal reaches this process
        answer = "bad input", f"{job.sampler}: the module fails: KeyboardInterrupt"
    sys.stderr.flush()
    with contextlib.suppress(OSError):  # it closed the pipe
        send(*answer)
    threading.Event().wait()  # to be ended by the parent, whatever threads the sampler left


def _checked(job: Any, send: Any) -> Any:
    settings = job.settings
    if job.rule is not None:
        settings = dataclasses.replace(settings, rule=choose_rules([job.rule], settings.candidates)[0])
    if job.stop is not None:
        settings = dataclasses.replace(settings, stop=load_policy(job.stop))
    sampler = load_sampler(job.sampler, settings)
    send("loaded")
    return check_sampler(sampler, settings, inputs=job.inputs)
