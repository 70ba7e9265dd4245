"""Evaluate rules over the positions of dumps, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from resispec_verify.analysis.marginals import Clock, Evaluation, Row, evaluate
from resispec_verify.backends import Backend, to_numpy
from resispec_verify.distributions import (
    LOGGED_SUM_TOLERANCE,
    Pair,
    Sampling,
    check_probabilities,
    pair_from_logits,
)
from resispec_verify.dumps import Batch, FlatDump, looks_like_probabilities
from resispec_verify.errors import InputError

__all__ = ["Reading", "Table", "evaluate_dump", "input_kind", "pairs_of", "pool"]

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
    """

    rows: list[Row]
    padding: list[float]


def input_kind(dump: FlatDump, kind: str | None) -> str:
    """What the rows of the dump are.

    Raises
    ------
    InputError
        Nothing was said and every row is a distribution: probabilities in a field meant for logits.
    """
    if kind is not None:
        return kind
    if looks_like_probabilities(dump):
        raise InputError(
            f"{dump.path}: every row of target and draft is in [0, 1] and sums to 1: these look like "
            "probabilities, not logits; say --input probabilities (or --input logits if they really are)"
        )
    return "logits"


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
    """

    pair: Pair
    positions: np.ndarray
    sampling: Sampling
    dataset: str | None


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
    start, stop = _range(dump, reading)
    with clock("load"):
        kind = input_kind(dump, reading.kind)
    size = reading.batch or max(2, min(64, _BATCH_ELEMENTS // dump.vocab))
    for first in range(start, stop, size):
        last = min(first + size, stop)
        with clock("load"):
            batch = dump.batch(first, last)
            if kind != "logits":
                batch = _from_probabilities(dump, batch, kind, first)
        for members, dataset, samplings in _groups(dump, reading, first, last):
            part = _take(batch, members - first)
            for sampling in samplings:
                with clock("softmax"):
                    pair = _pair(part, sampling, reading, backend)
                yield Members(pair, members, sampling, dataset)
        advance(last - first)


def evaluate_dump(
    dump: FlatDump,
    reading: Reading,
    evaluation: Evaluation,
    *,
    backend: Backend,
    clock: Clock,
    advance: Callable[[int], Any] = lambda done: None,
) -> Table:
    """Evaluate one dump; arguments and errors as `pairs_of`."""
    logged = None if evaluation.candidate_list or not evaluation.identity else dump.candidates
    if logged is not None and logged.shape[1] < evaluation.candidates:
        raise InputError(
            f"{dump.path}: candidates has {logged.shape[1]} a position, fewer than the "
            f"{evaluation.candidates} to verify; lower --candidates or give --candidate-list"
        )
    tables: dict[tuple[Any, ...], dict[tuple[str, str], Row]] = {}
    padding: list[float] = []
    for members in pairs_of(dump, reading, backend=backend, clock=clock, advance=advance):
        pair = members.pair
        if dump.pad:
            on_padding = pair.target[:, min(dump.pad) :] + pair.draft[:, min(dump.pad) :]
            padding += to_numpy(backend.xp.sum(on_padding, axis=-1)).tolist()
        evaluate(
            pair,
            evaluation,
            tables.setdefault((members.dataset, members.sampling), {}),
            positions=members.positions.tolist(),
            backend=backend,
            clock=clock,
            candidates=None if logged is None else logged[members.positions],
            temperature=members.sampling.temperature,
            dataset=members.dataset,
            source=str(dump.path),
        )
    return Table([row for rows in tables.values() for row in rows.values()], padding)


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


def _range(dump: FlatDump, reading: Reading) -> tuple[int, int]:
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

    def logits(name: str, values: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", over="ignore"):
            values = np.asarray(values, np.float64)
            plain = values if kind == "probabilities" else np.exp(values)
            check_probabilities(plain, f"{dump.path}: {name}", LOGGED_SUM_TOLERANCE, first)
            return np.log(plain) if kind == "probabilities" else values

    target, draft = logits(dump.keys[0], batch.target), logits(dump.keys[1], batch.draft)
    return Batch(target, draft, None if batch.proposal is None else logits(dump.keys[2], batch.proposal))


def _pair(batch: Batch, sampling: Sampling, reading: Reading, backend: Backend) -> Pair:
    target, draft, proposal = (None if v is None else backend.asarray(v) for v in batch)
    return pair_from_logits(
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
