"""`resispec-verify report`: one page with verdicts, pictures, and how to get them again."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from resispec_verify.cli.drift import drift_of
from resispec_verify.cli.kl_settings import check_tokens, make_evaluation, make_reading
from resispec_verify.cli.output import check_writable, files_read, progress, stdout_is, write_text
from resispec_verify.cli.parameters import Count, File, Files, Flag, Names, Number, Numbers, Text
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from resispec_verify.dumps import FlatDump
    from resispec_verify.evidence.enumeration import Budget
    from resispec_verify.report.page import PageSection
    from resispec_verify.rules import Rule
    from resispec_verify.tables.drift_summary import DriftRow
    from resispec_verify.tables.marginals import Evaluation
    from resispec_verify.tables.reading import Reading
    from resispec_verify.tables.row import Row
    from resispec_verify.tables.table import Table

__all__ = ["report"]

PACKAGES = ("numpy", "scipy", "numba", "matplotlib")
RULES_IN_PICTURE = 3


def report(
    *,
    logits: Files | None = None,
    out: File | None = None,
    rule: Names | None = None,
    candidates: Count = 3,
    temperature: Numbers | None = None,
    top_k: Count | None = None,
    top_p: Number | None = None,
    min_p: Number | None = None,
    gap: Number | None = None,
    max_expansions: Number | None = None,
    max_states: Number = 50,
    input: Literal["logits", "probabilities", "log-probabilities"] | None = None,
    positions: Text | None = None,
    batch: Count | None = None,
    pad_vocab: Flag = False,
    shards: Literal["vocab", "positions"] | None = None,
    tokenizer: File | None = None,
) -> int:
    """One page (HTML, complete in itself): verdicts, pictures, and how to get them again.

    Parameters
    ----------
    logits
        One or more dumps of target and draft logits.
    out
        Write the page here ("-": standard output).
    rule
        A rule to verify; repeat for several. Default: resispec and specinfer.
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
    gap
        Certified mass that may stay unexpanded at a position. Default: as in kl.
    max_expansions
        Budget of paths evaluated at a position.
    max_states
        Residuals visited at a position for the drift of rules that depend on what was rejected.
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
    tokenizer
        A tokenizer.json, for the text of the tokens.
    """
    given = dict(locals())
    from resispec_verify.cli.kl_run import compile_kernels
    from resispec_verify.evidence.enumeration import Budget
    from resispec_verify.tables.drift import MOST_CANDIDATES

    if out is None:
        raise InputError("say where the page goes: --out report.html")
    if not logits:
        raise InputError("nothing to report on: give --logits PATH...")
    read = [*files_read(logits), *([tokenizer] if tokenizer is not None else [])]
    check_writable(out=out, inputs=read)
    if not 1 <= candidates <= MOST_CANDIDATES:
        raise InputError(f"--candidates must be in 1..{MOST_CANDIDATES}, got {candidates}")
    if not max_states >= 1:
        raise InputError(f"--max-states must be at least 1, got {max_states:g}")
    evaluation = make_evaluation(rule, candidates, "operational", gap, max_expansions, None, None)
    reading = make_reading(
        temperature, (top_k, top_p, min_p), (None, None, None), input, "float64", positions, batch
    )
    if tokenizer is not None:
        from resispec_verify.cli.tokenizer import token_texts

        token_texts(tokenizer, [])  # a bad file is told before the work, not after
    budget = Budget(1e-3 if gap is None else gap, 1e6, max_states, until_decided=False)
    found, failures = _Found(reading), []
    seen: set[str] = set()
    for path in logits:
        try:
            if os.path.realpath(path) in seen:
                raise InputError(f"{path}: given twice; its positions would count twice")
            if not seen:
                compile_kernels(evaluation)
            seen.add(os.path.realpath(path))
            found.add(path, {"pad_vocab": pad_vocab, "shards": shards}, evaluation, budget)
        except InputError as error:
            failures.append(str(error))
    if found.dumps:
        page = _page(found, evaluation.rules, candidates, tokenizer, _command(given))
        if write_text(out, page) and not stdout_is(out):
            print(f"{out}: {len(found.rows)} verdicts, {found.positions} positions")
    for failure in failures:
        print(f"resispec-verify: error: {failure}", file=sys.stderr)
    return 2 if failures else 0


def _constant(positions: list[int]) -> list[str]:
    return [f"{len(positions)} rows of equal values (first: {positions[0]})"] if positions else []


@dataclass
class _Found:
    """What the dumps gave."""

    reading: Reading
    dumps: list[FlatDump] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    drift: dict[Any, DriftRow] = field(default_factory=dict)
    facts: list[dict[str, Any]] = field(default_factory=list)
    positions: int = 0

    def add(self, path: Path, opening: dict[str, Any], evaluation: Evaluation, budget: Budget) -> None:
        """Evaluate one dump; nothing is kept of one that fails."""
        from resispec_verify.backends import get_backend
        from resispec_verify.dumps import open_dump
        from resispec_verify.dumps.fingerprint import fingerprint
        from resispec_verify.runs.over_dumps import evaluate_dump
        from resispec_verify.tables.reading import position_range

        dump = open_dump(path, **opening)
        check_tokens(evaluation, dump.vocab, str(path))
        first, last = position_range(dump, self.reading)
        with progress(dump.path, last - first) as advance:
            table = evaluate_dump(
                dump, self.reading, evaluation, backend=get_backend("numpy"),
                keep=lambda span, _: advance(span[1] - span[0]),
            )  # fmt: skip
        rules = _sequential(evaluation.rules)
        fresh = drift_of(dump, self.reading, rules, evaluation.candidates, 10, budget) if rules else {}
        size, digest = fingerprint(path, whole=True)
        self.facts.append(
            {
                "file": str(path),
                "positions": f"{first}:{last} of {dump.positions}",
                "vocabulary": dump.vocab,
                "stored as": dump.dtype,
                "bytes": size,
                "SHA-256": digest,
                "remarks": "; ".join([*dump.notes, *_constant(table.constant)]),
            }
        )
        self.dumps.append(dump)
        self.positions += last - first
        self.tables.append(table)
        for key, row in fresh.items():
            if key in self.drift:
                self.drift[key].extend(row)
            else:
                self.drift[key] = row

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of all dumps, joined; for when no more dumps are added."""
        from resispec_verify.tables.table import pool

        return pool(self.tables)


