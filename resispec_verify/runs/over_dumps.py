"""Evaluate rules over the positions of dumps, batch by batch and on several threads.

A batch is a range of positions, evaluated by itself and without state: the same numbers come out wherever and
in whatever order batches are evaluated. Memory holds one batch a thread and a few numbers for each position.
Arrays of torch and CuPy are worked on by one thread: those libraries use the cores, or a device, themselves.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from resispec_verify.backends import Backend, to_numpy
from resispec_verify.dumps import FlatDump
from resispec_verify.errors import InputError
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import (
    Clock,
    PairBatch,
    Reading,
    Span,
    batch_size,
    cut,
    pairs_between,
    position_range,
    resolved,
    rows_in_cache,
)
from resispec_verify.tables.table import Table
from resispec_verify.threads import as_finished, at_most, cores

__all__ = ["evaluate_dump", "evaluate_spans", "over_batches"]

T = TypeVar("T")


def evaluate_dump(
    dump: FlatDump,
    reading: Reading,
    evaluation: Evaluation,
    *,
    backend: Backend,
    note: Callable[[str], Any] = lambda line: None,
    done: Mapping[Span, Table] | None = None,
    keep: Callable[[Span, Table], Any] = lambda span, table: None,
    run: Callable[[Reading, list[Span]], Iterable[tuple[Span, Table]]] | None = None,
    jobs: int | None = None,
) -> Table:
    """Evaluate one dump.

    Parameters
    ----------
    note : callable
        Called with a line when the run goes on otherwise than it was asked to.
    done : mapping, optional
        Tables of an earlier run, by their positions: they are not evaluated again.
    keep : callable
        Called with the positions and the table of each batch as soon as it is evaluated.
    run : callable, optional
        Evaluates spans elsewhere, in any order; by default `evaluate_spans` does, here.
    jobs : int, optional
        Threads here; by default the cores that this process may use.

    Raises
    ------
    InputError
        Range outside the dump, bad values (file, key and position named), too few logged candidates, or a
        single position that memory does not hold.
    """
    _check_logged(dump, evaluation)
    start, stop = position_range(dump, reading)
    clock = Clock()
    with clock("load"):
        reading = resolved(dump, reading)
    tables = dict(done or {})
    left = _missing(tables, start, stop)
    if run is None:
        jobs = jobs or cores()
        light = all(rule.depends_on == "nothing" for rule in evaluation.rules)
        spans = _spans(dump, reading, left, backend, jobs, light=light)
        found = evaluate_spans(dump, reading, evaluation, spans, backend=backend, note=note, jobs=jobs)
    else:
        found = run(reading, cut(left, batch_size(dump, reading)))
    for span, table in found:
        keep(span, table)
        tables[span] = table
    whole = Table(seconds=clock.seconds)
    for span in sorted(tables):
        whole.extend(tables.pop(span))
    return whole


def _missing(done: Iterable[Span], start: int, stop: int) -> list[Span]:
    """What of ``start..stop - 1`` is in none of the spans."""
    missing, at = [], start
    for first, last in [*sorted(done), (stop, stop)]:
        if first > at:
            missing.append((at, first))
        at = max(at, last)
    return missing


def over_batches(
    dump: FlatDump,
    reading: Reading,
    work: Callable[[PairBatch], T],
    *,
    backend: Backend,
    jobs: int | None = None,
    advance: Callable[[int], Any] = lambda done: None,
) -> list[T]:
    """What the work on each batch of a dump's pairs gave, in the order of positions.

    Parameters
    ----------
    work : callable
        Called from several threads.
    jobs : int, optional
        Threads; by default the cores that this process may use.
    advance : callable
        Called with the number of positions that were finished.

    Raises
    ------
    InputError
        Range outside the dump, bad values (file, key and position named).
    """
    jobs, span = jobs or cores(), position_range(dump, reading)
    reading = resolved(dump, reading)

    def on_span(span: Span) -> list[T]:
        return [work(batch) for batch in pairs_between(dump, reading, span, backend, Clock())]

    found, spans = {}, _spans(dump, reading, [span], backend, jobs)
    for one, results in _on_threads(on_span, spans, backend, jobs):
        found[one] = results
        advance(one[1] - one[0])
    return [result for one in sorted(found) for result in found[one]]


def _spans(
    dump: FlatDump, reading: Reading, left: list[Span], backend: Backend, jobs: int, *, light: bool = False
) -> list[Span]:
    """Batches of what is left; where nothing else is asked for, of like sizes and as many for each thread."""
    if reading.batch is not None or backend.name != "numpy":
        return cut(left, batch_size(dump, reading))
    most, spans = rows_in_cache(dump.vocab, light=light), list[Span]()
    for first, last in left:
        rounds = -(-(last - first) // (most * jobs))
        ends = [first + (last - first) * i // (rounds * jobs) for i in range(rounds * jobs + 1)]
        spans += [(i, j) for i, j in itertools.pairwise(ends) if i < j]
    return spans


def _on_threads(
    work: Callable[[Span], T], spans: Sequence[Span], backend: Backend, jobs: int | None
) -> Iterator[tuple[Span, T]]:
    """The work on each span, on so many threads; where that is one, what is inside may use all of them."""
    if _threads(spans, backend, jobs) > 1:
        yield from as_finished(work, spans, _threads(spans, backend, jobs))
        return
    for span in spans:
        with at_most(jobs):
            found = work(span)
        yield span, found


def _threads(spans: Sequence[Span], backend: Backend, jobs: int | None) -> int:
    return min(jobs or 1, len(spans)) if backend.name == "numpy" else 1


def evaluate_spans(
    dump: FlatDump,
    reading: Reading,
    evaluation: Evaluation,
    spans: Sequence[Span],
    *,
    backend: Backend,
    note: Callable[[str], Any] = lambda line: None,
    jobs: int | None = None,
) -> Iterator[tuple[Span, Table]]:
    """Tables of a dump, as they are finished; where memory ends, spans are halved from there on.

    Parameters
    ----------
    reading : Reading
        With the kind of rows.
    spans : sequence of Span
        Ascending. One or more tables each.
    jobs : int, optional
        Threads. None: one for the spans, one after the other, and all cores for what is inside of one.

    Raises
    ------
    InputError
        Bad values at the first position that has some; a single position that memory does not hold.
    """
    most = max((last - first for first, last in spans), default=1)
    memory = _Memory(most, _threads(spans, backend, jobs), note)

    def pieces(span: Span) -> list[tuple[Span, Table]]:
        found, waiting = [], [span]
        while waiting:
            first, last = waiting.pop()
            if last - first > memory.size:
                waiting += reversed(cut([(first, last)], memory.size))
                continue
            with memory.place() as alone:
                table = _evaluated(dump, reading, evaluation, (first, last), backend)
            if table is not None:
                found.append(((first, last), table))
            elif memory.ended(last - first, alone):
                waiting.append((first, last))
            else:
                other = "" if backend.name == "numpy" else " or --backend numpy"
                raise InputError(
                    f"{dump.path}: memory of backend {backend.name} does not hold position {first} alone; "
                    f"use a machine with more{other}"
                )
        return found

    for _, found in _on_threads(pieces, spans, backend, jobs):
        yield from found


class _Memory:
    """How much is evaluated at a time: less, where memory ended, and at last one position by itself.

    Attributes
    ----------
    size : int
        Positions in a batch.
    threads : int
        Batches at a time.
    """

    def __init__(self, size: int, threads: int, note: Callable[[str], Any]) -> None:
        self.size, self.threads, self._note = size, threads, note
        self._inside, self._free = 0, threading.Condition()

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Wait for a place, and give it back; the value is whether nothing else has one meanwhile."""
        with self._free:
            self._free.wait_for(lambda: self._inside < self.threads)
            self._inside += 1
            alone = self.threads == 1
        try:
            yield alone
        finally:
            with self._free:
                self._inside -= 1
                self._free.notify_all()

    def ended(self, positions: int, alone: bool) -> bool:
        """Memory ended with so many positions in a batch; whether less can be tried."""
        with self._free:
            if 1 < positions <= self.size:
                self.size = positions // 2
                how = f"{self.size} (--batch {self.size})"
            elif positions == 1 and self.threads > 1:
                self.threads, how = 1, "one thread (--jobs 1)"
            else:  # another thread has said so
                return positions > 1 or not alone
            self._note(f"out of memory with {positions} positions at a time; going on with {how}")
            return True


