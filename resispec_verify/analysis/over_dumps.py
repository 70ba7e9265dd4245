"""Evaluate rules over the positions of dumps, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from resispec_verify.analysis.marginals import Clock, Evaluation, Row, evaluate
from resispec_verify.backends import Backend
from resispec_verify.distributions import (
    LOGGED_SUM_TOLERANCE,
    Pair,
    Sampling,
    check_probabilities,
    pair_from_logits,
)
from resispec_verify.dumps import Batch, FlatDump, looks_like_probabilities
from resispec_verify.errors import InputError

__all__ = ["Reading", "evaluate_dump", "input_kind"]

# Elements of one float64 batch (positions x vocab): 8 MiB an array.
_BATCH_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Reading:
    """How the rows of a dump become pairs.

    Attributes
    ----------
    samplings : tuple of Sampling
        One table each.
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

    samplings: tuple[Sampling, ...]
    proposal_sampling: Callable[[Sampling], Sampling | None] = lambda sampling: None
    kind: str | None = None
    precision: str = "float64"
    start: int | None = None
    stop: int | None = None
    batch: int | None = None


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


def evaluate_dump(
    dump: FlatDump,
    reading: Reading,
    evaluation: Evaluation,
    *,
    backend: Backend,
    clock: Clock,
    advance: Callable[[int], Any] = lambda done: None,
) -> list[Row]:
    """Rows of one dump; positions stream through in batches.

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
    tables: list[dict[tuple[str, str], Row]] = [{} for _ in reading.samplings]
    for first in range(start, stop, size):
        last = min(first + size, stop)
        with clock("load"):
            batch = dump.batch(first, last)
        logged = None if dump.candidates is None else np.asarray(dump.candidates)[first:last]
        for sampling, rows in zip(reading.samplings, tables, strict=True):
            with clock("softmax"):
                pair = _pair(dump, batch, kind, sampling, reading, backend, first)
            evaluate(
                pair,
                evaluation,
                rows,
                positions=range(first, last),
                backend=backend,
                clock=clock,
                candidates=logged,
                temperature=sampling.temperature,
                dataset=dump.dataset if isinstance(dump.dataset, str) else None,
                source=str(dump.path),
            )
        advance(last - first)
    return [row for rows in tables for row in rows.values()]


def _range(dump: FlatDump, reading: Reading) -> tuple[int, int]:
    start = 0 if reading.start is None else reading.start
    stop = dump.positions if reading.stop is None else reading.stop
    if not 0 <= start < stop <= dump.positions:
        raise InputError(
            f"{dump.path}: positions {start}:{stop} are outside the dump, which has positions "
            f"0:{dump.positions}; give a non-empty range inside it"
        )
    return start, stop


def _pair(
    dump: FlatDump,
    batch: Batch,
    kind: str,
    sampling: Sampling,
    reading: Reading,
    backend: Backend,
    first: int,
) -> Pair:
    dtype = getattr(backend.xp, reading.precision)
    rows = [batch.target, batch.draft, batch.proposal]
    if kind == "probabilities":
        for name, values in zip(("target_logits", "draft_logits", "proposal_logits"), rows, strict=True):
            if values is not None:
                check_probabilities(
                    np.asarray(values, np.float64), f"{dump.path}: {name}", LOGGED_SUM_TOLERANCE, first
                )
        with np.errstate(divide="ignore"):
            rows = [None if v is None else np.log(np.asarray(v, np.float64)) for v in rows]
    target, draft, proposal = (None if v is None else backend.asarray(v) for v in rows)
    return pair_from_logits(
        target,
        draft,
        sampling=sampling,
        dtype=dtype,
        proposal=proposal,
        proposal_sampling=reading.proposal_sampling(sampling),
    )


def pool(tables: Sequence[list[Row]]) -> list[Row]:
    """Join the rows of several dumps; those that carry a dataset stay apart."""
    joined: dict[tuple[Any, ...], Row] = {}
    for row in (row for table in tables for row in table):
        key = (row.dataset, row.rule, row.marginal, row.temperature, row.candidates)
        if key not in joined:
            joined[key] = row
            continue
        for name, values in vars(row).items():
            if isinstance(values, list):
                getattr(joined[key], name).extend(values)
    return list(joined.values())
