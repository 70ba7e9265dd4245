"""`resispec-verify drift`: how acceptance and residual change from candidate to candidate."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from resispec_verify.cli.kl_settings import make_reading, pair_by_hand, refuse_by_hand
from resispec_verify.cli.output import (
    check_writable,
    files_read,
    print_lines,
    progress,
    table_console,
    write_csv,
    write_figure,
    write_json,
)
from resispec_verify.cli.parameters import Count, File, Files, Flag, Names, Number, Numbers, Text
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from resispec_verify.dumps import FlatDump
    from resispec_verify.evidence.enumeration import Budget
    from resispec_verify.rules import Rule
    from resispec_verify.tables.drift_summary import DriftRow
    from resispec_verify.tables.reading import Reading

__all__ = ["drift", "drift_of"]


def drift(
    *,
    logits: Files | None = None,
    target: Text | None = None,
    draft: Text | None = None,
    rule: Names | None = None,
    candidates: Count = 4,
    temperature: Numbers | None = None,
    top_k: Count | None = None,
    top_p: Number | None = None,
    min_p: Number | None = None,
    proposal_temperature: Number | None = None,
    proposal_top_k: Count | None = None,
    proposal_top_p: Number | None = None,
    blind_top_k: Count = 10,
    gap: Number = 1e-3,
    max_states: Number = 100,
    input: Literal["logits", "probabilities", "log-probabilities"] | None = None,
    positions: Text | None = None,
    batch: Count | None = None,
    pad_vocab: Flag = False,
    shards: Literal["vocab", "positions"] | None = None,
    json: File | None = None,
    csv: File | None = None,
    plot: File | None = None,
) -> int:
    """How acceptance and residual change from candidate to candidate, beside what is possible.

    Parameters
    ----------
    logits
        One or more dumps of target and draft logits.
    target
        Target probabilities by hand, "0.3,0.4,0.3", instead of a dump.
    draft
        Draft probabilities by hand.
    rule
        A rule; repeat for several. Default: resispec and specinfer.
    candidates
        Candidates at each position (n), at most 16.
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
    blind_top_k
        The blind spot of a draft is what lies outside its k best tokens.
    gap
        Mass that may stay unvisited at a position.
    max_states
        Residuals visited at a position, for rules where they depend on what was rejected.
    input
        What the dump holds. Default: logits, refused where they look like probabilities.
    positions
        Range A:B of positions, 0-based, B excluded.
    batch
        Positions at a time.
    pad_vocab
        Pad the narrower of two vocabularies with probability 0.
    shards
        What the files of a folder are parts of, where they do not say it.
    json
        Write the report here ("-": standard output).
    csv
        Write one line a rule and candidate here.
    plot
        Write a plot here (.png, .svg or .pdf).
    """
    check_writable(json=json, csv=csv, plot=plot, inputs=files_read(logits or []))
    reading = make_reading(
        temperature, (top_k, top_p, min_p), (proposal_temperature, proposal_top_k, proposal_top_p),
        input, "float64", positions, batch,
    )  # fmt: skip
    chosen, budget = _settings(rule, candidates, blind_top_k, gap, max_states)
    rows: dict[Any, DriftRow] = {}
    failures: list[str] = []
    if target is not None or draft is not None:
        if logits is not None:
            raise InputError("give either --logits PATH... or --target and --draft, not both")
        refuse_by_hand(
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, input=input, positions=positions,
            proposal_temperature=proposal_temperature, proposal_top_k=proposal_top_k,
            proposal_top_p=proposal_top_p, batch=batch, pad_vocab=pad_vocab, shards=shards,
        )  # fmt: skip
        _by_hand(target, draft, chosen, candidates, blind_top_k, budget, rows)
    elif not logits:
        raise InputError("nothing to measure: give --logits PATH..., or --target and --draft")
    else:
        opening = {"pad_vocab": pad_vocab, "shards": shards}
        failures = _from_dumps(logits, opening, reading, chosen, candidates, blind_top_k, budget, rows)
    if rows:
        from resispec_verify.tables.drift_summary import drift_records, drift_report

        write_json(json, drift_report(rows.values()))
        write_csv(csv, drift_records(rows.values()))
        write_figure(plot, lambda: _figure(list(rows.values())))
        _print(list(rows.values()), table_console(json, csv))
    for failure in failures:
        print(f"resispec-verify: error: {failure}", file=sys.stderr)
    return 2 if failures else 0


def _settings(
    names: list[str] | None, candidates: int, top_k: int, gap: float, max_states: float
) -> tuple[tuple[Rule, ...], Budget]:
    from resispec_verify.cli.user_rules import choose_rules
    from resispec_verify.evidence.enumeration import Budget
    from resispec_verify.tables.drift import MOST_CANDIDATES, check_sequential

    if not 1 <= candidates <= MOST_CANDIDATES:
        raise InputError(f"--candidates must be in 1..{MOST_CANDIDATES}, got {candidates}")
    if top_k < 1:
        raise InputError(f"--blind-top-k must be at least 1, got {top_k}")
    if not 0 <= gap <= 1:
        raise InputError(f"--gap must be in [0, 1], got {gap:g}")
    if not max_states >= 1:
        raise InputError(f"--max-states must be at least 1, got {max_states:g}")
    chosen = choose_rules(names or ["resispec", "specinfer"], candidates)
    check_sequential(chosen)
    return chosen, Budget(gap, most_paths=1e6, most_states=max_states, until_decided=False)


def _by_hand(
    target: str | None, draft: str | None, rules: tuple[Rule, ...], candidates: int, top_k: int,
    budget: Budget, rows: dict[Any, DriftRow],
) -> None:  # fmt: skip
    import numpy as np

    from resispec_verify.distributions import Pair
    from resispec_verify.tables.distinct import check_vocabulary
    from resispec_verify.tables.drift import add_drift
    from resispec_verify.tables.reading import by_hand

    pair = pair_by_hand(target, draft)
    check_vocabulary(rules, candidates, len(pair.target), "--target")
    arrays = Pair(*(np.asarray(v)[None, :] for v in (pair.target, pair.draft)))
    add_drift(rows, rules, by_hand(arrays), candidates, top_k=top_k, budget=budget)


def _from_dumps(
    paths: list[Path], opening: dict[str, Any], reading: Reading, rules: tuple[Rule, ...], candidates: int,
    top_k: int, budget: Budget, rows: dict[Any, DriftRow],
) -> list[str]:  # fmt: skip
    from resispec_verify.cli.kl_run import compile_kernels
    from resispec_verify.cli.output import open_dump
    from resispec_verify.tables.reading import position_range

    failures, seen, compiled = [], set(), False
    for path in paths:
        try:
            if os.path.realpath(path) in seen:
                raise InputError(f"{path}: given twice; its positions would count twice")
            seen.add(os.path.realpath(path))
            dump = open_dump(path, **opening)
            start, stop = position_range(dump, reading)
            if not compiled:
                from resispec_verify.tables.marginals import Evaluation

                compile_kernels(Evaluation(rules, candidates))
                compiled = True
            with progress(dump.path, stop - start) as advance:
                fresh = drift_of(dump, reading, rules, candidates, top_k, budget, advance)
        except InputError as error:
            failures.append(str(error))
            continue
        for key, row in fresh.items():
            if key in rows:
                rows[key].extend(row)
            else:
                rows[key] = row
    return failures


def drift_of(
    dump: FlatDump,
    reading: Reading,
    rules: tuple[Rule, ...],
    candidates: int,
    top_k: int,
    budget: Budget | None,
    advance: Callable[[int], Any] = lambda done: None,
) -> dict[Any, DriftRow]:
    """Rows of one dump, as `add_drift` keys them."""
    from resispec_verify.backends import get_backend
    from resispec_verify.tables.distinct import check_vocabulary
    from resispec_verify.tables.drift import add_drift
    from resispec_verify.tables.reading import Clock, pairs_of

    check_vocabulary(rules, candidates, dump.vocab, dump.path)
    rows: dict[Any, DriftRow] = {}
    for batch in pairs_of(dump, reading, backend=get_backend("numpy"), clock=Clock(), advance=advance):
        add_drift(rows, rules, batch, candidates, top_k=top_k, budget=budget)
    return rows


def _figure(rows: list[DriftRow]) -> Any:
    from resispec_verify.report.plots.drift import plot_drift

    return plot_drift(rows)


def _print(rows: list[DriftRow], console: Any) -> None:
    from resispec_verify.cli.kl_table import print_records
    from resispec_verify.cli.output import printable
    from resispec_verify.tables.drift_summary import mostly_seen
    from resispec_verify.tables.row import label

    def shown(value: Any) -> str:
        if value is None or isinstance(value, str):
            return "-" if value is None else value
        return "0" if value == 0 else (f"{value:.2e}" if abs(value) < 1e-3 else f"{value:.4f}")

    def measure(result: dict[str, Any], name: str) -> str:
        return shown(result[name] if mostly_seen(result, name) else None)

    records, scaling, notes = [], [], []
    named = len({row.dataset for row in rows}) > 1
    for row in rows:
        own = {"dataset": printable(row.dataset or "")} if named else {}
        own |= {"rule": label(row.rule), "T": f"{row.temperature:g}"}
        results = row.results()
        for r in results:
            records.append(
                {
                    **own,
                    "candidate": str(r["index"]),
                    "looked at": shown(r["looked_at"]),
                    "accepted": measure(r, "acceptance_conditional"),
                    "L1": measure(r, "l1"),
                    "KL": measure(r, "kl"),
                    "blind spot": measure(r, "blind_spot"),
                    "acc. gap": shown(r["acceptance_gap"]),
                    "gap": shown(r["gap"]),
                }
            )
        for r in row.scaling():
            scaling.append(
                {
                    **own,
                    "N": str(r["index"]),
                    "EAL": shown(r["eal"]),
                    "gap": shown(r["gap"]),
                    "gain": shown(r["gain"]),
                    "efficiency": shown(r["efficiency"]),
                    "limit": "unknown" if r["limit"] is None else shown(r["limit"]),
                }
            )
        if infinite := max(r["kl_infinite"] for r in results):
            notes.append(
                f"{label(row.rule)} (T = {row.temperature:g}): KL is infinite at {infinite} of "
                f"{len(row.position)} positions: the residual holds tokens that the draft cannot propose."
            )
    many = {len(row.position) for row in rows}
    count = f"{min(many)} positions" if len(many) == 1 else f"{min(many)} to {max(many)} positions"
    top_k = rows[0].top_k
    print_records(console, f"before each candidate, means over {count}", records)
    lines = [
        "looked at: P(all before were rejected); accepted: P(accepted | looked at); L1 and KL (nats): of the "
        f"residual from the draft; blind spot: its mass outside the draft's {top_k} best tokens.",
        *notes,
    ]
    if any(r["gap"] not in ("-", "0") for r in records):
        lines.append(
            "gap: share of the paths to a candidate whose residual was not looked at (--max-states), for KL "
            "and blind spot; acc. gap: for accepted and L1. '-': most were not. Bounds are in --json."
        )
    print_lines(console, lines)
    print_records(console, "expected accepted length at depth 1 with N candidates", scaling)
    print_lines(
        console,
        [
            "EAL = 1 + P(a candidate is accepted); gain: over half as many candidates; efficiency: gain per "
            "candidate added; limit: of exact rules."
        ],
    )
