"""`resispec-verify kl`: what each rule really emits, and how far that is from the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resispec_verify.cli.interrupts import remark
from resispec_verify.cli.options import (
    ArrayOptions,
    DemandOptions,
    MarginalOptions,
    PlotOptions,
    ProposedReadingOptions,
    ShapedRuleOptions,
    SourceOptions,
    values_of,
)
from resispec_verify.cli.output import files_read
from resispec_verify.cli.over_dumps import compile_kernels, finish, members_by_hand
from resispec_verify.cli.parameters import DumpFile, File, Text
from resispec_verify.cli.resumable import ResumableRun

if TYPE_CHECKING:
    from resispec_verify.runs.over_dumps import Members, Table
    from resispec_verify.tables.marginals import Evaluation, Row

__all__ = ["kl"]

# Options that change where results go and how they are reached, not what they are; a journal is bound to all
# others, those to come included.
NOT_BINDING = {"logits", "target", "draft", "batch", "resume", "scheduler"}
# What is left out is what it defaults to: a journal does not tell the two apart.
PLAIN = {"redistribution": "proportional", "budget": "local", "hole": "excluded", "seed": 0}

#: What is said of dumps, where there is none.
BY_HAND: dict[str, Any] = {
    "paths": [], "positions": 1, "vocab": None, "dtype": "float64", "padding": None,
    "notes": [], "left_out": 0, "constant_rows": [],
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _RunOptions(ArrayOptions):
    """How the work is done.

    Attributes
    ----------
    resume
        Journal of finished positions: created, or continued where the same run was ended before.
    scheduler
        Evaluate on Dask: the address of a scheduler, or "local" for one process a core.
    """

    resume: File | None = None
    scheduler: Text | None = None


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
    from resispec_verify.backends import get_backend
    from resispec_verify.cli.verdict_table import print_verdicts
    from resispec_verify.runs.over_dumps import pool
    from resispec_verify.tables.marginals import Clock
    from resispec_verify.tables.summary import exit_status, kl_report, position_records

    source = source.joined(files)
    output.check(files_read(source.paths), resume=run.resume)
    demands.check(marginals.marginal)
    evaluation, how = marginals.evaluation(rules), reading.reading(run.precision)
    backend, clock = get_backend(run.backend), Clock()
    source.check("verify", reading, resume=run.resume, scheduler=run.scheduler)
    if source.by_hand:
        members = members_by_hand(source, evaluation, backend, run.precision)
        tables, facts, failures = [_table(members, evaluation, backend, clock)], BY_HAND, []
    else:
        options = _binding(values_of(source, rules, reading, marginals, run))
        resumable = ResumableRun(
            how, evaluation, backend, clock, source, run.scheduler, run.resume, options
        )  # fmt: skip
        remark(resumable.remains)
        tables, facts, failures = resumable.over(source.paths)
    rows = pool(tables)
    if rows:
        report = kl_report(rows, facts, clock.seconds)
        console = output.write(report, lambda: position_records(rows), lambda: _figure(rows))
        print_verdicts(rows, console, facts)
    status = exit_status(rows, require_exact=demands.require_exact, max_tv=demands.max_tv)
    return finish(failures, status)


def _binding(options: dict[str, Any]) -> dict[str, Any]:
    """What the results of a run depend on."""
    return {
        name: PLAIN.get(name) if value is None else value
        for name, value in sorted(options.items())
        if name not in NOT_BINDING
    }


def _table(members: Members, evaluation: Evaluation, backend: Any, clock: Any) -> Table:
    from resispec_verify.runs.over_dumps import Table
    from resispec_verify.tables.marginals import evaluate

    compile_kernels(evaluation)
    rows: dict[tuple[str, str], Row] = {}
    evaluate(members.pair, evaluation, rows, positions=[0], backend=backend, clock=clock)
    return Table(list(rows.values()), [])


def _figure(rows: list[Row]) -> Any:
    from resispec_verify.report.plots.marginals import plot_marginals

    return plot_marginals(rows)
