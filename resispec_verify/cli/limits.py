"""`resispec-verify limits`: acceptance of every rule beside what no exact rule can exceed."""

from dataclasses import replace
from typing import Any

from resispec_verify.backends import get_backend
from resispec_verify.cli.options.outputs import OutputOptions
from resispec_verify.cli.options.readings import ProposedReadingOptions
from resispec_verify.cli.options.sources import SourceOptions
from resispec_verify.cli.options.work import BackendOption, JobsOption, RuleOptions
from resispec_verify.cli.output import files_read
from resispec_verify.cli.over_dumps import finish, over_pairs
from resispec_verify.cli.parameters import DumpFile
from resispec_verify.cli.top_files import all_top, closed_only, limits_of_top
from resispec_verify.report.answers import print_limits
from resispec_verify.rules import RULES, Iid, Rule
from resispec_verify.tables.limits import add_limits, limit_records, limits_report
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import PairBatch
from resispec_verify.tables.row import Row


def limits(
    *files: DumpFile,
    source: SourceOptions = SourceOptions(),
    rules: RuleOptions = RuleOptions(),
    reading: ProposedReadingOptions = ProposedReadingOptions(),
    backend: BackendOption = BackendOption(),
    run: JobsOption = JobsOption(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Acceptance of each rule beside the limits; a rule above the limit cannot be exact.

    Parameters
    ----------
    rules.rule
        A rule, with options of its own as in resispec:budget=floor, or FILE.py:NAME or package.module:NAME,
        whose code is executed; repeat for several.
        Default: all for independent candidates that need no enumeration, and resispec.
    """
    source = source.joined(files)
    output.check(files_read(source.paths))
    if all_top(source.paths):
        source.check("measure")
        closed_only(backend=None if backend.backend in ("auto", "numpy") else backend.backend)
        return limits_of_top(source, reading, _chosen(rules), rules.candidates, run.threads(), output)
    how, chosen = reading.reading(), _chosen(rules)
    jobs = run.threads()
    source.check("measure", reading, run)

    def add(rows: dict[Any, Row], batch: PairBatch) -> None:
        add_limits(rows, chosen, batch, rules.candidates)

    evaluation = Evaluation(chosen, rules.candidates)
    rows, failures = over_pairs(source, how, evaluation, add, get_backend(backend.backend), jobs)
    if rows:
        report = limits_report(rows)
        print_limits(report["results"], output.write(report, lambda: limit_records(rows)))
    return finish(failures)


def _chosen(options: RuleOptions) -> tuple[Rule, ...]:
    """The rules that were named; by default those that need no enumeration."""
    if options.rule:
        return options.chosen()
    # Candidates that must differ can run out at any position, which would end a run nobody asked them of.
    cheap = [
        name
        for name, rule in RULES.items()
        if isinstance(rule.proposal, Iid)
        and (name == "resispec" or rule.depends_on in ("nothing", "tuple"))
        and rule.least_candidates <= options.candidates
    ]
    return replace(options, rule=cheap).chosen()
