"""Evaluate rules over the positions of dumps, batch by batch.

A batch is a range of positions, evaluated by itself and without state: the same numbers come out wherever and
in whatever order batches are evaluated. Memory holds one batch and a few numbers for each position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from resispec_verify.backends import Backend, to_numpy
from resispec_verify.dumps import FlatDump
from resispec_verify.errors import InputError
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import (
    Clock,
    Reading,
    Span,
    batch_size,
    cut,
    pairs_between,
    position_range,
    resolved,
)
from resispec_verify.tables.table import Table

__all__ = ["evaluate_dump", "evaluate_spans"]


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
    spans = cut(_missing(tables, start, stop), batch_size(dump, reading))
    if run is None:
        found = evaluate_spans(dump, reading, evaluation, spans, backend=backend, note=note)
    else:
        found = run(reading, spans)
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


def evaluate_spans(
    dump: FlatDump,
    reading: Reading,
    evaluation: Evaluation,
    spans: Sequence[Span],
    *,
    backend: Backend,
    note: Callable[[str], Any] = lambda line: None,
) -> Iterator[tuple[Span, Table]]:
    """Tables of a dump, one a span, in order; where memory ends, spans are halved from there on.

    Parameters
    ----------
    reading : Reading
        With the kind of rows.
    """
    waiting = list(reversed(spans))
    size = max((last - first for first, last in spans), default=1)
    while waiting:
        first, last = waiting.pop()
        if last - first > size:
            waiting += reversed(cut([(first, last)], size))
            continue
        table = _evaluated(dump, reading, evaluation, (first, last), backend)
        if table is not None:
            yield (first, last), table
            continue
        if last - first == 1:
            other = "" if backend.name == "numpy" else " or --backend numpy"
            raise InputError(
                f"{dump.path}: memory of backend {backend.name} does not hold position {first} alone; use a "
                f"machine with more{other}"
            )
        size = (last - first) // 2
        note(f"out of memory with {last - first} positions at a time; going on with {size} (--batch {size})")
        waiting.append((first, last))


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
