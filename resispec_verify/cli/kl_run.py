"""`resispec-verify kl` over dumps: here or on a cluster, and from where an earlier run was ended."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resispec_verify.cli import interrupts
from resispec_verify.cli.kl_settings import check_tokens
from resispec_verify.cli.output import not_written, progress
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from resispec_verify.backends import Backend
    from resispec_verify.dumps import FlatDump
    from resispec_verify.runs.journal import Journal
    from resispec_verify.tables.marginals import Evaluation
    from resispec_verify.tables.reading import Clock, Reading, Span
    from resispec_verify.tables.table import Table

__all__ = ["Run", "compile_kernels"]


@dataclass
class Run:
    """One run over dumps.

    Attributes
    ----------
    reading, evaluation, backend, clock
        What to do, and where.
    pad : bool
        As in `open_dump`.
    scheduler : str or None
        Address of a Dask scheduler, or "local".
    resume : Path or None
        The journal.
    options : dict
        All options that the results depend on.
    shards : {"vocab", "positions"} or None
        As in `open_dump`.
    kept, positions : int
        Positions that are in the journal, and positions in all.
    full : bool
        Whether the disk of the journal is.
    """

    reading: Reading
    evaluation: Evaluation
    backend: Backend
    clock: Clock
    pad: bool
    scheduler: str | None
    resume: Path | None
    options: dict[str, Any]
    shards: Any = None
    kept: int = 0
    positions: int = 0
    full: bool = False

    def over(self, paths: list[Path]) -> tuple[list[Table], dict[str, Any], list[str]]:
        """Tables by file, what the files hold, and one line for each file that could not be used."""
        from resispec_verify.runs.over_dumps import evaluate_dump
        from resispec_verify.tables.reading import position_range

        if self.resume is not None and str(self.resume) == "-":
            raise InputError("--resume needs a file: a journal cannot go to standard output")
        opened, failures = self._opened(paths)
        tables, used = [], []
        note = _once()
        with ExitStack() as stack:
            client = None
            if opened and self.scheduler is not None:
                from resispec_verify.runs.cluster import connect

                client = stack.enter_context(connect(self.scheduler, _say))
                _quiet()
            journal = None
            if opened and self.resume is not None:
                from resispec_verify.runs.journal import Journal

                journal = stack.enter_context(Journal(self.resume, self._header(opened)))
            if opened:
                compile_kernels(self.evaluation)
            for number, dump in enumerate(opened):
                try:
                    first, last = position_range(dump, self.reading)
                    self.positions += last - first
                    done = self._done(journal, number, dump)
                    with progress(dump.path, last - first) as advance:
                        advance(sum(stop - start for start, stop in done))
                        table = evaluate_dump(
                            dump,
                            self.reading,
                            self.evaluation,
                            backend=self.backend,
                            note=note,
                            done=done,
                            keep=self._keep(journal, number, advance),
                            run=self._elsewhere(client, dump, note),
                        )
                    self.clock.add(table.seconds)
                    tables.append(table)
                    used.append(dump)
                except InputError as error:
                    failures.append(str(error))
        return tables, _facts(used, tables), failures

    def remains(self) -> str:
        """What to say about an interrupted run: how to go on with it."""
        if self.resume is None or not self.kept:
            return ""
        have = f"{self.kept} of {self.positions} positions are in {self.resume}"
        return f"; {have}: the same command goes on from there"

    def _opened(self, paths: list[Path]) -> tuple[list[FlatDump], list[str]]:
        from resispec_verify.dumps import open_dump

        opened: dict[str, FlatDump] = {}
        failures = []
        for path in paths:
            try:
                if os.path.realpath(path) in opened:
                    raise InputError(f"{path}: given twice; its positions would count twice")
                with self.clock("load"):
                    dump = open_dump(path, pad_vocab=self.pad, shards=self.shards)
                check_tokens(self.evaluation, dump.vocab, str(path))
                opened[os.path.realpath(path)] = dump
            except InputError as error:
                failures.append(str(error))
        return list(opened.values()), failures

    def _header(self, dumps: list[FlatDump]) -> dict[str, Any]:
        """The first line of the journal: what its results depend on."""
        from resispec_verify import __version__
        from resispec_verify.dumps.fingerprint import fingerprint, size_of

        found = []
        for dump in dumps:
            with progress(dump.path, size_of(dump.path)) as advance:
                size, digest = fingerprint(dump.path, whole=True, advance=advance)
            found.append({"path": os.path.realpath(dump.path), "size": size, "sha256": digest})
        files = {}
        for name in self.options["rule"] or []:
            path = Path(name.rpartition(":")[0])
            if path.suffix == ".py":
                files[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        options = {**self.options, "rule_files": files}
        return {"journal": 1, "command": "kl", "version": __version__, "dumps": found, "options": options}

    def _done(self, journal: Journal | None, number: int, dump: FlatDump) -> dict[Span, Table]:
        """What the journal has of a dump."""
        from resispec_verify.tables.table import Table

        if journal is None:
            return {}
        done: dict[Span, Table] = {}
        try:
            for entry in journal.entries:
                if entry["dump"] == number:
                    first, last = entry["span"]
                    table = Table.from_plain(entry, self.evaluation.rules, dump.path)
                    if not all(first <= i < last for row in table.rows for i in row.position):
                        raise ValueError
                    done[first, last] = table
            if any(one[1] > other[0] for one, other in zip(sorted(done), sorted(done)[1:], strict=False)):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{journal.path}: an entry is damaged; name another file to start anew"
            ) from None
        self.kept += sum(last - first for first, last in done)
        return done

    def _keep(
        self, journal: Journal | None, number: int, advance: Callable[[int], Any]
    ) -> Callable[[Span, Table], None]:
        def keep(span: Span, table: Table) -> None:
            interrupts.check()
            advance(span[1] - span[0])
            if journal is None or self.full:
                return
            try:
                journal.append({"dump": number, "span": list(span), **table.plain()})
                self.kept += span[1] - span[0]
            except OSError as error:  # the results so far are worth more than the journal
                self.full = True
                not_written(journal.path, error)
                _say(f"cannot write {journal.path}: {error.strerror}; going on without it")

        return keep

    def _elsewhere(self, client: Any, dump: FlatDump, note: Callable[[str], None]) -> Any:
        """How spans are evaluated on the cluster; None without one."""
        if client is None:
            return None
        from resispec_verify.dumps.fingerprint import fingerprint
        from resispec_verify.runs.cluster import SharedWork, run

        found = fingerprint(dump.path, whole=False)
        where, name = os.path.abspath(dump.path), self.backend.name
        work = SharedWork(where, dump.path, self.pad, found, self.evaluation, name, shards=self.shards)

        def spans(reading: Reading, wanted: list[Span]) -> Iterable[tuple[Span, Table]]:
            return run(client, work, reading, wanted, note=note)

        return spans


def _facts(dumps: list[FlatDump], tables: list[Table]) -> dict[str, Any]:
    padding = [mass for table in tables for mass in table.padding]
    return {
        "paths": [str(dump.path) for dump in dumps],
        "positions": sum(dump.positions for dump in dumps),
        "vocab": max((dump.vocab for dump in dumps), default=0),
        "dtype": "/".join(dict.fromkeys(dump.dtype for dump in dumps)),
        "padding": {"mass_mean": sum(padding) / len(padding), "mass_max": max(padding)} if padding else None,
        "notes": [{"path": str(dump.path), "text": note} for dump in dumps for note in dump.notes],
        "left_out": sum(dump.left_out for dump in dumps),
        "constant_rows": [
            {"path": str(dump.path), "positions": table.constant}
            for dump, table in zip(dumps, tables, strict=True)
            if table.constant
        ],
    }


def _quiet() -> None:
    """Keep Dask's own log, with its tracebacks of what it repairs, off our lines: what matters is raised."""
    import logging

    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _say(line: str) -> None:
    print(f"resispec-verify: {line}", file=sys.stderr)


def _once() -> Callable[[str], None]:
    """Says the first line that it is given, and no other."""
    said = []

    def say(line: str) -> None:
        if not said:
            _say(line)
        said.append(line)

    return say


def compile_kernels(evaluation: Evaluation) -> None:
    """Load the compiled kernels; where they have to be compiled, which takes long, say so."""
    import numpy as np

    from resispec_verify.evidence.enumeration import operational_marginals
    from resispec_verify.kernels.jit import on_compilation
    from resispec_verify.kernels.optimal.transport import transport_limit

    with on_compilation(_announce):
        p, q = np.asarray([[0.25, 0.75]]), np.asarray([[0.5, 0.5]])
        transport_limit(p, q, 1)
        if evaluation.operational:
            for rule in evaluation.rules:
                interrupts.check()
                n = max(min(2, evaluation.candidates), rule.least_candidates)
                operational_marginals(rule, p, q, n)


def _announce(cached: bool) -> None:
    when = "first run only, about 20 s; cached afterwards" if cached else "about 20 s; no folder to cache it"
    _say(f"compiling the path kernels ({when})")
