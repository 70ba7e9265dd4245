"""Rules that decide about a whole tree, enumerated on chains of a few tokens.

A shape is nested: one tuple a child, in order. A drawn tree has a token beside each of them. Such a rule
emits a block, the tokens up to a node and one of its own; `paths.complete` makes a law of sequences of them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .engine import outcomes_of
from .laws import Law
from .proposals import PROPOSALS
from .registry import MARGINALS, TREE_RULES, Blocks, Chain, Path, Shape, Tree

__all__ = ["drawn_trees", "fork", "node_law", "tree_law", "without"]

#: How children are drawn one after the other; see `drawn_trees`.
DRAWN = ("iid", "without-replacement", "best-and-one")


def fork(paths: int, length: int, trunk: int = 0) -> Shape:
    """`paths` paths that part after a trunk of so many tokens; their length counts the trunk."""
    if paths < 1 or not 0 <= trunk < length:
        raise ValueError(
            "a fork needs paths >= 1 and 0 <= trunk < length, "
            f"got paths = {paths}, length = {length}, trunk = {trunk}"
        )
    below: Shape = ()
    for _ in range(length - trunk - 1):
        below = (below,)
    shape: Shape = (below,) * paths
    for _ in range(trunk):
        shape = (shape,)
    return shape


def without(law: Law, token: int) -> Law:
    """A law with a token struck out; all 0 where nothing else has mass."""
    rest = 1 - law[token]
    return tuple(mass / rest if x != token and rest else Fraction(0) for x, mass in enumerate(law))


def drawn_trees(draft: Chain, shape: Shape, siblings: str, prefix: Path = ()) -> list[tuple[Tree, Fraction]]:
    """Every tree of a shape, with its probability.

    Children come in order: "iid" draws; "without-replacement", each from what is left of the draft's law; or,
    "best-and-one", the best token of what is left, ties to the lowest index, and last a draw from it. Where
    nothing is left, there is no further child.
    """
    if siblings not in DRAWN:
        raise ValueError(f"siblings must be one of {', '.join(DRAWN)}, got {siblings!r}")
    drawn: list[tuple[Tree, Law, Fraction]] = [((), tuple(draft(prefix)), Fraction(1))]
    for i, below in enumerate(shape):
        more = []
        for tree, law, chance in drawn:
            if not any(law):
                more.append((tree, law, chance))
            for token, mass in enumerate(law):
                if siblings == "best-and-one" and i < len(shape) - 1:
                    mass = Fraction(law.index(max(law)) == token and mass > 0)
                if mass == 0:
                    continue
                rest = law if siblings == "iid" else without(law, token)
                for subtree, weight in drawn_trees(draft, below, siblings, (*prefix, token)):
                    more.append(((*tree, (token, subtree)), rest, chance * mass * weight))
        drawn = more
    return [(tree, chance) for tree, _, chance in drawn]


def tree_law(rule: str, target: Chain, draft: Chain, shape: Shape, **options: Any) -> Blocks:
    """The exact joint law of the block that a rule emits over trees of a shape.

    Parameters
    ----------
    rule : str
        A key of `TREE_RULES`, which also says how siblings are drawn.
    target, draft : callable (prefix) -> law
    shape : nested tuples
        One a child, see `fork`.
    **options
        Those of the rule's transcription.

    Returns
    -------
    dict from tuples of tokens to Fraction
    """
    if rule not in TREE_RULES:
        raise ValueError(f"rule must be one of {', '.join(TREE_RULES)}, got {rule!r}")
    verify, siblings = TREE_RULES[rule]
    law: Blocks = {}
    for tree, weight in drawn_trees(draft, shape, siblings):
        for emitted, chance in verify(target, draft, tree, **options).items():
            if chance > 0:
                law[emitted] = law.get(emitted, Fraction(0)) + weight * chance
    return law


def node_law(rule: str, target: Chain, draft: Chain, shape: Shape, prefix: Path = ()) -> Blocks:
    """The exact joint law of the block that a rule of one position emits, going from node to node.

    What is below a node is drawn independently, so the candidates of a node that is come to are fresh; of
    siblings with the same token the one that the rule emits leads on.

    Parameters
    ----------
    rule : str
        A key of `MARGINALS`; candidates are drawn its own way.
    target, draft, shape
        As in `tree_law`.
    prefix : tuple of int
        The text before the root.
    """
    if rule not in MARGINALS:
        raise ValueError(f"rule must be one of {', '.join(MARGINALS)}, got {rule!r}")
    p, q = tuple(target(prefix)), tuple(draft(prefix))
    if not shape:
        return {(x,): mass for x, mass in enumerate(p) if mass}
    entry = MARGINALS[rule]
    made = entry.make(len(shape)) if entry.counted else entry.make()
    tails: dict[tuple[int, int | None], Blocks] = {}
    law: Blocks = {}
    for tokens, weight in PROPOSALS[entry.proposal](q, len(shape)).items():
        for token, place, chance in outcomes_of(made, p, q, tokens):
            if not chance:
                continue
            if (token, place) not in tails:
                tails[token, place] = (
                    {(): Fraction(1)}
                    if place is None
                    else node_law(rule, target, draft, shape[place], (*prefix, token))
                )
            for tail, share in tails[token, place].items():
                law[(token, *tail)] = law.get((token, *tail), Fraction(0)) + weight * chance * share
    return law
