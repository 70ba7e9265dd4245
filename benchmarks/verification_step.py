"""What one verification step costs: the samplers beside each other, NumPy and torch, in one run.

    python benchmarks/verification_step.py --dump FILE [--candidates 2 3 4] [--rows 16] [--repeats 9]
                                           [--markdown FILE]

A step verifies n candidates at each row of a batch, from probabilities to emitted tokens, on this machine's
CPU. The unit is one float64 softmax of the batch's target logits, timed in the same run by the same library:
times on a shared machine differ more between runs than the ratios do.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from resispec_verify.dumps import open_dump
from resispec_verify.samplers import verify_optimal_joint, verify_optimal_sequential, verify_specinfer

SAMPLERS = {
    "specinfer": (verify_specinfer, 1),
    "optimal-sequential": (verify_optimal_sequential, 1),
    "optimal-joint": (verify_optimal_joint, 2),
}


def medians(actions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each action, taken in turns so that all see the same machine."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()  # compilation, page faults
    for _ in range(repeats):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def numpy_softmax(logits: np.ndarray) -> np.ndarray:
    """Rows of probabilities in float64."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def lines(logits: np.ndarray, draft_logits: np.ndarray, counts: list[int], repeats: int) -> list[str]:
    """One line of the table for each library, sampler and number of candidates."""
    import torch

    rng = np.random.default_rng(0)
    target, draft = numpy_softmax(logits), numpy_softmax(draft_logits)
    rows, vocab = target.shape
    found = []
    for n in counts:
        candidates = np.stack([rng.choice(vocab, size=n, p=q) for q in draft])
        uniforms = rng.random((rows, n + 2))
        actions: dict[str, Callable[[], object]] = {}
        as_torch = [torch.from_numpy(a) for a in (target, draft, candidates, uniforms, logits)]
        p, q, x, u, tensor = as_torch
        actions["NumPy softmax"] = lambda: numpy_softmax(logits)
        actions["torch softmax"] = lambda tensor=tensor: torch.softmax(tensor, dim=-1)
        for name, (verify, more) in SAMPLERS.items():
            actions[f"NumPy {name}"] = lambda f=verify, m=n + more, x=candidates, u=uniforms: f(
                target, draft, x, u[:, :m]
            )
            actions[f"torch {name}"] = lambda f=verify, m=n + more, a=(p, q, x), u=u: f(*a, u[:, :m])
        seconds = medians(actions, repeats)
        for library in ("NumPy", "torch"):
            unit = seconds[f"{library} softmax"]
            for name in SAMPLERS:
                cost = seconds[f"{library} {name}"]
                found.append(
                    f"| {library} | `{name}` | {n} | {1e3 * cost / rows:.2f} | {cost / unit:.1f} | "
                    f"{cost / seconds[f'{library} specinfer']:.2f} |"
                )
    return found


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dump", type=Path, required=True)
    parser.add_argument("--candidates", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    dump = open_dump(options.dump)
    batch = dump.batch(0, min(options.rows, dump.positions))
    target, draft = (np.asarray(a, np.float64) for a in (batch.target, batch.draft))
    table = [
        f"{len(target)} rows of {target.shape[1]} tokens, one step:",
        "",
        "| library | rule | n | ms a row | softmaxes | over SpecInfer |",
        "|---|---|---|---|---|---|",
        *lines(target, draft, options.candidates, options.repeats),
    ]
    print("\n".join(table))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
