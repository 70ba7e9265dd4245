"""How the rows of a dump become pairs of target and draft, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from resispec_verify.backends import Backend, get_backend
from resispec_verify.distributions import Pair, Sampling, check_probabilities, make_pair
from resispec_verify.dumps import Batch, FlatDump, TopPairsDump
from resispec_verify.dumps.checks.looks import all_equal, norms, sum_tolerance
from resispec_verify.errors import InputError
from resispec_verify.tables.adjusting import adjusted_batch, check_adjusting
from resispec_verify.tables.input_kind import input_kind, refuse_applied

__all__ = [
    "Clock",
    "PairBatch",
    "Reading",
    "Span",
    "batch_size",
    "by_hand",
    "cut",
    "logits_of",
    "pairs_between",
    "pairs_of",
    "position_range",
    "positions_at_once",
    "resolved",
    "rows_in_cache",
]

#: Positions ``first..last - 1``, as ``(first, last)``.
Span = tuple[int, int]

PHASES = ("load", "softmax", "rounds", "divergences", "limit")
# Elements of one float64 batch (positions x vocab): 8 MiB an array.
_BATCH_ELEMENTS = 1 << 20
# The same for processors: 1 MiB an array, since a rule works on several, which shall stay in a core's cache.
_CACHED_ELEMENTS = 1 << 17
# Where each position takes much the same, and little: 4 MiB. Kernels go through a batch row by row, so its
# rows need not fit together, and what a batch costs whatever its size is small beside this.
_LIGHT_ELEMENTS = 1 << 19


class Clock:
    """Seconds spent by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time of a ``with`` block to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - start

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add what was spent elsewhere."""
        for phase, more in seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + more


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
    order, history : str or None
        In the place of those of every sampling, where given.
    """

    samplings: tuple[Sampling, ...] | None = None
    proposal_sampling: Callable[[Sampling], Sampling | None] = lambda sampling: None
    kind: str | None = None
    precision: str = "float64"
    start: int | None = None
    stop: int | None = None
    batch: int | None = None
    order: str | None = None
    history: str | None = None

    def ordered(self, sampling: Sampling) -> Sampling:
        """The sampling with the order and the history that were asked for."""
        given = {"order": self.order, "history": self.history}
        given = {name: value for name, value in given.items() if value is not None}
        return replace(sampling, **given) if given else sampling


@dataclass(frozen=True)
class PairBatch:
    """Pairs of some positions, all sampled alike: what every table is made from.

    Attributes
    ----------
    pair : Pair
        Arrays ``(B, V)``.
    positions : int array (B,)
        0-based, in the dump.
    sampling : Sampling
    dataset : str or None
        As the dump calls it.
    source : str
        The dump's path; empty for values given by hand.
    candidates : int array (B, n) or None
        Those logged with the dump.
    constant : tuple of int
        Those of the positions whose target or draft row has equal values only.
    """

    pair: Pair
    positions: np.ndarray
    sampling: Sampling = field(default_factory=Sampling)
    dataset: str | None = None
    source: str = ""
    candidates: np.ndarray | None = None
    constant: tuple[int, ...] = ()

    def places(self) -> dict[str, list[Any]]:
        """Columns that say where the pairs are from."""
        return {"position": self.positions.tolist(), "source": [self.source] * len(self.positions)}


def by_hand(pair: Pair) -> PairBatch:
    """Pairs ``(B, V)`` that are from no dump."""
    return PairBatch(pair, np.arange(pair.target.shape[0]))


def pairs_of(
    dump: FlatDump,
    reading: Reading,
    *,
    backend: Backend | None = None,
    clock: Clock | None = None,
    advance: Callable[[int], Any] = lambda done: None,
) -> Iterator[PairBatch]:
    """The pairs of a dump, batch by batch and sampling by sampling.

    Parameters
    ----------
    backend : Backend, optional
        NumPy's by default.
    advance : callable
        Called with the number of positions after each batch.

    Raises
    ------
    InputError
        Range outside the dump, bad values (file, key and position named).
    """
    backend, clock = backend or get_backend("numpy"), clock or Clock()
    span = position_range(dump, reading)
    with clock("load"):
        reading = resolved(dump, reading)
    for first, last in cut([span], batch_size(dump, reading)):
        yield from pairs_between(dump, reading, (first, last), backend, clock)
        advance(last - first)


