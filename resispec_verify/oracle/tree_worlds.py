"""What it costs a rule over trees to know the laws at the nodes of its tree only.

Several worlds, pairs of chains, look alike on a tree that does not go where they differ. A rule that knows
no more than the tree and the laws at its nodes does the same in each of them there, and has to be lossless
in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from .exact_programs import Program, optimum
from .registry import Chain, Path, Shape
from .tree_programs import path_sets, read_chains

__all__ = ["longest_in_worlds"]


def longest_in_worlds(worlds: Sequence[tuple[Chain, Chain]], shape: Shape, siblings: str) -> Fraction:
    """The greatest sum over worlds of accepted tokens, for a rule that knows the laws at its nodes only.

    It sees the whole tree. The sum of `tree_programs.longest_step` over the worlds bounds it, and is attained
    where knowing more does not help.

    Parameters
    ----------
    worlds : sequence of pairs of chains
        Target and draft.
    shape, siblings
        As for `tree_programs.longest_step`.
    """
    column: dict[tuple[Any, Path], int] = {}
    gain: list[Fraction] = []
    rows: list[dict[int, Fraction]] = []
    bounds: list[Fraction] = []
    for target, draft in (read_chains(*world, shape, siblings) for world in worlds):
        holds: dict[Path, dict[int, Fraction]] = {}
        for tree, chance in path_sets(draft, shape, siblings).items():
            seen = _seen(tree, target, draft)
            if new := (seen, next(iter(tree))) not in column:
                rows.append({})
                bounds.append(chance)
            for s in tree:
                if (seen, s) not in column:
                    column[seen, s] = len(gain)
                    gain.append(Fraction(0))
                j = column[seen, s]
                if new:
                    rows[-1][j] = Fraction(1)
                gain[j] += len(s)
                for i in range(1, len(s) + 1):
                    holds.setdefault(s[:i], {})[j] = Fraction(1)
        for s, accepted in sorted(holds.items()):
            p = target(s[:-1])[s[-1]]
            above = holds[s[:-1]] if len(s) > 1 else {}
            rows.append(
                {j: accepted.get(j, Fraction(0)) - p * above.get(j, 0) for j in {**above, **accepted}}
            )
            bounds.append(Fraction(0) if len(s) > 1 else p)
    return optimum(Program(gain, rows, bounds)).value


def _seen(tree: frozenset[Path], target: Chain, draft: Chain) -> Any:
    """A tree with the laws at its nodes, those of the draft where something was drawn."""
    inner = {s[:-1] for s in tree}
    return tree, frozenset(
        (s, tuple(target(s)), tuple(draft(s)) if s in inner else None) for s in (*tree, ())
    )
