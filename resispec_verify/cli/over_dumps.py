"""Work on dumps, one after the other: each once, and what is wrong with one costs only that one.

Laws given by hand go the same way: one more dump, of one position.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from resispec_verify.backends import Backend
from resispec_verify.cli import compile_ahead, interrupts
from resispec_verify.cli.allocator import keep_freed_memory
from resispec_verify.cli.options.sources import OpeningOptions, SourceOptions
from resispec_verify.cli.output import open_dump, progress
from resispec_verify.distributions import Pair
from resispec_verify.dumps import FlatDump
from resispec_verify.errors import InputError
from resispec_verify.evidence.enumeration import operational_marginals
from resispec_verify.kernels.jit import on_compilation
from resispec_verify.kernels.optimal.transport import transport_limit
from resispec_verify.report.table import safe_line
from resispec_verify.runs.over_dumps import over_batches
from resispec_verify.tables.columns import merge
from resispec_verify.tables.distinct import check_vocabulary
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import PairBatch, Reading, by_hand, position_range

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def collected(items: Iterable[_Item], work: Callable[[_Item], _Result]) -> tuple[list[_Result], list[str]]:
    """What the work on each item gave, and one line for each item that could not be used."""
    results, failures = [], []
    keep_freed_memory()
    for item in items:
        try:
            results.append(work(item))
        except InputError as error:
            failures.append(str(error))
    return results, failures


def over_dumps(
    paths: Sequence[Path], work: Callable[[Path], _Result], counted: str = "positions"
) -> tuple[list[_Result], list[str]]:
    """The same for paths of dumps, each of which may be given once: its ``counted`` would count twice."""
    seen: set[str] = set()

    def once(path: Path) -> _Result:
        if os.path.realpath(path) in seen:
            raise InputError(f"{path}: given twice; its {counted} would count twice: give it once")
        seen.add(os.path.realpath(path))
        return work(path)

    return collected(paths, once)


def opened(
    paths: Sequence[Path], opening: OpeningOptions, evaluation: Evaluation, open_one: Callable[..., FlatDump]
) -> tuple[list[FlatDump], list[str]]:
    """The dumps of these paths, of which each has enough tokens, and one line for each that is not used."""

    def checked(path: Path) -> FlatDump:
        dump = open_one(path, pad_vocab=opening.pad_vocab, shards=opening.shards)
        check_tokens(evaluation, dump.vocab, str(path))
        return dump

    return over_dumps(paths, checked)


def over_pairs(
    source: SourceOptions,
    reading: Reading,
    evaluation: Evaluation,
    add: Callable[[dict[Any, Any], PairBatch], Any],
    backend: Backend,
    jobs: int,
) -> tuple[list[Any], list[str]]:
    """Rows over the pairs of all dumps, or over the one given by hand; those of one key are pooled.

    Parameters
    ----------
    evaluation : Evaluation
        The rules and candidates; each dump is checked to have enough tokens.
    add : callable
        Adds some pairs to rows by key; called from several threads, with rows of their own.
    jobs : int
        Threads.

    Returns
    -------
    rows : list
        They have a method ``extend``.
    failures : list of str
        A line for each dump that could not be used; none of its positions is in the rows.
    """
    rows: dict[Any, Any] = {}
    if source.by_hand:
        batch = pairs_by_hand(source, evaluation, backend)
        compile_kernels(evaluation)
        add(rows, batch)
        return list(rows.values()), []
    dumps, failures = opened(source.paths, source, evaluation, open_dump)
    if dumps:
        compile_kernels(evaluation)
    found, unused = collected(dumps, lambda dump: rows_of_pairs(dump, reading, add, backend, jobs))
    for fresh in found:
        merge(rows, fresh)
    return list(rows.values()), failures + unused


def rows_of_pairs(
    dump: FlatDump,
    reading: Reading,
    add: Callable[[dict[Any, Any], PairBatch], Any],
    backend: Backend,
    jobs: int,
) -> dict[Any, Any]:
    """Rows over the pairs of one dump, by key."""

    def rows_of(batch: PairBatch) -> dict[Any, Any]:
        fresh: dict[Any, Any] = {}
        add(fresh, batch)
        return fresh

    rows: dict[Any, Any] = {}
    first, last = position_range(dump, reading)
    with progress(dump.path, last - first) as advance:
        found = over_batches(dump, reading, rows_of, backend=backend, jobs=jobs, advance=advance)
    for fresh in found:
        merge(rows, fresh)
    for row in rows.values():
        row.sort()
    return rows


def pairs_by_hand(
    source: SourceOptions, evaluation: Evaluation, backend: Backend, precision: str = "float64"
) -> PairBatch:
    """The laws given by hand, as they are, as the only position of a dump."""
    pair = source.pair()
    check_tokens(evaluation, len(pair.target), "--target")
    laws = (backend.asarray(v[None, :].astype(getattr(np, precision))) for v in (pair.target, pair.draft))
    return by_hand(Pair(*laws))


def check_tokens(evaluation: Evaluation, vocab: int, where: str) -> None:
    """Refuse tokens outside the vocabulary, and more different candidates than it has tokens."""
    check_vocabulary(evaluation.rules, evaluation.candidates, vocab, where)
    worst = max(evaluation.candidate_list or (0,))
    if worst >= vocab:
        raise InputError(
            f"--candidate-list: token {worst} is outside the vocabulary 0..{vocab - 1} of {where}"
        )


def compile_kernels(evaluation: Evaluation) -> None:
    """Load the compiled kernels; where they have to be compiled, which takes long, say so."""
    with on_compilation(_announce):
        p, q = np.asarray([[0.25, 0.75]]), np.asarray([[0.5, 0.5]])
        transport_limit(p, q, 1)
        if evaluation.operational:
            for rule in evaluation.rules:
                interrupts.check()
                n = max(min(2, evaluation.candidates), rule.least_candidates)
                operational_marginals(rule, p, q, n)


def _announce(cached: bool) -> None:
    if cached:
        compile_ahead.start()
    when = "about 20 s" if cached else "about 20 s; there is no folder to cache it in"
    kept = "; each kernel is compiled once, by the first command that needs it, and kept" if cached else ""
    say(f"compiling kernels that are new here ({when}){kept}")


def say(line: str) -> None:
    """A remark, on standard error."""
    print(safe_line(f"resispec-verify: {line}"), file=sys.stderr)


def finish(failures: Iterable[str], status: int = 0) -> int:
    """Say what could not be used; the exit status, which is ``status`` where all could."""
    failures = list(failures)
    for failure in failures:
        say(f"error: {failure}")
    return 2 if failures else status
