"""A dump larger than one wants to hold: time and memory of `kl` over it.

    python benchmarks/streaming.py [--positions 256] [--vocab 262144] [--folder /tmp] [--json PATH]

Makes a bfloat16 dump (``positions x vocab x 2`` bytes a model), measures, and deletes it. Time: `kl` with one
rule that needs no enumeration (SpecInfer, n = 3, T = 1) over reading the same rows and taking both softmaxes,
slice by slice in turn, so that the load of the machine falls on both. Memory: the peak of the anonymous pages
(``RssAnon``: without the page cache) of a process that runs the whole command, its packages included. Linux
only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np

from resispec_verify.backends import get_backend
from resispec_verify.cli import main as command
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import open_dump
from resispec_verify.record.pt_file import PtFile
from resispec_verify.rules import SpecInfer
from resispec_verify.runs.over_dumps import evaluate_dump
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import Reading

SLICE = 32
BATCH = 4


def make(path: Path, positions: int, vocab: int) -> None:
    """Write a dump of random logits, a few rows at a time; rows repeat in rotation, values do not line up."""
    rng = np.random.default_rng(0)
    base = 3 * rng.standard_normal((SLICE, vocab), np.float32)
    near = 0.8 * base + 1.5 * rng.standard_normal((SLICE, vocab), np.float32)
    file = PtFile(path)
    columns = [file.column(np.dtype(ml_dtypes.bfloat16), (vocab,)) for _ in range(2)]
    for first in range(0, positions, SLICE):
        for column, rows in zip(columns, (base, near), strict=True):
            some = rows[: min(SLICE, positions - first)]
            file.append(column, np.roll(some, first, axis=-1).astype(ml_dtypes.bfloat16))
    file.finish(dict(zip(("target_logits", "draft_logits"), columns, strict=True)))


def times(path: Path) -> dict[str, float]:
    """Seconds of reading with both softmaxes, and of `kl`, over the same slices in turn."""
    dump, backend, sampling = open_dump(path), get_backend(), Sampling()
    evaluation = Evaluation((SpecInfer(),), candidates=3)

    def read(first: int, last: int) -> None:
        for i in range(first, last, BATCH):
            batch = dump.batch(i, min(i + BATCH, last))
            for logits in (batch.target, batch.draft):
                sampling.probabilities(logits, dtype=np.float64)

    def kl(first: int, last: int) -> None:
        reading = Reading(start=first, stop=last, batch=BATCH)
        evaluate_dump(dump, reading, evaluation, backend=backend)

    kl(0, 1)  # compile
    ratios, seconds = [], {"read_and_softmax": 0.0, "kl": 0.0}
    for first in range(0, dump.positions, SLICE):
        took = []
        for name, function in (("read_and_softmax", read), ("kl", kl)):
            start = time.perf_counter()
            function(first, min(first + SLICE, dump.positions))
            took.append(time.perf_counter() - start)
            seconds[name] += took[-1]
        ratios.append(took[1] / took[0])
    return {
        "read_and_softmax_s": seconds["read_and_softmax"],
        "kl_s": seconds["kl"],
        "ratio": seconds["kl"] / seconds["read_and_softmax"],
        "ratio_median_of_slices": float(np.median(ratios)),
        "ratio_worst_slice": max(ratios),
    }


def anonymous() -> int:
    """Bytes of anonymous memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon")))


@contextlib.contextmanager
def peak() -> Iterator[list[int]]:
    """The peak of `anonymous`, looked at every 5 ms; valid after the block."""
    seen, done = [anonymous()], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            seen[0] = max(seen[0], anonymous())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def memory(path: Path) -> dict[str, float]:
    """MiB that the whole command holds at its peak, without file pages."""
    before = anonymous()
    with tempfile.TemporaryDirectory() as folder, peak() as most:
        outputs = ["--json", f"{folder}/report.json", "--csv", f"{folder}/positions.csv"]
        with contextlib.redirect_stdout(None):
            command(["kl", "--logits", str(path), "--rule", "specinfer", *outputs])
        report, lines = (os.path.getsize(path) for path in outputs[1::2])
    return {
        "peak_mib": most[0] / 2**20,
        "peak_above_start_mib": (most[0] - before) / 2**20,
        "json_kib": report / 1024,
        "csv_kib": lines / 1024,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--positions", default=256, type=int)
    parser.add_argument("--vocab", default=1 << 18, type=int)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", choices=["times", "memory"], help=argparse.SUPPRESS)
    parser.add_argument("--dump", type=Path, help="measure this one instead")
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps({"times": times, "memory": memory}[arguments.part](arguments.dump)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = arguments.dump or Path(folder) / "large.pt"
        if not arguments.dump:
            make(path, arguments.positions, arguments.vocab)
        found = {"dump_gib": path.stat().st_size / 2**30}
        for part in ("times", "memory"):  # in a process each
            run = [sys.executable, __file__, "--part", part, "--dump", str(path)]
            found |= json.loads(subprocess.run(run, check=True, stdout=subprocess.PIPE).stdout)
    print(json.dumps(found, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
