"""The same evaluation on Dask: batches of positions are tasks, and Dask schedules, retries and moves them.

A task is pure. It opens the dump by its path on the worker, checks that it is the same dump, and returns a
few numbers for each position, so that losing a worker costs only the time of what it was doing.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import multiprocessing.resource_tracker
import os
import pickle
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import resispec_verify
from resispec_verify.arrays import Array
from resispec_verify.backends import get_backend
from resispec_verify.dumps import FlatDump, open_dump
from resispec_verify.dumps.fingerprint import Fingerprint, fingerprint
from resispec_verify.errors import InputError
from resispec_verify.runs.over_dumps import evaluate_spans
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import Reading, Span
from resispec_verify.tables.table import Table

__all__ = ["LOCAL", "SharedWork", "connect", "run"]

LOCAL = "local"
#: Seconds in which a scheduler must answer.
PATIENCE = 5
# A terminal interrupts all processes; ours are ended by this one.
_LEAVE_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


@dataclass(frozen=True)
class SharedWork:
    """What every task of one dump needs.

    Attributes
    ----------
    path : str
        Absolute: where workers find the dump.
    name : str
        What the dump is called in messages.
    pad_vocab : bool
        As in `open_dump`.
    found : Fingerprint
        Of the dump, not whole.
    evaluation : Evaluation
    backend : str
    version : str
        Of this package.
    shards : {"vocab", "positions"} or None
        As in `open_dump`.
    """

    path: str
    name: str
    pad_vocab: bool
    found: Fingerprint
    evaluation: Evaluation
    backend: str
    version: str = resispec_verify.__version__
    shards: Any = None


@contextmanager
def connect(address: str, note: Callable[[str], Any] = lambda line: None) -> Iterator[Any]:
    """A client of the Dask scheduler at an address, or of one process a core here for ``"local"``.

    Raises
    ------
    InputError
        Dask is not installed, or no scheduler answers within seconds.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise InputError(
            "--scheduler: Dask is not installed; pip install 'resispec-verify[cluster]', or leave it out"
        ) from None
    if address == LOCAL:
        with _no_main_script(), _local(distributed) as cluster, distributed.Client(cluster) as client:
            yield client
        return
    _ask(distributed, address)
    with distributed.Client(address, timeout=PATIENCE) as client:
        if not client.scheduler_info()["workers"]:
            note(f"the scheduler at {address} has no workers yet; waiting for one")
        yield client


def _local(distributed: Any) -> Any:
    """One process a core, none of which a terminal can interrupt: Ctrl-C is for this one, which ends them.

    Signals that a thread blocks are blocked in the threads and the processes that it starts. So the thread
    that will start the workers is itself started with interrupts blocked, and they are never open to one, not
    even before their first line of Python.
    """
    multiprocessing.resource_tracker.ensure_running()  # it would unblock them on the way
    masked = hasattr(signal, "pthread_sigmask")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masked else set()
    try:
        cluster = distributed.LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            preload=[] if masked else [_LEAVE_INTERRUPTS],
        )
    finally:
        if masked:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    cluster.scale(os.cpu_count() or 1)
    return cluster


@contextmanager
def _no_main_script() -> Iterator[None]:
    """Keep `multiprocessing` from running the main script again in each worker, also in one started later.

    It need not have a guard, or be a file at all, and workers have no use for it.
    """
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _ask(distributed: Any, address: str) -> None:
    """Refuse an address at which no scheduler answers: a client would wait for ever on a silent port."""

    async def identity() -> dict[str, Any]:
        security = distributed.Security().get_connection_args("client")
        async with distributed.rpc(address, connection_args=security) as there:
            return await there.identity()

    async def in_time() -> dict[str, Any]:
        return await asyncio.wait_for(identity(), PATIENCE)

    try:
        kind = asyncio.run(in_time())["type"]
        reason = None if kind == "Scheduler" else f"a {kind} does"
    except Exception as error:  # what is not a Dask scheduler may answer anything
        reason = " ".join(str(error).split())[:120] or f"nothing in {PATIENCE} s"
    if reason is not None:
        raise InputError(
            f"--scheduler {address}: no Dask scheduler answers there ({reason}); give the address that 'dask "
            f"scheduler' prints, or {LOCAL}"
        )


