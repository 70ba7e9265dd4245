"""Checks the CUDA kernels against NumPy on real dumps, then measures them; meant to take under five minutes.

    python benchmarks/gpu.py DUMP... [--markdown PATH] [--page docs/reference/backends.md]

Without a CUDA device it says so in one line and exits with status 2. With ``--backend numpy`` it goes through
the checks on the CPU alone, to see that the script works: it is not a GPU, and nothing is said about one.
``--dry-run`` goes on through the measurements on a few rows, and prints none of their figures. ``--page``
writes the report between the marks ``<!-- measured -->`` and ``<!-- /measured -->`` of a page.
Exits with status 1 where a check fails; then nothing is measured.
"""

from __future__ import annotations

import argparse
import functools
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from resispec_verify import device as gpu
from resispec_verify.backends import to_numpy
from resispec_verify.device.host import block_summation_error
from resispec_verify.device.replay_dump import replay_dump
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import FlatDump, open_dump
from resispec_verify.dumps.rows import rows_of
from resispec_verify.errors import InputError
from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.marginal import rounding_bound, summation_error
from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.kernels.paths.shaped import shaped_marginal
from resispec_verify.rules import SpecInfer

EPS = float(np.finfo(np.float64).eps)
GAPS = {1: 0.0, 2: 1e-3, 3: 1e-3}  # by number of candidates
CUT = 400  # tokens of the rows on which all paths of three candidates are followed
MOST_PATHS = 5e7
MARKS = ("<!-- measured -->\n", "<!-- /measured -->\n")
BUDGET = 240.0  # seconds; what would begin later is left out, and the report says so


class Engine(NamedTuple):
    """Where the kernels run: a device, or NumPy's own functions for a rehearsal."""

    name: str
    device: Any
    softmax: Callable[..., Any]
    specinfer: Callable[..., Any]
    shaped: Callable[..., Any]


def on_device(device: Any) -> Engine:
    kernels = (
        functools.partial(f, device) for f in (gpu.softmax, gpu.specinfer_rounds, gpu.shaped_marginals)
    )
    return Engine(device.name, device, *kernels)


