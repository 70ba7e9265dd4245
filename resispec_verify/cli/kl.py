"""`resispec-verify kl`: what each rule really emits, and how far that is from the target."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from resispec_verify.cli.kl_table import print_table
from resispec_verify.cli.output import check_writable, table_console, write_csv, write_json
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from resispec_verify.analysis.marginals import Clock, Evaluation, Row
    from resispec_verify.analysis.over_dumps import Reading
    from resispec_verify.backends import Backend

__all__ = ["kl"]

Number = Annotated[float | None, Parameter(allow_leading_hyphen=True)]
Count = Annotated[int | None, Parameter(allow_leading_hyphen=True)]


def kl(
    *,
    logits: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    target: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    draft: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    rule: Annotated[list[str] | None, Parameter(negative=())] = None,
    candidates: Annotated[int, Parameter(allow_leading_hyphen=True)] = 3,
    temperature: Annotated[list[float] | None, Parameter(allow_leading_hyphen=True, negative=())] = None,
    top_k: Count = None,
    top_p: Number = None,
    min_p: Number = None,
    proposal_temperature: Number = None,
    proposal_top_k: Count = None,
    proposal_top_p: Number = None,
    marginal: Literal["operational", "path-identity", "both"] = "both",
    redistribution: Literal["proportional", "water-filling"] = "proportional",
    budget: Literal["local", "floor"] = "local",
    hole: Literal["excluded", "literal"] = "excluded",
    gap: Number = None,
    max_expansions: Number = None,
    backend: Literal["auto", "numpy", "torch", "cupy"] = "auto",
    precision: Literal["float64", "float32"] = "float64",
    input: Literal["logits", "probabilities", "log-probabilities"] | None = None,
    positions: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    batch: Count = None,
    candidate_list: str | None = None,
    seed: int = 0,
    pad_vocab: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    csv: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    plot: Path | None = None,
    require_exact: Annotated[bool, Parameter(negative=())] = False,
    max_tv: Number = None,
) -> int:
    """What each rule really emits, how far that is from the target, and whether it is exact.

    Parameters
    ----------
    logits
        One or more dumps of target and draft logits.
    target
        Target probabilities by hand, "0.3,0.4,0.3", instead of a dump.
    draft
        Draft probabilities by hand.
    rule
        A rule to verify; repeat for several. Default: resispec and specinfer.
    candidates
        Candidates at each position (n).
    temperature
        Sampling temperature; repeat for several. Default: 1.
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
    marginal
        Which marginals to compute.
    redistribution
        ResiSpec: how the clipped mass is spread.
    budget
        ResiSpec: the local gap (Algorithm 1) or Eq. 13's floor.
    hole
        ResiSpec: whether the capacity leaves the rejected token out, or includes it as line 21 reads.
    gap
        Certified mass that may stay unexpanded at a position; 0 expands everything. Default: until decided
        and at most 1e-3.
    max_expansions
        Budget of paths evaluated at a position.
    backend
        Where arrays live.
    precision
        Working precision of the rounds.
    input
        What the dump holds. Default: logits, refused where they look like probabilities.
    positions
        Range A:B of positions, 0-based, B excluded.
    batch
        Positions at a time.
    candidate_list
        Candidates "5,17,3" of the path identity, at every position. Default: the dump's, or drawn.
    seed
        Seed of the drawn candidates.
    pad_vocab
        Pad the narrower of two vocabularies with probability 0.
    json
        Write the report here ("-": standard output).
    csv
        Write one line a position here.
    plot
        Write a plot of the positions here (.png, .svg or .pdf).
    require_exact
        Exit with 1 unless every rule is exact; undecided counts as not exact.
    max_tv
        Exit with 1 if the total variation of any position may exceed this.
    """
    from resispec_verify.analysis.marginals import Clock
    from resispec_verify.analysis.over_dumps import pool
    from resispec_verify.analysis.summary import exit_status, kl_report, position_records
    from resispec_verify.backends import get_backend

    check_writable(json, csv, plot)
    _check_plot(plot)
    if (logits is None) == (target is None and draft is None):
        raise InputError("give either --logits PATH... or both --target and --draft")
    evaluation = _evaluation(
        rule, candidates, marginal, gap, max_expansions, seed, candidate_list,
        redistribution=redistribution, budget=budget, hole=hole,
    )  # fmt: skip
    reading = _reading(
        temperature, (top_k, top_p, min_p), (proposal_temperature, proposal_top_k, proposal_top_p),
        input, precision, positions, batch,
    )  # fmt: skip
    arrays, clock = get_backend(backend), Clock()
    if max_tv is not None and not 0 <= max_tv <= 1:
        raise InputError(f"--max-tv must be in [0, 1], got {max_tv:g}")
    _compile(evaluation)
    if logits is None:
        tables, facts, failures = [_by_hand(target, draft, reading, evaluation, arrays, clock)], {}, []
    else:
        tables, facts, failures = _from_dumps(logits, pad_vocab, reading, evaluation, arrays, clock)
    rows = pool(tables)
    if rows:
        write_json(json, kl_report(rows, facts, clock.seconds))
        write_csv(csv, position_records(rows))
        if plot is not None:
            _plot(rows, plot)
        print_table(rows, table_console(json, csv))
    for failure in failures:
        print(f"resispec-verify: error: {failure}", file=sys.stderr)
    return 2 if failures else exit_status(rows, require_exact=require_exact, max_tv=max_tv)


def _evaluation(
    names: list[str] | None,
    candidates: int,
    marginal: str,
    gap: float | None,
    max_expansions: float | None,
    seed: int,
    candidate_list: str | None,
    **options: str,
) -> Evaluation:
    from resispec_verify.analysis.marginals import Evaluation
    from resispec_verify.evidence.enumeration import Budget
    from resispec_verify.rules import make_rule

    if candidates < 1:
        raise InputError(f"--candidates must be at least 1, got {candidates}")
    if gap is not None and not 0 <= gap <= 1:
        raise InputError(f"--gap must be in [0, 1], got {gap:g}")
    if max_expansions is not None and not max_expansions >= 1:
        raise InputError(f"--max-expansions must be at least 1, got {max_expansions:g}")
    if seed < 0:
        raise InputError(f"--seed must not be negative, got {seed}")
    limits = Budget()
    work = limits if max_expansions is None else Budget(most_paths=max_expansions, most_states=max_expansions)
    if gap is not None:
        work = Budget(gap, work.most_paths, work.most_states, until_decided=False)
    chosen = tuple(make_rule(name, **options) for name in dict.fromkeys(names or ["resispec", "specinfer"]))
    return Evaluation(
        rules=chosen,
        candidates=candidates,
        operational=marginal != "path-identity",
        identity=marginal != "operational",
        budget=work,
        seed=seed,
        candidate_list=_candidate_list(candidate_list, candidates),
    )


def _candidate_list(text: str | None, candidates: int) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        tokens = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--candidate-list must be token ids such as 5,17,3; got {text!r}") from None
    if len(tokens) < candidates or min(tokens) < 0:
        raise InputError(
            f"--candidate-list has {len(tokens)} tokens; give at least {candidates}, none of them negative"
        )
    return tokens


def _reading(
    temperatures: list[float] | None,
    filters: tuple[int | None, float | None, float | None],
    proposal: tuple[float | None, int | None, float | None],
    kind: str | None,
    precision: str,
    positions: str | None,
    batch: int | None,
) -> Reading:
    from resispec_verify.analysis.over_dumps import Reading
    from resispec_verify.distributions import Sampling

    if batch is not None and batch < 1:
        raise InputError(f"--batch must be at least 1, got {batch}")
    samplings = tuple(Sampling(t, *filters) for t in dict.fromkeys(temperatures or [1.0]))
    for sampling in samplings:
        sampling.overridden(*proposal)  # raises here, before any work, if out of range
    start, stop = _positions(positions)
    return Reading(
        samplings,
        proposal_sampling=lambda sampling: sampling.overridden(*proposal),
        kind=kind,
        precision=precision,
        start=start,
        stop=stop,
        batch=batch,
    )


def _positions(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    try:
        start, stop = text.split(":")
        return (int(start) if start else None), (int(stop) if stop else None)
    except ValueError:
        raise InputError(f"--positions must be a range A:B such as 0:16; got {text!r}") from None


def _by_hand(
    target: str | None,
    draft: str | None,
    reading: Reading,
    evaluation: Evaluation,
    backend: Backend,
    clock: Clock,
) -> list[Row]:
    import numpy as np

    from resispec_verify.analysis.marginals import evaluate
    from resispec_verify.distributions import pair_from_probabilities

    if target is None or draft is None:
        raise InputError(f"--{'draft' if target else 'target'} is missing: give both --target and --draft")
    rows: list[list[float]] = []
    for name, text in (("--target", target), ("--draft", draft)):
        try:
            rows.append([float(part) for part in text.split(",")])
        except ValueError:
            raise InputError(f"{name} must be numbers such as 0.3,0.4,0.3; got {text!r}") from None
    pair = pair_from_probabilities([rows[0]], [rows[1]])
    dtype = getattr(np, reading.precision)
    pair = type(pair)(*(backend.asarray(v.astype(dtype)) for v in (pair.target, pair.draft)))
    if evaluation.candidate_list:
        _check_tokens(evaluation, len(rows[0]), "--target")
    table: dict[tuple[str, str], Row] = {}
    evaluate(pair, evaluation, table, positions=[0], backend=backend, clock=clock)
    return list(table.values())


def _check_tokens(evaluation: Evaluation, vocab: int, where: str) -> None:
    worst = max(evaluation.candidate_list or (0,))
    if worst >= vocab:
        raise InputError(
            f"--candidate-list: token {worst} is outside the vocabulary 0..{vocab - 1} of {where}"
        )


def _from_dumps(
    paths: list[Path], pad: bool, reading: Reading, evaluation: Evaluation, backend: Backend, clock: Clock
) -> tuple[list[list[Row]], dict[str, Any], list[str]]:
    """Tables by file, what the files hold, and one line for each file that could not be used."""
    from resispec_verify.analysis.over_dumps import evaluate_dump
    from resispec_verify.dumps import open_dump

    tables, dumps, failures = [], [], []
    for path in paths:
        try:
            with clock("load"):
                dump = open_dump(path, pad_vocab=pad)
            _check_tokens(evaluation, dump.vocab, str(path))
            with _progress(path, dump.positions) as advance:
                tables.append(
                    evaluate_dump(dump, reading, evaluation, backend=backend, clock=clock, advance=advance)
                )
            dumps.append(dump)
        except InputError as error:
            failures.append(str(error))
    facts = {
        "paths": [str(dump.path) for dump in dumps],
        "positions": sum(dump.positions for dump in dumps),
        "vocab": max((dump.vocab for dump in dumps), default=0),
        "dtype": "/".join(dict.fromkeys(dump.dtype for dump in dumps)),
    }
    return tables, facts, failures


@contextmanager
def _progress(path: Path, positions: int) -> Iterator[Any]:
    """A progress bar on standard error, only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(path.name, total=positions)
        yield lambda done: bar.advance(task, done)


