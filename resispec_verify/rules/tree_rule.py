"""Rules that decide about a whole drafted tree at once: which node is accepted, and what follows it.

They need the laws of target and draft after every node, so a flat dump is not enough.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.rules.interface import Described

__all__ = ["Siblings", "TreeRule", "children_of", "paths_of"]

#: Independent draws; no token twice; or the best tokens of the draft, and last a draw from the others.
Siblings = Literal["iid", "without-replacement", "best-and-one"]


class TreeRule(Described):
    """A rule over a tree of N nodes, the root included; frozen and pure like `Rule`."""

    #: How the children of a node are drawn, in their order.
    siblings: ClassVar[Siblings]
    #: Whether it is for paths of one length that part at the root, and for no other tree.
    paths_only: ClassVar[bool] = False

    @abstractmethod
    def outcome(
        self, targets: Array, drafts: Array, tokens: Any, parents: tuple[int, ...]
    ) -> tuple[Array, Array]:
        """Where a tree is left, and what follows.

        Parameters
        ----------
        targets, drafts : array (..., N, V)
            The laws after each node; those of the draft after a node without children are not looked at.
        tokens : integer array (..., N)
            The token of each node; that of the root, node 0, is not looked at.
        parents : tuple of int, N of them
            The parent of each node, -1 for the root; parents come before their children.

        Returns
        -------
        ends : array (..., N)
            Probability that the tokens up to exactly this node are accepted.
        corrections : array (..., N, V)
            The law of the token emitted after this node, given that the tree is left there.

        Raises
        ------
        InputError
            A tree of a shape that the rule is not for.
        """


def children_of(parents: tuple[int, ...]) -> list[list[int]]:
    """The children of each node, in order."""
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    return children


def paths_of(parents: tuple[int, ...], name: str) -> list[list[int]]:
    """The nodes of each path, from the first below the root on, for a rule that is for paths only.

    Raises
    ------
    InputError
        Paths that part below the root, or are of several lengths.
    """
    children, paths = children_of(parents), []
    for node in children[0]:
        path = [node]
        while len(children[path[-1]]) == 1:
            path.append(children[path[-1]][0])
        paths.append(path)
        if children[path[-1]]:
            raise InputError(
                f"{name} is for paths that part at the root; node {path[-1]} has several children"
            )
    if not paths or len({len(path) for path in paths}) > 1:
        raise InputError(f"{name} needs paths of one length, got lengths {[len(path) for path in paths]}")
    return paths
