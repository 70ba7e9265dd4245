"""How many tokens does an audit take to decide, and how often is it wrong? The fake engine's faults.

    python benchmarks/audit.py [--seeds 5] [--alpha 1e-6] [--tokens 12000] [--fault too-cold ...]
    python benchmarks/audit.py --clean 200

The first prints, for each fault, the tokens after which the engine is rejected (median and worst over the
seeds), without and with rounds that a stream shows; with the draft's laws where they say more. Beside it, the
tokens of the engine that a chi-square test with a fixed number of completions takes: of the first 4, and the
first 2, tokens after one prompt, against as many of the reference, rare ones merged; the least number of a
grid at which at least half of the seeds reject. That number has to be known in advance: the audit's has not.
The second prints the share of clean engines with a wrong verdict at alpha 0.05. All is in this process.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.stats import chi2_contingency

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from audit_helpers import PROMPTS, draft_of, sampling_of, two
from fake_engine import FAULTS

from resispec_verify.audit import run
from resispec_verify.audit.settings import AuditResult, AuditSettings

CLEAN = (None, "reports-zero", "noisy")
# The draft's laws say more of these.
WITH_DRAFT = ("correction-from-target", "draft-law", "greedy-drafts-ratio")
UNTESTED = ("never-accepts", "no-drafts")
# Numbers of completions of each side that the chi-square test is tried with, up to --most.
STEPS = 30
# Expected counts below this are merged, the usual rule of the chi-square test.
LEAST_EXPECTED = 5
# After it the first token is nearly sure: of the prompts, the best for the chi-square test.
ONE_PROMPT = (7, 75)


def audited(fault: str | None, settings: AuditSettings, *, rounds: bool, draft: bool) -> AuditResult:
    """One audit in this process, without the smallest request, which takes the time and is not measured."""
    run.smallest_request = lambda *given: None
    engine, reference = two(fault, rounds=rounds)
    return run.audit(engine, reference, settings, draft=draft_of(engine) if draft else None)


def taken(fault: str, chosen: argparse.Namespace, *, rounds: bool, draft: bool) -> list[float]:
    """Tokens until each seed rejects; infinite where it does not."""
    found = []
    for seed in range(chosen.seeds):
        settings = AuditSettings(
            sampling=sampling_of(fault), prompts=PROMPTS, tokens=chosen.tokens, length=chosen.length,
            top=chosen.top, concurrency=1, alpha=chosen.alpha, seed=10_000_000 * seed, seconds=3600.0,
        )  # fmt: skip
        result = audited(fault, settings, rounds=rounds, draft=draft)
        found.append(float("inf") if result.found_after is None else float(result.found_after))
    return found


def chi_square(on: list[tuple[int, ...]], off: list[tuple[int, ...]]) -> float:
    """Probability under the null, of the homogeneity of two samples of first tokens, rare ones merged."""
    a, b = Counter(on), Counter(off)
    table = np.array([[a[key], b[key]] for key in a.keys() | b.keys()])
    rare = table.sum(axis=1) < 2 * LEAST_EXPECTED
    merged = np.vstack([table[~rare], table[rare].sum(axis=0, keepdims=True)])
    merged = merged[merged.sum(axis=1) > 0]
    return 1.0 if len(merged) < 2 else float(chi2_contingency(merged)[1])  # type: ignore[arg-type]


def sizes(chosen: argparse.Namespace) -> np.ndarray:
    return np.unique(np.geomspace(20, chosen.most, STEPS).astype(int))


def fixed(fault: str, chosen: argparse.Namespace) -> dict[int, float]:
    """By first tokens, the engine's tokens that the chi-square test takes; infinite beyond the grid."""
    grid = sizes(chosen)
    rejected = {first: np.zeros(len(grid), int) for first in (2, 4)}
    for seed in range(chosen.seeds):
        engine, reference = two(fault)
        sampling = sampling_of(fault)
        on, off = (
            [tuple(one.complete(ONE_PROMPT, 4, start + i, sampling).tokens) for i in range(int(grid[-1]))]
            for one, start in ((engine, 10_000_000 * seed), (reference, 10_000_000 * seed + 5_000_000))
        )
        for first, counts in rejected.items():
            a, b = ([key[:first] for key in side] for side in (on, off))
            counts += [chi_square(a[:n], b[:n]) <= chosen.alpha for n in grid]
    found = {}
    for first, counts in rejected.items():
        enough = np.flatnonzero(2 * counts >= chosen.seeds)
        found[first] = float(first * grid[enough[0]]) if enough.size else float("inf")
    return found


