"""Look for worlds that a rule with the laws at its tree's nodes cannot tell apart, and loses by it.

    python experiments/trees/worlds.py [--families N]

A family is four worlds over two or three tokens: their laws agree at the root, and below each first token
they are redrawn with probability 1/2. Printed: on how many families a rule that knows the laws at the nodes
of its tree accepts less in all worlds together than rules that know the world. Trees are two tokens deep.
"""

from __future__ import annotations

import argparse
import itertools
import random
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import fork, longest_step
from resispec_verify.oracle.tree_worlds import longest_in_worlds

CASES: dict[str, tuple[Any, int]] = {
    "2 paths of 2, 2 tokens": (fork(2, 2), 2),
    "2 paths of 2, 3 tokens": (fork(2, 2), 3),
    "3 paths of 2, 2 tokens": (fork(3, 2), 2),
    "2 siblings with 2 children each, 2 tokens": ((((), ()), ((), ())), 2),
}
WORLDS, MOST = 4, 5


def law(rng: random.Random, vocab: int) -> tuple[Fraction, ...]:
    """Weights of 0 to `MOST`."""
    weights = [0] * vocab
    while not any(weights):
        weights = [rng.randint(0, MOST) for _ in range(vocab)]
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


def family(rng: random.Random, vocab: int) -> list[tuple[Any, Any]]:
    """Worlds, each a target and a draft."""
    texts = [s for size in range(3) for s in itertools.product(range(vocab), repeat=size)]
    base = [{s: law(rng, vocab) for s in texts} for _ in range(2)]
    worlds = []
    for _ in range(WORLDS):
        chains = [dict(laws) for laws in base]
        for laws, first in itertools.product(chains, range(vocab)):
            if rng.random() < 0.5:
                laws.update({s: law(rng, vocab) for s in texts if s[:1] == (first,)})
        worlds.append((chains[0].__getitem__, chains[1].__getitem__))
    return worlds


def main() -> None:
    """Search, and print."""
    parser = argparse.ArgumentParser(description="Worlds in which laws off the tree would help.")
    parser.add_argument("--families", type=int, default=100, help="for each shape and kind of siblings")
    asked = parser.parse_args()
    for called, (shape, vocab) in CASES.items():
        for siblings in ("iid", "without-replacement"):
            lost = 0
            for seed in range(asked.families):
                worlds = family(random.Random(f"{called} {seed}"), vocab)
                told = sum(longest_step(*world, shape, siblings).value for world in worlds)
                lost += longest_in_worlds(worlds, shape, siblings) < told
            print(f"{called}, {siblings}: {lost} of {asked.families}", flush=True)


if __name__ == "__main__":
    main()
