"""What a step costs in milliseconds, and the tree that emits the most tokens a millisecond.

A step is one pass of the target over all N nodes of the tree, the root included, and, where the draft's cost
is given, one pass of the draft for each level below the root, over the nodes whose children it proposes, one
after the other:

``ms(tree) = target(N) + sum over d < D - 1 of draft(nodes at depth d that have children)``.

Both are given at some sizes, and straight lines join them; nothing is said beyond the last. A step emits its
accepted length on average, and over many steps the tokens a millisecond tend to mean length over mean cost
(renewal theorem; a shape always costs the same).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resispec_verify.errors import InputError
from resispec_verify.kernels.optimal.tree_growth import Growth
from resispec_verify.tables.means import mean_and_error
from resispec_verify.topology import Topology

__all__ = ["StepCost", "fastest_grown", "priced", "two_best"]


@dataclass(frozen=True)
class StepCost:
    """Milliseconds by the number of nodes of a pass, at some sizes.

    Attributes
    ----------
    nodes : int array (sizes,)
        Increasing.
    target, draft : float64 arrays (sizes,)
        Positive, of one pass. Without a draft its passes are taken to cost nothing beside the target's.
    where : str
        Named in errors.
    """

    nodes: NDArray[np.int64]
    target: NDArray[np.float64]
    draft: NDArray[np.float64] | None
    where: str

    def of(self, tree: Topology) -> float:
        """Milliseconds of a step over a tree.

        Raises
        ------
        InputError
            A pass over more nodes than the most that are given, or fewer than the fewest.
        """
        cost = self._at(self.target, tree.nodes, f"the tree {_short(tree)}")
        if self.draft is not None:
            for depth, width in enumerate(drafted_from(tree)):
                cost += self._at(self.draft, width, f"the draft's pass at depth {depth} of {_short(tree)}")
        return cost

    def plain(self) -> float | None:
        """Of one token without speculation: a pass over one node, where that is given."""
        return float(self.target[0]) if self.nodes[0] == 1 else None

    def _at(self, values: NDArray[np.float64], count: int, what: str) -> float:
        least, most = int(self.nodes[0]), int(self.nodes[-1])
        if not least <= count <= most:
            raise InputError(
                f"{self.where}: {what} has {count} nodes, and milliseconds are given for {least} to {most}; "
                "measure that size too, or take another tree"
            )
        return float(np.interp(count, self.nodes, values))


def drafted_from(tree: Topology) -> list[int]:
    """How many nodes each depth has that have children: the sizes of the draft's passes."""
    inner = [depth for depth, children in zip(tree.depths, tree.children, strict=True) if children]
    return np.bincount(inner, minlength=0).tolist() if inner else []


def _short(tree: Topology) -> str:
    text = str(tree)
    return text if len(text) <= 40 else f"{text[:37]}..."


def priced(length: float, error: float | None, cost: StepCost, tree: Topology) -> dict[str, Any]:
    """What is said of a shape: its cost is taken as known, so the error is that of the length."""
    ms, plain = cost.of(tree), cost.plain()
    return {
        "step_ms": ms,
        "tokens_per_ms": length / ms,
        "tokens_per_ms_se": None if error is None else error / ms,
        "speedup": None if plain is None else length / ms * plain,
    }


def two_best(
    trees: Sequence[tuple[Topology, Sequence[float]]], cost: StepCost
) -> tuple[int, int | None, float | None, float | None]:
    """Of the lengths of several shapes over the same prefixes: the best, the next, and how far it is ahead.

    Parameters
    ----------
    trees : sequence of (tree, lengths)
        The lengths prefix by prefix, in one order.

    Returns
    -------
    best, next : int, int or None
        Indices of the most tokens a millisecond.
    ahead, error : float or None
        Mean over the prefixes of the difference, in tokens a millisecond, and its standard error.
    """
    each = [np.asarray(lengths) / cost.of(tree) for tree, lengths in trees]
    order = sorted(range(len(each)), key=lambda i: -each[i].mean())
    if len(order) == 1:
        return order[0], None, None, None
    ahead, error = mean_and_error((each[order[0]] - each[order[1]]).tolist())
    return order[0], order[1], ahead, error


def fastest_grown(growth: Growth, cost: StepCost) -> tuple[Topology, float]:
    """Of the longest trees of each number of nodes and levels the one with the most tokens a millisecond.

    Where all passes of the draft cost the same, none is faster of those that the lengths hold for; where a
    wider pass costs more, a tree that is not the longest of its size may be, and where a larger pass costs
    less, a tree with nodes that lengthen nothing.

    Returns
    -------
    tree, length : Topology, float

    Raises
    ------
    InputError
        No tree is of a size that is given.
    """
    least, most = int(cost.nodes[0]), min(int(cost.nodes[-1]), len(growth.lengths[0]) - 1)
    pass_ms = 0.0 if cost.draft is None else float(cost.draft.min())
    tries = []
    for levels, lengths in enumerate(growth.lengths, start=1):
        sizes = np.arange(least, most + 1)
        # A tree as long as one with a level or a node less is that one.
        shorter = growth.lengths[levels - 2][sizes] if levels > 1 else np.zeros(len(sizes))
        smaller = np.where(sizes > 1, lengths[np.maximum(sizes - 1, 1)], 0.0)
        sizes = sizes[(lengths[sizes] > shorter) & (lengths[sizes] > smaller)]
        passes = np.interp(sizes, cost.nodes, cost.target) + (levels - 1) * pass_ms
        tries += [(float(lengths[n] / ms), int(n), levels) for n, ms in zip(sizes, passes, strict=True)]
    best: tuple[float, Topology, float] | None = None
    for at_most, nodes, levels in sorted(tries, reverse=True):
        if best is not None and at_most <= best[0]:
            break  # all that follow cost at least as much a token
        tree, length = (
            Topology(tuple(growth.parents(nodes, levels))),
            float(growth.lengths[levels - 1][nodes]),
        )
        found = length / cost.of(tree)
        if best is None or found > best[0]:
            best = found, tree, length
    if best is None:
        raise InputError(
            f"{cost.where}: milliseconds are given from {least} nodes on, and no tree of {least} to {most} "
            "nodes is longer than a smaller one; measure smaller sizes too"
        )
    return best[1], best[2]
