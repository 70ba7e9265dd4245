"""What the page of `resispec-verify report` shows."""

import platform
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resispec_verify import __version__
from resispec_verify.backends import get_backend
from resispec_verify.cli.over_dumps import pool_into
from resispec_verify.cli.tokenizer import token_texts
from resispec_verify.cli.verdict_table import remarks
from resispec_verify.dumps import FlatDump
from resispec_verify.dumps.fingerprint import fingerprint
from resispec_verify.errors import InputError
from resispec_verify.rules import Rule
from resispec_verify.tables.drift_summary import DriftRow, drift_records
from resispec_verify.tables.position import look_at
from resispec_verify.tables.reading import Clock, Reading, pairs_of, position_range
from resispec_verify.tables.row import Row, label
from resispec_verify.tables.shaping import explore_pair
from resispec_verify.tables.summary import position_records, summarize
from resispec_verify.tables.table import Table, pool

if TYPE_CHECKING:
    from resispec_verify.report.page import PageSection
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
        pool_into(self.drift, drift)

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of all dumps, joined: for when all were added."""
        return pool(self.tables)


def _constant(positions: list[int]) -> list[str]:
    return [f"{len(positions)} rows of equal values (first: {positions[0]})"] if positions else []


def sequential(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules that have a residual between candidates."""
    return tuple(rule for rule in rules if rule.depends_on != "tuple")


def report_page(
    found: Found, rules: tuple[Rule, ...], candidates: int, tokenizer: Path | None, command: str
) -> str:
    """The page, as HTML."""
    from resispec_verify.report.page import html_page

    pictures = [*_overall(found), *_worst(found, rules, candidates, tokenizer)]
    names = ", ".join(dict.fromkeys(Path(dump.path).name for dump in found.dumps))
    return html_page(
        f"Speculative decoding rules on {names}",
        [{**summarize(row), "label": label(row.rule)} for row in found.rows],
        remarks(found.rows),
        pictures,
        command,
        {"Dumps": found.facts, "Versions": _versions()},
    )


def _overall(found: Found) -> list[PageSection]:
    """PageSections of all positions."""
    from resispec_verify.report.page import PageSection
    from resispec_verify.report.plots.drift import plot_drift
    from resispec_verify.report.plots.marginals import plot_marginals
    from resispec_verify.report.plots.svg import panels

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
    return pictures


def _worst(
    found: Found, rules: tuple[Rule, ...], candidates: int, tokenizer: Path | None
) -> list[PageSection]:
    """Theorem 2's curve and the residuals at the position where a rule is furthest from the target."""
    from resispec_verify.report.page import PageSection
    from resispec_verify.report.plots.shaping import curve_points, plot_exploration
    from resispec_verify.report.plots.svg import panels

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
    curve = [
        PageSection(
            "How near the draft a residual can be",
            f"Theorem 2 of the ResiSpec paper at {where}: the least L1 distance of a residual of mass Z from "
            "the draft, the budgets that rules choose, and what these are worth.",
            panels(plot_exploration(exploration), "e"),
            curves,
        )
    ]
    return [*curve, *_after_rejection(p, q, rules, n, where, tokenizer)]


def _after_rejection(
    p: Any, q: Any, rules: tuple[Rule, ...], candidates: int, where: str, tokenizer: Path | None
) -> list[PageSection]:
    """The residuals, where something can be rejected, and the same token by all rules."""
    from resispec_verify.report.page import PageSection
    from resispec_verify.report.plots.position import plot_position
    from resispec_verify.report.plots.svg import inline_svg

    shown = sequential(rules)[:RULES_IN_PICTURE]
    try:
        position = look_at(p, q, shown, candidates) if shown else None
    except InputError:
        position = None
    if position is None:
        return []
    names = None
    if tokenizer is not None:
        names = token_texts(tokenizer, position.tokens(12).tolist())
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
    for members in pairs_of(dump, here, backend=get_backend("numpy"), clock=Clock()):
        if members.sampling.temperature == temperature:
            return members.pair.target[0], members.pair.draft[0]
    raise AssertionError("the position was evaluated at this temperature")


def _versions() -> list[dict[str, str]]:
    found = {"resispec-verify": __version__, "Python": platform.python_version()}
    found |= {name: metadata.version(name) for name in PACKAGES}
    found["machine"] = f"{platform.system()} {platform.machine()}"
    return [{"what": name, "version": version} for name, version in found.items()]
