"""`resispec-verify kl`: what each rule really emits, and how far that is from the target."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from resispec_verify.cli.interrupts import remark
from resispec_verify.cli.kl_run import Run, compile_kernels
from resispec_verify.cli.kl_settings import (
    check_demands,
    check_tokens,
    make_evaluation,
    make_reading,
    pair_by_hand,
    refuse_by_hand,
)
from resispec_verify.cli.output import (
    check_writable,
    files_read,
    table_console,
    write_csv,
    write_figure,
    write_json,
)
from resispec_verify.cli.parameters import Count, File, Files, Flag, Names, Number, Numbers, Text
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from resispec_verify.backends import Backend
    from resispec_verify.tables.marginals import Evaluation
    from resispec_verify.tables.reading import Clock, Reading
    from resispec_verify.tables.row import Row
    from resispec_verify.tables.table import Table

__all__ = ["kl"]

# Options that change where results go and how they are reached, not what they are; a journal is bound to all
# others, those to come included.
NOT_BINDING = {
    "logits", "target", "draft", "batch", "resume", "scheduler",
    "json", "csv", "plot", "require_exact", "max_tv",
}  # fmt: skip


def kl(
    *,
    logits: Files | None = None,
    target: Text | None = None,
    draft: Text | None = None,
    rule: Names | None = None,
    candidates: Count = 3,
    temperature: Numbers | None = None,
    top_k: Count | None = None,
    top_p: Number | None = None,
    min_p: Number | None = None,
    proposal_temperature: Number | None = None,
    proposal_top_k: Count | None = None,
    proposal_top_p: Number | None = None,
    marginal: Literal["operational", "path-identity", "both"] = "both",
    redistribution: Literal["proportional", "water-filling"] | None = None,
    budget: Literal["local", "floor"] | None = None,
    hole: Literal["excluded", "literal"] | None = None,
    gap: Number | None = None,
    max_expansions: Number | None = None,
    backend: Literal["auto", "numpy", "torch", "cupy"] = "auto",
    precision: Literal["float64", "float32"] = "float64",
    input: Literal["logits", "probabilities", "log-probabilities"] | None = None,
    positions: Text | None = None,
    batch: Count | None = None,
    resume: File | None = None,
    scheduler: Text | None = None,
    candidate_list: Text | None = None,
    seed: Count | None = None,
    pad_vocab: Flag = False,
    shards: Literal["vocab", "positions"] | None = None,
    json: File | None = None,
    csv: File | None = None,
    plot: File | None = None,
    require_exact: Flag = False,
    max_tv: Number | None = None,
) -> int:
    """What each rule really emits, how far that is from the target, and whether it is exact.

    Parameters
    ----------
    logits
        One or more dumps of target and draft logits.
    target
        Target probabilities by hand, "0.3,0.4,0.3", instead of a dump.
    draft
        Draft probabilities by hand.
    rule
        A rule to verify; repeat for several. Default: resispec and specinfer.
    candidates
        Candidates at each position (n).
    temperature
        Sampling temperature; repeat for several. Default: what the dump states, or else 1.
    top_k
        Keep the k most probable tokens, in target and draft.
    top_p
        Nucleus filter, in target and draft.
    min_p
        Drop tokens below this fraction of the most probable one, in target and draft.
    proposal_temperature
        Temperature candidates are really drawn with, where it is not the declared one.
    proposal_top_k
        top-k candidates are really drawn with.
    proposal_top_p
        top-p candidates are really drawn with.
    marginal
        Which marginals to compute.
    redistribution
        ResiSpec: how the clipped mass is spread. Default: proportional.
    budget
        ResiSpec: the local gap (Algorithm 1, the default) or Eq. 13's floor.
    hole
        ResiSpec: whether the capacity leaves the rejected token out (the default), or includes it as line 21
        reads.
    gap
        Certified mass that may stay unexpanded at a position; 0 expands everything. Default: until decided
        and at most 1e-3.
    max_expansions
        Budget of paths evaluated at a position.
    backend
        Where arrays live.
    precision
        Working precision of the rounds.
    input
        What the dump holds. Default: logits, refused where they look like probabilities.
    positions
        Range A:B of positions, 0-based, B excluded.
    batch
        Positions at a time.
    resume
        Journal of finished positions: created, or continued where the same run was ended before.
    scheduler
        Evaluate on Dask: the address of a scheduler, or "local" for one process a core.
    candidate_list
        Candidates "5,17,3" of the path identity, at every position. Default: the dump's, or drawn.
    seed
        Seed of the drawn candidates.
    pad_vocab
        Pad the narrower of two vocabularies with probability 0.
    shards
        What the files of a folder are parts of, where they do not say it.
    json
        Write the report here ("-": standard output).
    csv
        Write one line a position here.
    plot
        Write a plot of the positions here (.png, .svg or .pdf).
    require_exact
        Exit with 1 unless every rule is exact; undecided counts as not exact.
    max_tv
        Exit with 1 if the total variation of any position may exceed this.
    """
    # What is left out is what it defaults to: a journal does not tell the two apart.
    plain = {"redistribution": "proportional", "budget": "local", "hole": "excluded", "seed": 0}
    options = {
        name: plain.get(name) if value is None else value
        for name, value in sorted(locals().items())
        if name not in NOT_BINDING and name != "plain"
    }
    from resispec_verify.backends import get_backend
    from resispec_verify.cli.kl_table import print_table
    from resispec_verify.tables.reading import Clock
    from resispec_verify.tables.summary import exit_status, kl_report, position_records
    from resispec_verify.tables.table import pool

    check_writable(json=json, csv=csv, plot=plot, resume=resume, inputs=files_read(logits or []))
    check_demands(marginal, require_exact, max_tv)
    evaluation = make_evaluation(
        rule, candidates, marginal, gap, max_expansions, seed, candidate_list,
        redistribution=redistribution, budget=budget, hole=hole,
    )  # fmt: skip
    reading = make_reading(
        temperature, (top_k, top_p, min_p), (proposal_temperature, proposal_top_k, proposal_top_p),
        input, precision, positions, batch,
    )  # fmt: skip
    arrays, clock = get_backend(backend), Clock()
    facts: dict[str, Any] = {
        "paths": [], "positions": 1, "vocab": None, "dtype": "float64", "padding": None,
        "notes": [], "left_out": 0, "constant_rows": [],
    }  # fmt: skip
    failures: list[str] = []
    if target is not None or draft is not None:
        if logits is not None:
            raise InputError("give either --logits PATH... or --target and --draft, not both")
        refuse_by_hand(
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, input=input, positions=positions,
            proposal_temperature=proposal_temperature, proposal_top_k=proposal_top_k,
            proposal_top_p=proposal_top_p, batch=batch, pad_vocab=pad_vocab, shards=shards,
            resume=resume, scheduler=scheduler,
        )  # fmt: skip
        tables = [_by_hand(target, draft, reading, evaluation, arrays, clock)]
    elif not logits:
        raise InputError("nothing to verify: give --logits PATH..., or --target and --draft")
    else:
        run = Run(reading, evaluation, arrays, clock, pad_vocab, scheduler, resume, options, shards)
        remark(run.remains)
        tables, facts, failures = run.over(logits)
    rows = pool(tables)
    if rows:
        write_json(json, kl_report(rows, facts, clock.seconds))
        write_csv(csv, position_records(rows))
        write_figure(plot, lambda: _figure(rows))
        print_table(rows, table_console(json, csv), facts)
    for failure in failures:
        print(f"resispec-verify: error: {failure}", file=sys.stderr)
    return 2 if failures else exit_status(rows, require_exact=require_exact, max_tv=max_tv)


def _by_hand(
    target: str | None,
    draft: str | None,
    reading: Reading,
    evaluation: Evaluation,
    backend: Backend,
    clock: Clock,
) -> Table:
    import numpy as np

    from resispec_verify.distributions import Pair
    from resispec_verify.tables.reading import by_hand
    from resispec_verify.tables.table import Table

    pair = pair_by_hand(target, draft)
    check_tokens(evaluation, len(pair.target), "--target")
    compile_kernels(evaluation)
    dtype = getattr(np, reading.precision)
    arrays = (backend.asarray(v[None, :].astype(dtype)) for v in (pair.target, pair.draft))
    table = Table()
    table.evaluate(by_hand(Pair(*arrays)), evaluation, clock)
    return table


def _figure(rows: list[Row]) -> Any:
    from resispec_verify.report.plots.marginals import plot_marginals

    return plot_marginals(rows)