def pairs_between(
    dump: FlatDump, reading: Reading, span: Span, backend: Backend, clock: Clock
) -> Iterator[PairBatch]:
    """The pairs of one span, as one batch; the kind of rows must be known."""
    first, last = span
    with clock("load"):
        batch = dump.batch(first, last)
        if reading.kind not in (None, "logits"):
            batch = _from_probabilities(dump, batch, reading.kind, first)
    flat = all_equal(batch.target) | all_equal(batch.draft)
    for positions, dataset, samplings in _groups(dump, reading, span):
        part = _take(batch, positions - first)
        constant = tuple(positions[flat[positions - first]].tolist())
        logged = None if dump.candidates is None else dump.candidates[positions]
        for sampling in samplings:
            with clock("softmax"):
                drawn = reading.proposal_sampling(sampling.draft_sampling)
                rows = adjusted_batch(dump, part, positions, sampling, drawn)
                pair = _pair(rows, sampling, drawn, reading, backend)
            yield PairBatch(pair, positions, sampling, dataset, str(dump.path), logged, constant)


def position_range(dump: FlatDump | TopPairsDump, reading: Reading) -> Span:
    """First and last position that are read; raises `InputError` where they are outside the dump."""
    start = 0 if reading.start is None else reading.start
    stop = dump.positions if reading.stop is None else reading.stop
    if not 0 <= start < stop <= dump.positions:
        raise InputError(
            f"{dump.path}: positions {start}:{stop} are outside the dump, which has positions "
            f"0:{dump.positions}; give a non-empty range inside it"
        )
    return start, stop


def resolved(dump: FlatDump, reading: Reading) -> Reading:
    """The reading with the kind of rows, once it is certain that no temperature or filter is applied twice.

    Raises
    ------
    InputError
        As `input_kind`; or rows that are probabilities or their logarithms, and a temperature or filter that
        they may have already: logits do not sum to 1 by chance.
    """
    kind = input_kind(dump, reading.kind)
    stated = dump.sampling if isinstance(dump.sampling, tuple) else (dump.sampling or {},)
    refuse_applied([dump], reading.kind, reading.samplings, stated)
    used = reading.samplings or [reading.ordered(_stated(dump, i)) for i in range(len(stated))]
    for sampling in dict.fromkeys(used):
        drawn = reading.proposal_sampling(sampling.draft_sampling)
        for one in (sampling, *([] if drawn is None else [drawn])):
            check_adjusting(dump, one, kind)
    return replace(reading, kind=kind)


def positions_at_once(vocab: int) -> int:
    """How many rows of so many tokens are worked on together on any device, where nobody says it."""
    return max(2, min(64, _BATCH_ELEMENTS // vocab))


def rows_in_cache(vocab: int, *, light: bool = False) -> int:
    """The same for NumPy; ``light``: the work on a position is one of a few passes over its tokens."""
    return max(1, min(64, (_LIGHT_ELEMENTS if light else _CACHED_ELEMENTS) // vocab))


def batch_size(dump: FlatDump, reading: Reading) -> int:
    """Positions at a time."""
    return reading.batch or positions_at_once(dump.vocab)


def cut(spans: Iterable[Span], size: int) -> list[Span]:
    """The same positions in spans of at most ``size``."""
    return [(i, min(i + size, last)) for first, last in spans for i in range(first, last, size)]


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


def _groups(
    dump: FlatDump, reading: Reading, span: Span
) -> list[tuple[np.ndarray, str | None, tuple[Sampling, ...]]]:
    """Positions of a span by dataset and stated sampling, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i in range(*span):
        dataset = dump.dataset[i] if isinstance(dump.dataset, tuple) else dump.dataset
        samplings = reading.samplings or (reading.ordered(_stated(dump, i)),)
        groups.setdefault((dataset, samplings), []).append(i)
    return [(np.asarray(positions), *key) for key, positions in groups.items()]


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


def _from_probabilities(dump: FlatDump, batch: Batch, kind: str, first: int) -> Batch:
    """Logits of rows that are probabilities or their logarithms, checked to sum to 1."""
    held = zip(dump.keys, (dump.target, dump.draft, dump.proposal), batch, strict=True)
    found = [
        None if values is None or rows is None
        else logits_of(kind, values, f"{dump.path}: {name}", first, rows.dtype)
        for name, rows, values in held
    ]  # fmt: skip
    return Batch(*found)  # type: ignore[arg-type]


def _pair(
    batch: Batch, sampling: Sampling, drawn: Sampling | None, reading: Reading, backend: Backend
) -> Pair:
    target, draft, proposal = (None if v is None else backend.asarray(v) for v in batch)
    return make_pair(
        target,
        draft,
        sampling=sampling,
        dtype=getattr(backend.xp, reading.precision),
        proposal=proposal,
        proposal_sampling=drawn,
    )
