"""`resispec-verify explore`: Theorem 2 on one position, or its hypotheses on all."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from resispec_verify.backends import get_backend
from resispec_verify.cli.one_position import OnePair, PositionOptions
from resispec_verify.cli.options.group import Options, check_range, refuse_without
from resispec_verify.cli.options.outputs import PlotOptions
from resispec_verify.cli.options.work import JobsOption
from resispec_verify.cli.output import files_read, open_dump
from resispec_verify.cli.over_dumps import finish, over_dumps
from resispec_verify.cli.parameters import Count, DumpFile, Flag, Number, Numbers
from resispec_verify.errors import InputError
from resispec_verify.inputs import MOST_CANDIDATES
from resispec_verify.report.table import print_lines, print_records
from resispec_verify.runs.over_dumps import over_batches
from resispec_verify.schema import envelope
from resispec_verify.tables.reading import PairBatch, Reading
from resispec_verify.tables.shaping import Exploration, check_monotonicity, curve_records, explore_pair


@dataclass(frozen=True, kw_only=True)
class RandomOptions(Options):
    """A random pair."""

    random: Count | None = None
    """A random pair over this many tokens instead: Dirichlet laws."""
    concentration: Number | None = None
    """Their concentration. Default: 1."""
    seed: Count | None = None
    """Their seed. Default: 0."""

    def pair(self, size: int) -> OnePair:
        """The pair, once it is checked."""
        concentration = 1.0 if self.concentration is None else self.concentration
        seed = self.seed or 0
        if not 1 <= size <= 1 << 24:
            raise InputError(f"--random must be a number of tokens in 1..{1 << 24}, got {size}")
        if not (np.isfinite(concentration) and concentration > 0):
            raise InputError(f"--concentration must be a positive number, got {concentration:g}")
        check_range(0, seed=seed)
        p, q = np.random.default_rng(seed).dirichlet(np.full(size, concentration), 2)
        if not (np.isfinite(p).all() and np.isfinite(q).all()):
            raise InputError(
                f"--concentration {concentration:g} is too small for {size} tokens; give a larger one"
            )
        facts = {"position": 0, "random": size, "concentration": concentration, "seed": seed}
        return OnePair(p, q, facts, f"Dirichlet({concentration:g}) pair, V = {size:,}, seed {seed}")


@dataclass(frozen=True, kw_only=True)
class CurveOptions(Options):
    """What to show of a curve, or of all."""

    rejected: Count | None = None
    """Token whose hole is looked at. Default: the one that is most often rejected."""
    candidates: Count = 2
    """Candidates of the optimal sequential rule (n)."""
    at: Numbers | None = None
    """A Z in (0, 1] to show; repeat for several."""
    check: Flag = False
    """For every position: do the theorem's hypotheses hold, and is the curve monotone?"""

    def wanted(self) -> list[float]:
        """The Z to show, checked."""
        for Z in self.at or []:
            if not 0.0 < Z <= 1.0:
                raise InputError(f"--at must be in (0, 1], got {Z:g}")
        return sorted(set(self.at or []))


def explore(
    *files: DumpFile,
    source: PositionOptions = PositionOptions(),
    random: RandomOptions = RandomOptions(),
    curve: CurveOptions = CurveOptions(),
    output: PlotOptions = PlotOptions(),
    run: JobsOption = JobsOption(),
) -> int:
    """L1 distance of a residual from the draft against its mass Z (Theorem 2 of the ResiSpec paper).

    Parameters
    ----------
    source.logits
        The same as FILE: a dump of target and draft logits; several with --check.
    output.csv
        Write the curves here, or one line a position with --check.
    """
    source = source.joined(files)
    output.check(files_read(source.paths))
    wanted = curve.wanted()
    if (source.logits is not None) + source.by_hand + (random.random is not None) != 1:
        raise InputError("give one of FILE, --target and --draft, or --random V")
    if source.logits is None:
        refuse_without(
            "a dump", position=source.position, temperature=source.temperature, input=source.input,
            check=curve.check,
        )  # fmt: skip
    if random.random is None:
        refuse_without("--random", random)
    if curve.check:
        return _check(source, curve, output, run.threads())
    refuse_without("--check", run)
    pair = source.one_pair() if random.random is None else random.pair(random.random)
    if not 2 <= curve.candidates <= MOST_CANDIDATES:
        raise InputError(
            "--candidates must be at least 2 for a next candidate to exist, and at most "
            f"{MOST_CANDIDATES}; got {curve.candidates}"
        )
    try:
        found = explore_pair(pair.target, pair.draft, curve.candidates, curve.rejected)
    except InputError as error:
        raise InputError(f"--rejected: {error}") from None
    console = output.write(
        envelope("explore", [{**pair.facts, **found.result()}]),
        lambda: curve_records(found),
        lambda: _figure(found, pair.title),
    )
    _print(found, wanted, pair.title, console)
    return 0


