"""The worst pair for a sampler that is a black box: random pairs, scored by draws, the best changed a little.

What it returns are suspects. The draws that chose them decide nothing; they are confirmed on fresh ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from resispec_verify.sampler_check.battery import Input
from resispec_verify.sampler_check.calls import Caller, SamplerError

__all__ = ["LEAST_DRAWS", "MOST_DRAWS", "PAIRS", "search_pairs"]

STARTS = 64
GENERATIONS = 4
KEPT = 6
CHILDREN = 3
DRAWS = 1024
#: Pairs that are scored at most, and draws of the last generation.
PAIRS = STARTS + (GENERATIONS - 1) * KEPT * (1 + CHILDREN)
MOST_DRAWS = DRAWS << GENERATIONS - 1
#: Fewer draws choose no better than chance.
LEAST_DRAWS = 256


def search_pairs(
    caller: Caller,
    source_of: Callable[[Input], Any],
    seed: np.random.SeedSequence,
    most: int,
    *,
    limit: int,
) -> tuple[list[Input], int]:
    """The pairs on which the draws look most unlike the target.

    Parameters
    ----------
    caller : Caller
        The search ends when it is late.
    source_of : callable (Input) -> source of draws
    seed : SeedSequence
    most : int
        Pairs returned at most.
    limit : int
        Draws a pair at most.

    Returns
    -------
    list of Input, int
        Worst first; and how many draws were used.
    """
    rng = np.random.default_rng(seed)
    drawn, scored = 0, []
    generation = [_random_pair(rng) for _ in range(STARTS)]
    for number in range(GENERATIONS):
        draws = min(DRAWS << number, max(2, limit))
        for target, draft in generation:
            if caller.late:
                break
            pair = Input("found by the search", target, draft, 0.25)
            scored.append((_score(caller, source_of(pair), rng, draws), len(scored), pair))
            drawn += draws
        scored.sort(key=lambda one: (-one[0], one[1]))
        generation = [
            child
            for _, _, pair in scored[:KEPT]
            for child in [(pair.target, pair.draft)] + [_changed(rng, pair) for _ in range(CHILDREN)]
        ]
        if number < GENERATIONS - 1:
            scored = scored[: 4 * KEPT]
    chosen: list[Input] = []
    for _, _, pair in scored:
        if len(chosen) < most and not any(np.array_equal(pair.target, other.target) for other in chosen):
            chosen.append(pair)
    return chosen, drawn


def _score(caller: Caller, source: Any, rng: np.random.Generator, draws: int) -> float:
    """Divergence of the frequencies from the target a draw, less what chance gives it; infinite where
    impossible.
    """
    try:
        index = caller.run(lambda: source.draw(caller, rng, draws).index)
    except SamplerError as error:
        laws = (np.array2string(law, separator=", ") for law in (source.pair.target, source.pair.draft))
        raise SamplerError(" ".join(f"{error} (on target {{}}, draft {{}})".format(*laws).split())) from None
    counts = np.bincount(index, minlength=len(source.law))
    if (counts[source.law == 0] > 0).any():
        return float("inf")
    seen = counts > 0
    divergence = np.sum(counts[seen] * np.log(counts[seen] / (draws * source.law[seen])))
    return float(divergence - (np.count_nonzero(source.law) - 1) / 2) / draws


def _random_pair(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Flat, peaked or sparse laws, unrelated, near, equal or opposed."""
    size = int(rng.integers(2, 13))
    target = _random_law(rng, size)
    kind = rng.integers(5)
    if kind == 0:
        draft = target.copy()
    elif kind == 1:
        draft = target * np.exp(rng.normal(0.0, 0.3, size))
    elif kind == 2:
        draft = np.where(target > 0, 1.0 / np.maximum(target, 1e-6), 1.0)
    elif kind == 3:
        draft = rng.permutation(target)
    else:
        draft = _random_law(rng, size)
    return target, draft / draft.sum()


def _random_law(rng: np.random.Generator, size: int) -> np.ndarray:
    law = rng.dirichlet(np.full(size, rng.choice([0.1, 0.3, 1.0, 3.0]))) + 1e-6
    if rng.random() < 0.3:
        law = law * (rng.random(size) < 0.7)
    if rng.random() < 0.2:
        law = law * 10 ** -rng.uniform(0.0, 4.0)
        law[rng.integers(size)] += 1.0
    if law.sum() == 0:
        law[rng.integers(size)] = 1.0
    return law / law.sum()


def _changed(rng: np.random.Generator, pair: Input) -> tuple[np.ndarray, np.ndarray]:
    """Both laws with noise on their logits; now and then an entry goes, or comes."""
    changed = []
    for law in (pair.target, pair.draft):
        new = law * np.exp(rng.normal(0.0, 0.5, len(law)))
        if rng.random() < 0.2:
            new[rng.integers(len(new))] = rng.choice([0.0, 0.1, 1.0])
        changed.append(new / new.sum() if new.sum() > 0 else law)
    return changed[0], changed[1]
