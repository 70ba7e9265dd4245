"""A run over dumps, here or on a cluster, that goes on from where an earlier one was ended."""

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resispec_verify import __version__
from resispec_verify.backends import Backend
from resispec_verify.cli import interrupts
from resispec_verify.cli.options.sources import OpeningOptions
from resispec_verify.cli.output import not_written, progress
from resispec_verify.cli.over_dumps import collected, compile_kernels, opened, say
from resispec_verify.dumps import FlatDump, open_dump
from resispec_verify.dumps.fingerprint import fingerprint, size_of
from resispec_verify.errors import InputError
from resispec_verify.runs.facts import facts_of
from resispec_verify.runs.journal import Journal
from resispec_verify.runs.over_dumps import evaluate_dump
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import Clock, Reading, Span, position_range
from resispec_verify.tables.table import Table


@dataclass
class ResumableRun:
    """One run over dumps.

    Attributes
    ----------
    reading, evaluation, backend, clock
        What to do, and where.
    opening : OpeningOptions
        How dumps are opened.
    scheduler : str or None
        Address of a Dask scheduler, or "local".
    resume : Path or None
        The journal.
    options : dict
        All options that the results depend on.
    jobs : int
        Threads that work on positions, without a scheduler.
    kept, positions : int
        Positions that are in the journal, and positions in all.
    full : bool
        Whether the disk of the journal is.
    noted : bool
        Whether it was said that memory ended.
    """

    reading: Reading
    evaluation: Evaluation
    backend: Backend
    clock: Clock
    opening: OpeningOptions
    scheduler: str | None
    resume: Path | None
    options: dict[str, Any]
    jobs: int
    kept: int = 0
    positions: int = 0
    full: bool = False
    noted: bool = False

    def over(self, paths: list[Path]) -> tuple[list[Table], dict[str, Any], list[str]]:
        """Tables by file, what the files hold, and one line for each file that could not be used."""
        if self.resume is not None and str(self.resume) == "-":
            raise InputError("--resume needs a file: a journal cannot go to standard output")
        dumps, failures = opened(paths, self.opening, self.evaluation, self._open)
        if not dumps:
            return [], facts_of([], []), failures
        with ExitStack() as stack:
            client = journal = None
            if self.scheduler is not None:
                from resispec_verify.runs.cluster import connect

                client = stack.enter_context(connect(self.scheduler, say))
                _quiet()
            if self.resume is not None:
                journal = stack.enter_context(Journal(self.resume, self._header(dumps)))
            compile_kernels(self.evaluation)
            used, unused = collected(
                enumerate(dumps), lambda one: self._evaluated(one[0], one[1], journal, client)
            )
        tables = [table for _, table in used]
        return tables, facts_of([dump for dump, _ in used], tables), failures + unused

    def _open(self, path: Path, **options: Any) -> FlatDump:
        with self.clock("load"):
            return open_dump(path, **options)

    def _evaluated(
        self, number: int, dump: FlatDump, journal: Journal | None, client: Any
    ) -> tuple[FlatDump, Table]:
        first, last = position_range(dump, self.reading)
        self.positions += last - first
        done = self._done(journal, number, dump)
        with progress(dump.path, last - first) as advance:
            advance(sum(stop - start for start, stop in done))
            table = evaluate_dump(
                dump, self.reading, self.evaluation, backend=self.backend, note=self._note, done=done,
                keep=self._keep(journal, number, advance), run=self._elsewhere(client, dump),
                jobs=self.jobs,
            )  # fmt: skip
        self.clock.add(table.seconds)
        return dump, table

    def _note(self, line: str) -> None:
        """Say the first line that is given, and no other."""
        if not self.noted:
            self.noted = True
            say(line)

    def remains(self) -> str:
        """What to say about an interrupted run: how to go on with it."""
        if self.resume is None or not self.kept:
            return ""
        have = f"{self.kept} of {self.positions} positions are in {self.resume}"
        return f"; {have}: the same command goes on from there"

    def _header(self, dumps: list[FlatDump]) -> dict[str, Any]:
        """The first line of the journal: what its results depend on."""
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
                say(f"cannot write {journal.path}: {error.strerror}; going on without it")

        return keep

    def _elsewhere(self, client: Any, dump: FlatDump) -> Any:
        """How spans are evaluated on the cluster; None without one."""
        if client is None:
            return None
        from resispec_verify.runs.cluster import SharedWork, run

        found = fingerprint(dump.path, whole=False)
        where, name = os.path.abspath(dump.path), self.backend.name
        work = SharedWork(
            where, dump.path, self.opening.pad_vocab, found, self.evaluation, name, shards=self.opening.shards
        )  # fmt: skip

        def spans(reading: Reading, wanted: list[Span]) -> Iterable[tuple[Span, Table]]:
            return run(client, work, reading, wanted, note=self._note)

        return spans


def _quiet() -> None:
    """Keep Dask's own log, with its tracebacks of what it repairs, off our lines: what matters is raised."""
    import logging

    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
