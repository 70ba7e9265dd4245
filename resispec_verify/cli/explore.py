"""`resispec-verify explore`: Theorem 2 on one position, or its hypotheses on all."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from resispec_verify.cli.kl_settings import (
    MOST_CANDIDATES,
    make_reading,
    pair_by_hand,
    refuse_without,
)
from resispec_verify.cli.output import (
    check_writable,
    files_read,
    print_lines,
    table_console,
    write_csv,
    write_figure,
    write_json,
)
from resispec_verify.cli.parameters import Count, File, Files, Flag, Number, Numbers, Text
from resispec_verify.errors import InputError
from resispec_verify.schema import envelope

if TYPE_CHECKING:
    import numpy as np

    from resispec_verify.tables.shaping import Exploration

__all__ = ["explore"]


def explore(
    *,
    logits: Files | None = None,
    target: Text | None = None,
    draft: Text | None = None,
    random: Count | None = None,
    concentration: Number | None = None,
    seed: Count | None = None,
    position: Count | None = None,
    rejected: Count | None = None,
    candidates: Count = 2,
    at: Numbers | None = None,
    temperature: Number | None = None,
    input: Literal["logits", "probabilities", "log-probabilities"] | None = None,
    check: Flag = False,
    json: File | None = None,
    csv: File | None = None,
    plot: File | None = None,
) -> int:
    """L1 distance of a residual from the draft against its mass Z (Theorem 2 of the ResiSpec paper).

    Parameters
    ----------
    logits
        A dump of target and draft logits; several with --check.
    target
        Target probabilities by hand, "0.3,0.4,0.3", instead of a dump.
    draft
        Draft probabilities by hand.
    random
        A random pair over this many tokens instead: Dirichlet laws.
    concentration
        Their concentration. Default: 1.
    seed
        Their seed. Default: 0.
    position
        Position of the dump, 0-based. Default: 0.
    rejected
        Token whose hole is looked at. Default: the one that is most often rejected.
    candidates
        Candidates of the optimal sequential rule (n).
    at
        A Z in (0, 1] to show; repeat for several.
    temperature
        Sampling temperature. Default: what the dump states, or else 1.
    input
        What the dump holds. Default: logits, refused where they look like probabilities.
    check
        For every position: do the theorem's hypotheses hold, and is the curve monotone?
    json
        Write the report here ("-": standard output).
    csv
        Write the curves here, or one line a position with --check.
    plot
        Write a plot here (.png, .svg or .pdf).
    """
    check_writable(json=json, csv=csv, plot=plot, inputs=files_read(logits or []))
    wanted = _wanted(at)
    sources = [logits is not None, target is not None or draft is not None, random is not None]
    if sum(sources) != 1:
        raise InputError("give one of --logits PATH, --target and --draft, or --random V")
    if not sources[0]:
        refuse_without("--logits", position=position, temperature=temperature, input=input, check=check)
    if not sources[2]:
        refuse_without("--random", concentration=concentration, seed=seed)
    reading = make_reading(
        None if temperature is None else [temperature], (None, None, None), (None, None, None),
        input, "float64", None, None,
    )  # fmt: skip
    if check:
        if plot is not None or at or rejected is not None or position is not None:
            raise InputError(
                "--check looks at every position; leave out --plot, --at, --rejected and --position"
            )
        return _check(logits or [], reading, json, csv)
    if logits is not None:
        p, q, facts, title = position_of_dump(logits, reading, 0 if position is None else position)
    elif random is not None:
        p, q, facts, title = _random(random, 1.0 if concentration is None else concentration, seed or 0)
    else:
        pair = pair_by_hand(target, draft)
        p, q, facts, title = pair.target, pair.draft, {"position": 0}, "the given pair"
    from resispec_verify.tables.shaping import explore_pair

    if not 2 <= candidates <= MOST_CANDIDATES:
        raise InputError(
            "--candidates must be at least 2 for a next candidate to exist, and at most "
            f"{MOST_CANDIDATES}; got {candidates}"
        )
    try:
        found = explore_pair(p, q, candidates, rejected)
    except InputError as error:
        raise InputError(f"--rejected: {error}") from None
    write_json(json, envelope("explore", [{**facts, **found.result()}]))
    if csv is not None:
        write_csv(csv, _records(found))
    write_figure(plot, lambda: _figure(found, title))
    _print(found, wanted, title, table_console(json, csv))
    return 0


def _wanted(at: list[float] | None) -> list[float]:
    for Z in at or []:
        if not 0.0 < Z <= 1.0:
            raise InputError(f"--at must be in (0, 1], got {Z:g}")
    return sorted(set(at or []))


def position_of_dump(paths: list[Path], reading: Any, position: int) -> tuple[Any, Any, dict[str, Any], str]:
    from dataclasses import replace

    from resispec_verify.backends import get_backend
    from resispec_verify.cli.output import open_dump
    from resispec_verify.tables.reading import Clock, pairs_of

    if len(paths) != 1:
        raise InputError(
            "one position of one dump is looked at; give one path (explore --check takes several)"
        )
    dump = open_dump(paths[0])
    if not 0 <= position < dump.positions:
        raise InputError(f"{paths[0]}: position {position} is outside 0..{dump.positions - 1}")
    here = replace(reading, start=position, stop=position + 1)
    members = next(iter(pairs_of(dump, here, backend=get_backend("numpy"), clock=Clock())))
    temperature = members.sampling.temperature
    facts = {"path": str(paths[0]), "position": position, "temperature": temperature}
    title = f"{paths[0].name}, position {position}, T = {temperature:g}, V = {dump.vocab:,}"
    return members.pair.target[0], members.pair.draft[0], facts, title


def _random(size: int, concentration: float, seed: int) -> tuple[Any, Any, dict[str, Any], str]:
    import numpy as np

    if not 1 <= size <= 1 << 24:
        raise InputError(f"--random must be a number of tokens in 1..{1 << 24}, got {size}")
    if not (np.isfinite(concentration) and concentration > 0):
        raise InputError(f"--concentration must be a positive number, got {concentration:g}")
    if seed < 0:
        raise InputError(f"--seed must not be negative, got {seed}")
    p, q = np.random.default_rng(seed).dirichlet(np.full(size, concentration), 2)
    if not (np.isfinite(p).all() and np.isfinite(q).all()):
        raise InputError(
            f"--concentration {concentration:g} is too small for {size} tokens; give a larger one"
        )
    facts = {"position": 0, "random": size, "concentration": concentration, "seed": seed}
    return p, q, facts, f"Dirichlet({concentration:g}) pair, V = {size:,}, seed {seed}"


def _check(paths: list[Path], reading: Any, json: Path | None, csv: Path | None) -> int:
    from resispec_verify.backends import get_backend
    from resispec_verify.cli.kl_table import print_records
    from resispec_verify.cli.output import open_dump
    from resispec_verify.tables.reading import Clock, pairs_of
    from resispec_verify.tables.shaping import check_monotonicity

    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    seen: set[str] = set()
    for path in paths:
        try:
            if os.path.realpath(path) in seen:
                raise InputError(f"{path}: given twice; its positions would count twice")
            seen.add(os.path.realpath(path))
            dump = open_dump(path)
            fresh = [
                {"path": str(path), "position": int(i), "temperature": members.sampling.temperature}
                | check_monotonicity(p, q)
                for members in pairs_of(dump, reading, backend=get_backend("numpy"), clock=Clock())
                for i, p, q in zip(members.positions, members.pair.target, members.pair.draft, strict=True)
            ]
            rows += fresh
        except InputError as error:
            failures.append(str(error))
    if rows:
        write_json(json, envelope("explore", rows))
        write_csv(csv, rows)
        console = table_console(json, csv)
        records = []
        for path in dict.fromkeys(row["path"] for row in rows):
            own = [row for row in rows if row["path"] == path]
            records.append(
                {
                    "dump": Path(path).name,
                    "positions": str(len(own)),
                    "p > 0 where q > 0": str(sum(row["hypotheses_hold"] for row in own)),
                    "strict on (Z*, 1]": str(sum(row["strictly_increasing"] for row in own)),
                    "monotone": str(sum(row["monotone"] for row in own)),
                    "Z* max": f"{max(row['z_star'] for row in own):.3g}",
                    "L1(1) mean": f"{sum(row['l1_at_1'] for row in own) / len(own):.4f}",
                }
            )
        print_records(console, "Theorem 2, position by position", records)
        print_lines(console, _why_flat(rows))
    for failure in failures:
        print(f"resispec-verify: error: {failure}", file=sys.stderr)
    return 2 if failures else 0


def _why_flat(rows: list[dict[str, Any]]) -> list[str]:
    flat = [row for row in rows if not row["strictly_increasing"]]
    if not flat:
        return ["Strict wherever it is claimed: no draft token without target mass."]
    worst = max(flat, key=lambda row: row["flat_until"])
    return [
        f"Flat at {len(flat)} positions, longest at position {worst['position']}: constant up to "
        f"Z = {worst['flat_until']:.3g}, because p = 0 on draft tokens."
    ]


def _curves(found: Exploration) -> dict[str, np.ndarray]:
    from resispec_verify.report.plots.shaping import curve_points

    return found.table(curve_points(found))


def _records(found: Exploration) -> list[dict[str, Any]]:
    columns = {name: values.tolist() for name, values in _curves(found).items()}
    return [
        {name: "" if values[i] != values[i] else values[i] for name, values in columns.items()}
        for i in range(len(columns["Z"]))
    ]


def _figure(found: Exploration, title: str) -> Any:
    from resispec_verify.report.plots.shaping import plot_exploration

    return plot_exploration(found, title)


def _print(found: Exploration, wanted: list[float], title: str, console: Any) -> None:
    import numpy as np

    from resispec_verify.cli.kl_table import print_records

    marks = [(f"{name} (n = {found.candidates})" if name == "optimal-sequential" else name, z)
             for name, z in found.budgets.items()]  # fmt: skip
    marks += [("Z* = min p/q", found.points.z_star), ("everything", 1.0)] + [("--at", z) for z in wanted]
    marks = sorted(((name, z) for name, z in marks if 0.0 < z <= 1.0), key=lambda mark: mark[1])
    table = found.table(np.asarray([z for _, z in marks]))

    def shown(value: float) -> str:
        return "-" if np.isnan(value) else f"{value:.4f}"

    records = [
        {
            "budget": name,
            "Z": f"{z:.6g}",
            "L1": shown(table["l1"][i]),
            "L1, hole": shown(table["l1_hole"][i]),
            "next accepted": shown(table["acceptance"][i]),
            "next, exact": shown(table["acceptance_exact"][i]),
            "both, exact": shown(table["accepted_by_two"][i]),
        }
        for i, (name, z) in enumerate(marks)
    ]
    print_records(console, f"Theorem 2: residuals of mass Z, {title}", records)
    lines = [f"Z* = {found.points.z_star:.6g}; breakpoints in (0, 1]: {len(found.points.Z)}."]
    if found.flat:
        count, mass = found.zero_target
        lines.append(
            f"Flat on (0, {found.points.flat_until:.6g}] at {2 * mass:.6g}: p = 0 on {count} "
            f"{'token' if count == 1 else 'tokens'} with draft mass {mass:.6g}. Not strictly increasing on "
            "(Z*, 1]."
        )
    else:
        lines.append("p > 0 wherever q > 0: strictly increasing on (Z*, 1].")
    if found.rejected is None:
        lines.append("No token can be rejected: q <= p everywhere.")
    else:
        lines.append(f"Hole at token {found.rejected}.")
    lines.append("'-': no such residual. An exact round leaves at least what specinfer leaves.")
    print_lines(console, lines)
