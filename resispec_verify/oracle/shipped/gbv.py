"""Thomas and Pal (2026), Greedy Multi-Path Block Verification: the greatest of K paths, as a block."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

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
    lengths = {len(path) for path in paths}
    if len(lengths) != 1:
        raise ValueError("gbv verifies paths of one length that part at the root")

    (length,) = lengths
    rank = _ranks(target, draft, ties)
    left = paths
    for i in range(length):
        best = max(left, key=lambda path: rank(path, i)[: 1 if ties == "drawn" else 2])
        left = [path for path in left if path[i] == best[i]]
    return _verified(target, draft, ties, len(paths), left[0])


def _ranks(target: Chain, draft: Chain, ties: str) -> Callable[[Path, int], tuple[Fraction, int]]:
    """Of token i of a path among the tokens after the same prefix."""

    def rank(path: Path, i: int) -> tuple[Fraction, int]:
        x = path[i]
        ratio = target(path[:i])[x] / draft(path[:i])[x]
        return (min(ratio, Fraction(1)) if ties == "drawn" else ratio, x)

    return rank


@lru_cache(maxsize=4)
def _greatest(target: Chain, draft: Chain, ties: str, length: int, count: int) -> Blocks:
    """Probability of each path to be the greatest of so many."""
    rank, law = _ranks(target, draft, ties), sequence_law(draft, length)
    chance: Blocks = {}
    mass = Fraction(0)
    for path in sorted(law, key=lambda path: [rank(path, i) for i in range(length)]):
        chance[path] = (mass + law[path]) ** count - mass**count
        mass += law[path]
    return chance


@lru_cache(maxsize=1 << 10)
def _verified(target: Chain, draft: Chain, ties: str, count: int, best: Path) -> Blocks:
    """Block verification of one path, drawn as the greatest of so many."""
    chance = _greatest(target, draft, ties, len(best), count)

    def skewed(prefix: Path) -> Law:
        after = [Fraction(0)] * len(draft(prefix))
        for path, weight in chance.items():
            if path[: len(prefix)] == prefix:
                after[path[len(prefix)]] += weight
        total = sum(after, Fraction(0))
        return tuple(weight / total for weight in after)

    return block(target, skewed, [best])


def _tokens(branch: tuple[int, Tree]) -> Path:
    token, below = branch
    if len(below) > 1:
        raise ValueError("gbv verifies paths that part at the root")
    return (token, *(_tokens(below[0]) if below else ()))
