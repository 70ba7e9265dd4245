"""`resispec-verify kl`: what each rule really emits, and how far that is from the target."""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import is_numpy_array

from resispec_verify.backends import get_backend
from resispec_verify.cli.interrupts import remark
from resispec_verify.cli.options.group import refuse_beside, values_of
from resispec_verify.cli.options.outputs import PlotOptions
from resispec_verify.cli.options.readings import ProposedReadingOptions
from resispec_verify.cli.options.sources import SourceOptions
from resispec_verify.cli.options.work import (
    ArrayOptions,
    DemandOptions,
    JobsOption,
    MarginalOptions,
    ShapedRuleOptions,
)
from resispec_verify.cli.output import files_read
from resispec_verify.cli.over_dumps import compile_kernels, finish, pairs_by_hand
from resispec_verify.cli.parameters import DumpFile, File, Text
from resispec_verify.cli.resumable import ResumableRun
from resispec_verify.cli.top_files import all_top, closed_only, kl_of_top
from resispec_verify.errors import InputError
from resispec_verify.kernels.jit import uncompiled
from resispec_verify.report.demands import kl_cases
from resispec_verify.report.verdicts import print_verdicts
from resispec_verify.rules import ResiSpec
from resispec_verify.runs.facts import facts_of_arrays
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import Clock
from resispec_verify.tables.row import Row
from resispec_verify.tables.summary import kl_report, may_exceed, position_records
from resispec_verify.tables.table import Table, pool

# Options that change where results go and how they are reached, not what they are; a journal is bound to all
# others, those to come included.
NOT_BINDING = {"logits", "target", "draft", "batch", "jobs", "resume", "scheduler"}
# What is left out is what it defaults to: a journal does not tell the two apart.
PLAIN = {"redistribution": "proportional", "budget": "local", "hole": "excluded", "seed": 0}
# Not in journals where it is not given: those of earlier versions have no such key.
LATER = {"until"}


@dataclass(frozen=True, kw_only=True)
class _RunOptions(JobsOption, ArrayOptions):
    """How the work is done."""

    resume: File | None = None
    """Journal of finished positions: created, or continued where the same run was ended before."""
    scheduler: Text | None = None
    """Evaluate on Dask: the address of a scheduler, or "local" for one process a core."""


def kl(
    *files: DumpFile,
    source: SourceOptions = SourceOptions(),
    rules: ShapedRuleOptions = ShapedRuleOptions(),
    reading: ProposedReadingOptions = ProposedReadingOptions(),
    marginals: MarginalOptions = MarginalOptions(),
    run: _RunOptions = _RunOptions(),
    output: PlotOptions = PlotOptions(),
    demands: DemandOptions = DemandOptions(),
) -> int:
    """What each rule really emits, how far that is from the target, and whether it is exact.

    Parameters
    ----------
    output.plot
        Write a plot of the positions here (.png, .svg or .pdf).
    """
    source = source.joined(files)
    output.check(files_read(source.paths), resume=run.resume, junit=demands.file())
    demands.check(marginals.marginal)
    if all_top(source.paths):
        source.check("verify")
        _refuse_of_top(marginals, run, output)
        return kl_of_top(source, reading, rules, run.threads(), output, demands)
    evaluation, how = marginals.evaluation(rules), reading.reading(run.precision)
    backend, clock, jobs = get_backend(run.backend), Clock(), run.threads()
    source.check("verify", reading, jobs=run.jobs, resume=run.resume, scheduler=run.scheduler)
    if run.scheduler is not None:
        refuse_beside("--scheduler", jobs=run.jobs)
    if source.by_hand:
        batch = pairs_by_hand(source, evaluation, backend, run.precision)
        tables, facts, failures = [Table()], facts_of_arrays(1), []
        how = replace(how, kind="probabilities")
        few = _few_tokens(batch.pair.target, evaluation)
        if not few:
            compile_kernels(evaluation)
        with uncompiled() if few else nullcontext():
            tables[0].evaluate(batch, evaluation, clock)
    else:
        options = _binding(values_of(source, rules, reading, marginals, run))
        resumable = ResumableRun(
            how, evaluation, backend, clock, source, run.scheduler, run.resume, options, jobs
        )  # fmt: skip
        remark(resumable.remains)
        tables, facts, failures = resumable.over(source.paths)
    rows, report = pool(tables), {}
    if rows:
        report = kl_report(rows, how, facts, clock.seconds)
        console = output.write(report, lambda: position_records(rows), lambda: _figure(rows))
        print_verdicts(rows, console, facts)
    over = [may_exceed(row, demands.max_tv) for row in rows]
    cases = kl_cases(report.get("results", []), over, **demands.made())
    return finish(failures, demands.tell("kl", cases, failures))


def _refuse_of_top(marginals: MarginalOptions, run: _RunOptions, output: PlotOptions) -> None:
    """Refuse options of work that files of top-k pairs do not need."""
    if marginals.marginal == "path-identity":
        raise InputError("--marginal path-identity: needs whole rows, and top-k files have none")
    plain = {"backend": ("auto", "numpy"), "precision": ("float64",)}
    work = values_of(marginals, run)
    del work["jobs"], work["marginal"]
    given = {name: None if value in plain.get(name, ()) else value for name, value in work.items()}
    closed_only(plot=output.plot, **given)


def _few_tokens(target: Any, evaluation: Evaluation) -> bool:
    """Whether array functions expand every path, and are through before numba is imported."""
    plain = (
        rule.depends_on == "nothing" or (isinstance(rule, ResiSpec) and rule.hole == "excluded")
        for rule in evaluation.rules
    )
    states = 2 * target.shape[-1] ** evaluation.candidates
    here = is_numpy_array(target) and target.dtype == np.float64
    return here and states <= min(1024, evaluation.budget.most_states) and all(plain)


def _binding(options: dict[str, Any]) -> dict[str, Any]:
    """What the results of a run depend on."""
    return {
        name: PLAIN.get(name) if value is None else value
        for name, value in sorted(options.items())
        if name not in NOT_BINDING and not (name in LATER and value is None)
    }


def _figure(rows: list[Row]) -> Any:
    from resispec_verify.report.plots.marginals import plot_marginals

    return plot_marginals(rows)
