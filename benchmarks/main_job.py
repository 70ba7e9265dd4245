"""Ratios of the main job's costs, measured side by side in one run.

    python benchmarks/main_job.py [--dump PATH ...] [--positions 16] [--json PATH]

Without ``--dump`` the bundled example is measured. Absolute times depend on the machine; the ratios are what
the project promises. Each figure is a median over rounds in which the two sides of a ratio are timed in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from resispec_verify.backends import get_backend
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import open_dump
from resispec_verify.evidence.enumeration import operational_marginals
from resispec_verify.evidence.path_identity import draw_candidates, path_identity
from resispec_verify.kernels.divergences import distances
from resispec_verify.kernels.path_plan import survey
from resispec_verify.kernels.ratio_order import ratio_order
from resispec_verify.kernels.shaped_paths import shaped_marginal
from resispec_verify.kernels.transport import transport_limit
from resispec_verify.rules import ResiSpec, SpecInfer

EXAMPLE = Path(__file__).parents[1] / "examples" / "smollm2-skip6-N8-fp16.pt"
CANDIDATES = 3
BATCH = 16


def timed(*functions: Callable[[], object], rounds: int = 7) -> list[float]:
    """Median seconds of each function, timed in turn."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds + 1):
        for function, seconds in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - start)
    return [float(np.median(seconds[1:])) for seconds in times]


def token_free(target: np.ndarray, draft: np.ndarray) -> dict[str, float]:
    """SpecInfer n = 3 and path identities beside the softmax; divergences and limit beside argsort."""
    sampling, n = Sampling(), CANDIDATES
    batches = [slice(i, i + BATCH) for i in range(0, len(target), BATCH)]
    logits = [(target[b], draft[b]) for b in batches]
    pairs = [tuple(sampling.probabilities(x, dtype=np.float64) for x in pair) for pair in logits]
    uniforms = np.random.default_rng(0).random((BATCH, n))
    specinfer, resispec = SpecInfer(), ResiSpec()

    def softmax() -> None:
        for pair in logits:
            for x in pair:
                sampling.probabilities(x, dtype=np.float64)

    def rounds() -> None:
        for p, q in pairs:
            operational_marginals(specinfer, p, q, n)
            for rule in (specinfer, resispec):
                path_identity(p, q, rule.proxy, draw_candidates(q, n, uniforms[: len(p)]), n)

    marginals = [operational_marginals(specinfer, p, q, n) for p, q in pairs]

    def divergences_and_limit() -> None:
        for (p, q), m in zip(pairs, marginals, strict=True):
            distances(m.placed, p)
            transport_limit(p, q, n)

    def argsort() -> None:
        for p, q in pairs:
            for i in range(len(p)):
                np.argsort(p[i] / q[i])

    a, b, c, d = timed(softmax, rounds, divergences_and_limit, argsort)
    positions = len(target)
    return {
        "softmax_ms": 1e3 * a / positions,
        "argsort_ms": 1e3 * d / positions,
        "rounds_over_softmax": b / a,
        "divergences_and_limit_over_argsort": c / d,
    }


def resispec_paths(target: np.ndarray, draft: np.ndarray, temperature: float) -> dict[str, float]:
    """ResiSpec's operational marginal by position, beside np.argsort(p/q) of the same row."""
    sampling = Sampling(temperature)
    cases = {"n1": (1, 0.0), "n2_gap_zero": (2, 0.0), "n3_gap_1e-3": (3, 1e-3)}
    seconds: dict[str, list[float]] = {name: [] for name in (*cases, "argsort")}
    gaps = []
    for row in range(len(target)):
        p = sampling.probabilities(target[row], dtype=np.float64)
        q = sampling.probabilities(draft[row], dtype=np.float64)

        def run(n: int, gap: float, p: np.ndarray = p, q: np.ndarray = q) -> float:
            return float(shaped_marginal(ratio_order(p, q), n, gap, 5e7 if gap else 1e12).unexpanded.sum())

        for name, (n, gap) in cases.items():
            if name == "n2_gap_zero" and too_long(p, q):
                seconds[name].append(np.inf)
                continue
            start = time.perf_counter()
            left = run(n, gap)
            seconds[name].append(time.perf_counter() - start)
            if name == "n3_gap_1e-3":
                gaps.append(left)
        seconds["argsort"].append(timed(lambda p=p, q=q: np.argsort(p / q), rounds=5)[0])
    sort = np.asarray(seconds["argsort"])
    result = {"temperature": temperature, "argsort_ms": 1e3 * float(np.median(sort))}
    for name in cases:
        ratio = np.asarray(seconds[name]) / sort
        result |= {f"{name}_ratio_median": float(np.median(ratio)), f"{name}_ratio_max": float(np.max(ratio))}
    result |= {
        "n3_gap_max": max(gaps),
        "n3_rows_within_1e-3": sum(g <= 1e-3 for g in gaps),
        "rows": len(gaps),
    }
    return result