def _sequential(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules that have a residual between candidates."""
    from resispec_verify.rules import TupleRule

    return tuple(rule for rule in rules if not isinstance(rule, TupleRule))


def _page(
    found: _Found, rules: tuple[Rule, ...], candidates: int, tokenizer: Path | None, command: str
) -> str:
    from resispec_verify.cli.kl_table import remarks
    from resispec_verify.report.page import PageSection, html_page
    from resispec_verify.report.plots.drift import plot_drift
    from resispec_verify.report.plots.marginals import plot_marginals
    from resispec_verify.report.plots.svg import panels
    from resispec_verify.tables.drift_summary import drift_records
    from resispec_verify.tables.row import label
    from resispec_verify.tables.summary import position_records, summarize

    rows = found.rows
    pictures = [
        PageSection(
            "What each rule emits",
            "First: total variation of the emitted law from the target, position by position, each rule "
            "sorted by itself. Second: probability that a candidate is emitted, against the limit that no "
            "exact rule exceeds.",
            panels(plot_marginals(rows), "m"),
            position_records(rows),
        )
    ]
    drifts = list(found.drift.values())
    if drifts:
        pictures.append(
            PageSection(
                "From candidate to candidate",
                "Before each candidate: P(accepted | looked at), and how far the residual is from the draft. "
                "Lines are means over positions, bands (of up to three lines) reach from 10 to 90 %. A point "
                "is left out where most of the paths to it were not followed. EAL: expected accepted length.",
                panels(plot_drift(drifts), "d"),
                drift_records(drifts),
            )
        )
    pictures += _worst(found, rules, candidates, tokenizer)
    names = ", ".join(dict.fromkeys(Path(dump.path).name for dump in found.dumps))
    return html_page(
        f"Speculative decoding rules on {names}",
        [{**summarize(row), "label": label(row.rule)} for row in rows],
        remarks(rows),
        pictures,
        command,
        {"Dumps": found.facts, "Versions": _versions()},
    )


def _worst(
    found: _Found, rules: tuple[Rule, ...], candidates: int, tokenizer: Path | None
) -> list[PageSection]:
    """Theorem 2's curve and the residuals at the position where a rule is furthest from the target."""
    from resispec_verify.report.page import PageSection
    from resispec_verify.report.plots.position import plot_position
    from resispec_verify.report.plots.shaping import curve_points, plot_exploration
    from resispec_verify.report.plots.svg import inline_svg, panels
    from resispec_verify.tables.position import look_at
    from resispec_verify.tables.row import label
    from resispec_verify.tables.shaping import explore_pair

    row = max(found.rows, key=lambda row: max(row.tv))
    i = max(range(len(row.tv)), key=row.tv.__getitem__)
    dump = next(dump for dump in found.dumps if str(dump.path) == row.source[i])
    p, q = _pair(dump, found.reading, row.position[i], row.temperature)
    n = max(candidates, 2)
    where = (
        f"position {row.position[i]} of {Path(dump.path).name} at T = {row.temperature:g}, where "
        f"{label(row.rule)} is furthest from the target (total variation {row.tv[i]:.3g})"
    )
    exploration = explore_pair(p, q, n)
    table = exploration.table(curve_points(exploration))
    columns = {name: values.tolist() for name, values in table.items()}
    curves = [
        {name: "" if values[k] != values[k] else values[k] for name, values in columns.items()}
        for k in range(0, len(columns["Z"]), max(1, -(-len(columns["Z"]) // 400)))
    ]
    pictures = [
        PageSection(
            "How near the draft a residual can be",
            f"Theorem 2 of the ResiSpec paper at {where}: the least L1 distance of a residual of mass Z from "
            "the draft, the budgets that rules choose, and what these are worth.",
            panels(plot_exploration(exploration), "e"),
            curves,
        )
    ]
    shown = _sequential(rules)[:RULES_IN_PICTURE]
    try:
        position = look_at(p, q, shown, n) if shown else None
    except InputError:  # nothing can be rejected here, or not the same token by all
        position = None
    if position is not None:
        names = None
        if tokenizer is not None:
            from resispec_verify.cli.tokenizer import token_texts

            names = token_texts(tokenizer, position.tokens(12).tolist())
        picture = inline_svg(plot_position(position, names=names), "p", "residuals after one rejection")
        pictures.append(
            PageSection(
                "What is left after one rejection",
                f"Target, draft and residuals at {where}, after token {position.rejected} was rejected.",
                [picture],
                position.records(12, names),
                wide=True,
            )
        )
    return pictures


def _pair(dump: FlatDump, reading: Reading, position: int, temperature: float) -> tuple[Any, Any]:
    from resispec_verify.backends import get_backend
    from resispec_verify.tables.reading import Clock, pairs_of

    here = replace(reading, start=position, stop=position + 1)
    for members in pairs_of(dump, here, backend=get_backend("numpy"), clock=Clock()):
        if members.sampling.temperature == temperature:
            return members.pair.target[0], members.pair.draft[0]
    raise AssertionError("the position was evaluated at this temperature")


def _versions() -> list[dict[str, str]]:
    import platform
    from importlib import metadata

    from resispec_verify import __version__

    found = {"resispec-verify": __version__, "Python": platform.python_version()}
    found |= {name: metadata.version(name) for name in PACKAGES}
    found["machine"] = f"{platform.system()} {platform.machine()}"
    return [{"what": name, "version": version} for name, version in found.items()]


def _command(given: dict[str, Any]) -> str:
    """The command line, from its options; what is not given is left out."""
    defaults = {"candidates": 3, "max_states": 50, "pad_vocab": False}
    words = ["resispec-verify", "report"]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is None or value == defaults.get(name):
            continue
        if value is True:
            words.append(option)
        elif name == "logits":
            words += [option, *map(str, value)]
        else:
            for one in value if isinstance(value, list) else [value]:
                words += [option, f"{one:g}" if isinstance(one, float) else str(one)]
    return shlex.join(words)
