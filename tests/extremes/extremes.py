"""Extreme pairs for as long as one likes: ``python tests/extremes/extremes.py --seconds 3600``.

Every comparison is one rule with one set of options on one pair; the seed of each is printed where something
is wrong, and ``--seed S --only K`` repeats it. Exit status 1 if anything was found.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import time
import traceback
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from extreme_pairs import extreme_pair
from hold import SETTINGS, Held, Setting, hold, hold_path

from resispec_verify.rules import Block, Medusa, PathRule

# Not OpenVINO: its test has steps, at quotients such as 1 that these pairs sit on up to rounding.
PATHS: list[PathRule] = [Block(), Medusa(correction="target"), Medusa()]
EVERY = 20  # one comparison in so many is of a rule that verifies paths

Case = tuple[Setting, str, np.ndarray, np.ndarray, int, "np.ndarray | None"]


def comparison(seed: int, number: int, rule: str = "") -> Case:
    """The comparison of that number: a setting, a kind of pair, the pair, the candidates, the true proposal.

    One in five draws its candidates from a law that is not the declared draft.
    """
    rng = np.random.default_rng((seed, number))
    settings = [setting for setting in SETTINGS if rule in str(setting)]
    setting = settings[number % len(settings)]
    counts = range(max(1, setting.rule.least_candidates), min(4, len(setting.most_tokens)) + 1)
    n = int(rng.choice(counts))
    most = setting.most_tokens[n - 1]
    size = int(rng.integers(2, most + 1) if rng.random() < 0.3 else rng.integers(2, min(most, 6) + 1))
    kind, target, draft = extreme_pair(rng, size)
    proposal = another_law(rng, setting, draft) if rng.random() < 0.2 else None
    if getattr(setting.rule.proposal, "distinct", False):
        n = min(n, int(((draft if proposal is None else proposal) > 0).sum()))
    return setting, kind, target, draft, n, proposal


def another_law(rng: np.random.Generator, setting: Setting, draft: np.ndarray) -> np.ndarray | None:
    """A law that the candidates are really drawn from, where the rule is defined for any."""
    drawn = extreme_pair(rng, draft.size)[2]
    name = setting.rule.proposal.name
    if name == "pairs":  # pairs must hold the declared hub
        return None
    if name == "without-replacement":  # a declared draft with nothing left is not a law
        drawn = np.where(draft > 0, drawn, 0.0)
        return drawn / drawn.sum() if drawn.max() > 2.0**-900 else None
    return drawn


def path_comparison(seed: int, number: int) -> tuple[PathRule, str, np.ndarray, np.ndarray, int, bool]:
    """One of a rule that verifies paths: the rule, a kind of pair, the pair, the length, and if laws turn."""
    rng = np.random.default_rng((seed, number))
    rule = PATHS[int(rng.integers(len(PATHS)))]
    length = int(rng.integers(1, 4))
    kind, target, draft = extreme_pair(rng, int(rng.integers(2, 6 - length + 1)))
    return rule, kind, target, draft, length, bool(rng.random() < 0.5)


def compared(seed: int, number: int, rule: str = "") -> tuple[str, str, int, Held]:
    """One comparison: the setting, the kind of pair, the candidates, and what came of it."""
    try:
        if number % EVERY == EVERY - 1 and not rule:
            path_rule, kind, target, draft, n, turning = path_comparison(seed, number)
            return path_rule.name, kind, n, hold_path(path_rule, target, draft, n, turning)
        setting, kind, target, draft, n, proposal = comparison(seed, number, rule)
        kind += "" if proposal is None else ", drawn from another law"
        if n < setting.rule.least_candidates:
            return str(setting), kind, n, Held([], 0.0, "skipped: too few tokens to draw", 0.0)
        return str(setting), kind, n, hold(setting, target, draft, n, proposal)
    except Exception as error:  # whatever it is, it is what this is looking for
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})"
        return "an exception", "", 0, Held([text], 0.0, "error", 0.0)


def work(
    seed: int, first: int, step: int, seconds: float, rule: str
) -> list[tuple[int, str, str, int, Held]]:
    found, number, end = [], first, time.monotonic() + seconds
    while time.monotonic() < end:
        found.append((number, *compared(seed, number, rule)))
        number += step
    return found


def repeat(seed: int, number: int, rule: str) -> int:
    """Print one comparison as the command line would take it, and what came of it."""
    if number % EVERY == EVERY - 1 and not rule:
        print(*path_comparison(seed, number))
    else:
        setting, kind, target, draft, n, proposal = comparison(seed, number, rule)
        print(setting, kind, f"n = {n}")
        for name, row in (("--target", target), ("--draft", draft), ("drawn from", proposal)):
            if row is not None:
                print(name, ",".join(map(repr, row.tolist())))
    *_, held = compared(seed, number, rule)
    print(held)
    return bool(held.trouble)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--rule", default="", help="only settings whose name contains this")
    parser.add_argument("--only", type=int, help="repeat one comparison, by its number")
    parser.add_argument("--show", type=int, default=3, help="findings to print for each setting")
    args = parser.parse_args()
    if args.only is not None:
        return repeat(args.seed, args.only, args.rule)
    parts = [(args.seed, k, args.jobs, args.seconds, args.rule) for k in range(args.jobs)]
    with ProcessPoolExecutor(args.jobs) as pool:
        results = [row for part in pool.map(work, *zip(*parts, strict=True)) for row in part]
    shown: collections.Counter[str] = collections.Counter()
    for number, name, kind, n, held in sorted(results, key=lambda row: row[0]):
        shown[name] += bool(held.trouble)
        if held.trouble and shown[name] <= args.show:
            print(f"{number}: {name} n = {n}, {kind}: {'; '.join(held.trouble)}")
    verdicts = collections.Counter(held.verdict for *_, held in results)
    undecided = collections.Counter(name for _, name, _, _, held in results if held.verdict == "undecided")
    worst = max(results, key=lambda row: row[-1].error_over_bound)
    print(
        f"{len(results)} comparisons of {len({name for _, name, *_ in results})} settings: {dict(verdicts)}"
    )
    print(f"largest error over its bound: {worst[-1].error_over_bound:.3g} ({worst[1]}, number {worst[0]})")
    print("undecided:", dict(undecided.most_common(12)))
    print("wrong:", {name: count for name, count in shown.items() if count} or "none")
    return any(shown.values())


if __name__ == "__main__":
    raise SystemExit(main())