def too_long(p: np.ndarray, q: np.ndarray) -> bool:
    """Whether n = 2 with gap zero needs over 3e8 paths: left out, and infinite in the medians."""
    return survey(ratio_order(p, q), 2, 1e-3).pairs > 3e8


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dump", nargs="+", default=[EXAMPLE], type=Path)
    parser.add_argument("--positions", default=16, type=int, help="rows for ResiSpec's paths")
    parser.add_argument("--temperature", nargs="+", default=[1.0], type=float)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, help="write the table of docs/performance.md here")
    arguments = parser.parse_args()
    get_backend("numpy")
    shaped_marginal(ratio_order(np.array([0.5, 0.5]), np.array([0.9, 0.1])), 3, 1e-3, 1e6)  # compile
    results = []
    for path in arguments.dump:
        dump = open_dump(path)
        batch = dump.batch(0, dump.positions)
        rows = slice(0, arguments.positions)
        entry = {"dump": path.name, "positions": dump.positions, "vocab": dump.vocab}
        entry["token_free"] = token_free(batch.target, batch.draft)
        entry["resispec"] = [
            resispec_paths(batch.target[rows], batch.draft[rows], t) for t in arguments.temperature
        ]
        results.append(entry)
        print(json.dumps(entry, indent=2))
    machine = {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(machine, results, sys.argv[1:]))


def markdown(machine: dict[str, object], results: list[dict], arguments: list[str]) -> str:
    """The performance page."""
    kept = [a for i, a in enumerate(arguments) if "--markdown" not in (a, *arguments[max(i - 1, 0) : i])]
    command = " ".join(["python benchmarks/main_job.py", *(Path(a).name if "/" in a else a for a in kept)])
    rows = []
    for r in results:
        free = r["token_free"]
        what = f"{r['dump']} ({r['positions']} positions, V = {r['vocab']})"
        rows.append((what, TOKEN_FREE, 4, f"{free['rounds_over_softmax']:.1f}", ""))
        rows.append((what, MEASURES, 2, f"{free['divergences_and_limit_over_argsort']:.1f}", ""))
        for paths in r["resispec"]:
            where = f"{what}, T = {paths['temperature']:g}"
            for key, text, goal in PATH_ROWS:
                median, slowest = paths[f"{key}_ratio_median"], paths[f"{key}_ratio_max"]
                rows.append(
                    (where, f"ResiSpec {text} / argsort(p/q)", goal, f"{median:.1f}", f"{slowest:.0f}")
                )
            within = f"{paths['n3_rows_within_1e-3']} of {paths['rows']} rows"
            rows.append((where, "ResiSpec n = 3: gap within 1e-3 in 5e7 paths", "", within, ""))
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return PAGE.format(
        command=command,
        machine=", ".join(f"{key} {value}" for key, value in machine.items()),
        rows="\n".join(lines),
    )


TOKEN_FREE = "token-free rounds (SpecInfer n = 3) and path identities / softmax of both"
MEASURES = "divergences and limit / argsort(p/q)"
PATH_ROWS = (
    ("n1", "n = 1", 4),
    ("n2_gap_zero", "n = 2, gap 0", 300),
    ("n3_gap_1e-3", "n = 3, gap 1e-3", 400),
)
PAGE = """\
# What it costs

Times depend on the machine and its load; ratios hardly do. Each row is the median of one cost over another,
timed in turn in the same run; the last column is the slowest row of the dump (`inf`: over 3e8 paths, not
run). Regenerate with

    {command} --markdown docs/performance.md

Machine: {machine}. Nothing here has been run on a GPU.

| dump | ratio | goal at most | median | slowest row |
| --- | --- | --- | --- | --- |
{rows}

ResiSpec's cost varies by orders of magnitude between positions: it is the number of pairs of tokens that can
be rejected one after the other, large where target and draft are both nearly flat. `--max-expansions` bounds
the work, and the certified gap says what was left out.
"""


if __name__ == "__main__":
    main()
