"""How often is a lossless sampler rejected? And how many draws do the known faults take?

    python benchmarks/flake_rate.py [--style tokens]... [--seeds 1000] [--alpha 0.05]

At the default error rate of 1e-9 no run of any length would show an alarm. The rate is therefore measured
at a large alpha, where alarms could be seen: a rate well below alpha there says that the tests keep what
they promise. The known faults are those of the style "tokens".
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from scipy.stats import beta

from resispec_verify.sampler_check.battery import named
from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.sources.styles import STYLES, inputs_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "broken_samplers"))
import samplers as s
from exact_samplers import EXACT

# Lossless samplers of each style of the package.
RIGHT = {style: (sampler,) for style, sampler in EXACT.items()}
RIGHT["tokens"] = (s.speculative, s.token_match)
# Wider laws take their time, and are tested alike.
NARROW = 64
FAULTS = [
    (s.redraws_from_target, "base"),
    (s.softmax_of_residual, "base"),
    (s.blend, "base"),
    (s.draft_not_renormalised, "v4"),
    (s.sorted_candidates, "v4"),
    (s.merged_candidates, "v4"),
    (s.sharpened, "base"),
]


def alarms(sampler, style: str, seeds: int, alpha: float) -> int:
    """Runs that do not end with "not rejected", on the narrow inputs of the style."""
    inputs = [one for one in inputs_of(style) if one.target.shape[-1] <= NARROW]
    settings: dict = {
        "style": style,
        "alpha": alpha,
        "draws": 2000,
        "search": False,
        "boundary": False,
        "batches": (8,),
    }
    runs = (
        check_sampler(sampler, CheckSettings(seed=seed, **settings), inputs=inputs) for seed in range(seeds)
    )
    return sum(run.verdict != "not-rejected" for run in runs)


def draws(sampler, name: str, seeds: int) -> list[int]:
    """Draws on the pair when it was rejected, at the default error rate."""
    settings = [CheckSettings(seed=seed, search=False, boundary=False) for seed in range(seeds)]
    runs = [check_sampler(sampler, chosen, inputs=[named(name)]) for chosen in settings]
    return [run.witness["draws"] if run.witness else sys.maxsize for run in runs]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--style", action="append", choices=tuple(STYLES), help="repeat; default: all")
    chosen = parser.parse_args()
    styles = chosen.style or tuple(STYLES)
    for style in styles:
        for sampler in RIGHT[style]:
            hits = alarms(sampler, style, chosen.seeds, chosen.alpha)
            most = float(beta.ppf(0.975, hits + 1, chosen.seeds - hits))
            print(
                f"{style}, {sampler.__name__}: {hits} alarms in {chosen.seeds} runs at alpha "
                f"{chosen.alpha:g} (rate below {most:.4f} at 97.5 %)",
                flush=True,
            )
    for sampler, name in FAULTS if "tokens" in styles else ():
        found = draws(sampler, name, 9)
        print(
            f"{sampler.__name__} on {name}: median {statistics.median(found):.0f} draws, "
            f"worst of 9 {max(found)}"
        )


if __name__ == "__main__":
    main()
