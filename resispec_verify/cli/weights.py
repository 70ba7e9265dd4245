"""`resispec-verify weights`: importance weights of logged tokens."""

import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from resispec_verify.cli.options.group import Options, check_range, check_share
from resispec_verify.cli.options.outputs import JsonOption
from resispec_verify.cli.options.readings import InputOption, OneSamplingOptions
from resispec_verify.cli.output import files_read, progress, write_bytes
from resispec_verify.cli.parameters import Count, Counts, File, Number, Text
from resispec_verify.cli.user_rules import choose_rules
from resispec_verify.errors import InputError
from resispec_verify.evidence.expansion import Budget
from resispec_verify.inputs import MOST_CANDIDATES
from resispec_verify.logged.weighing import Weighing, weigh
from resispec_verify.logged.weights import TRUNCATE, Weights
from resispec_verify.logged.weights_summary import summarize_weights
from resispec_verify.report.table import csv_text
from resispec_verify.report.weights import print_weights
from resispec_verify.rules import PATH_RULES
from resispec_verify.rules.spec import parse_any_rule
from resispec_verify.schema import envelope, plain

_ENDINGS = (".npz", ".csv", ".jsonl", ".parquet")


@dataclass(frozen=True, kw_only=True)
class DrawnOptions(InputOption, OneSamplingOptions):
    """What drew the tokens, and how they were sampled."""

    rule: Text | None = None
    """The rule that drew the tokens."""
    candidates: Count | None = None
    """Candidates at each position of a flat dump. Default: 1."""
    eos: Counts | None = None
    """Token that ends a text; repeat for several. Default: what meta["eos_token_id"] says."""


@dataclass(frozen=True, kw_only=True)
class WeightOptions(Options):
    """What is computed of the weights, and how well."""

    truncate: Number = TRUNCATE
    """C of the truncated weights min(w, C), at least 1."""
    gap: Number = 1e-3
    """Mass of a law that may stay without a place, which makes its weights intervals."""
    max_expansions: Number | None = None
    """Budget of paths evaluated at a position."""

    def budget(self) -> Budget:
        """The work on each law; raises on the first option that is out of range."""
        if not 1 <= self.truncate < math.inf:
            raise InputError(f"--truncate must be at least 1 and finite, got {self.truncate:g}")
        check_share(gap=self.gap)
        check_range(1, max_expansions=self.max_expansions)
        most = self.max_expansions
        work = Budget() if most is None else Budget(most_paths=most, most_states=most)
        return Budget(self.gap, work.most_paths, work.most_states, until_decided=False)


def weights(
    log: Path,
    /,
    *,
    drawn: DrawnOptions = DrawnOptions(),
    weighing: WeightOptions = WeightOptions(),
    out: File | None = None,
    output: JsonOption = JsonOption(),
) -> int:
    """What each logged token was drawn from under a rule, and its importance weight p / mu.

    Parameters
    ----------
    log
        A rounds dump, or a flat one with the emitted tokens.
    out
        Write the weights here, one entry or line a token (.npz, .csv, .jsonl or .parquet).
    """
    budget, options = weighing.budget(), drawn.given()
    output.check(files_read([log]), weights=_checked(out))
    if drawn.rule is None:
        raise InputError("which rule drew the tokens? Say --rule NAME; the rules command lists all of them")
    check_range(1, MOST_CANDIDATES, candidates=drawn.candidates)
    check_range(0, eos=min(drawn.eos or [0]))
    path = drawn.rule.partition(":")[0] in PATH_RULES
    rule = parse_any_rule(drawn.rule) if path else choose_rules([drawn.rule], drawn.candidates or 1)[0]
    how = Weighing(drawn.candidates, options, drawn.input, tuple(drawn.eos or ()), weighing.truncate, budget)
    with progress(str(log), None) as advance:
        found = weigh(log, rule, f"--rule {drawn.rule}", how, advance)
    row = summarize_weights(found)
    if out is not None:
        write_bytes(out, _encoded(found, out.suffix.lower()))
    print_weights(row, output.write(envelope("weights", [row])))
    return 0


def _checked(out: Path | None) -> Path | None:
    """Refuse an ending that names no format of ours, or one that cannot be written here."""
    if out is not None and out.suffix.lower() not in _ENDINGS:
        raise InputError(f"--out {out}: the name must end in {', '.join(_ENDINGS)}")
    if out is not None and out.suffix.lower() == ".parquet":
        _parquet()
    return out


def _parquet() -> Any:
    try:
        import pyarrow  # type: ignore[import]
        import pyarrow.parquet  # type: ignore[import]
    except ImportError:
        raise InputError("--out: .parquet needs the package pyarrow; install it, or write .npz") from None
    return pyarrow


def _encoded(found: Weights, ending: str) -> bytes:
    """The tokens in the format that a name ends in."""
    data = io.BytesIO()
    if ending == ".npz":
        np.savez(data, **found.arrays())  # type: ignore[arg-type]
        return data.getvalue()
    records = found.records()
    if ending == ".csv":
        return csv_text(
            [{k: "" if v is None else v for k, v in record.items()} for record in records]
        ).encode()
    if ending == ".jsonl":
        lines = (json.dumps(plain(record), allow_nan=False) for record in records)
        return "".join(f"{line}\n" for line in lines).encode()
    arrow = _parquet()
    arrow.parquet.write_table(arrow.Table.from_pylist(records), data)
    return data.getvalue()
