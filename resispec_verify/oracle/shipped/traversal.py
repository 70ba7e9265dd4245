"""Weng et al. (2025), Traversal Verification for Speculative Tree Decoding: leaf by leaf, as it is told."""

from __future__ import annotations

from fractions import Fraction

from ..laws import Law
from ..registry import Blocks, Chain, Path, Tree, transcribes_trees
from ..trees import without

__all__ = ["traversal"]


@transcribes_trees("traversal", "without-replacement")
def traversal(target: Chain, draft: Chain, tree: Tree) -> Blocks:
    """The first leaf is accepted with its weight, or deleted and its parent changed; so on to the root."""
    order = _prefixes(tree, ())  # depth-first
    p = {node: tuple(target(node)) for node in order}
    q = {node: tuple(draft(node)) for node in order}
    weight: dict[Path, Fraction] = {}

    def weigh() -> None:
        """Weights of all but those that a deletion has set, from the root outwards."""
        for node in order:
            if node not in changed:
                above, x = node[:-1], node[-1] if node else 0
                ratio = weight[above] * p[above][x] / q[above][x] if node else Fraction(1)
                weight[node] = min(Fraction(1), ratio)

    changed: set[Path] = set()
    weigh()
    blocks: Blocks = {}
    left = Fraction(1)
    while order:
        leaf = next(
            node for node in order if not any(len(m) > len(node) and m[: len(node)] == node for m in order)
        )
        accepted = left * weight[leaf]
        for token, mass in enumerate(p[leaf]):
            blocks[(*leaf, token)] = blocks.get((*leaf, token), Fraction(0)) + accepted * mass
        left -= accepted
        order.remove(leaf)
        if not order or left == 0:
            break
        above = leaf[:-1]
        weight[above], p[above] = _rejected(weight[above], p[above], q[above])
        q[above] = without(q[above], leaf[-1])
        changed.add(above)
        weigh()
    assert left == 0  # the root's weight is 1 whatever is deleted
    return blocks


def _prefixes(tree: Tree, prefix: Path) -> list[Path]:
    """Every node by its tokens, a node before what is below it."""
    found = [prefix]
    for token, below in tree:
        found += _prefixes(below, (*prefix, token))
    return found


def _rejected(weight: Fraction, p: Law, q: Law) -> tuple[Fraction, Law]:
    excess = [max(weight * a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
    total = sum(excess, Fraction(0))
    if total == 0:
        return Fraction(0), p
    return total / (total + 1 - weight), tuple(mass / total for mass in excess)
