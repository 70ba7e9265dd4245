"""`resispec-verify kl`: what each rule really emits, and how far that is from the target."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from resispec_verify.cli.kl_settings import (
    check_demands,
    check_plot,
    check_tokens,
    make_evaluation,
    make_reading,
    pair_by_hand,
    refuse_by_hand,
)
from resispec_verify.cli.output import (
    check_writable,
    files_read,
    progress,
    table_console,
    write_csv,
    write_json,
)
from resispec_verify.cli.parameters import Count, File, Files, Flag, Names, Number, Numbers, Text
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from resispec_verify.analysis.marginals import Clock, Evaluation, Row
    from resispec_verify.analysis.over_dumps import Reading, Table
    from resispec_verify.backends import Backend
    from resispec_verify.dumps import FlatDump

__all__ = ["kl"]


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
    redistribution: Literal["proportional", "water-filling"] = "proportional",
    budget: Literal["local", "floor"] = "local",
    hole: Literal["excluded", "literal"] = "excluded",
    gap: Number | None = None,
    max_expansions: Number | None = None,
    backend: Literal["auto", "numpy", "torch", "cupy"] = "auto",
    precision: Literal["float64", "float32"] = "float64",
    input: Literal["logits", "probabilities", "log-probabilities"] | None = None,
    positions: Text | None = None,
    batch: Count | None = None,
    candidate_list: Text | None = None,
    seed: Count = 0,
    pad_vocab: Flag = False,
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
        ResiSpec: how the clipped mass is spread.
    budget
        ResiSpec: the local gap (Algorithm 1) or Eq. 13's floor.
    hole
        ResiSpec: whether the capacity leaves the rejected token out, or includes it as line 21 reads.
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
    candidate_list
        Candidates "5,17,3" of the path identity, at every position. Default: the dump's, or drawn.
    seed
        Seed of the drawn candidates.
    pad_vocab
        Pad the narrower of two vocabularies with probability 0.
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
    from resispec_verify.analysis.marginals import Clock
    from resispec_verify.analysis.over_dumps import pool
    from resispec_verify.analysis.summary import exit_status, kl_report, position_records
    from resispec_verify.backends import get_backend
    from resispec_verify.cli.kl_table import print_table

    check_writable(json, csv, plot, inputs=files_read(logits or []))
    check_plot(plot)
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
    facts: dict[str, Any] = {"paths": [], "positions": 1, "vocab": None, "dtype": "float64", "padding": None}
    failures: list[str] = []
    if target is not None or draft is not None:
        if logits is not None:
            raise InputError("give either --logits PATH... or --target and --draft, not both")
        refuse_by_hand(
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, input=input, positions=positions,
            proposal_temperature=proposal_temperature, proposal_top_k=proposal_top_k,
            proposal_top_p=proposal_top_p, batch=batch, pad_vocab=pad_vocab,
        )  # fmt: skip
        tables = [_by_hand(target, draft, reading, evaluation, arrays, clock)]
    elif not logits:
        raise InputError("nothing to verify: give --logits PATH..., or --target and --draft")
    else:
        tables, facts, failures = _from_dumps(logits, pad_vocab, reading, evaluation, arrays, clock)
    rows = pool(tables)
    if rows:
        write_json(json, kl_report(rows, facts, clock.seconds))
        write_csv(csv, position_records(rows))
        if plot is not None:
            _plot(rows, plot)
        print_table(rows, table_console(json, csv), facts["padding"])
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

    from resispec_verify.analysis.marginals import evaluate
    from resispec_verify.analysis.over_dumps import Table
    from resispec_verify.distributions import Pair

    pair = pair_by_hand(target, draft)
    check_tokens(evaluation, len(pair.target), "--target")
    _compile(evaluation)
    dtype = getattr(np, reading.precision)
    rows: dict[tuple[str, str], Row] = {}
    arrays = (backend.asarray(v[None, :].astype(dtype)) for v in (pair.target, pair.draft))
    evaluate(Pair(*arrays), evaluation, rows, positions=[0], backend=backend, clock=clock)
    return Table(list(rows.values()), [])


def _from_dumps(
    paths: list[Path], pad: bool, reading: Reading, evaluation: Evaluation, backend: Backend, clock: Clock
) -> tuple[list[Table], dict[str, Any], list[str]]:
    """Tables by file, what the files hold, and one line for each file that could not be used."""
    from resispec_verify.analysis.over_dumps import evaluate_dump
    from resispec_verify.dumps import open_dump

    tables, dumps, failures = [], [], []
    opened: dict[str, FlatDump] = {}
    for path in paths:
        try:
            if os.path.realpath(path) in opened:
                raise InputError(f"{path}: given twice; its positions would count twice")
            with clock("load"):
                dump = open_dump(path, pad_vocab=pad)
            check_tokens(evaluation, dump.vocab, str(path))
            opened[os.path.realpath(path)] = dump
        except InputError as error:
            failures.append(str(error))
    if opened:
        _compile(evaluation)
    for dump in opened.values():
        try:
            with progress(dump.path, dump.positions) as advance:
                tables.append(
                    evaluate_dump(dump, reading, evaluation, backend=backend, clock=clock, advance=advance)
                )
            dumps.append(dump)
        except InputError as error:
            failures.append(str(error))
    padding = [mass for table in tables for mass in table.padding]
    facts = {
        "paths": [str(dump.path) for dump in dumps],
        "positions": sum(dump.positions for dump in dumps),
        "vocab": max((dump.vocab for dump in dumps), default=0),
        "dtype": "/".join(dict.fromkeys(dump.dtype for dump in dumps)),
        "padding": {"mass_mean": sum(padding) / len(padding), "mass_max": max(padding)} if padding else None,
    }
    return tables, facts, failures


def _compile(evaluation: Evaluation) -> None:
    """Load the compiled kernels, and say so when that takes long: they are compiled on the first run."""
    import numpy as np

    from resispec_verify.evidence import operational_marginals
    from resispec_verify.kernels.transport import transport_limit

    note = threading.Timer(
        2.0,
        lambda: print(
            "resispec-verify: compiling the path kernels (first run only, about 20 s; cached afterwards)",
            file=sys.stderr,
        ),
    )
    note.daemon = True
    note.start()
    try:
        p, q = np.asarray([[0.25, 0.75]]), np.asarray([[0.5, 0.5]])
        transport_limit(p, q, 1)
        if evaluation.operational:
            for rule in evaluation.rules:
                operational_marginals(rule, p, q, min(2, evaluation.candidates))
    finally:
        note.cancel()


def _plot(rows: list[Row], path: Path) -> None:
    import io

    from resispec_verify.cli.output import write_bytes
    from resispec_verify.plots.marginals import plot_marginals

    data = io.BytesIO()
    plot_marginals(rows).savefig(data, format=path.suffix[1:].lower(), dpi=150)
    write_bytes(path, data.getvalue())
