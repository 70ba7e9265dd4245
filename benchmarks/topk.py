"""Positions a second of bounds from lists of the most probable tokens, and the memory they take.

    python benchmarks/topk.py [--positions 1000000] [--k 100] [--rule specinfer] [--candidates 3]

Synthetic lists: probabilities that fall like a power of the rank, the draft's a disturbed copy with a third
of its tokens others. A million positions are 20 times the same lists, so that the work is measured.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np

from resispec_verify import topk
from resispec_verify.dumps.kinds.top_rows import TopPairs, TopRows
from resispec_verify.rules import make_rule

VOCAB = 152_000
PARTS = 20


def lists(positions: int, k: int, seed: int) -> TopPairs:
    """Synthetic pairs in float32."""
    rng = np.random.default_rng(seed)
    ranks = np.arange(1, k + 1) ** -1.1
    weights = ranks * np.exp(0.3 * rng.standard_normal((2, positions, k)))
    weights = -np.sort(-weights, axis=-1)
    weights *= rng.uniform(0.6, 0.99, (2, positions, 1)) / weights.sum(axis=-1, keepdims=True)
    tokens = rng.integers(0, VOCAB - k, (positions, 1)) + np.arange(k)
    others = np.where(rng.random((positions, k)) < 1 / 3, (tokens + k) % VOCAB, tokens)
    made = []
    for ids, law in zip((tokens, others), weights.astype(np.float32), strict=True):
        left = 1.0 - law.sum(axis=1, dtype=np.float64)
        made.append(
            TopRows(
                ids.astype(np.int32),
                law,
                np.stack([left, left], axis=1),
                law[:, -1].astype(np.float64),
                VOCAB,
            )
        )
    return TopPairs(*made)


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description="Bounds from lists of the most probable tokens.")
    parser.add_argument("--positions", type=int, default=1_000_000)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--rule", default="specinfer")
    parser.add_argument("--candidates", type=int, default=3)
    asked = parser.parse_args()
    rule = make_rule(asked.rule)
    part = max(asked.positions // PARTS, 1)
    pairs = lists(part, asked.k, 0)
    topk.bounds(TopPairs(pairs.target[:8], pairs.draft[:8]), rule, asked.candidates)  # compiles
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, widths = time.thread_time(), []
    for _ in range(PARTS):
        found = topk.bounds(pairs, rule, asked.candidates)
        widths.append(float(np.mean(found.acceptance[:, 1] - found.acceptance[:, 0])))
    seconds = time.thread_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = part * PARTS
    print(f"{rule.name}, n = {asked.candidates}, k = {asked.k}: {done} positions, {seconds:.1f} s of CPU")
    print(f"{done / seconds:.0f} positions a second, mean width of the acceptance {np.mean(widths):.3f}")
    print(f"peak memory {peak / 1024:.0f} MiB, {(peak - before) / 1024:.0f} of them by the bounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
