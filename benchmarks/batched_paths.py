"""Path sums by array functions on the CPU, on one thread, beside the compiled ones, on rows of dumps.

    python benchmarks/batched_paths.py DUMP... [--positions 4]

On a CPU the package uses the compiled sums; this shows what that is worth.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from resispec_verify.backends import get_backend
from resispec_verify.device.batched_paths import path_sums, shaped_marginals
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import open_dump
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.paths.shaped import shaped_marginal

GAPS = {1: 0.0, 2: 1e-3, 3: 1e-3}  # by number of candidates
MOST_PATHS = 5e8


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main(arguments: list[str] | None = None) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--positions", type=int, default=4)
    chosen = parser.parse_args(arguments)
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(1)
    try:
        backends = [get_backend(name) for name in ("numpy", "torch")]
        dumps = [open_dump(path) for path in chosen.dumps]
    except InputError as error:
        print(f"benchmarks/batched_paths.py: error: {error}", file=sys.stderr)
        return 2
    print("| dump | n | compiled | NumPy | torch | torch / compiled |\n| --- | --- | --- | --- | --- | --- |")
    for dump in dumps:
        batch = dump.batch(0, min(chosen.positions, dump.positions))
        p, q = (Sampling().probabilities(rows, dtype=np.float64) for rows in batch[:2])
        for n, gap in GAPS.items():

            def compiled(p: Any = p, q: Any = q, n: int = n, gap: float = gap) -> None:
                for row in zip(p, q, strict=True):
                    shaped_marginal(ratio_order(*row), n, gap, MOST_PATHS)

            def batched(backend: Any, p: Any = p, q: Any = q, n: int = n, gap: float = gap) -> None:
                target, draft = (backend.asarray(rows) for rows in (p, q))
                shaped_marginals(path_sums, target, draft, n, gap=gap, most_paths=MOST_PATHS)

            compiled(p[:1], q[:1])  # loads the compiled code
            took = [seconds(compiled), *(seconds(lambda b=b: batched(b)) for b in backends)]
            shown = " | ".join(f"{t:.2f} s" for t in took)
            print(f"| {Path(dump.path).name} | {n} | {shown} | {took[2] / took[0]:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
