"""The tree of at most N nodes whose step is longest, by dynamic programming (Sequoia's, generalised).

Let a node with m children emit its i-th candidate with probability ``a[m][i]``, whatever happened above it.
The expected length of a step, the final token included, is then ``F(tree) = 1 + sum_i a[m][i] F(subtree_i)``,
and the best tree of at most N nodes and D levels has

``T_D(N) = 1 + max over m and N_1 + ... + N_m < N of sum_i a[m][i] T_{D-1}(N_i)``, each ``N_i >= 1``.

Sequoia (Chen et al., arXiv 2402.12374) has one vector, ``a[m][i] = a[i]``. With it a later candidate may be
the likelier one, and those before it are paid for, since children are only had in order. With a row for each
m the recurrence also holds for rules whose acceptance depends on how many candidates they are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Growth", "grow", "growth"]

Floats = NDArray[np.float64]
Rows = Sequence[Sequence[float] | None]


@dataclass(frozen=True)
class Growth:
    """The best trees of every size, by the levels that they may have.

    Attributes
    ----------
    lengths : list of float64 arrays (N + 1,)
        Entry D - 1 has ``T_D``; the number at 0 means nothing. As many as are of use.
    """

    lengths: list[Floats]
    _counts: list[NDArray[np.int16]]
    _choices: list[list[list[NDArray[np.int16]]]]

    def parents(self, nodes: int, levels: int) -> list[int]:
        """The tree of length ``lengths[levels - 1][nodes]``: breadth-first, -1 for the root.

        Of trees that are equally long, it is one that has no child without use.
        """
        return _parents(self._counts[: levels - 1], self._choices[: levels - 1], nodes)


def growth(acceptance: Rows, nodes: int, levels: int | None = None) -> Growth:
    """The best trees of 1 to `nodes` nodes and 1 to `levels` levels, all with the root.

    Parameters
    ----------
    acceptance : sequence of sequences of float
        Entry m - 1 has the probabilities ``a[m][0..m-1]`` that a node with m children emits each, or is
        None where nodes do not have m children.
    nodes : int
        ``N >= 1``.
    levels : int, optional
        ``D >= 1``; without it any number.
    """
    rows = [None if row is None else np.asarray(row, np.float64) for row in acceptance]
    found = Growth([np.ones(nodes + 1)], [], [])
    while levels is None or len(found.lengths) < levels:
        deeper, count, splits = _one_level_more(found.lengths[-1], rows)
        if (deeper == found.lengths[-1]).all():
            break  # no budget gains from another level
        found.lengths.append(deeper)
        found._counts.append(count)
        found._choices.append(splits)
    return found


def grow(acceptance: Rows, nodes: int, levels: int | None = None) -> tuple[list[int], float]:
    """The best tree of at most `nodes` nodes and `levels` levels, as `Growth.parents`, and its length."""
    found = growth(acceptance, nodes, levels)
    most = len(found.lengths)
    return found.parents(nodes, most), float(found.lengths[-1][nodes])


def _one_level_more(
    best: Floats, rows: Sequence[Floats | None]
) -> tuple[Floats, NDArray[np.int16], list[list[NDArray[np.int16]]]]:
    """``T_{D}`` from ``T_{D-1}``, the number of children that attains it, and the size of each one's tree."""
    most = len(best) - 1
    deeper, count = np.ones(most + 1), np.zeros(most + 1, np.int16)
    splits: list[list[NDArray[np.int16]]] = []
    for m, row in enumerate(rows, start=1):
        splits.append([])
        if row is None or m >= most:
            continue
        rest = np.zeros(most)  # of the children after this one, by the nodes that are left for them
        for i in range(m - 1, -1, -1):
            value, size = np.full(most, -np.inf), np.zeros(most, np.int16)
            for s in range(1, most):
                found = row[i] * best[s] + rest[: most - s]
                better = found > value[s:]
                value[s:][better], size[s:][better] = found[better], s
            rest = value
            splits[-1].insert(0, size)
        longer = 1.0 + rest > deeper[1:]
        deeper[1:][longer], count[1:][longer] = (1.0 + rest)[longer], m
    return deeper, count, splits


def _parents(
    counts: list[NDArray[np.int16]], choices: list[list[list[NDArray[np.int16]]]], nodes: int
) -> list[int]:
    parents, at = [-1], 0
    budgets = [(nodes, len(counts))]
    while at < len(parents):
        left, level = budgets[at]
        m = int(counts[level - 1][left]) if level else 0
        left -= 1
        for i in range(m):
            size = int(choices[level - 1][m - 1][i][left])
            parents.append(at)
            budgets.append((size, level - 1))
            left -= size
        at += 1
    return parents
