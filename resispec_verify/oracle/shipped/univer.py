"""Weng et al. (2026), UniVer: weights from the root, decisions from the leaves."""

from __future__ import annotations

from fractions import Fraction

from ..laws import Law, normalise
from ..registry import Blocks, Chain, Path, Tree, transcribes_trees
from ..trees import without

__all__ = ["univer"]


@transcribes_trees("univer", "best-and-one")
def univer(target: Chain, draft: Chain, tree: Tree) -> Blocks:
    """Children are the best tokens of the draft, and last one that is drawn from the others."""
    blocks: Blocks = {}

    def emit(prefix: Path, mass: Fraction, law: Law) -> None:
        for token, chance in enumerate(law):
            if mass * chance > 0:
                blocks[(*prefix, token)] = blocks.get((*prefix, token), Fraction(0)) + mass * chance

    def visit(prefix: Path, children: Tree, weight: Fraction, reach: Fraction) -> Fraction:
        """The mass that leaves a subtree unaccepted, of what reaches it."""
        p = target(prefix)
        if not children:
            emit(prefix, reach * weight, p)
            return reach * (1 - weight)
        certain, (drawn, _) = [token for token, _ in children[:-1]], children[-1]
        s = draft(prefix)
        for token in certain:
            s = without(s, token)
        excess = [max(weight * a - b, Fraction(0)) for a, b in zip(p, s, strict=True)]
        z = 1 - weight + sum(excess, Fraction(0))
        share = {drawn: min(Fraction(1), weight * p[drawn] / s[drawn])}
        for token in certain:
            share[token] = weight * p[token] * (1 - share[drawn]) / z if z else Fraction(0)
        left, before = reach, Fraction(0)
        for token, below in children:
            handed = share[token] / (1 - before) if before < 1 else Fraction(0)
            left = visit((*prefix, token), below, handed, left)
            before += share[token]
        if before == 1:
            return left
        fails = (1 - share[drawn]) * (1 - weight) / z / (1 - before)
        for token in certain:
            excess[token] = Fraction(0)
        emit(prefix, left * (1 - fails), normalise(excess, fallback=p))
        return left * fails

    lost = visit((), tree, Fraction(1), Fraction(1))
    assert lost == 0
    return blocks
