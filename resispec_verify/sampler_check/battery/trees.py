"""Trees of candidates, and sets of siblings, which are trees of depth 1."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from resispec_verify.sampler_check.battery.laws import random_laws, reserved

__all__ = ["TREES", "Tree", "tree"]


@dataclass(frozen=True)
class Tree:
    """A tree of candidates, and the laws of the next token, each given its depth and the token before.

    Attributes
    ----------
    name : str
    parents : tuple of int (N,)
        The parent of each node, -1 for children of the root; parents come before their children, and
        siblings in the order in which they are drawn.
    target : float64 array (D + 1, V, V)
        ``target[i, x]`` is the law of the token after a node of depth i with token x (the root has depth 0;
        of it, all rows are equal). D is the depth of the deepest node.
    draft : float64 array (D + 1, V, V)
        Alike; what the children of a node are drawn from.
    """

    name: str
    parents: tuple[int, ...]
    target: np.ndarray
    draft: np.ndarray
    share: float = 0.25

    def shifted(self, offset: int) -> Tree:
        """The same with tokens 0 to ``offset - 1`` reserved, which have no probability."""
        target, draft = (reserved(laws, offset, after=True) for laws in (self.target, self.draft))
        return replace(self, target=target, draft=draft)


# Vocabulary and seed of random laws, and parents.
_SHAPES = {
    "binary": (3, 8, (-1, -1, 0, 0, 1, 1)),
    "uneven": (3, 9, (-1, -1, 0, 0, 1, 2)),
}
#: The trees of the tree style, cheap ones first.
TREES = ("siblings", "ends", "binary", "uneven")


@cache
def tree(name: str) -> Tree:
    """The tree with this name."""
    if name == "ends":  # no target at both ends, where a test of u <= p / q and an inverse transform go wrong
        target, draft = [0.0, 0.3, 0.2, 0.5, 0.0], [0.3, 0.1, 0.3, 0.1, 0.2]
        after = [0.0, 0.6, 0.4, 0.0, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2]
        target, draft = (
            np.array([[one] * 5, [two] * 5]) for one, two in zip((target, draft), after, strict=True)
        )
        return Tree(name, (-1, -1), target, draft)
    if name == "siblings":  # a draft opposed to the target: siblings are often rejected
        target, draft = random_laws(4, 2, 7)
        target[0], draft[0] = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
        return Tree(name, (-1, -1, -1), target, draft)
    vocab, seed, parents = _SHAPES[name]
    return Tree(name, parents, *random_laws(vocab, 1 + max(depths(parents)), seed))


def depths(parents: tuple[int, ...]) -> tuple[int, ...]:
    """How deep each node is; children of the root have depth 1."""
    found: list[int] = []
    for parent in parents:
        found.append(1 if parent < 0 else found[parent] + 1)
    return tuple(found)
