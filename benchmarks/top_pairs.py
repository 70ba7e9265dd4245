"""Time and memory of one pass over a file of top-k pairs: ``python benchmarks/top_pairs.py``.

A synthetic file is written into a temporary folder and read by a process of its own, on Linux; it takes
16 k bytes a position of disk.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from resispec_verify.dumps import open_top_pairs
from resispec_verify.dumps.importers import save_top_pairs

VOCAB = 152_000


def write(path: Path, positions: int, k: int) -> None:
    """A file of laws that repeat."""
    rng = np.random.default_rng(1)
    ids = np.stack([rng.permutation(VOCAB)[:k] for _ in range(64)]).astype(np.int32)
    logs = -np.sort(np.minimum(rng.gamma(2, 1, size=(64, k)), 6), axis=-1)
    logs = (logs - np.log(np.exp(logs).sum(axis=-1, keepdims=True)) - 0.05).astype(np.float32)
    turns = -(-positions // 64)
    content: dict = {"vocab": VOCAB}
    for role in ("target", "draft"):
        content[f"{role}_top_ids"] = np.tile(ids, (turns, 1))[:positions]
        content[f"{role}_top_logprobs"] = np.tile(logs, (turns, 1))[:positions]
        content |= {f"{role}_ranked": k, f"{role}_rounding": 1e-6}
    save_top_pairs(path, content)


def read(path: Path) -> None:
    """One pass; prints what it took."""
    began, cpu, total = time.perf_counter(), time.process_time(), 0.0
    for pairs in open_top_pairs(path).blocks():
        total += float(pairs.target.tail.sum())
    # Not ru_maxrss, which a process has from the one that started it.
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(f"{path.suffix}: {seconds:.1f} s, CPU {cpu:.1f} s, peak {peak:.0f} MiB", flush=True)


def main() -> None:
    """Write and read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positions", type=int, default=1_000_000)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--read", type=Path, help="a file that is there already")
    options = parser.parse_args()
    if options.read is not None:
        read(options.read)
        return
    for suffix in (".npz", ".safetensors"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"pairs{suffix}"
            write(path, options.positions, options.k)
            subprocess.run([sys.executable, __file__, "--read", str(path)], check=True)


if __name__ == "__main__":
    main()