def _compile(evaluation: Evaluation) -> None:
    """Load the compiled kernels, and say so when that takes long: they are compiled on the first run."""
    import numpy as np

    from resispec_verify.evidence import operational_marginals
    from resispec_verify.kernels.transport import transport_limit

    note = threading.Timer(
        2.0,
        lambda: print(
            "resispec-verify: compiling the path kernels (first run only, about 20 s; cached afterwards)",
            file=sys.stderr,
        ),
    )
    note.daemon = True
    note.start()
    try:
        p, q = np.asarray([[0.25, 0.75]]), np.asarray([[0.5, 0.5]])
        transport_limit(p, q, 1)
        if evaluation.operational:
            for rule in evaluation.rules:
                operational_marginals(rule, p, q, min(2, evaluation.candidates))
    finally:
        note.cancel()


def _check_plot(path: Path | None) -> None:
    if path is not None and path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot {path}: the name must end in .png, .svg or .pdf")


def _plot(rows: list[Row], path: Path) -> None:
    import io

    from resispec_verify.cli.output import write_bytes
    from resispec_verify.plots.marginals import plot_marginals

    data = io.BytesIO()
    plot_marginals(rows).savefig(data, format=path.suffix[1:].lower(), dpi=150)
    write_bytes(path, data.getvalue())
