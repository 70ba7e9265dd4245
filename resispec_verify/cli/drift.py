"""`resispec-verify drift`: how acceptance and residual change from candidate to candidate."""

from dataclasses import dataclass, replace
from typing import Any

from resispec_verify.backends import get_backend
from resispec_verify.cli.drift_table import print_drift
from resispec_verify.cli.options.group import check_range, defaults_of, values_of
from resispec_verify.cli.options.outputs import PlotOptions
from resispec_verify.cli.options.readings import ProposedReadingOptions
from resispec_verify.cli.options.sources import SourceOptions
from resispec_verify.cli.options.work import JobsOption, RuleOptions, VisitOptions
from resispec_verify.cli.output import files_read
from resispec_verify.cli.over_dumps import finish, over_pairs
from resispec_verify.cli.parameters import Count, DumpFile
from resispec_verify.cli.top_files import all_top, closed_only, drift_of_top
from resispec_verify.tables.drift import MOST_CANDIDATES, add_drift, check_sequential
from resispec_verify.tables.drift_summary import DriftRow, drift_records, drift_report
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import PairBatch


@dataclass(frozen=True, kw_only=True)
class _FourCandidates(RuleOptions):
    candidates: Count = 4


def drift(
    *files: DumpFile,
    source: SourceOptions = SourceOptions(),
    rules: _FourCandidates = _FourCandidates(),
    reading: ProposedReadingOptions = ProposedReadingOptions(),
    blind_top_k: Count = 10,
    visits: VisitOptions = VisitOptions(),
    run: JobsOption = JobsOption(),
    output: PlotOptions = PlotOptions(),
) -> int:
    """How acceptance and residual change from candidate to candidate, beside what is possible.

    Parameters
    ----------
    rules.candidates
        Candidates at each position (n), at most 16.
    blind_top_k
        The blind spot of a draft is what lies outside its k best tokens.
    output.csv
        Write one line a rule and candidate here.
    """
    source = source.joined(files)
    output.check(files_read(source.paths))
    if all_top(source.paths):
        source.check("measure")
        asked = values_of(visits) | {"blind_top_k": blind_top_k}
        plain = defaults_of(visits) | {"blind_top_k": 10}
        closed_only(plot=output.plot, **{name: None if v == plain[name] else v for name, v in asked.items()})
        own = rules if rules.rule else replace(rules, rule=["specinfer"])
        chosen = own.chosen(MOST_CANDIDATES)
        return drift_of_top(source, reading, chosen, rules.candidates, run.threads(), output)
    how, chosen = reading.reading(), rules.chosen(MOST_CANDIDATES)
    check_range(1, blind_top_k=blind_top_k)
    budget, jobs = visits.budget(), run.threads()
    check_sequential(chosen)
    source.check("measure", reading, run)

    def add(rows: dict[Any, DriftRow], batch: PairBatch) -> None:
        add_drift(rows, chosen, batch, rules.candidates, top_k=blind_top_k, budget=budget)

    evaluation = Evaluation(chosen, rules.candidates)
    rows, failures = over_pairs(source, how, evaluation, add, get_backend("numpy"), jobs)
    if rows:
        console = output.write(drift_report(rows), lambda: drift_records(rows), lambda: _figure(rows))
        print_drift(rows, console)
    return finish(failures)


def _figure(rows: list[DriftRow]) -> Any:
    from resispec_verify.report.plots.drift import plot_drift

    return plot_drift(rows)
