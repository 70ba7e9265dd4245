"""Evaluate rules over the positions of dumps, batch by batch.

A batch is a range of positions, evaluated by itself and without state: the same numbers come out wherever and
in whatever order batches are evaluated. Memory holds one batch and a few numbers for each position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from resispec_verify.backends import Backend, to_numpy
from resispec_verify.distributions import (
    Pair,
    Sampling,
    check_probabilities,
    make_pair,
)
from resispec_verify.dumps import Batch, FlatDump
from resispec_verify.dumps.checks.looks import all_equal, norms, sum_tolerance
from resispec_verify.errors import InputError
from resispec_verify.runs.input_kind import input_kind, resolved
from resispec_verify.runs.parts import Part, Span
from resispec_verify.tables.marginals import Clock, Evaluation, Row, evaluate

__all__ = [
    "Reading",
    "Table",
    "evaluate_dump",
    "evaluate_spans",
    "input_kind",
    "logits_of",
    "pairs_of",
    "pool",
    "position_range",
]

# Elements of one float64 batch (positions x vocab): 8 MiB an array.
_BATCH_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Reading:
    """How the rows of a dump become pairs.

    Attributes
    ----------
    samplings : tuple of Sampling or None
        One table each. None: what the dump states, or else temperature 1 without filters.
    proposal_sampling : callable
        Maps the declared sampling to the one candidates are really drawn with.
    kind : {"logits", "probabilities", "log-probabilities"} or None
        What the rows are; None means logits, refused where they look like probabilities.
    precision : {"float64", "float32"}
    start, stop : int or None
        Range of positions.
    batch : int or None
        Positions at a time.
    """

    samplings: tuple[Sampling, ...] | None = None
    proposal_sampling: Callable[[Sampling], Sampling | None] = lambda sampling: None
    kind: str | None = None
    precision: str = "float64"
    start: int | None = None
    stop: int | None = None
    batch: int | None = None


@dataclass(frozen=True)
class Table:
    """What one dump gave.

    Attributes
    ----------
    rows : list of Row
    padding : list of float
        Where vocabularies were padded: the wider model's mass on the padded tokens, by position.
    constant : list of int
        Positions with a row of equal values: padding, perhaps.
    """

    rows: list[Row]
    padding: list[float]
    constant: list[int] = field(default_factory=list)


class Members(NamedTuple):
    """Pairs of some positions of a dump, all sampled alike.

    Attributes
    ----------
    pair : Pair
        Arrays ``(B, V)``.
    positions : int array (B,)
        0-based, in the dump.
    sampling : Sampling
    dataset : str or None
    constant : tuple of int
        Those of the positions whose target or draft row has equal values only.
    """

    pair: Pair
    positions: np.ndarray
    sampling: Sampling
    dataset: str | None
    constant: tuple[int, ...] = ()


def pairs_of(
    dump: FlatDump,
    reading: Reading,
    *,
    backend: Backend,
    clock: Clock,
    advance: Callable[[int], Any] = lambda done: None,
) -> Iterator[Members]:
    """The pairs of a dump, batch by batch and sampling by sampling.

    Parameters
    ----------
    advance : callable
        Called with the number of positions after each batch.

    Raises
    ------
    InputError
        Range outside the dump, bad values (file, key and position named).
    """
    start, stop = position_range(dump, reading)
    with clock("load"):
        reading = resolved(dump, reading)
    for first, last in _cut([(start, stop)], _size(dump, reading)):
        yield from _members(dump, reading, first, last, backend, clock)
        advance(last - first)


def _members(
    dump: FlatDump, reading: Reading, first: int, last: int, backend: Backend, clock: Clock
) -> Iterator[Members]:
    """The pairs of positions ``first..last - 1``; the kind of rows must be known."""
    with clock("load"):
        batch = dump.batch(first, last)
        if reading.kind not in (None, "logits"):
            batch = _from_probabilities(dump, batch, reading.kind, first)
    flat = all_equal(batch.target) | all_equal(batch.draft)
    for members, dataset, samplings in _groups(dump, reading, first, last):
        part = _take(batch, members - first)
        constant = tuple(members[flat[members - first]].tolist())
        for sampling in samplings:
            with clock("softmax"):
                pair = _pair(part, sampling, reading, backend)
            yield Members(pair, members, sampling, dataset, constant)


def _size(dump: FlatDump, reading: Reading) -> int:
    """Positions at a time."""
    return reading.batch or max(2, min(64, _BATCH_ELEMENTS // dump.vocab))


def _cut(spans: Iterable[Span], size: int) -> list[Span]:
    """The same positions in spans of at most ``size``."""
    return [(i, min(i + size, last)) for first, last in spans for i in range(first, last, size)]


def _missing(done: Iterable[Span], start: int, stop: int) -> list[Span]:
    """What of ``start..stop - 1`` is in none of the spans."""
    missing, at = [], start
    for first, last in [*sorted(done), (stop, stop)]:
        if first > at:
            missing.append((at, first))
        at = max(at, last)
    return missing


def evaluate_dump(
    dump: FlatDump,
    reading: Reading,
    evaluation: Evaluation,
    *,
    backend: Backend,
    clock: Clock,
    advance: Callable[[int], Any] = lambda done: None,
    note: Callable[[str], Any] = lambda line: None,
    done: Mapping[Span, Part] | None = None,
    keep: Callable[[Span, Part], Any] = lambda span, part: None,
    run: Callable[[Reading, list[Span]], Iterable[tuple[Span, Part]]] | None = None,
) -> Table:
    """Evaluate one dump.

    Parameters
    ----------
    advance : callable
        Called with the number of positions after each batch.
    note : callable
        Called with a line when the run goes on otherwise than it was asked to.
    done : mapping, optional
        Parts of an earlier run, by their positions: they are not evaluated again.
    keep : callable
        Called with the positions and the part of each batch as soon as it is evaluated.
    run : callable, optional
        Evaluates spans elsewhere, in any order; by default `evaluate_spans` does, here.

    Raises
    ------
    InputError
        Range outside the dump, bad values (file, key and position named), too few logged candidates, or a
        single position that memory does not hold.
    """
    _logged(dump, evaluation)
    start, stop = position_range(dump, reading)
    with clock("load"):
        reading = resolved(dump, reading)
    parts = dict(done or {})
    advance(sum(last - first for first, last in parts))
    spans = _cut(_missing(parts, start, stop), _size(dump, reading))
    found = (
        evaluate_spans(dump, reading, evaluation, spans, backend=backend, note=note)
        if run is None
        else run(reading, spans)
    )
    for span, part in found:
        keep(span, part)
        parts[span] = part
        advance(span[1] - span[0])
    whole = Part()
    for span in sorted(parts):
        whole.extend(parts.pop(span))
    for phase, seconds in whole.seconds.items():
        clock.seconds[phase] = clock.seconds.get(phase, 0.0) + seconds
    return Table(whole.rows(), whole.padding, whole.constant)


def evaluate_spans(
    dump: FlatDump,
    reading: Reading,
    evaluation: Evaluation,
    spans: Sequence[Span],
    *,
    backend: Backend,
    note: Callable[[str], Any] = lambda line: None,
) -> Iterator[tuple[Span, Part]]:
    """Parts of a dump, one a span, in order; where memory ends, spans are halved from there on.

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
            waiting += reversed(_cut([(first, last)], size))
            continue
        part = _evaluated(dump, reading, evaluation, first, last, backend)
        if part is not None:
            yield (first, last), part
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
    dump: FlatDump, reading: Reading, evaluation: Evaluation, first: int, last: int, backend: Backend
) -> Part | None:
    """The part of positions ``first..last - 1``; None where memory ended."""
    clock = Clock()
    part = Part(seconds=clock.seconds)
    logged = _logged(dump, evaluation)
    try:
        for members in _members(dump, reading, first, last, backend, clock):
            pair = members.pair
            part.constant = sorted({*part.constant, *members.constant})
            if dump.pad:
                on_padding = pair.target[:, min(dump.pad) :] + pair.draft[:, min(dump.pad) :]
                part.padding += to_numpy(backend.xp.sum(on_padding, axis=-1)).tolist()
            evaluate(
                pair,
                evaluation,
                part.tables.setdefault((members.dataset, members.sampling), {}),
                positions=members.positions.tolist(),
                backend=backend,
                clock=clock,
                candidates=None if logged is None else logged[members.positions],
                temperature=members.sampling.temperature,
                dataset=members.dataset,
                source=str(dump.path),
            )
    except (MemoryError, RuntimeError) as error:
        # torch's is a RuntimeError of that name; NumPy's and CuPy's are MemoryErrors.
        if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":
            raise
        return None  # and with the error go the arrays of its frames
    return part


