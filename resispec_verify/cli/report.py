"""`resispec-verify report`: one page with verdicts, pictures, and how to get them again."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from resispec_verify.backends import get_backend
from resispec_verify.cli.options.group import check_range, command_line, refuse_without
from resispec_verify.cli.options.outputs import JsonOption
from resispec_verify.cli.options.readings import ReadingOptions
from resispec_verify.cli.options.sources import DumpOptions, OpeningOptions
from resispec_verify.cli.options.work import JobsOption, RuleOptions, WorkOptions
from resispec_verify.cli.output import (
    check_writable,
    files_read,
    progress,
    stdout_is,
    table_console,
    write_json,
    write_text,
)
from resispec_verify.cli.over_dumps import collected, compile_kernels, finish, opened, rows_of_pairs
from resispec_verify.cli.parameters import DumpFile, File, Number
from resispec_verify.cli.tokenizer import token_texts
from resispec_verify.dumps import FlatDump, open_dump
from resispec_verify.errors import InputError
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.report.table import print_lines
from resispec_verify.runs.over_dumps import evaluate_dump
from resispec_verify.tables.against import changes, read_report, unsaid
from resispec_verify.tables.drift import MOST_CANDIDATES, add_drift
from resispec_verify.tables.drift_summary import DriftRow
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import PairBatch, Reading, position_range
from resispec_verify.tables.table import Table

ALPHA = 0.05  # of all tests of --against together


@dataclass(frozen=True, kw_only=True)
class _PageWorkOptions(WorkOptions):
    """How far paths are followed, and how many residuals are visited."""

    max_states: Number = 50
    """Residuals visited at a position for the drift of rules that depend on what was rejected."""


@dataclass(frozen=True, kw_only=True)
class _PageOptions(JsonOption):
    """Where the page goes, and what it is held against.

    Attributes
    ----------
    json
        Write the verdicts here, with the numbers of every position ("-": standard output).
    """

    out: File | None = None
    """Write the page here ("-": standard output)."""
    against: File | None = None
    """What kl --json or report --json wrote earlier: what changed since, and whether significantly."""
    alpha: Number | None = None
    """With --against: level of all its tests together (0.05)."""

    def earlier(self) -> dict[str, Any] | None:
        """The earlier report, if any."""
        if self.against is None:
            refuse_without("--against", alpha=self.alpha)
            return None
        if not 0 < self.level < 1:
            raise InputError(f"--alpha must be in (0, 1), got {self.level:g}")
        return read_report(self.against)

    @property
    def level(self) -> float:
        """The level of all tests together."""
        return ALPHA if self.alpha is None else self.alpha


def report(
    *files: DumpFile,
    dumps: DumpOptions = DumpOptions(),
    opening: OpeningOptions = OpeningOptions(),
    page: _PageOptions = _PageOptions(),
    rules: RuleOptions = RuleOptions(),
    reading: ReadingOptions = ReadingOptions(),
    work: _PageWorkOptions = _PageWorkOptions(),
    run: JobsOption = JobsOption(),
    tokenizer: File | None = None,
) -> int:
    """One page (HTML, complete in itself): verdicts, pictures, and how to get them again.

    Parameters
    ----------
    rules.candidates
        Candidates at each position (n), at most 16.
    tokenizer
        A tokenizer.json, for the text of the tokens.
    """
    from resispec_verify.report.contents import Found, report_page

    dumps = dumps.joined(files)
    if page.out is None:
        raise InputError("say where the page goes: --out report.html")
    if not dumps.paths:
        raise InputError("nothing to report on: give FILE...")
    read = [*files_read(dumps.paths), *(one for one in (tokenizer, page.against) if one is not None)]
    check_writable(inputs=read, out=page.out, json=page.json)
    earlier = page.earlier()
    check_range(1, max_states=work.max_states)
    jobs = run.threads()
    chosen = rules.chosen(MOST_CANDIDATES)
    evaluation = Evaluation(chosen, rules.candidates, identity=False, budget=work.budget())
    how = reading.reading()
    texts = None if tokenizer is None else partial(token_texts, tokenizer)
    if texts is not None:
        texts([])  # a bad file is told before the work, not after
    visits = Budget(1e-3 if work.gap is None else work.gap, 1e6, work.max_states, until_decided=False)
    found = Found(how)
    opened_dumps, failures = opened(dumps.paths, opening, evaluation, open_dump)
    if opened_dumps:
        compile_kernels(evaluation)
    failures += collected(
        opened_dumps, lambda dump: found.add(dump, *_evaluated(dump, how, evaluation, visits, jobs))
    )[1]
    if found.dumps:
        command = command_line(
            "report", opening, rules, reading, work, page, files=dumps.paths, tokenizer=tokenizer
        )
        _written(found, page, earlier, partial(report_page, found, chosen, rules.candidates, texts, command))
    return finish(failures)


def _written(
    found: Any, page: _PageOptions, earlier: dict[str, Any] | None, made: Callable[..., str]
) -> None:
    """Write page and JSON, and say what changed since the earlier report."""
    from resispec_verify.report.against import changes_section, print_changes
    from resispec_verify.report.contents import found_report

    assert page.out is not None
    report, changed = found_report(found), None
    if page.json is not None:
        write_json(page.json, report)
    console = table_console(page.out, page.json)
    if earlier is not None:
        compared = changes(earlier, report, page.level)
        said: dict[str, Any] = {"alpha": page.level, "old": page.against, "unsaid": unsaid(earlier)}
        changed = changes_section(compared, **said)
        print_changes(compared, console=console, **said)
    if write_text(page.out, made(changed)) and not stdout_is(page.out):
        said = f"{page.out}: {len(found.rows)} verdicts, {found.positions} positions"
        print_lines(console, [said])


def _evaluated(
    dump: FlatDump, reading: Reading, evaluation: Evaluation, visits: Budget, jobs: int
) -> tuple[Table, dict[Any, DriftRow]]:
    """The verdicts of one dump, and the drift of the rules that have a residual between candidates."""
    first, last = position_range(dump, reading)
    backend = get_backend("numpy")
    with progress(dump.path, last - first) as advance:
        table = evaluate_dump(
            dump, reading, evaluation, backend=backend, jobs=jobs,
            keep=lambda span, _: advance(span[1] - span[0]),
        )  # fmt: skip
    rules = tuple(rule for rule in evaluation.rules if rule.depends_on != "tuple")

    def add(rows: dict[Any, DriftRow], batch: PairBatch) -> None:
        add_drift(rows, rules, batch, evaluation.candidates, budget=visits)

    return table, rows_of_pairs(dump, reading, add, backend, jobs) if rules else {}
