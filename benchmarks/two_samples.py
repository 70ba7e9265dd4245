"""How many pairs of completions does the two-sample test take, beside a chi-square test?

    python benchmarks/two_samples.py [--seeds 20] [--alpha 1e-6] [--first 2] [--prompts 1]

OFF draws from a law of the first two tokens; ON, with a probability w, draws the second from a draft's law
instead, with the w that makes the total variation between their joint laws what is said. The chi-square test
has a fixed number of pairs, which has to be known in advance: the least of a grid with which at least half of
the seeds are rejected, on one prompt. It may not be looked at earlier; the two-sample test may, after every
pair. With --first above 2 further tokens are drawn that are alike in both, which only the two-sample test
looks at.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import numpy as np
from scipy.stats import chi2_contingency

from resispec_verify.evidence.two_samples import TwoSampleTest

VOCAB = 30
SHARPNESS = 2.0
TVS = (0.5, 0.3, 0.2, 0.1)
# Expected counts below this are merged, the usual rule of the chi-square test.
LEAST_EXPECTED = 5


def laws(tv: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Joint laws of ON and OFF of two tokens, ``(VOCAB, VOCAB)``, with this total variation."""
    rng = np.random.default_rng(seed)
    logits = SHARPNESS * rng.standard_normal((VOCAB + 1, VOCAB))
    draft = SHARPNESS * rng.standard_normal((VOCAB, VOCAB)) + 0.3 * logits[1:]
    first, target, other = (
        np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (logits[:1], logits[1:], draft)
    )
    off, wrong = first.T * target, first.T * other
    most = 0.5 * np.abs(wrong - off).sum()
    if most < tv:
        raise ValueError(f"seed {seed}: this draft is only {most:.3f} away")
    return off + tv / most * (wrong - off), off


def draws(law: np.ndarray, count: int, first: int, rng: np.random.Generator) -> np.ndarray:
    """Completions, ``(count, first)``."""
    two = np.unravel_index(rng.choice(law.size, size=count, p=law.ravel()), law.shape)
    return np.column_stack([*two, rng.integers(VOCAB, size=(count, first - 2))])


def chi_square(on: np.ndarray, off: np.ndarray) -> float:
    """Probability under the null, of the homogeneity of two samples of joint tokens, rare ones merged."""
    size = VOCAB * VOCAB
    table = np.stack([np.bincount(x[:, 0] * VOCAB + x[:, 1], minlength=size) for x in (on, off)])
    rare = table.sum(axis=0) < 2 * LEAST_EXPECTED
    merged = np.concatenate([table[:, ~rare], table[:, rare].sum(axis=1, keepdims=True)], axis=1)
    merged = merged[:, merged.sum(axis=0) > 0]
    return 1.0 if merged.shape[1] < 2 else float(chi2_contingency(merged)[1])  # type: ignore[arg-type]


def one_seed(tv: float, seed: int, grid: np.ndarray, chosen: argparse.Namespace) -> tuple[int, list[bool]]:
    """Pairs until rejected, and whether the chi-square test rejects with each number of the grid."""
    rng = np.random.default_rng((seed, 1))
    sides = [
        [draws(law, int(grid[-1]), chosen.first, rng) for law in laws(tv, seed * 1000 + prompt)]
        for prompt in range(chosen.prompts)
    ]
    test = TwoSampleTest(chosen.first, chosen.prompts)
    pairs = sys.maxsize
    for i in range(int(grid[-1])):
        on, off = sides[i % chosen.prompts]
        test.update(i % chosen.prompts, tuple(on[i].tolist()), tuple(off[i].tolist()))
        if test.log_evidence >= -np.log(chosen.alpha):
            pairs = i + 1
            break
    on, off = sides[0]
    return pairs, [chi_square(on[:n], off[:n]) <= chosen.alpha for n in grid]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--alpha", type=float, default=1e-6)
    parser.add_argument("--first", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=1)
    chosen = parser.parse_args()
    if chosen.first < 2:
        parser.error("--first must be at least 2: the fault is in the second token")
    print("TV    pairs to decision, median (worst)    chi-square, fixed pairs    ratio")
    for tv in TVS:
        grid = np.unique(np.round(2.0 ** np.arange(4, 6.5 - 2 * np.log2(tv), 0.25)).astype(int))
        runs = [one_seed(tv, seed, grid, chosen) for seed in range(chosen.seeds)]
        pairs = [found for found, _ in runs]
        share = np.mean([rejected for _, rejected in runs], axis=0)
        fixed = int(grid[np.argmax(share >= 0.5)]) if share.max() >= 0.5 else sys.maxsize
        median = statistics.median(pairs)
        worst = max(pairs) if max(pairs) < sys.maxsize else f"not within {grid[-1]}"
        print(f"{tv:<5g} {median:>8.0f} ({worst}) {fixed:>30} {fixed / median:>22.2f}", flush=True)


if __name__ == "__main__":
    main()