def _evaluated(
    dump: FlatDump, reading: Reading, evaluation: Evaluation, span: Span, backend: Backend
) -> Table | None:
    """The table of a span; None where memory ended."""
    clock = Clock()
    table = Table(seconds=clock.seconds)
    try:
        for batch in pairs_between(dump, reading, span, backend, clock):
            if dump.pad:
                target, draft = (law[:, min(dump.pad) :] for law in (batch.pair.target, batch.pair.draft))
                table.padding += to_numpy(backend.xp.sum(target + draft, axis=-1)).tolist()
            table.evaluate(batch, evaluation, clock)
    except (MemoryError, RuntimeError) as error:
        # torch's is a RuntimeError of that name; NumPy's and CuPy's are MemoryErrors.
        if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":
            raise
        return None  # and with the error go the arrays of its frames
    return table


def _check_logged(dump: FlatDump, evaluation: Evaluation) -> None:
    """Refuse candidates of the dump that are too few, where the path identity needs them."""
    if evaluation.candidate_list or not evaluation.identity or dump.candidates is None:
        return
    if dump.candidates.shape[1] < evaluation.candidates:
        raise InputError(
            f"{dump.path}: candidates has {dump.candidates.shape[1]} a position, fewer than the "
            f"{evaluation.candidates} to verify; lower --candidates or give --candidate-list"
        )
