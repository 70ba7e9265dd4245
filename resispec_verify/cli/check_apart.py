"""A check in a process of its own: a sampler may end, crash or block it, or write to its standard output.

The child loads the sampler and runs the check; the parent waits and reports. Only what comes through the pipe
between them counts, so that no way in which the child ends looks like success.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from resispec_verify.analysis.check_settings import CheckResult, CheckSettings
from resispec_verify.errors import InputError

__all__ = ["Job", "run_apart"]

# Seconds between signs of life of the child, and how long they may fail to come on a machine that is busy.
_BEAT, _GRACE = 0.5, 10.0
# A module may import a whole engine.
_LEAST_LOADING = 60.0


@dataclass(frozen=True)
class Job:
    """What the child is to do.

    Attributes
    ----------
    sampler : str
        As on the command line.
    settings : CheckSettings
        Without the rule, which may be a user's own class: the child loads that too.
    rule : str or None
    inputs : list of Input, or None
    """

    sampler: str
    settings: CheckSettings
    rule: str | None
    inputs: list[Any] | None


def run_apart(job: Job) -> CheckResult:
    """Run a job in a child process, and end that process and all that it started.

    Raises
    ------
    InputError
        The sampler cannot be loaded, or settings do not fit.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(theirs, job), name="resispec-verify check")
    process.start()
    theirs.close()
    try:
        return _result(ours, process, job)
    finally:
        with contextlib.suppress(OSError, AttributeError):
            os.killpg(process.pid or 0, signal.SIGKILL) if process.pid else None
        process.kill()
        process.join()
        ours.close()


def _result(pipe: Any, process: Any, job: Job) -> CheckResult:
    """What the child answers, or why it does not."""
    limit = job.settings.call_seconds
    heard, began, loaded = None, None, False
    while True:
        ended = process.exitcode
        if pipe.poll(0.0 if ended is not None else _BEAT / 5):
            with contextlib.suppress(EOFError, OSError):
                kind, value = pipe.recv()
                heard = time.monotonic()
                began = began or heard
                if kind == "bad input":
                    raise InputError(value)
                if kind == "result":
                    return value
                loaded = loaded or kind == "loaded"
                continue
        if ended is not None:
            return _failed(job, loaded, f"ended its process ({_status(ended)})")
        now = time.monotonic()
        if heard is not None and now - heard > limit + _GRACE:
            return _failed(job, loaded, f"did not return within {limit:g} s, and let no other thread run")
        if began is not None and not loaded and now - began > max(limit, _LEAST_LOADING) + _GRACE:
            return _failed(job, loaded, f"takes more than {max(limit, _LEAST_LOADING):g} s to load")


def _failed(job: Job, loaded: bool, reason: str) -> CheckResult:
    if not loaded:
        raise InputError(f"{job.sampler}: {reason}, while it was loaded")
    chosen = job.settings
    return CheckResult(
        "error", [reason], 0, chosen.alpha, chosen.alpha, 1, chosen.power, chosen.seed, stopped="error"
    )


def _status(code: int) -> str:
    if code >= 0:
        return f"status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _child(pipe: Any, job: Job) -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.setsid()  # so that all that is started from here can be ended together
    with contextlib.suppress(OSError):
        os.dup2(2, 1)  # code in C writes to file descriptor 1, where the report may have to go
    lock = threading.Lock()

    def send(kind: str, value: Any = None) -> None:
        with lock:
            pipe.send((kind, value))

    def beat() -> None:
        try:
            while True:
                send("alive")
                time.sleep(_BEAT)
        except OSError:
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


def _checked(job: Job, send: Any) -> CheckResult:
    from resispec_verify.analysis.check import check_sampler
    from resispec_verify.cli.user_samplers import load_sampler

    settings = job.settings
    if job.rule is not None:
        from resispec_verify.cli.user_rules import choose_rules

        settings = dataclasses.replace(settings, rule=choose_rules([job.rule], settings.candidates)[0])
    sampler = load_sampler(job.sampler, settings.style)
    send("loaded")
    return check_sampler(sampler, settings, inputs=job.inputs)