def shown(value: float, most: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else f">{most:.0f}"


def faults(chosen: argparse.Namespace) -> None:
    """The first table."""
    print(
        f"tokens to a rejection at alpha {chosen.alpha:g}, median (worst) of {chosen.seeds} seeds; at most "
        f"{chosen.tokens} tokens, completions of {chosen.length}, top {chosen.top}, {len(PROMPTS)} prompts;\n"
        f"chi2: fixed n, first 4 (2) tokens after one prompt, at most {chosen.most} completions; ratio: the "
        "least chi2 over the median without rounds, or with the draft where it is without\n"
    )
    print(f"{'fault':<26}{'without rounds':>18}{'with rounds':>18}{'with draft':>18}{'chi2':>18}{'ratio':>8}")
    for fault in chosen.fault or [name for name in FAULTS if name not in (*CLEAN, *UNTESTED)]:
        ways = [{"rounds": False, "draft": False}, {"rounds": True, "draft": False}]
        ways += [{"rounds": False, "draft": True}] if fault in WITH_DRAFT else []
        columns, medians = [], []
        for way in ways:
            found = taken(fault, chosen, **way)
            medians.append(statistics.median(found))
            columns.append(f"{shown(medians[-1], chosen.tokens)} ({shown(max(found), chosen.tokens)})")
        columns += [""] * (3 - len(columns))
        chi2 = fixed(fault, chosen)
        columns.append(f"{shown(chi2[4], 4 * chosen.most)} ({shown(chi2[2], 2 * chosen.most)})")
        ours = next((x for x in (medians[0], medians[-1]) if np.isfinite(x)), None)
        theirs = min(chi2.values())
        if ours is None:
            ratio = ""
        elif np.isfinite(theirs):
            ratio = f"{theirs / ours:.1f}"
        else:
            ratio = f">{2 * chosen.most / ours:.0f}"
        print(f"{fault:<26}" + "".join(f"{one:>18}" for one in columns) + f"{ratio:>8}", flush=True)


def clean(chosen: argparse.Namespace) -> None:
    """The second table."""
    print(
        f"wrong verdicts on clean engines at alpha 0.05, {chosen.clean} runs of 600 tokens, "
        "completions of 16\n"
    )
    print(f"{'engine':<16}{'rounds':>8}{'runs':>6}{'rejected':>10}{'mismatch':>10}{'other':>7}")
    kinds = [(fault, rounds) for fault in CLEAN for rounds in (False, True)]
    wrong = 0
    for number, (fault, rounds) in enumerate(kinds):
        runs = range(number, chosen.clean, len(kinds))
        counts: Counter[str] = Counter()
        for i in runs:
            settings = AuditSettings(
                prompts=PROMPTS, tokens=600, length=16, top=chosen.top, concurrency=1, alpha=0.05,
                seed=5_000_000 * i,
            )  # fmt: skip
            counts[audited(fault, settings, rounds=rounds, draft=False).verdict] += 1
        rejected, mismatch = counts["rejected"], counts["reference-mismatch"]
        other = counts.total() - rejected - mismatch - counts["not-rejected"]
        wrong += counts.total() - counts["not-rejected"]
        print(
            f"{fault or 'no fault':<16}{'seen' if rounds else 'unseen':>8}{counts.total():>6}{rejected:>10}"
            f"{mismatch:>10}{other:>7}",
            flush=True,
        )
    print(f"\n{wrong} of {chosen.clean}: {wrong / chosen.clean:.3f}, where 0.05 is allowed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--alpha", type=float, default=1e-6)
    parser.add_argument("--tokens", type=int, default=12_000)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--top", type=int, default=40)
    parser.add_argument("--most", type=int, default=8000, help="completions of each side, for chi-square")
    parser.add_argument("--fault", nargs="*", choices=list(FAULTS))
    parser.add_argument("--clean", type=int, default=0, help="so many clean runs, and no faults")
    chosen = parser.parse_args()
    if chosen.clean:
        clean(chosen)
    else:
        faults(chosen)


if __name__ == "__main__":
    main()
