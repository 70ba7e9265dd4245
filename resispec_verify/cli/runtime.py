"""`resispec-verify runtime`: what one rejection costs, by phase."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from resispec_verify.cli.output import (
    check_writable,
    files_read,
    print_lines,
    printable,
    table_console,
    write_csv,
    write_figure,
    write_json,
)
from resispec_verify.cli.parameters import Count, File, Files, Number
from resispec_verify.errors import InputError
from resispec_verify.schema import envelope

if TYPE_CHECKING:
    import numpy as np

__all__ = ["runtime"]

MOST_TOKENS, MOST_REPEATS = 1 << 24, 100_000


def runtime(
    *,
    logits: Files | None = None,
    position: Count | None = None,
    vocab: Count | None = None,
    seed: Count | None = None,
    temperature: Number = 1.0,
    repeats: Count = 50,
    backend: Literal["auto", "numpy", "torch", "cupy"] = "auto",
    precision: Literal["float64", "float32"] = "float64",
    json: File | None = None,
    csv: File | None = None,
    plot: File | None = None,
) -> int:
    """Time of one rejection at one position: softmax, SpecInfer's round, and ResiSpec's three parts.

    Drafting and the target's forward pass are not measured: they need the models.

    Parameters
    ----------
    logits
        A dump of target and draft logits. Default: random logits.
    position
        Position of the dump, 0-based. Default: 0.
    vocab
        Tokens of the random logits. Default: 32000.
    seed
        Seed of the random logits. Default: 0.
    temperature
        Sampling temperature.
    repeats
        Times that every phase is measured.
    backend
        Where arrays live.
    precision
        Working precision.
    json
        Write the report here ("-": standard output).
    csv
        Write one line a phase here.
    plot
        Write a plot here (.png, .svg or .pdf).
    """
    from resispec_verify.backends import get_backend
    from resispec_verify.distributions import Sampling
    from resispec_verify.tables.runtime import results, time_steps

    check_writable(json=json, csv=csv, plot=plot, inputs=files_read(logits or []))
    try:
        Sampling(temperature)
    except InputError as error:
        raise InputError(f"--{error}") from None
    if not 1 <= repeats <= MOST_REPEATS:
        raise InputError(f"--repeats must be in 1..{MOST_REPEATS}, got {repeats}")
    if logits is not None:
        if vocab is not None:
            raise InputError("give either --logits PATH or --vocab, not both")
        if seed is not None:
            raise InputError("--seed is that of random logits; leave it out with --logits")
        target, draft, facts = _from_dump(logits, 0 if position is None else position)
    else:
        if position is not None:
            raise InputError("--position needs --logits")
        target, draft, facts = _random(32000 if vocab is None else vocab, seed or 0)
    arrays = get_backend(backend)
    timings = time_steps(
        target, draft, backend=arrays, precision=precision, temperature=temperature, repeats=repeats
    )
    facts |= {
        "vocab": int(target.shape[-1]),
        "backend": arrays.name,
        "precision": precision,
        "repeats": repeats,
        "not_measured": ["drafting", "target verification"],
    }
    rows = results(timings)
    write_json(json, envelope("runtime", rows, **facts))
    write_csv(csv, [_flat(row) for row in rows])
    title = f"V = {facts['vocab']:,}, {arrays.name}, {precision}"
    write_figure(plot, lambda: _figure(rows, f"one rejection at one position, {title}, n = {repeats}"))
    _print(rows, title, repeats, facts, table_console(json, csv))
    return 0


def _from_dump(paths: list[Path], position: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    from resispec_verify.cli.output import open_dump
    from resispec_verify.tables.input_kind import input_kind

    if len(paths) != 1:
        raise InputError("runtime looks at one position of one dump; give one path")
    dump = open_dump(paths[0])
    input_kind(dump, None)
    if not 0 <= position < dump.positions:
        raise InputError(f"{paths[0]}: position {position} is outside 0..{dump.positions - 1}")
    batch = dump.batch(position, position + 1)
    return batch.target[0], batch.draft[0], {"path": str(paths[0]), "position": position}


def _random(vocab: int, seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    import numpy as np

    if not 1 <= vocab <= MOST_TOKENS:
        raise InputError(f"--vocab must be in 1..{MOST_TOKENS}, got {vocab}")
    if seed < 0:
        raise InputError(f"--seed must not be negative, got {seed}")
    rng = np.random.default_rng(seed)
    target = 3.0 * rng.standard_normal(vocab)
    return target, target + rng.standard_normal(vocab), {"random": True, "seed": seed}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    low, high = row["quartiles_us"]
    flat = {name: value for name, value in row.items() if name != "quartiles_us"}
    return {**flat, "low_us": low, "high_us": high, "share": "" if row["share"] is None else row["share"]}


def _figure(rows: list[dict[str, Any]], title: str) -> Any:
    from resispec_verify.report.plots.runtime import plot_runtime

    return plot_runtime(rows, title)


def _print(rows: list[dict[str, Any]], title: str, repeats: int, facts: dict[str, Any], console: Any) -> None:
    from resispec_verify.cli.kl_table import print_records

    where = f", {printable(facts['path'])} position {facts['position']}" if "path" in facts else ""
    records = [
        {
            "rule": row["belongs_to"],
            "phase": row["phase"],
            "median, us": f"{row['median_us']:.1f}",
            "quartiles, us": " to ".join(f"{value:.1f}" for value in row["quartiles_us"]),
            "share of GetProxy": "-" if row["share"] is None else f"{100 * row['share']:.0f} %",
        }
        for row in rows
    ]
    print_records(console, f"one rejection at one position: {title}{where}", records)
    print_lines(
        console,
        [
            f"Medians of {repeats}. Drafting and target verification are not measured: they need models.",
            "Array operations one by one; a kernel that fuses them, or another language, will differ.",
        ],
    )
