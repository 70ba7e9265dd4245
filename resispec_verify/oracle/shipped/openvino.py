"""OpenVINO GenAI's sampler in validation mode, a draft model and sampling on."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ..paths import drawn
from ..registry import Blocks, Chain, Path, transcribes_paths

__all__ = ["openvino"]


@transcribes_paths("openvino", drawn)
def openvino(target: Chain, draft: Chain, paths: Sequence[Path]) -> Blocks:
    """Token by token, coin by coin, and for each token that the target might have drawn meanwhile.

    Of the coins 0, 1/100, ..., 1 those that do not exceed the draft's probability of the candidate over the
    target's of its own draw accept. The token after a rejection is drawn given the rejected one.
    """
    blocks: Blocks = {}

    def emit(kept: Path, law: Sequence[Fraction], weight: Fraction) -> None:
        for token, mass in enumerate(law):
            key = (*kept, token)
            blocks[key] = blocks.get(key, Fraction(0)) + weight * mass

    coins = [Fraction(k, 100) for k in range(101)]
    for path in paths:
        reach = Fraction(1)
        for i, x in enumerate(path):
            chance = draft(path[:i])[x]
            accept = Fraction(0)
            for mass in target(path[:i]):
                if mass > 0:
                    accept += mass * Fraction(sum(coin <= chance / mass for coin in coins), 101)
            emit(path[:i], target(path[: i + 1]), reach * (1 - accept))
            reach *= accept
        emit(path, target(path), reach)
    return blocks
