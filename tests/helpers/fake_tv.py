"""What the fake engine draws its tokens from, in closed form, and how far its faults move that.

``python tests/helpers/fake_tv.py`` prints the table that stands in `fake_engine.FAULTS`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from fake_engine import FAULTS, Engine, engines
from fake_models import VOCAB, Sampling

PROMPTS, TOKENS = 8, 32


def emitted(
    engine: Engine, prefix: Sequence[int], place: int, sampling=Sampling(), rejected: int | None = None
) -> np.ndarray:
    """The law of the token at ``place`` of a round, given that the draft tokens before it were accepted.

    Parameters
    ----------
    prefix : sequence of int
        All tokens before it.
    place : int
        0 to k, where k is the bonus.
    rejected : int, optional
        The draft token that the round before rejected.

    Returns
    -------
    law : float64 array (V,)
    """
    prefix, fault = list(prefix), engine.fault
    context = engine.row(prefix, place, rejected)
    p = engine.verified(context, engine.raw(context), sampling)
    if place == engine.k:
        return np.eye(VOCAB)[p.argmax()] if fault == "greedy-bonus" and engine.k else p
    q = engine.drafts_from(prefix, sampling)
    if fault == "draft-law":
        return q
    # Masses with which each token is drafted and accepted, and drafted and rejected.
    drafted = np.eye(VOCAB)[q.argmax()] if fault == "greedy-drafts-ratio" else q
    ratio = np.minimum(1.0, np.divide(p, q, out=np.zeros(VOCAB), where=q > 0))
    lost = drafted * (1.0 - ratio)
    if fault == "correction-from-target":
        return drafted * ratio + lost.sum() * p
    if fault == "correction-from-next-row":
        return drafted * ratio + sum(
            lost[y] * engine.verified([*context, y], engine.raw([*context, y]), sampling)
            for y in np.flatnonzero(lost)
        )
    residual = np.maximum(p - q, 0.0)
    if not lost.sum():
        return drafted * ratio
    return drafted * ratio + lost.sum() * residual / residual.sum()


def average_tv(fault: str) -> float:
    """Mean total variation of `emitted` to the target's law over the tokens after the first."""
    sampling, (engine, _) = FAULTS[fault].sampling, engines(fault)
    distances = []
    for seed in range(PROMPTS):
        prompt = [seed, 11 * seed + 5]
        out = engine.complete(prompt, TOKENS, seed, sampling)
        for number in range(1, len(out.starts)):
            start = out.starts[number]
            for at in range(start, min([*out.starts, TOKENS][number + 1], TOKENS)):
                prefix = prompt + out.tokens[:at]
                law = emitted(engine, prefix, at - start, sampling, out.rejected[number - 1])
                distances.append(0.5 * np.abs(law - engine.target.shaped(prefix, sampling)).sum())
    return float(np.mean(distances))


if __name__ == "__main__":
    for name, fault in FAULTS.items():
        print(f"{name:26}{average_tv(name):.3f}  {fault.what}")
