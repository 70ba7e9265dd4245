"""A check in a process of its own: a sampler may end, crash or block it, or write to its standard output.

The child loads the sampler and runs the check; the parent waits and reports. Only what comes through the pipe
between them counts, so that no way in which the child ends looks like success. It is a plain process and not
one of `multiprocessing`, which would run the parent's main script again: `main` may be called from a script
without a guard, from a notebook, or from a script on standard input.
"""

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from resispec_verify.cli.user_code import StartedInside
from resispec_verify.errors import InputError
from resispec_verify.sampler_check.settings import CheckResult, CheckSettings

#: Set in the environment of the child: a check that a sampler's own module starts would never end.
INSIDE = "RESISPEC_VERIFY_CHECK"
# How long signs of life of the child may fail to come on a machine that is busy, and how often to look.
_GRACE, _LOOK = 10.0, 0.1
# A module may import a whole engine.
_LEAST_LOADING = 60.0


@dataclass(frozen=True)
class SamplerJob:
    """What the child is to do.

    Attributes
    ----------
    sampler : str
        As on the command line.
    settings : CheckSettings
        Without the rule and the policy, which may be of a user's own classes: the child loads them too.
    rule, stop : str or None
    inputs : list of Input, or None
    """

    sampler: str
    settings: CheckSettings
    rule: str | None
    stop: str | None
    inputs: list[Any] | None


def run_apart(job: SamplerJob) -> CheckResult:
    """Run a job in a child process, and end that process and all that it started.

    Raises
    ------
    InputError
        The sampler cannot be loaded, or settings do not fit.
    StartedInside
        This is such a child.
    """
    if os.environ.get(INSIDE):
        raise StartedInside("it starts a check itself; put that under if __name__ == '__main__':")
    process = _started(job)
    answers: queue.Queue[tuple[str, Any]] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process.stdout, answers), daemon=True)
    reader.start()
    try:
        return _result(answers, process, job)
    finally:
        with contextlib.suppress(OSError, AttributeError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        reader.join(1.0)  # at once, unless what the sampler started got away and holds the pipe


def _started(job: SamplerJob) -> subprocess.Popen[bytes]:
    """The child, with its job on the way."""
    where = [str(path) for path in sys.path]
    # The interpreter's options that a child of it should have too, warnings among them.
    flags = getattr(subprocess, "_args_from_interpreter_flags", list)()
    code = f"import sys; sys.path[:] = {where!r}; from resispec_verify.cli.check_child import run; run()"
    try:
        process = subprocess.Popen(
            [sys.executable or "python", *flags, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # So that all that is started there can be ended together, and no terminal interrupts it.
            start_new_session=True,
            env={**os.environ, INSIDE: "1"},
        )
    except OSError as error:
        raise InputError(
            f"a process for the sampler cannot be started: {error}; make room for one and try again"
        ) from None
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:  # how it ended is told otherwise
        pickle.dump(job, stdin)
    return process


def _read(pipe: Any, answers: queue.Queue[tuple[str, Any]]) -> None:
    """Hand on what the child says, until it says no more."""
    with contextlib.suppress(Exception), pipe:  # half a message, say: its end is told by its process
        while True:
            answers.put(pickle.load(pipe))


def _result(
    answers: queue.Queue[tuple[str, Any]], process: subprocess.Popen[bytes], job: SamplerJob
) -> CheckResult:
    """What the child answers, or why it does not."""
    limit = job.settings.call_seconds
    heard, began, loaded = None, None, False
    while True:
        ended = process.poll()
        try:
            kind, value = answers.get(timeout=_LOOK)
        except queue.Empty:
            pass
        else:
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


def _failed(job: SamplerJob, loaded: bool, reason: str) -> CheckResult:
    if not loaded:
        raise InputError(f"{job.sampler}: {reason}, while it was loaded; run it once by itself")
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
