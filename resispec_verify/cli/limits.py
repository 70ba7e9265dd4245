"""`resispec-verify limits`: acceptance of every rule beside what no exact rule can exceed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Literal

from resispec_verify.cli.kl_settings import make_reading, refuse_by_hand
from resispec_verify.cli.output import (
    check_writable,
    files_read,
    print_lines,
    table_console,
    write_csv,
    write_json,
)
from resispec_verify.cli.parameters import Count, File, Files, Flag, Names, Number, Numbers, Text
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from resispec_verify.tables.row import Row

__all__ = ["limits"]


def limits(
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
    input: Literal["logits", "probabilities", "log-probabilities"] | None = None,
    positions: Text | None = None,
    batch: Count | None = None,
    pad_vocab: Flag = False,
    shards: Literal["vocab", "positions"] | None = None,
    backend: Literal["auto", "numpy", "torch", "cupy"] = "auto",
    json: File | None = None,
    csv: File | None = None,
) -> int:
    """Acceptance of each rule beside the limits; a rule above the limit cannot be exact.

    Parameters
    ----------
    logits
        One or more dumps of target and draft logits.
    target
        Target probabilities by hand, "0.3,0.4,0.3", instead of a dump.
    draft
        Draft probabilities by hand.
    rule
        A rule; repeat for several. Default: all for independent candidates that need no enumeration, and
        resispec.
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
    backend
        Where arrays live.
    json
        Write the report here ("-": standard output).
    csv
        Write one line a position here.
    """
    from resispec_verify.backends import get_backend

    check_writable(json=json, csv=csv, inputs=files_read(logits or []))
    reading = make_reading(
        temperature, (top_k, top_p, min_p), (proposal_temperature, proposal_top_k, proposal_top_p),
        input, "float64", positions, batch,
    )  # fmt: skip
    chosen, arrays = _rules(rule, candidates), get_backend(backend)
    rows: dict[Any, Row] = {}
    failures: list[str] = []
    if target is not None or draft is not None:
        refuse_by_hand(
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, input=input, positions=positions,
            proposal_temperature=proposal_temperature, proposal_top_k=proposal_top_k,
            proposal_top_p=proposal_top_p, batch=batch, pad_vocab=pad_vocab, shards=shards,
        )  # fmt: skip
        _by_hand(target, draft, chosen, candidates, rows, arrays, logits)
    elif not logits:
        raise InputError("nothing to measure: give --logits PATH..., or --target and --draft")
    else:
        failures = _from_dumps(
            logits, {"pad_vocab": pad_vocab, "shards": shards}, reading, chosen, candidates, rows, arrays
        )
    if rows:
        from resispec_verify.tables.limits import limit_records, limits_report

        report = limits_report(rows.values())
        write_json(json, report)
        write_csv(csv, limit_records(rows.values()))
        _print(report["results"], table_console(json, csv))
    for failure in failures:
        print(f"resispec-verify: error: {failure}", file=sys.stderr)
    return 2 if failures else 0


def _rules(names: list[str] | None, candidates: int) -> tuple[Any, ...]:
    from resispec_verify.cli.kl_settings import MOST_CANDIDATES
    from resispec_verify.cli.user_rules import choose_rules
    from resispec_verify.rules import RULES, Iid

    if not 1 <= candidates <= MOST_CANDIDATES:
        raise InputError(f"--candidates must be in 1..{MOST_CANDIDATES}, got {candidates}")
    if names:
        return choose_rules(names, candidates)
    # Candidates that must differ can run out at any position, which would end a run nobody asked them of.
    cheap = [
        name
        for name, rule in RULES.items()
        if isinstance(rule.proposal, Iid) and (name == "resispec" or rule.depends_on in ("nothing", "tuple"))
    ]
    return choose_rules([name for name in cheap if RULES[name].least_candidates <= candidates], candidates)


def _by_hand(
    target: str | None,
    draft: str | None,
    rules: tuple[Any, ...],
    candidates: int,
    rows: dict[Any, Row],
    backend: Any,
    logits: object,
) -> None:
    import numpy as np

    from resispec_verify.cli.kl_settings import pair_by_hand
    from resispec_verify.distributions import Pair
    from resispec_verify.tables.distinct import check_vocabulary
    from resispec_verify.tables.limits import add_limits
    from resispec_verify.tables.reading import by_hand

    if logits is not None:
        raise InputError("give either --logits PATH... or --target and --draft, not both")
    pair = pair_by_hand(target, draft)
    check_vocabulary(rules, candidates, len(pair.target), "--target")
    arrays = Pair(*(backend.asarray(np.asarray(v)[None, :]) for v in (pair.target, pair.draft)))
    add_limits(rows, rules, by_hand(arrays), candidates)


def _from_dumps(
    paths: list[Any],
    opening: dict[str, Any],
    reading: Any,
    rules: Any,
    candidates: int,
    rows: dict[Any, Any],
    backend: Any,
) -> list[str]:
    from resispec_verify.cli.output import open_dump
    from resispec_verify.tables.distinct import check_vocabulary
    from resispec_verify.tables.limits import add_limits
    from resispec_verify.tables.reading import Clock, pairs_of

    failures, seen = [], set()
    for path in paths:
        try:
            if os.path.realpath(path) in seen:
                raise InputError(f"{path}: given twice; its positions would count twice")
            seen.add(os.path.realpath(path))
            dump = open_dump(path, **opening)
            check_vocabulary(rules, candidates, dump.vocab, str(path))
            fresh: dict[Any, Any] = {}
            for batch in pairs_of(dump, reading, backend=backend, clock=Clock()):
                add_limits(fresh, rules, batch, candidates)
        except InputError as error:
            failures.append(str(error))
            continue
        for key, row in fresh.items():
            if key in rows:
                rows[key].extend(row)
            else:
                rows[key] = row
    return failures


def _print(results: list[dict[str, Any]], console: Any) -> None:
    from resispec_verify.cli.kl_table import print_records

    def shown(value: float | None) -> str:
        return "unknown" if value is None else f"{value:.4f}"

    records = [
        {
            "rule": r["rule"],
            "T": f"{r['temperature']:g}",
            "n": str(r["candidates"]),
            "positions": str(r["positions"]),
            "acceptance": (">= " if r["acceptance_gap_max"] >= 5e-5 else "") + f"{r['acceptance_mean']:.4f}",
            "sequential limit": shown(r["sequential_limit_mean"]),
            "limit": shown(r["limit_mean"]),
            "above": str(r["above_limit"]),
        }
        for r in results
    ]
    print_records(console, "acceptance (P(a candidate is emitted)) beside the limits of exact rules", records)
    lines = [
        f"{r['rule']} (T = {r['temperature']:g}): cannot be exact: accepts more than any exact rule can at "
        f"position {r['witness_position']}"
        for r in results
        if r["cannot_be_exact"]
    ]
    print_lines(console, lines)
