"""`kl`, `limits` and `drift` over files of top-k pairs: answers for every completion of the tails."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from resispec_verify.cli.options.group import refuse_beside, refuse_of_lists, values_of
from resispec_verify.cli.options.outputs import OutputOptions
from resispec_verify.cli.options.readings import ProposedReadingOptions
from resispec_verify.cli.options.sources import SourceOptions
from resispec_verify.cli.options.work import DemandOptions, RuleOptions
from resispec_verify.cli.output import progress, say_notes
from resispec_verify.cli.over_dumps import collected, finish, over_dumps
from resispec_verify.dumps import TopPairs, TopPairsDump, files_of, is_top, open_top_pairs
from resispec_verify.errors import InputError
from resispec_verify.report.demands import kl_cases
from resispec_verify.report.top import print_top_drift, print_top_limits, print_top_verdicts
from resispec_verify.rules import Rule
from resispec_verify.runs.over_top import over_top
from resispec_verify.tables.distinct import check_vocabulary
from resispec_verify.tables.reading import position_range
from resispec_verify.tables.top_drift import check_standard, top_drift, top_drift_records, top_drift_report
from resispec_verify.tables.top_rows import TopQuestion, top_records
from resispec_verify.tables.top_summary import top_kl_report, top_limits_report

T = TypeVar("T")
A_FILE = "a top-k file"
# What is known of rows with unseen tails is a closed form: nothing is expanded, or goes elsewhere.
CLOSED = f"{A_FILE}, whose intervals are closed forms"


def all_top(paths: Sequence[Path]) -> bool:
    """Whether these are files of top-k pairs.

    Raises
    ------
    InputError
        Such files and others in one run: numbers of one are intervals of the other.
    """
    kinds = [is_top(path) for path in paths]
    if len(set(kinds)) > 1:
        odd = paths[kinds.index(True)]
        raise InputError(
            f"{odd}: lists the top k tokens, and another file does not: run them one kind at a time"
        )
    return any(kinds)


def kl_of_top(
    source: SourceOptions,
    reading: ProposedReadingOptions,
    rules: RuleOptions,
    jobs: int,
    output: OutputOptions,
    demands: DemandOptions,
) -> int:
    """`kl`, once options that it does not have are refused."""
    question = TopQuestion(rules.chosen(), rules.candidates, columns=output.csv is not None, shortest=True)
    files, answers, failures = _over(source, reading, jobs, question.asked, question.answer)
    if not answers:
        return finish(failures, demands.tell("kl", [], failures))
    rows = question.rows(answers)
    report = top_kl_report(rows, files)
    measures = ("acceptance", "limit", "emitted_tv", "emitted_kl", "tv", "kl")
    print_top_verdicts(report, output.write(report, lambda: top_records(rows, measures)))
    most = demands.max_tv
    over = [most is not None and float(one["tv_max_bounds"][1]) > most for one in report["results"]]
    cases = kl_cases(report["results"], over, **demands.made())
    return finish(failures, demands.tell("kl", cases, failures))


def limits_of_top(
    source: SourceOptions,
    reading: ProposedReadingOptions,
    rules: tuple[Rule, ...],
    candidates: int,
    jobs: int,
    output: OutputOptions,
) -> int:
    """`limits`, once options that it does not have are refused."""
    question = TopQuestion(rules, candidates, columns=output.csv is not None, sequential=True)
    files, answers, failures = _over(source, reading, jobs, question.asked, question.answer)
    if not answers:
        return finish(failures)
    rows = question.rows(answers)
    report = top_limits_report(rows, files)
    measures = ("acceptance", "limit", "sequential_limit")
    print_top_limits(report, output.write(report, lambda: top_records(rows, measures)))
    return finish(failures)


def drift_of_top(
    source: SourceOptions,
    reading: ProposedReadingOptions,
    rules: tuple[Rule, ...],
    candidates: int,
    jobs: int,
    output: OutputOptions,
) -> int:
    """`drift`, once options that it does not have are refused."""
    check_standard(rules)
    files, parts, failures = _over(
        source, reading, jobs, (rules, candidates), lambda path, start, pairs: top_drift(pairs, candidates)
    )
    if not parts:
        return finish(failures)
    report = top_drift_report(rules, candidates, parts, files)
    print_top_drift(report, output.write(report, lambda: top_drift_records(report)))
    return finish(failures)


def refuse_reading(path: Path, source: SourceOptions, reading: ProposedReadingOptions) -> None:
    """Refuse what would be done to rows, and what says how whole rows are read."""
    given = values_of(reading)
    others = {name: given.pop(name) for name in ("input", "batch")}
    del given["positions"]
    refuse_of_lists(path, **given)
    refuse_beside(A_FILE, **others, pad_vocab=source.pad_vocab, shards=source.shards)


def _over(
    source: SourceOptions,
    reading: ProposedReadingOptions,
    jobs: int,
    asked: tuple[tuple[Rule, ...], int],
    work: Callable[[str, int, TopPairs], T],
) -> tuple[list[TopPairsDump], list[T], list[str]]:
    """The files that were used, the answers of their blocks in order, and a line for each that was not."""
    refuse_reading(source.paths[0], source, reading)
    how = reading.reading()

    def one(path: Path) -> tuple[TopPairsDump, list[T]]:
        dump = open_top_pairs(path)
        if dump.vocab is not None:
            check_vocabulary(*asked, dump.vocab, dump.path)
        say_notes(dump)
        first, last = position_range(dump, how)
        with progress(dump.path, last - first) as advance:
            return dump, over_top(dump, work, (first, last), jobs, advance)

    files, missing = collected(source.paths, files_of)
    used, failures = over_dumps([file for some in files for file in some], one)
    failures = missing + failures
    return [dump for dump, _ in used], [answer for _, answers in used for answer in answers], failures


def closed_only(*, plot: Path | None = None, **options: Any) -> None:
    """Refuse options of how far paths are followed, and where; and pictures, which have no intervals."""
    refuse_beside(CLOSED, **options)
    if plot is not None:
        raise InputError("--plot: intervals of top-k files are not drawn; write them by --csv or --json")
