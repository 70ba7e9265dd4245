"""Rules over trees on random small chains: exact or not, and how many tokens are accepted, in fractions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import TREE_RULES, complete, fork, sequence_law, tree_law
from resispec_verify.rules.registry import SHIPPED
from resispec_verify.rules.tree_rule import TreeRule

__all__ = ["SHAPES", "Measured", "measure_trees", "random_chain", "random_pair"]

#: How deep, and nested as `oracle.trees` has them; the first three are paths that part at the root.
SHAPES: dict[str, tuple[int, Any]] = {
    "path of 3": (3, fork(1, 3)),
    "2 siblings": (1, fork(2, 1)),
    "2 paths of 2": (2, fork(2, 2)),
    "2 siblings with 2 children each": (2, (((), ()), ((), ()))),
    "2 siblings, 2 children and none": (2, (((), ()), ())),
    "2 siblings, none and 2 children": (2, ((), ((), ()))),
    "2 siblings after 1 token": (2, fork(2, 2, trunk=1)),
    "2 paths of 2 after 1 token": (3, fork(2, 3, trunk=1)),
}
PATHS = tuple(SHAPES)[:3]


@dataclass(frozen=True)
class Measured:
    """A rule on one pair of chains over one shape.

    Attributes
    ----------
    shape : str
        A key of `SHAPES`.
    vocab : int
    exact : bool
        Whether the emitted law of sequences is the target's, in fractions.
    accepted : Fraction
        Expected number of accepted tokens, without the corrected one.
    """

    shape: str
    vocab: int
    exact: bool
    accepted: Fraction


def random_chain(rng: random.Random, vocab: int, most: int = 4) -> Any:
    """A chain with a law of its own after every prefix: weights of 0 to ``most``, so ties and zeros occur."""
    laws: dict[Any, Any] = {}

    def law(prefix: Any) -> Any:
        if prefix not in laws:
            weights = [rng.randint(0, most) for _ in range(vocab)]
            while not any(weights):
                weights = [rng.randint(0, most) for _ in range(vocab)]
            laws[prefix] = tuple(Fraction(weight, sum(weights)) for weight in weights)
        return laws[prefix]

    return law


def random_pair(rng: random.Random, vocab: int, depth: int) -> tuple[Any, Any]:
    """A target and a draft for trees of a depth, with every law drawn here, also where a chain never comes.

    A chain of `random_chain` draws a law when it is asked for it, so that the order of asking would matter.
    """
    target, draft = random_chain(rng, vocab), random_chain(rng, vocab)
    sequence_law(target, depth + 1)
    sequence_law(draft, depth)
    for size in range(depth + 1):
        for prefix in itertools.product(range(vocab), repeat=size):
            target(prefix)
            draft(prefix)
    return target, draft


def measure_trees(name: str, count: int, seed: int = 0, **options: Any) -> Iterator[Measured]:
    """A rule on ``count`` pairs of random chains over 2 to 4 tokens, on each shape that it is for.

    Parameters
    ----------
    name : str
        A key of `oracle.TREE_RULES`.
    count : int
    seed : int
        The same chains for every rule.
    **options
        Those of the rule's transcription.
    """
    assert name in TREE_RULES, name
    rules = {rule.name: rule for rule in SHIPPED if issubclass(rule, TreeRule)}
    for shape in PATHS if rules[name].paths_only else SHAPES:
        depth, nested = SHAPES[shape]
        for i in range(count):
            rng = random.Random(f"{seed} {shape} {i}")
            vocab = 2 + i % 3
            target, draft = random_pair(rng, vocab, depth)
            wanted = sequence_law(target, depth + 1)
            blocks = tree_law(name, target, draft, nested, **options)
            emitted = complete(blocks, target, depth + 1)
            exact = {tokens: mass for tokens, mass in emitted.items() if mass} == wanted
            accepted = sum((mass * (len(block) - 1) for block, mass in blocks.items()), Fraction(0))
            yield Measured(shape, vocab, exact, accepted)
