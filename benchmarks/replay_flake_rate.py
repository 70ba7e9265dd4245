"""How often does `replay` reject a right engine? And how many draws do planted faults of drawn tokens take?

    python benchmarks/replay_flake_rate.py [--seeds 400] [--alpha 0.05] [--rounds 3000] [--faults 9]

At the default error rate of 1e-6 no run of any length would show an alarm. The rate is therefore measured at
a large alpha, where alarms could be seen. No uniform of a next token is logged; every second seed logs none
at all. Faults are looked for at the default.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import beta

from resispec_verify.logged.replay import replay
from resispec_verify.logged.replay_summary import ALPHA, summarize_replay
from resispec_verify.rules import Block, make_rule

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "broken_samplers"))
from round_engines import DRAFT_FAULTS, FAULTS, engine


def alarm(block: bool, alpha: float, rounds: int, seed: int) -> bool:
    """Whether a right run was rejected, or had a divergence."""
    made = engine(np.random.default_rng([seed, 14]), rounds, block=block, coins=seed % 2 == 0)
    row = summarize_replay(replay(made, Block() if block else make_rule("speculative")), alpha)
    return row["statistics"]["verdict"] == "rejected" or row["divergences"] > 0


def found(name: str, seed: int, rounds: int, alpha: float = ALPHA) -> tuple[float, str]:
    """Draws of the faulty kind until it was found, and whether by its law or as impossible."""
    fault: dict = {"law": FAULTS[name]} if name in FAULTS else {"drafts": DRAFT_FAULTS[name]}
    made = engine(np.random.default_rng([seed, 41]), rounds, **fault)
    row = summarize_replay(replay(made, make_rule("speculative")), alpha)
    tests = [row["draft_token_test"], *row["next_token_tests"]]
    tests = [test for test in tests if test["found_after"] is not None]
    if not tests:
        return float("inf"), "not found"
    first = min(tests, key=lambda test: test["found_after"])
    return first["found_after"], "impossible" if first["impossible"] else first["looks_like"]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--faults", type=int, default=9, help="seeds of each fault")
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    for name in (*DRAFT_FAULTS, *FAULTS) if chosen.faults else ():
        seen = [found(name, seed, chosen.rounds) for seed in range(chosen.faults)]
        draws = [draw for draw, _ in seen]
        print(f"{name}: median {statistics.median(draws):g} draws, worst of {chosen.faults} {max(draws):g} "
              f"({statistics.mode(how for _, how in seen)})", flush=True)  # fmt: skip
    for rule in ("speculative", "block") if chosen.seeds else ():
        one = partial(alarm, rule == "block", chosen.alpha, chosen.rounds)
        with ProcessPoolExecutor(chosen.jobs) as pool:
            hits = sum(pool.map(one, range(chosen.seeds), chunksize=4))
        most = float(beta.ppf(0.975, hits + 1, chosen.seeds - hits))
        print(f"{rule}: {hits} alarms in {chosen.seeds} right runs of {chosen.rounds} rounds at alpha "
              f"{chosen.alpha:g} (rate below {most:.4f} at 97.5 %)", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
