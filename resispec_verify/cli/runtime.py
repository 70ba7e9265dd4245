"""`resispec-verify runtime`: what one rejection costs, by phase."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resispec_verify.backends import get_backend
from resispec_verify.cli.one_position import dump_at
from resispec_verify.cli.options.group import check_range
from resispec_verify.cli.options.outputs import PlotOptions
from resispec_verify.cli.options.readings import make_sampling
from resispec_verify.cli.options.sources import DumpOptions
from resispec_verify.cli.options.work import ArrayOptions
from resispec_verify.cli.output import files_read, say_notes
from resispec_verify.cli.parameters import Count, DumpFile, Number
from resispec_verify.errors import InputError
from resispec_verify.report.table import print_lines, print_records, printable
from resispec_verify.sampling.settings import left_out
from resispec_verify.schema import envelope
from resispec_verify.tables.input_kind import input_kind
from resispec_verify.tables.runtime import results, time_steps

MOST_TOKENS, MOST_REPEATS = 1 << 24, 100_000
NOT_MEASURED = "Drafting and target verification are not measured: they need models."
MAY_DIFFER = "Array operations one by one; a kernel that fuses them, or another language, will differ."


@dataclass(frozen=True, kw_only=True)
class RowOptions(DumpOptions):
    """The rows of logits that are worked on.

    Attributes
    ----------
    logits
        The same as FILE: a dump of target and draft logits. Default: random logits.
    """

    position: Count | None = None
    """Position of the dump, 0-based. Default: 0."""
    vocab: Count | None = None
    """Tokens of the random logits. Default: 32000."""
    seed: Count | None = None
    """Seed of the random logits. Default: 0."""

    def rows(self) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Target and draft ``(V,)``, and what a report says of where they come from."""
        if self.logits is None:
            if self.position is not None:
                raise InputError("--position needs a dump; give FILE, or leave it out")
            return _random(32000 if self.vocab is None else self.vocab, self.seed or 0)
        if self.vocab is not None:
            raise InputError("give either FILE or --vocab, not both")
        if self.seed is not None:
            raise InputError("--seed is that of random logits; leave it out with FILE")
        dump, i = dump_at(self.paths, self.position)
        input_kind(dump, None)
        say_notes(replace(dump, notes=tuple(left_out(dump.sampling))))
        batch = dump.batch(i, i + 1)
        return batch.target[0], batch.draft[0], {"path": str(self.paths[0]), "position": i}


def _random(vocab: int, seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    check_range(1, MOST_TOKENS, vocab=vocab)
    check_range(0, seed=seed)
    rng = np.random.default_rng(seed)
    target = 3.0 * rng.standard_normal(vocab)
    return target, target + rng.standard_normal(vocab), {"random": True, "seed": seed}


def runtime(
    *files: DumpFile,
    source: RowOptions = RowOptions(),
    temperature: Number = 1.0,
    repeats: Count = 50,
    arrays: ArrayOptions = ArrayOptions(),
    output: PlotOptions = PlotOptions(),
) -> int:
    """Time of one rejection at one position: softmax, SpecInfer's round, and ResiSpec's three parts.

    Drafting and the target's forward pass are not measured: they need the models.

    Parameters
    ----------
    temperature
        Sampling temperature; what a dump states is not applied.
    repeats
        Times that every phase is measured.
    arrays.precision
        Working precision.
    output.csv
        Write one line a phase here.
    """
    source = source.joined(files)
    output.check(files_read(source.paths))
    make_sampling("--", temperature)
    check_range(1, MOST_REPEATS, repeats=repeats)
    target, draft, facts = source.rows()
    backend, how = get_backend(arrays.backend), {"precision": arrays.precision, "repeats": repeats}
    rows = results(time_steps(target, draft, backend=backend, temperature=temperature, **how))
    facts |= {"vocab": int(target.shape[-1]), "backend": backend.name, **how}
    facts["not_measured"] = ["drafting", "target verification"]
    title = f"V = {facts['vocab']:,}, {backend.name}, {arrays.precision}"
    console = output.write(
        envelope("runtime", rows, **facts),
        lambda: [_flat(row) for row in rows],
        lambda: _figure(rows, f"one rejection at one position, {title}, medians of {repeats}"),
    )
    where = f", {printable(facts['path'])} position {facts['position']}" if "path" in facts else ""
    print_records(console, f"one rejection at one position: {title}{where}", [_record(row) for row in rows])
    print_lines(console, [f"Medians of {repeats}. {NOT_MEASURED}", MAY_DIFFER])
    return 0


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    low, high = row["quartiles_us"]
    flat = {name: value for name, value in row.items() if name != "quartiles_us"}
    return {**flat, "low_us": low, "high_us": high, "share": "" if row["share"] is None else row["share"]}


def _figure(rows: list[dict[str, Any]], title: str) -> Any:
    from resispec_verify.report.plots.runtime import plot_runtime

    return plot_runtime(rows, title)


def _record(row: dict[str, Any]) -> dict[str, str]:
    return {
        "rule": row["belongs_to"],
        "phase": row["phase"],
        "median, us": f"{row['median_us']:.1f}",
        "quartiles, us": " to ".join(f"{value:.1f}" for value in row["quartiles_us"]),
        "share of GetProxy": "-" if row["share"] is None else f"{100 * row['share']:.0f} %",
    }