def on_numpy() -> Engine:
    def softmax(logits: np.ndarray, *, bfloat16: bool = False) -> np.ndarray:
        del bfloat16
        return Sampling().probabilities(logits.astype(np.float64), dtype=np.float64)

    def specinfer(p: np.ndarray, q: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        found = operational_marginals(SpecInfer(), p, q, n)
        return found.placed, found.acceptance

    def shaped(p: np.ndarray, q: np.ndarray, n: int, *, gap: float, most_paths: float) -> PathSum:
        del most_paths
        found = on_cpu(p, q, n, gap)
        names = ("mass", "acceptance", "unexpanded", "paths")
        return PathSum(*(np.stack([getattr(one, name) for one in found]) for name in names))

    return Engine("not a GPU", None, softmax, specinfer, shaped)


def on_cpu(p: np.ndarray, q: np.ndarray, n: int, gap: float) -> list[PathSum]:
    """The reference: what `kl` computes."""
    return [shaped_marginal(ratio_order(*row), n, gap, most(gap)) for row in zip(p, q, strict=True)]


def most(gap: float) -> float:
    """Paths a position."""
    return MOST_PATHS if gap else np.inf


def stored(dump: FlatDump, rows: int) -> list[tuple[np.ndarray, bool]]:
    """Target and draft logits as stored; bfloat16 as bits, and whether it is."""
    parts = []
    for array in (dump.target, dump.draft):
        part = np.ascontiguousarray(rows_of(array, 0, rows))
        brain = part.dtype.name == "bfloat16"
        parts.append((part, brain))
    return parts


def check(engine: Engine, dump: FlatDump, rows: int) -> list[tuple[str, float, float]]:
    """(what, error, bound) of each kernel on the first rows of a dump."""
    xp = engine.device.xp if engine.device else np
    put = xp.asarray
    right = [Sampling().probabilities(v, dtype=np.float64) for v in dump.batch(0, rows)[:2]]
    vocab = dump.vocab
    found, results = [], []
    for part, brain in stored(dump, rows):
        bits = part.view(np.uint16) if brain and engine.device else part
        found.append(to_numpy(engine.softmax(put(bits), bfloat16=brain)))
    off = max(float(np.abs(ours - theirs).max()) for ours, theirs in zip(found, right, strict=True))
    blocks = block_summation_error(vocab, engine.device.most_threads if engine.device else 1024)
    sums = summation_error(vocab) + blocks
    results.append(("softmax, largest difference", off, EPS * (8 + sums)))

    p, q = right
    device_p, device_q = put(p), put(q)
    placed = to_numpy(engine.specinfer(device_p, device_q, 3)[0])
    reference = operational_marginals(SpecInfer(), p, q, 3)
    bound = reference.rounding + rounding_bound(p, q, 3, 2 * blocks + 8, EPS)
    results.append(worst("specinfer n = 3, TV", tv(placed, reference.placed), bound))

    for n, gap in GAPS.items():
        results.append(path_check(f"resispec n = {n}, TV less both gaps", engine, p, q, n, gap))
    best = np.argsort(-p, axis=-1)[:, :CUT]
    cut = (np.take_along_axis(v, best, axis=-1) for v in (p, q))
    p, q = (v / v.sum(-1, keepdims=True) for v in cut)
    results.append(path_check(f"resispec n = 3, all paths of {CUT} tokens, TV", engine, p, q, 3, 0.0))
    return results


def path_check(
    what: str, engine: Engine, p: np.ndarray, q: np.ndarray, n: int, gap: float
) -> tuple[str, float, float]:
    put = engine.device.xp.asarray if engine.device else np.asarray
    found = engine.shaped(put(p), put(q), n, gap=gap, most_paths=most(gap))
    reference = on_cpu(p, q, n, gap)
    gaps = to_numpy(found.unexpanded).sum(-1) + [row.unexpanded.sum() for row in reference]
    paths = to_numpy(found.paths) + [row.paths for row in reference]
    bounds = np.array([rounding_bound(*row, n, 0.0, EPS) for row in zip(p, q, strict=True)])
    bounds = 2 * bounds + 0.5 * EPS * (n + 1) * (6.0 * p.shape[-1] + paths + 48)
    mass = to_numpy(found.mass)
    apart = tv(mass, np.stack([row.mass for row in reference])) - 0.5 * gaps
    total = 0.5 * np.abs(mass.sum(-1) + to_numpy(found.unexpanded).sum(-1) - 1.0)  # nothing lost, or twice
    return worst(what, np.maximum(np.clip(apart, 0.0, None), total), bounds)


def tv(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return 0.5 * np.abs(ours - theirs).sum(-1)


def worst(what: str, error: np.ndarray, bound: np.ndarray) -> tuple[str, float, float]:
    i = int(np.argmax(error / bound))
    return what, float(error[i]), float(bound[i])


def seconds(function: Callable[[], object], wait: Callable[[], object], rounds: int = 7) -> float:
    """Median time of a call, waited for; the first one, which compiles, is left out."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        function()
        wait()
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


def measure(
    engine: Engine, dump: FlatDump, rows: int, tiled: int, until: float
) -> list[tuple[str, str, str]]:
    """(what, on the device, beside it) on one dump."""
    device, vocab = engine.device, dump.vocab
    xp = device.xp if device else np
    wait = getattr(device, "wait", lambda: None)
    lines: list[tuple[str, str, str]] = []
    logits = [
        xp.asarray(part.view(np.uint16) if brain and device else part) for part, brain in stored(dump, rows)
    ]
    brain = [flag for _, flag in stored(dump, rows)]
    p, q = (engine.softmax(part, bfloat16=flag) for part, flag in zip(logits, brain, strict=True))
    many = -(-tiled // rows)
    wide_p, wide_q = (xp.concatenate([v] * many) for v in (p, q))
    wide_logits = xp.concatenate([logits[0]] * many)
    cells = wide_p.size

    def rate(bytes_moved: int, function: Callable[[], object]) -> float:
        return bytes_moved / seconds(function, wait) / 1e9

    target = xp.empty_like(wide_p)
    copy = rate(16 * cells, lambda: xp.copyto(target, wide_p))
    width = wide_logits.dtype.itemsize
    for what, bytes_moved, function in (
        (
            f"softmax, {dump.dtype}",
            (width + 8) * cells,
            lambda: engine.softmax(wide_logits, bfloat16=brain[0]),
        ),
        ("specinfer n = 1", 24 * cells, lambda: engine.specinfer(wide_p, wide_q, 1)),
        ("specinfer n = 3", 24 * cells, lambda: engine.specinfer(wide_p, wide_q, 3)),
    ):
        lines.append((what, f"{rate(bytes_moved, function):.0f} GB/s", f"copy {copy:.0f} GB/s"))
    host_p, host_q = to_numpy(p), to_numpy(q)
    for n, gap in GAPS.items():
        if time.perf_counter() > until:
            lines.append((f"resispec n = {n}", "not run: out of time", ""))
            continue
        took = seconds(functools.partial(engine.shaped, p, q, n, gap=gap, most_paths=most(gap)), wait, 3)
        done, start = 0, time.perf_counter()
        while done < rows and time.perf_counter() - start < 10.0:
            on_cpu(host_p[done : done + 1], host_q[done : done + 1], n, gap)
            done += 1
        beside = f"CPU {done / (time.perf_counter() - start):.3g} positions/s ({done} of {rows})"
        lines.append((f"resispec n = {n}, gap {gap:g}", f"{rows / took:.3g} positions/s", beside))
    if device is not None and time.perf_counter() < until:
        took = seconds(lambda: replay_dump(dump, device, "specinfer", 3), wait, 3)
        lines.append(
            ("specinfer n = 3 from the file, copies included", f"{dump.positions / took:.3g} positions/s", "")
        )
    lines.append(("vocabulary, positions", f"{vocab}, {rows}", f"token-free rows repeated to {many * rows}"))
    return lines


def write_between_marks(page: Path, text: str) -> None:
    """Replace what a page has between the marks.

    Raises
    ------
    InputError
        A page without both, once each.
    """
    before = page.read_text(encoding="utf-8")
    if [before.count(mark) for mark in MARKS] != [1, 1]:
        raise InputError(f"{page}: needs the marks {MARKS[0].strip()} and {MARKS[1].strip()}, once each")
    head, rest = before.split(MARKS[0])
    page.write_text(f"{head}{MARKS[0]}\n{text}\n{MARKS[1]}{rest.split(MARKS[1])[1]}", encoding="utf-8")


def main(arguments: list[str] | None = None, device: Any = None) -> int:
    """Check, measure and print; ``device`` replaces CuPy's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--backend", choices=["cupy", "numpy"], default="cupy")
    parser.add_argument("--positions", type=int, default=16, help="rows of each dump")
    parser.add_argument("--tiled", type=int, default=512, help="rows for the token-free rates")
    parser.add_argument("--markdown", type=Path, help="write the report here")
    parser.add_argument("--page", type=Path, help="write the report between the marks of this page")
    parser.add_argument(
        "--dry-run", action="store_true", help="all of it on the CPU, on a few rows, no figures"
    )
    chosen = parser.parse_args(arguments)
    if chosen.dry_run:
        chosen.backend, chosen.positions, chosen.tiled = "numpy", 1, 2
    start = time.perf_counter()
    try:
        engine = on_numpy() if chosen.backend == "numpy" else on_device(device or gpu.CupyDevice())
        dumps = [open_dump(path) for path in chosen.dumps]
        report, failed = (
            [f"Device: {engine.name}; host: {platform.machine()}, NumPy {np.__version__}.", ""],
            False,
        )
        report += ["| dump | check | error | bound | |", "| --- | --- | --- | --- | --- |"]
        for dump in dumps:
            for what, error, bound in check(engine, dump, min(chosen.positions, dump.positions)):
                failed |= not error <= bound
                verdict = "ok" if error <= bound else "FAILED"
                report.append(f"| {Path(dump.path).name} | {what} | {error:.2e} | {bound:.2e} | {verdict} |")
        if (engine.device is not None or chosen.dry_run) and not failed:
            report += ["", "| dump | what | device | beside it |", "| --- | --- | --- | --- |"]
            for dump in dumps:
                rows = min(chosen.positions, dump.positions)
                for line in measure(engine, dump, rows, chosen.tiled, start + BUDGET):
                    line = line if engine.device is not None else (line[0], "ran on the CPU", "")
                    report.append(f"| {' | '.join([Path(dump.path).name, *line])} |")
        text = "\n".join(report) + "\n"
        if chosen.page and not failed:
            write_between_marks(chosen.page, text)
    except InputError as error:
        print(f"benchmarks/gpu.py: error: {error}", file=sys.stderr)
        return 2
    print(text, end="")
    if chosen.markdown:
        chosen.markdown.write_text(text, encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
