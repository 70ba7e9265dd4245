"""How often does `replay` reject a right scalar log? And how many decisions do planted faults take?

    python benchmarks/scalar_logs.py [--seeds 500] [--alpha 0.05] [--decisions 1500] [--faults 9] [--most
    100000]

False alarms are counted at a large alpha, where they could be seen; every second log has no uniforms. Faults
are looked for at the default 1e-6, with uniforms (the first decision that differs, or the test of repeats)
and without.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from scipy.stats import beta

from resispec_verify.logged.scalars.acceptance import Acceptance
from resispec_verify.logged.scalars.replay import replay_scalars
from resispec_verify.logged.scalars.summary import summarize_scalars

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from scalar_logs import FAULTS, lines, write

# Lengths of logs at which it is looked whether a repeat of uniforms was found.
_LENGTHS = (8, 16, 32, 64, 128, 256, 512)


def summary(folder: Path, rows: list, alpha: float = 1e-6) -> dict:
    """What `replay` says of these lines."""
    path = write(folder / "log.jsonl", rows)
    return summarize_scalars(replay_scalars(path, "speculative", Acceptance(), alpha=alpha))


def found(folder: Path, fault: str, seed: int, most: int, *, u: bool) -> float:
    """Decisions, or draws of the kind that is wrong, until a fault was found; infinite where it was not."""
    rows = lines(seed, most, fault, u=u)
    if fault == "u of the decision before":
        lengths = (n for n in _LENGTHS if summary(folder, rows[:n])["statistics"]["verdict"] == "rejected")
        return next(lengths, float("inf"))
    row = summary(folder, rows)
    if row["first_divergence"] is not None:
        return row["first_divergence"]["line"]
    tests = [row["acceptance"], *row["next_token_tests"]]
    return min(
        (test["found_after"] for test in tests if test["found_after"] is not None), default=float("inf")
    )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--decisions", type=int, default=1500)
    parser.add_argument("--faults", type=int, default=9, help="seeds of each fault")
    parser.add_argument("--most", type=int, default=100000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, alarms = Path(name), 0
        for seed in range(chosen.seeds):
            row = summary(folder, lines(seed, chosen.decisions, u=seed % 2 == 0), chosen.alpha)
            alarms += row["statistics"]["verdict"] == "rejected" or row["divergences"] > 0
        if chosen.seeds:
            most = float(beta.ppf(0.975, alarms + 1, chosen.seeds - alarms))
            print(f"{alarms} alarms in {chosen.seeds} right logs of {chosen.decisions} decisions at alpha "
                  f"{chosen.alpha:g} (rate below {most:.4f} at 97.5 %)", flush=True)  # fmt: skip
        for fault in FAULTS if chosen.faults else ():
            coins = (True,) if fault.startswith("u ") else (True, False)
            for u in coins:
                # With uniforms the first difference is soon found; no more of a log than that is made.
                length = chosen.most if not u or fault in FAULTS[4:] else min(chosen.most, 5000)
                seen = [found(folder, fault, seed, length, u=u) for seed in range(chosen.faults)]
                known = "with" if u else "without"
                print(f"{fault}, {known} u: median {statistics.median(seen):g}, worst of {chosen.faults} "
                      f"{max(seen):g}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