def _logged(dump: FlatDump, evaluation: Evaluation) -> np.ndarray | None:
    """The candidates of the dump, where the path identity needs them."""
    logged = None if evaluation.candidate_list or not evaluation.identity else dump.candidates
    if logged is not None and logged.shape[1] < evaluation.candidates:
        raise InputError(
            f"{dump.path}: candidates has {logged.shape[1]} a position, fewer than the "
            f"{evaluation.candidates} to verify; lower --candidates or give --candidate-list"
        )
    return logged


def _groups(
    dump: FlatDump, reading: Reading, first: int, last: int
) -> list[tuple[np.ndarray, str | None, tuple[Sampling, ...]]]:
    """Positions ``first..last - 1`` by dataset and stated sampling, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i in range(first, last):
        dataset = dump.dataset[i] if isinstance(dump.dataset, tuple) else dump.dataset
        groups.setdefault((dataset, reading.samplings or (_stated(dump, i),)), []).append(i)
    return [(np.asarray(members), *key) for key, members in groups.items()]


def _stated(dump: FlatDump, position: int) -> Sampling:
    """The sampling that the dump states for a position; temperature 1 where it states none."""
    stated = dump.sampling[position] if isinstance(dump.sampling, tuple) else (dump.sampling or {})
    try:
        return Sampling(**stated)
    except InputError as error:
        raise InputError(f"{dump.path}: meta['sampling'], position {position}: {error}") from None


def _take(batch: Batch, rows: np.ndarray) -> Batch:
    if len(rows) == len(batch.target):
        return batch
    proposal = None if batch.proposal is None else batch.proposal[rows]
    return Batch(batch.target[rows], batch.draft[rows], proposal)


def position_range(dump: FlatDump, reading: Reading) -> Span:
    """First and last position that are read; raises `InputError` where they are outside the dump."""
    start = 0 if reading.start is None else reading.start
    stop = dump.positions if reading.stop is None else reading.stop
    if not 0 <= start < stop <= dump.positions:
        raise InputError(
            f"{dump.path}: positions {start}:{stop} are outside the dump, which has positions "
            f"0:{dump.positions}; give a non-empty range inside it"
        )
    return start, stop


def _from_probabilities(dump: FlatDump, batch: Batch, kind: str, first: int) -> Batch:
    """Logits of rows that are probabilities or their logarithms, checked to sum to 1."""
    held = zip(dump.keys, (dump.target, dump.draft, dump.proposal), batch, strict=True)
    found = [
        None if values is None or rows is None
        else logits_of(kind, values, f"{dump.path}: {name}", first, rows.dtype)
        for name, rows, values in held
    ]  # fmt: skip
    return Batch(*found)  # type: ignore[arg-type]


def logits_of(
    kind: str, values: np.ndarray, name: str, first: int, stored: np.dtype | None = None
) -> np.ndarray:
    """Rows ``(n, V)`` of any kind, ``stored`` in a type, as float64 logits.

    Raises
    ------
    InputError
        Probabilities, or logarithms of them, that do not sum to 1 as far as the type that they were stored in
        can tell; ``name`` and the position, counted from ``first``, are named. A probability of -inf is 0: a
        token that a reduced or padded vocabulary does not have.
    """
    given, values = np.asarray(values), np.asarray(values, np.float64)
    if kind == "logits":
        return values
    stored = given.dtype if stored is None else stored
    with np.errstate(divide="ignore", over="ignore"):
        if kind == "probabilities":
            plain = np.where(np.isneginf(values), 0.0, values)
            check_probabilities(plain, name, sum_tolerance(given, stored), first)
            return np.log(plain)
        _, tolerance, _ = norms(given, stored)
        check_probabilities(np.exp(values), name, np.expm1(tolerance), first)
        return values


def _pair(batch: Batch, sampling: Sampling, reading: Reading, backend: Backend) -> Pair:
    target, draft, proposal = (None if v is None else backend.asarray(v) for v in batch)
    return make_pair(
        target,
        draft,
        sampling=sampling,
        dtype=getattr(backend.xp, reading.precision),
        proposal=proposal,
        proposal_sampling=reading.proposal_sampling(sampling),
    )


def pool(tables: Sequence[Table]) -> list[Row]:
    """Join the rows of several dumps; those that carry a dataset stay apart."""
    joined: dict[tuple[Any, ...], Row] = {}
    for row in (row for table in tables for row in table.rows):
        key = (row.dataset, row.rule, row.marginal, row.temperature, row.candidates)
        if key not in joined:
            joined[key] = row
            continue
        joined[key].extend(row)
    return list(joined.values())