def _check(source: PositionOptions, curve: CurveOptions, output: PlotOptions, jobs: int) -> int:
    """Theorem 2's hypotheses at every position."""
    if output.plot is not None or curve.at or curve.rejected is not None or source.position is not None:
        raise InputError("--check looks at every position; leave out --plot, --at, --rejected and --position")
    reading = source.reading(source.input)
    found, failures = over_dumps(source.paths, lambda path: _monotone(path, reading, jobs))
    rows = [row for of_dump in found for row in of_dump]
    if rows:
        console = output.write(envelope("explore", rows), lambda: rows)
        print_records(console, "Theorem 2, position by position", [_counts(own) for own in found])
        print_lines(console, _why_flat(rows))
    return finish(failures)


def _monotone(path: Path, reading: Reading, jobs: int) -> list[dict[str, Any]]:
    def checked(members: PairBatch) -> list[dict[str, Any]]:
        return [
            {"path": str(path), "position": int(i), "temperature": members.sampling.temperature}
            | check_monotonicity(p, q)
            for i, p, q in zip(members.positions, members.pair.target, members.pair.draft, strict=True)
        ]

    found = over_batches(open_dump(path), reading, checked, backend=get_backend("numpy"), jobs=jobs)
    return sorted((row for rows in found for row in rows), key=lambda row: row["position"])


def _counts(rows: list[dict[str, Any]]) -> dict[str, str]:
    """A line of the table: the positions of one dump."""
    return {
        "dump": Path(rows[0]["path"]).name,
        "positions": str(len(rows)),
        "p > 0 where q > 0": str(sum(row["hypotheses_hold"] for row in rows)),
        "strict on (Z*, 1]": str(sum(row["strictly_increasing"] for row in rows)),
        "monotone": str(sum(row["monotone"] for row in rows)),
        "Z* max": f"{max(row['z_star'] for row in rows):.3g}",
        "L1(1) mean": f"{sum(row['l1_at_1'] for row in rows) / len(rows):.4f}",
    }


def _why_flat(rows: list[dict[str, Any]]) -> list[str]:
    flat = [row for row in rows if not row["strictly_increasing"]]
    if not flat:
        return ["Strict wherever it is claimed: no draft token without target mass."]
    worst = max(flat, key=lambda row: row["flat_until"])
    return [
        f"Flat at {len(flat)} positions, longest at position {worst['position']}: constant up to "
        f"Z = {worst['flat_until']:.3g}, because p = 0 on draft tokens."
    ]


def _figure(found: Exploration, title: str) -> Any:
    from resispec_verify.report.plots.shaping import plot_exploration

    return plot_exploration(found, title)


def _print(found: Exploration, wanted: list[float], title: str, console: Any) -> None:
    marks = [(f"{name} (n = {found.candidates})" if name == "optimal-sequential" else name, z)
             for name, z in found.budgets.items()]  # fmt: skip
    marks += [("Z* = min p/q", found.points.z_star), ("everything", 1.0)] + [("--at", z) for z in wanted]
    marks = sorted(((name, z) for name, z in marks if 0.0 < z <= 1.0), key=lambda mark: mark[1])
    table = found.table(np.asarray([z for _, z in marks]))
    columns = {
        "L1": "l1", "L1, hole": "l1_hole", "next accepted": "acceptance", "next, exact": "acceptance_exact",
        "both, exact": "accepted_by_two",
    }  # fmt: skip

    def shown(value: float) -> str:
        return "-" if np.isnan(value) else f"{value:.4f}"

    records = [
        {"budget": name, "Z": f"{z:.6g}"} | {head: shown(table[key][i]) for head, key in columns.items()}
        for i, (name, z) in enumerate(marks)
    ]
    print_records(console, f"Theorem 2: residuals of mass Z, {title}", records)
    print_lines(console, _remarks(found))


def _remarks(found: Exploration) -> list[str]:
    count, mass = found.zero_target
    tokens = f"{count} {'token' if count == 1 else 'tokens'}"
    flat = (
        f"Flat on (0, {found.points.flat_until:.6g}] at {2 * mass:.6g}: p = 0 on {tokens} with draft mass "
        f"{mass:.6g}. Not strictly increasing on (Z*, 1]."
    )
    hole = f"Hole at token {found.rejected}."
    return [
        f"Z* = {found.points.z_star:.6g}; breakpoints in (0, 1]: {len(found.points.Z)}.",
        flat if found.flat else "p > 0 wherever q > 0: strictly increasing on (Z*, 1].",
        "No token can be rejected: q <= p everywhere." if found.rejected is None else hole,
        "'-': no such residual. An exact round leaves at least what specinfer leaves.",
    ]
