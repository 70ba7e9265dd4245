"""Rules over paths and trees against the longest lossless step, on random small chains, in fractions."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from resispec_verify.catalogue.random_trees import PATHS, SHAPES, random_pair
from resispec_verify.oracle import (
    block_law,
    complete,
    longest_by_node,
    longest_step,
    node_law,
    sequence_law,
    sum_bound,
    tree_law,
)

#: Target, draft, depth, shape -> the law of the block that a rule emits.
Emitted = Callable[[Any, Any, int, Any], Any]
ONE_PATH = PATHS[:1]
EVERYWHERE = tuple(SHAPES)
SIBLINGS = ("iid", "without-replacement", "best-and-one", "fixed")


@dataclass(frozen=True)
class Row:
    """A rule, how siblings are drawn for it, the shapes that it is for, and how its blocks are had."""

    name: str
    siblings: str
    shapes: tuple[str, ...]
    emitted: Emitted


def _tree(name: str, siblings: str, shapes: tuple[str, ...], label: str = "", **options: Any) -> Row:
    return Row(label or name, siblings, shapes, lambda p, q, _, shape: tree_law(name, p, q, shape, **options))


def _path(name: str, label: str = "", **options: Any) -> Row:
    return Row(label or name, "iid", ONE_PATH, lambda p, q, depth, _: block_law(name, p, q, depth, **options))


def _node(name: str, siblings: str) -> Row:
    return Row(name, siblings, EVERYWHERE, lambda p, q, _, shape: node_law(name, p, q, shape))


ROWS = (
    _path("block"),
    _path("hsd"),
    _path("hsd", "hsd, cap = last", cap="last"),
    _path("speculative"),
    _tree("gbv", "iid", PATHS),
    _tree("gbv", "iid", PATHS, "gbv, ties = drawn", ties="drawn"),
    _tree("gls", "iid", PATHS),
    _node("specinfer", "iid"),
    _node("optimal-sequential", "iid"),
    _node("optimal-joint", "iid"),
    _tree("traversal", "without-replacement", EVERYWHERE),
    _node("sequoia", "without-replacement"),
    _node("optimal-without-replacement", "without-replacement"),
    _tree("univer", "best-and-one", EVERYWHERE),
    _node("eagle", "fixed"),
)


def chains(shape: str, number: int, seed: int = 0) -> tuple[int, Any, Any]:
    """A number of tokens, and two random chains whose laws do not depend on who asks for them first."""
    rng = random.Random(f"{seed} {shape} {number}")
    vocab = 2 + number % 3
    return vocab, *random_pair(rng, vocab, SHAPES[shape][0])


def measure(shape: str, number: int, seed: int = 0) -> dict[str, Any]:
    """One pair of chains over one shape: the optima for each kind of siblings, and every rule.

    Lengths are accepted tokens without the corrected one. Optima are written as fractions; those of rules are
    computed in fractions too, and kept as floats, since some have denominators of hundreds of digits.
    """
    depth, nested = SHAPES[shape]
    vocab, target, draft = chains(shape, number, seed)
    wanted = sequence_law(target, depth + 1)
    line: dict[str, Any] = {"shape": shape, "number": number, "vocab": vocab, "optima": {}, "rules": {}}
    for siblings in SIBLINGS:
        line["optima"][siblings] = {
            "whole tree": str(longest_step(target, draft, nested, siblings).value),
            "no lookahead": str(longest_step(target, draft, nested, siblings, lookahead=0).value),
            "sum of min(P, pi)": str(sum_bound(target, draft, nested, siblings)),
            "by node": str(longest_by_node(target, draft, nested, siblings)),
        }
    for row in ROWS:
        if shape not in row.shapes:
            continue
        blocks = row.emitted(target, draft, depth, nested)
        law = {tokens: mass for tokens, mass in complete(blocks, target, depth + 1).items() if mass}
        accepted = sum((mass * (len(block) - 1) for block, mass in blocks.items()), Fraction(0))
        line["rules"][row.name] = {"exact": law == wanted, "accepted": float(accepted)}
    return line
