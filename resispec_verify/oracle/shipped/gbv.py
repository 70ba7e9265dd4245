"""Thomas and Pal (2026), Greedy Multi-Path Block Verification: the greatest of K paths, as a block."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..laws import Law
from ..paths import sequence_law
from ..registry import Blocks, Chain, Path, Tree, transcribes_trees
from .block import block

__all__ = ["gbv"]


@transcribes_trees("gbv", "iid")
def gbv(target: Chain, draft: Chain, tree: Tree, *, ties: str = "index") -> Blocks:
    """Block verification of the greatest path against the law that the greatest of K paths has.

    That law by its definition: all paths in order, the greatest is at most one of them with the K-th power of
    the mass up to it. With ``ties = "drawn"`` ratios are cut at 1, and the first drawn of equals is taken.
    """
    paths = [_tokens(branch) for branch in tree]
    cut = ties == "drawn"
    lengths = {len(path) for path in paths}
    if len(lengths) != 1:
        raise ValueError("gbv verifies paths of one length that part at the root")

    def key(path: Path, by_index: bool) -> list[tuple[Any, ...]]:
        ratios = [_ratio(target(path[:i]), draft(path[:i]), x, cut) for i, x in enumerate(path)]
        return [(ratio, x) if by_index else (ratio,) for ratio, x in zip(ratios, path, strict=True)]

    chance: dict[Path, Fraction] = {}
    mass = Fraction(0)
    law = sequence_law(draft, lengths.pop())
    for path in sorted(law, key=lambda path: key(path, True)):
        chance[path] = (mass + law[path]) ** len(paths) - mass ** len(paths)
        mass += law[path]

    def skewed(prefix: Path) -> Law:
        after = [Fraction(0)] * len(draft(prefix))
        for path, weight in chance.items():
            if path[: len(prefix)] == prefix:
                after[path[len(prefix)]] += weight
        total = sum(after, Fraction(0))
        return tuple(weight / total for weight in after)

    best = max(paths, key=lambda path: key(path, not cut))
    return block(target, skewed, [best])


def _tokens(branch: tuple[int, Tree]) -> Path:
    token, below = branch
    if len(below) > 1:
        raise ValueError("gbv verifies paths that part at the root")
    return (token, *(_tokens(below[0]) if below else ()))


def _ratio(p: Law, q: Law, token: int, cut: bool) -> Fraction:
    ratio = p[token] / q[token]
    return min(ratio, Fraction(1)) if cut else ratio
