"""`resispec-verify report`: one page with verdicts, pictures, and how to get them again."""

import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from resispec_verify.backends import get_backend
from resispec_verify.cli.options.group import Options
from resispec_verify.cli.options.readings import ReadingOptions
from resispec_verify.cli.options.sources import DumpOptions, OpeningOptions
from resispec_verify.cli.options.work import RuleOptions, WorkOptions
from resispec_verify.cli.output import check_writable, files_read, progress, stdout_is, write_text
from resispec_verify.cli.over_dumps import collected, compile_kernels, finish, opened, rows_of_pairs
from resispec_verify.cli.parameters import DumpFile, File, Number
from resispec_verify.cli.report_contents import Found, report_page, sequential
from resispec_verify.cli.tokenizer import token_texts
from resispec_verify.dumps import FlatDump, open_dump
from resispec_verify.errors import InputError
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.runs.over_dumps import evaluate_dump
from resispec_verify.tables.drift import MOST_CANDIDATES, add_drift
from resispec_verify.tables.drift_summary import DriftRow
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import PairBatch, position_range


@dataclass(frozen=True, kw_only=True)
class _PageWorkOptions(WorkOptions):
    """How far paths are followed, and how many residuals are visited.

    Attributes
    ----------
    max_states
        Residuals visited at a position for the drift of rules that depend on what was rejected.
    """

    max_states: Number = 50


def report(
    *files: DumpFile,
    dumps: DumpOptions = DumpOptions(),
    opening: OpeningOptions = OpeningOptions(),
    out: File | None = None,
    rules: RuleOptions = RuleOptions(),
    reading: ReadingOptions = ReadingOptions(),
    work: _PageWorkOptions = _PageWorkOptions(),
    tokenizer: File | None = None,
) -> int:
    """One page (HTML, complete in itself): verdicts, pictures, and how to get them again.

    Parameters
    ----------
    out
        Write the page here ("-": standard output).
    rules.candidates
        Candidates at each position (n), at most 16.
    tokenizer
        A tokenizer.json, for the text of the tokens.
    """
    dumps = dumps.joined(files)
    if out is None:
        raise InputError("say where the page goes: --out report.html")
    if not dumps.paths:
        raise InputError("nothing to report on: give --logits PATH...")
    read = [*files_read(dumps.paths), *([tokenizer] if tokenizer is not None else [])]
    check_writable(out=out, inputs=read)
    if not work.max_states >= 1:
        raise InputError(f"--max-states must be at least 1, got {work.max_states:g}")
    chosen = rules.chosen(MOST_CANDIDATES)
    evaluation = Evaluation(chosen, rules.candidates, identity=False, budget=work.budget())
    how = reading.reading()
    if tokenizer is not None:
        token_texts(tokenizer, [])  # a bad file is told before the work, not after
    visits = Budget(1e-3 if work.gap is None else work.gap, 1e6, work.max_states, until_decided=False)
    found = Found(how)
    opened_dumps, failures = opened(dumps.paths, opening, evaluation, open_dump)
    if opened_dumps:
        compile_kernels(evaluation)
    failures += collected(opened_dumps, lambda dump: _add(found, dump, evaluation, visits))[1]
    if found.dumps:
        command = _command(dumps, opening, rules, reading, work, out=out, tokenizer=tokenizer)
        page = report_page(found, chosen, rules.candidates, tokenizer, command)
        if write_text(out, page) and not stdout_is(out):
            print(f"{out}: {len(found.rows)} verdicts, {found.positions} positions")
    return finish(failures)


def _add(found: Found, dump: FlatDump, evaluation: Evaluation, visits: Budget) -> None:
    """Evaluate one dump; nothing is kept of one that fails."""
    first, last = position_range(dump, found.reading)
    backend = get_backend("numpy")
    with progress(dump.path, last - first) as advance:
        table = evaluate_dump(
            dump, found.reading, evaluation, backend=backend,
            keep=lambda span, _: advance(span[1] - span[0]),
        )  # fmt: skip
    rules = sequential(evaluation.rules)

    def add(rows: dict[Any, DriftRow], batch: PairBatch) -> None:
        add_drift(rows, rules, batch, evaluation.candidates, budget=visits)

    found.add(dump, table, rows_of_pairs(dump, found.reading, add, backend) if rules else {})


def _command(*groups: Options, **options: Path | None) -> str:
    """The command line, from its options; what is not given is left out."""
    words = ["resispec-verify", "report"]
    values = [(f.name, getattr(group, f.name), f.default) for group in groups for f in fields(group)]
    for name, value, default in [*values, *((name, value, None) for name, value in options.items())]:
        option = f"--{name.replace('_', '-')}"
        if value is None or value == default:
            continue
        if value is True:
            words.append(option)
        elif name == "logits":
            words += [option, *map(str, value)]
        else:
            for one in value if isinstance(value, list) else [value]:
                words += [option, f"{one:g}" if isinstance(one, float) else str(one)]
    return shlex.join(words)
