"""The shape of a tree of candidates: which node follows which, without tokens.

Node 0 is the root, the last token of the prefix. The children of a node, in order, are the candidates that
are verified after it. Levels count the root, as the paper does: ``d5b3`` is a complete 3-ary tree of five
levels and 121 nodes, 120 of them candidates, and a step over it emits at most five tokens, the final one
included.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from resispec_verify.errors import InputError

__all__ = ["MOST_LEVELS", "MOST_NODES", "TREE_FORMS", "Topology"]

#: More nodes than any tree that is verified in one forward pass has.
MOST_NODES = 2**16
#: The same for its levels, the root included.
MOST_LEVELS = 512
#: How a tree is written, on every command line and in every message.
TREE_FORMS = (
    "levels with the root and children of each node, as d5b3; children by level, as 4,2,1; or the parent of "
    "each node, as -1,0,0,1"
)


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
        there is no cycle and no orphan), or more than `MOST_NODES` nodes or `MOST_LEVELS` levels.
    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.parents or self.parents[0] != -1:
            raise InputError("a tree starts with its root: the first parent is -1; put it first")
        if len(self.parents) > MOST_NODES:
            raise InputError(
                f"a tree of {len(self.parents)} nodes; at most {MOST_NODES} are verified at once; take a "
                "smaller one"
            )
        for node, parent in enumerate(self.parents[1:], start=1):
            if not 0 <= parent < node:
                raise InputError(
                    f"node {node} has parent {parent}; every node but the root needs a parent from 0 to "
                    f"{node - 1}, so number the nodes from the root outwards"
                )
        if self.levels > MOST_LEVELS:
            raise InputError(
                f"a tree of {self.levels} levels; at most {MOST_LEVELS} are verified at once; take a "
                "smaller one"
            )

    @classmethod
    def complete(cls, depth: int, branching: int) -> Topology:
        """The complete tree of `depth` levels, the root included, breadth-first."""
        if depth < 1 or branching < 1:
            raise InputError(
                f"d{depth}b{branching}: a tree has at least one level and one branch; write d1b1 for a "
                "root alone"
            )
        nodes, width = 0, 1
        for _ in range(depth):
            nodes, width = nodes + width, width * branching
            if nodes > MOST_NODES:
                raise InputError(
                    f"d{depth}b{branching} has more than {MOST_NODES} nodes; take a smaller tree"
                )
        return cls((-1, *((node - 1) // branching for node in range(1, nodes))))

    @classmethod
    def by_level(cls, widths: Sequence[int]) -> Topology:
        """The tree whose nodes at level i, counted from the root at 0, have ``widths[i]`` children each."""
        parents, level = [-1], [0]
        for width in widths:
            if width < 1:
                raise InputError(
                    f"children by level {list(widths)}: each level needs at least one; parents begin with -1"
                )
            if len(parents) + width * len(level) > MOST_NODES:
                raise InputError(
                    f"children by level {list(widths)} make more than {MOST_NODES} nodes; take a smaller tree"
                )
            children = [node for node in level for _ in range(width)]
            level = list(range(len(parents), len(parents) + len(children)))
            parents += children
        return cls(tuple(parents))

    @classmethod
    def parse(cls, text: str) -> Topology:
        """A tree as people write one: ``d5b3``, children by level, ``4,2,1``, or parents, ``-1,0,0,1``.

        Parents begin with -1, which no number of children is.
        """
        short = re.fullmatch(r"d(\d{1,6})b(\d{1,6})", text.strip())
        if short:
            return cls.complete(int(short[1]), int(short[2]))
        parts = text.split(",")
        if not all(re.fullmatch(r"\s*-?\d{1,9}\s*", part) for part in parts):
            raise InputError(f"{text[:40]!r} is no tree; give {TREE_FORMS}")
        numbers = [int(part) for part in parts]
        return cls(tuple(numbers)) if numbers[0] < 0 else cls.by_level(numbers)

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

    def __str__(self) -> str:
        """``d5b3`` for a complete tree, else the parents."""
        levels, branches = self.levels, len(self.children[0])
        if all(len(c) in (0, branches) for c in self.children) and self == self._complete(levels, branches):
            return f"d{levels}b{max(branches, 1)}"
        return ",".join(map(str, self.parents))

    def _complete(self, levels: int, branches: int) -> Topology | None:
        size = sum(branches**level for level in range(levels)) if branches else 1
        return Topology.complete(levels, max(branches, 1)) if size == self.nodes else None

    def with_at_most(self, children: int) -> Topology:
        """The same without the children of a node beyond the first few, and what is below them."""
        numbers, parents = {0: 0}, [-1]
        kept = {child for nodes in self.children for child in nodes[:children]}
        for node, parent in enumerate(self.parents[1:], start=1):
            if node in kept and parent in numbers:
                numbers[node] = len(parents)
                parents.append(numbers[parent])
        return Topology(tuple(parents))

    def nodes_in(self, larger: Topology) -> tuple[int, ...]:
        """Which nodes of a larger tree these are: the first children of each node.

        Raises
        ------
        InputError
            A node has more children than in the larger tree, or goes deeper.
        """
        places = [0] * self.nodes
        for node, children in enumerate(self.children):
            there = larger.children[places[node]]
            if len(children) > len(there):
                raise InputError(
                    f"tree {_short(self)}: node {node} has {len(children)} children, and {len(there)} in the "
                    f"recorded tree {_short(larger)}; take a smaller tree or record a larger one"
                )
            for child, place in zip(children, there, strict=False):
                places[child] = place
        return tuple(places)


def _short(tree: Topology) -> str:
    text = str(tree)
    return text if len(text) <= 40 else f"of {tree.nodes} nodes"