def run(
    client: Any,
    work: SharedWork,
    reading: Reading,
    spans: Sequence[Span],
    *,
    note: Callable[[str], Any] = lambda line: None,
) -> Iterator[tuple[Span, Table]]:
    """Tables of a dump by their positions, in the order in which they are finished.

    Parameters
    ----------
    client : distributed.Client
    reading : Reading
        With the kind of rows.
    spans : sequence of Span
        One task each. A worker whose memory does not hold one returns it in pieces.

    Raises
    ------
    InputError
        The first span that is bad; a span that ended several workers; a worker that does not find the dump or
        is of another version; a scheduler that went away.
    """
    distributed = importlib.import_module("distributed")
    packed = _packed(work, reading)

    def there(span: Span) -> list[tuple[Span, dict[str, Any]]]:
        # A nested function goes as code, so that what a worker lacks fails the task and not the worker.
        from resispec_verify.runs.cluster import evaluate_there

        return evaluate_there(packed, span)

    tasks = client.map(there, spans, pure=False)
    waiting = dict(zip((task.key for task in tasks), zip(spans, tasks, strict=True), strict=True))
    finished = distributed.as_completed(tasks)
    del tasks  # a task that nobody holds is forgotten, with its result
    worst: tuple[Span, InputError] | None = None
    for task in finished:
        span, _ = waiting.pop(task.key, (None, None))
        if span is None:
            continue  # cancelled below
        found = _result(task, work.name, span)
        if isinstance(found, InputError):
            worst = (span, found)
            # As in one process the first bad position is reported, so what comes before it is waited for.
            later = [key for key, (other, _) in waiting.items() if other > span]
            client.cancel([waiting.pop(key)[1] for key in later])
            continue
        if len(found) > 1:
            note(f"out of memory on a worker with {span[1] - span[0]} positions; it goes on with fewer")
        for piece, stored in found:
            yield piece, Table.from_plain(stored, work.evaluation.rules, work.name)
    if worst is not None:
        raise worst[1]


def _result(task: Array, name: str, span: Span) -> list[tuple[Span, dict[str, Any]]] | InputError:
    """What a task gave, or what is wrong with its span; raises what is wrong with the whole run."""
    distributed = importlib.import_module("distributed")
    try:
        return task.result()
    except InputError as error:
        return error
    except distributed.KilledWorker:
        return InputError(f"{name}: {_KILLED.format(*span)}")
    except ImportError as error:
        raise InputError(f"a worker lacks what the run needs ({error}); install the same there") from None
    except distributed.client.FutureCancelledError:
        raise InputError(f"{name}: the scheduler went away before the work was done") from None


_KILLED = "positions {}:{} ended one worker after the other, perhaps for memory; lower --batch"


def _packed(work: SharedWork, reading: Reading) -> bytes:
    """Both for the way to a worker; a rule from a user's file goes whole: it cannot be imported there."""
    cloudpickle = importlib.import_module("cloudpickle")
    for rule in work.evaluation.rules:
        module = sys.modules.get(type(getattr(rule, "rule", rule)).__module__)
        if module is not None and module.__spec__ is None and module.__name__ != "__main__":
            cloudpickle.register_pickle_by_value(module)
    return cloudpickle.dumps((work, reading))


_unpacked = functools.lru_cache(maxsize=8)(pickle.loads)


def evaluate_there(packed: bytes, span: Span) -> list[tuple[Span, dict[str, Any]]]:
    """The task, on a worker: plain tables of a span, in pieces where memory did not hold it whole."""
    work, reading = _unpacked(packed)
    if resispec_verify.__version__ != work.version:
        where, has = socket.gethostname(), resispec_verify.__version__
        raise InputError(f"the worker on {where} has resispec-verify {has}; install {work.version} there")
    dump = _opened(work.path, work.name, work.pad_vocab, work.shards, work.found, threading.get_ident())
    found = evaluate_spans(dump, reading, work.evaluation, [span], backend=get_backend(work.backend))
    return [(piece, table.plain()) for piece, table in found]


@functools.lru_cache(maxsize=8)
def _opened(path: str, name: str, pad: bool, shards: Array, found: Fingerprint, thread: int) -> FlatDump:
    """The dump on this worker, opened once by each of its threads."""
    try:
        if fingerprint(path, whole=False) != found:
            raise InputError(f"{path}: is not the dump that {name} is where the run was started")
        return replace(open_dump(path, pad_vocab=pad, shards=shards), path=name)
    except InputError as error:
        raise InputError(f"{error} (on the worker on {socket.gethostname()})") from None
