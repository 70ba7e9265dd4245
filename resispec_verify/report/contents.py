"""What the page of `resispec-verify report` shows."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from resispec_verify import __version__
from resispec_verify.dumps import FlatDump
from resispec_verify.dumps.fingerprint import fingerprint
from resispec_verify.errors import InputError
from resispec_verify.report.page import MOST_ROWS, PageSection
from resispec_verify.report.plots.drift import LARGE, plot_drift
from resispec_verify.report.plots.marginals import plot_marginals
from resispec_verify.report.plots.position import plot_position
from resispec_verify.report.plots.shaping import plot_exploration
from resispec_verify.report.plots.svg import inline_svg, panels
from resispec_verify.report.rules_page import html_page
from resispec_verify.report.verdicts import remarks
from resispec_verify.rules import Rule
from resispec_verify.schema import envelope
from resispec_verify.tables.columns import merge
from resispec_verify.tables.drift_summary import DriftRow, drift_records
from resispec_verify.tables.position import look_at
from resispec_verify.tables.reading import Reading, pairs_of, position_range
from resispec_verify.tables.row import Row, label
from resispec_verify.tables.shaping import curve_records, explore_pair
from resispec_verify.tables.summary import KL_DIRECTION, position_records, summarize
from resispec_verify.tables.table import Table, pool

__all__ = ["Found", "found_report", "report_page"]

#: The texts of tokens.
Texts = Callable[[list[int]], dict[int, str]] | None
PACKAGES = ("numpy", "scipy", "numba", "matplotlib")
RULES_IN_PICTURE = 3


@dataclass
class Found:
    """What the dumps gave, which were read as ``reading`` says."""

    reading: Reading
    dumps: list[FlatDump] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    drift: dict[Any, DriftRow] = field(default_factory=dict)
    facts: list[dict[str, Any]] = field(default_factory=list)
    positions: int = 0

    def add(self, dump: FlatDump, table: Table, drift: dict[Any, DriftRow]) -> None:
        """Add what one dump gave."""
        first, last = position_range(dump, self.reading)
        size, digest = fingerprint(dump.path, whole=True)
        self.facts.append(
            {
                "file": str(dump.path),
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
        merge(self.drift, drift)

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of all dumps, joined: for when all were added."""
        return pool(self.tables)


def _constant(positions: list[int]) -> list[str]:
    return [f"{len(positions)} rows of equal values (first: {positions[0]})"] if positions else []


def found_report(found: Found) -> dict[str, Any]:
    """The page's verdicts as JSON, with the numbers of every position that a later run is held against."""
    digests = {fact["file"]: fact["SHA-256"] for fact in found.facts}
    results = [
        {
            **summarize(row, found.reading),
            "by_position": {
                "sha256": [digests[path] for path in row.source],
                "position": row.position,
                "tv": row.tv,
                "acceptance": [sum(each) for each in row.acceptance],
                "limit": row.limit,
            },
        }
        for row in found.rows
    ]
    names = {"file": "path", "positions": "positions", "vocabulary": "vocab", "SHA-256": "sha256"}
    facts = [{name: fact[shown] for shown, name in names.items()} for fact in found.facts]
    return envelope("report", results, kl_direction=KL_DIRECTION, dumps=facts)


def report_page(
    found: Found,
    rules: tuple[Rule, ...],
    candidates: int,
    texts: Texts,
    command: str,
    changed: PageSection | None = None,
) -> str:
    """The page, as HTML; what changed since an earlier one comes before the pictures."""
    names = ", ".join(dict.fromkeys(Path(dump.path).name for dump in found.dumps))
    return html_page(
        f"Speculative decoding rules on {names}",
        [{**summarize(row), "label": label(row.rule)} for row in found.rows],
        remarks(found.rows),
        [*([changed] if changed else []), *_overall(found), *_worst(found, rules, candidates, texts)],
        command,
        {"Dumps": found.facts, "Versions": _versions()},
    )


def _overall(found: Found) -> list[PageSection]:
    """PageSections of all positions."""
    rows = found.rows
    pictures = [
        PageSection(
            "What each rule emits",
            "First: total variation of the emitted law from the target, position by position, each rule "
            "sorted by itself; below the dashed line only rounding is left. Second: probability that a "
            "candidate is emitted, against the limit that no exact rule exceeds; a mark a position.",
            panels(plot_marginals(rows), "m"),
            position_records(rows),
        )
    ]
    drifts = list(found.drift.values())
    if drifts:
        pictures.append(
            PageSection(
                "From candidate to candidate",
                "First: P(accepted | looked at), candidate by candidate; then what all of them are worth, "
                "against what no exact rule exceeds. Small: how far the residual is from the draft, and what "
                "one more candidate adds. "
                "Lines are means over positions, bands (of up to three lines) reach from 10 to 90 %. A point "
                "is left out where most of the paths to it were not followed. EAL: expected accepted length.",
                panels(plot_drift(drifts), "d", large=LARGE),
                drift_records(drifts),
                large=LARGE,
            )
        )
    return pictures


def _worst(found: Found, rules: tuple[Rule, ...], candidates: int, texts: Texts) -> list[PageSection]:
    """Theorem 2's curve and the residuals at the position where a rule is furthest from the target."""
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
    curves = curve_records(exploration)
    curve = PageSection(
        "How near the draft a residual can be",
        f"Theorem 2 of the ResiSpec paper at {where}: the least L1 distance of a residual of mass Z from "
        "the draft, the budgets that rules choose, and what these are worth. Only marks are rules: those of "
        "specinfer, optimal-sequential and ResiSpec's two budgets are always drawn, asked for or not, since "
        "they are the ends between which others lie.",
        panels(plot_exploration(exploration), "e"),
        curves[:: max(1, -(-len(curves) // MOST_ROWS))],
    )
    return [curve, *_after_rejection(p, q, rules, n, where, texts)]


def _after_rejection(
    p: Any, q: Any, rules: tuple[Rule, ...], candidates: int, where: str, texts: Texts
) -> list[PageSection]:
    """The residuals, where something can be rejected, and the same token by all rules."""
    shown = [rule for rule in rules if rule.depends_on != "tuple"][:RULES_IN_PICTURE]
    if not shown:
        return []
    try:
        position = look_at(p, q, shown, candidates)
    except InputError:
        return []
    names = None if texts is None else texts(position.tokens(12).tolist())
    picture = inline_svg(plot_position(position, names=names), "p", "residuals after one rejection")
    return [
        PageSection(
            "What is left after one rejection",
            f"Target, draft and residuals at {where}, after token {position.rejected} was rejected.",
            [picture],
            position.records(12, names),
            wide=True,
        )
    ]


def _pair(dump: FlatDump, reading: Reading, position: int, temperature: float) -> tuple[Any, Any]:
    here = replace(reading, start=position, stop=position + 1)
    for members in pairs_of(dump, here):
        if members.sampling.temperature == temperature:
            return members.pair.target[0], members.pair.draft[0]
    raise AssertionError("the position was evaluated at this temperature")


def _versions() -> list[dict[str, str]]:
    found = {"resispec-verify": __version__, "Python": platform.python_version()}
    found |= {name: metadata.version(name) for name in PACKAGES}
    found["machine"] = f"{platform.system()} {platform.machine()}"
    return [{"what": name, "version": version} for name, version in found.items()]
