"""The shape of a tree of candidates: which node follows which, without tokens.

Node 0 is the root, the last token of the prefix. The children of a node, in order, are the candidates that
are verified after it. Levels count the root, as the paper does: ``d5b3`` is a complete 3-ary tree of five
levels and 121 nodes, 120 of them candidates, and a step over it emits at most five tokens, the final one
included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from resispec_verify.errors import InputError

__all__ = ["MOST_NODES", "Topology"]

#: More nodes than any tree that is verified in one forward pass has.
MOST_NODES = 2**16


@dataclass(frozen=True)
class Topology:
    """A tree by the parent of each node.

    Attributes
    ----------
    parents : tuple of int
        -1 for node 0, the root; every other node's parent comes before it.

    Raises
    ------
    InputError
        No node, a root that is not node 0, a parent that is missing or does not come before its child (so
        there is no cycle and no orphan), or more than `MOST_NODES` nodes.
    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.parents or self.parents[0] != -1:
            raise InputError("a tree starts with its root: the first parent is -1")
        if len(self.parents) > MOST_NODES:
            raise InputError(
                f"a tree of {len(self.parents)} nodes; at most {MOST_NODES} are verified at once"
            )
        for node, parent in enumerate(self.parents[1:], start=1):
            if not 0 <= parent < node:
                raise InputError(
                    f"node {node} has parent {parent}; every node but the root needs a parent from 0 to "
                    f"{node - 1}, so number the nodes from the root outwards"
                )

    @classmethod
    def complete(cls, depth: int, branching: int) -> Topology:
        """The complete tree of `depth` levels, the root included, breadth-first."""
        if depth < 1 or branching < 1:
            raise InputError(f"d{depth}b{branching}: a tree has at least one level and one branch")
        nodes, width = 0, 1
        for _ in range(depth):
            nodes, width = nodes + width, width * branching
            if nodes > MOST_NODES:
                raise InputError(
                    f"d{depth}b{branching} has more than {MOST_NODES} nodes; take a smaller tree"
                )
        return cls((-1, *((node - 1) // branching for node in range(1, nodes))))

    @classmethod
    def parse(cls, text: str) -> Topology:
        """A tree from ``d5b3`` or from its parents, ``-1,0,0,1``."""
        short = re.fullmatch(r"d(\d{1,6})b(\d{1,6})", text.strip())
        if short:
            return cls.complete(int(short[1]), int(short[2]))
        parts = text.split(",")
        if not all(re.fullmatch(r"\s*-?\d{1,9}\s*", part) for part in parts):
            raise InputError(
                f"{text[:40]!r} is no tree; give its levels and branches, like d5b3, or the parent of each "
                "node, like -1,0,0,1"
            )
        return cls(tuple(int(part) for part in parts))

    @property
    def nodes(self) -> int:
        """Number of nodes, the root included: what one verification costs."""
        return len(self.parents)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Edges between the root and each node."""
        depths = [0]
        for parent in self.parents[1:]:
            depths.append(depths[parent] + 1)
        return tuple(depths)

    @property
    def levels(self) -> int:
        """Levels, the root included: the most tokens that a step can emit."""
        return max(self.depths) + 1

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of each node, in the order in which they are verified."""
        found: list[list[int]] = [[] for _ in self.parents]
        for node, parent in enumerate(self.parents[1:], start=1):
            found[parent].append(node)
        return tuple(map(tuple, found))
