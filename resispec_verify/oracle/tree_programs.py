"""The longest step of any lossless rule over a drawn tree, as a linear program with an exact optimum.

A rule leaves the tree at one of its paths s and emits a correction. With A(s) the probability that what it
accepts begins with s, it is lossless for the target's chain P iff ``A(sx) <= P(x | s) A(s)`` for all s and x
(the rest is the mass of the correction), and the A that rules have are those of plans that leave each tree
on paths of it. A rule with lookahead l decides for good that it accepts s when it has seen the levels up to
``|s| + l``; with ``l >= depth - 1`` it sees the whole tree. All laws are known to it, also off the tree. The
proofs are in docs/explanation/trees.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .exact_programs import Program, optimum
from .laws import Law, as_law
from .proposals import fixed
from .registry import Chain, Path, Shape
from .trees import DRAWN, without

__all__ = [
    "TreeOptimum",
    "inclusions",
    "longest_by_node",
    "longest_step",
    "path_sets",
    "read_chains",
    "sum_bound",
]

SIBLINGS = (*DRAWN, "fixed")
#: A drawn tree as its paths, each with the shape of what is to be drawn below it; equal siblings are one.
Drawn = frozenset[tuple[Path, Shape]]


@dataclass(frozen=True)
class TreeOptimum:
    """The longest step.

    Attributes
    ----------
    value : Fraction
        Expected number of accepted tokens, without the corrected one.
    accepted : dict from texts to Fraction
        A(s), where it is not 0.
    prices : dict from texts to Fraction
        What a unit of ``A(sx) <= P(x | s) A(s)`` is worth, by sx: the certificate from above.
    """

    value: Fraction
    accepted: dict[Path, Fraction]
    prices: dict[Path, Fraction]


def _read(chain: Chain, name: str, vocab: int) -> Chain:
    """A chain whose laws are fractions that sum to one, over so many tokens; a float is its binary value."""
    known: dict[Path, Law] = {}

    def law(prefix: Path) -> Law:
        if prefix not in known:
            known[prefix] = as_law(chain(prefix), name=f"{name} after {prefix}")
            if len(known[prefix]) != vocab:
                raise ValueError(
                    f"{name} after {prefix} must have the {vocab} tokens of the draft's first law, "
                    f"got {len(known[prefix])}"
                )
        return known[prefix]

    return law


def read_chains(target: Chain, draft: Chain, shape: Any, siblings: str) -> tuple[Chain, Chain]:
    """Both chains as `_read` has them; the shape and how siblings are drawn are checked."""
    if siblings not in SIBLINGS:
        raise ValueError(f"siblings must be one of {', '.join(SIBLINGS)}, got {siblings!r}")
    _check_shape(shape)
    vocab = len(as_law(draft(()), name="draft after ()"))
    return _read(target, "target", vocab), _read(draft, "draft", vocab)


def _check_shape(shape: Any) -> None:
    if not isinstance(shape, tuple):
        raise ValueError(f"a shape must be nested tuples, one a child, as trees.fork makes; got {shape!r}")
    for below in shape:
        _check_shape(below)


def depth(shape: Shape) -> int:
    """Levels of a shape, without the root."""
    return 1 + max(map(depth, shape)) if shape else 0


def children(law: Law, shape: Shape, siblings: str) -> dict[frozenset[tuple[int, Shape]], Fraction]:
    """What is drawn below a node: tokens with the shapes below them; twins share what is below both."""
    if siblings == "fixed":
        ((best, chance),) = fixed(law, len(shape)).items()
        return {frozenset(zip(best, shape, strict=False)): chance}
    drawn: list[tuple[dict[int, Shape], Law, Fraction]] = [({}, law, Fraction(1))]
    for i, below in enumerate(shape):
        more = []
        for found, rest, chance in drawn:
            if not any(rest):
                more.append((found, rest, chance))
            sure = siblings == "best-and-one" and i < len(shape) - 1
            for token, mass in enumerate(rest):
                share = Fraction(rest.index(max(rest)) == token and mass > 0) if sure else mass
                if share:
                    joined = tuple(sorted((*found.get(token, ()), *below))) if siblings == "iid" else below
                    after = rest if siblings == "iid" else without(rest, token)
                    more.append((found | {token: joined}, after, chance * share))
        drawn = more
    law_of: dict[frozenset[tuple[int, Shape]], Fraction] = {}
    for found, _, chance in drawn:
        key = frozenset(found.items())
        law_of[key] = law_of.get(key, Fraction(0)) + chance
    return law_of


def growing(draft: Chain, shape: Shape, siblings: str) -> list[dict[Drawn, Fraction]]:
    """The law of what was drawn up to each level, from the root, which is level 0, to the whole tree."""
    levels: list[dict[Drawn, Fraction]] = [{frozenset([((), shape)]): Fraction(1)}]
    for level in range(depth(shape)):
        grown: dict[Drawn, Fraction] = {}
        for tree, chance in levels[-1].items():
            ends = [(s, below) for s, below in tree if len(s) == level and below]
            options = [children(tuple(draft(s)), below, siblings).items() for s, below in ends]
            for chosen in itertools.product(*options):
                mass, more = chance, []
                for (s, _), (tokens, share) in zip(ends, chosen, strict=True):
                    mass *= share
                    more += [((*s, x), below) for x, below in tokens]
                key = tree.union(more)
                grown[key] = grown.get(key, Fraction(0)) + mass
        levels.append(grown)
    return levels


def path_sets(draft: Chain, shape: Shape, siblings: str) -> dict[frozenset[Path], Fraction]:
    """The law of the set of paths of the whole tree, the empty one left out."""
    _, draft = read_chains(draft, draft, shape, siblings)
    law: dict[frozenset[Path], Fraction] = {}
    for tree, chance in growing(draft, shape, siblings)[-1].items():
        key = frozenset(s for s, _ in tree if s)
        law[key] = law.get(key, Fraction(0)) + chance
    return law


def longest_step(
    target: Chain, draft: Chain, shape: Shape, siblings: str, *, lookahead: int | None = None
) -> TreeOptimum:
    """The greatest expected number of accepted tokens of a lossless rule.

    Parameters
    ----------
    target, draft : callable (prefix) -> law
    shape : nested tuples
        One a child, see `trees.fork`.
    siblings : {"iid", "without-replacement", "best-and-one", "fixed"}
        How children are drawn, see `trees.drawn_trees`; "fixed" are the draft's best tokens.
    lookahead : int, optional
        Levels below s that have been seen when s is accepted for good; None sees the whole tree.

    Raises
    ------
    exact_programs.Uncertified
        Where no certificate of the optimum was found.
    ValueError
        If a law does not sum to exactly one, the chains differ in their tokens, or an argument is unknown.
    """
    target, draft = read_chains(target, draft, shape, siblings)
    if lookahead is not None and lookahead < 0:
        raise ValueError(f"lookahead must be at least 0, or None for the whole tree; got {lookahead}")
    levels = growing(draft, shape, siblings)
    last = len(levels) - 1
    ahead = last if lookahead is None else lookahead
    if ahead >= last - 1:  # every decision sees all: what was to be drawn below a node does not matter
        merged: dict[Drawn, Fraction] = {}
        for tree, chance in levels[-1].items():
            key = frozenset((s, ()) for s, _ in tree)
            merged[key] = merged.get(key, Fraction(0)) + chance
        levels[-1] = merged
    column: dict[tuple[Drawn, Path], int] = {}
    rows: list[dict[int, Fraction]] = []
    bounds: list[Fraction] = []
    for level in range(last):
        now, then = min(level + ahead, last), min(level + 1 + ahead, last)
        for tree, chance in levels[then].items():
            before = tree if now == then else frozenset(node for node in tree if len(node[0]) <= now)
            for s, ends in _branches(tree, level):
                row = {column.setdefault((tree, sx), len(column)): Fraction(1) for sx in ends}
                if s:
                    row[column[before, s]] = -chance / levels[now][before]
                rows.append(row)
                bounds.append(Fraction(0) if s else chance)
    texts = _lossless(target, column, rows, bounds)
    found = optimum(Program([Fraction(1)] * len(column), rows, bounds))
    accepted: dict[Path, Fraction] = {}
    for (_, s), j in column.items():
        accepted[s] = accepted.get(s, Fraction(0)) + found.point[j]
    priced = dict(zip(texts, found.prices[len(rows) - len(texts) :], strict=True))
    return TreeOptimum(
        found.value,
        {s: mass for s, mass in sorted(accepted.items()) if mass},
        {s: price for s, price in priced.items() if price},
    )


def _branches(tree: Drawn, level: int) -> Iterator[tuple[Path, list[Path]]]:
    """The nodes of a level that have children, with these."""
    below: dict[Path, list[Path]] = {}
    for s, _ in tree:
        if len(s) == level + 1:
            below.setdefault(s[:-1], []).append(s)
    return iter(below.items())


def _lossless(
    target: Chain,
    column: dict[tuple[Drawn, Path], int],
    rows: list[dict[int, Fraction]],
    bounds: list[Fraction],
) -> list[Path]:
    """Append ``A(sx) <= P(x | s) A(s)`` for every text sx of a tree; return these texts."""
    holds: dict[Path, list[int]] = {}
    for (_, s), j in column.items():
        holds.setdefault(s, []).append(j)
    texts = sorted(holds)
    for s in texts:
        p = target(s[:-1])[s[-1]]
        row = {j: Fraction(1) for j in holds[s]}
        if len(s) > 1 and p:
            row |= dict.fromkeys(holds[s[:-1]], -p)
        rows.append(row)
        bounds.append(Fraction(0) if len(s) > 1 else p)
    return texts


def inclusions(
    target: Chain, trees: dict[frozenset[Path], Fraction]
) -> tuple[dict[Path, Fraction], dict[Path, Fraction]]:
    """P(s), and pi(s), the probability that s is a path of the tree, by text s."""
    known: dict[Path, Fraction] = {(): Fraction(1)}
    drawn: dict[Path, Fraction] = {(): Fraction(1)}
    for tree, mass in trees.items():
        for s in tree:
            drawn[s] = drawn.get(s, Fraction(0)) + mass
    for s in sorted(drawn, key=len):
        if s:
            known[s] = known[s[:-1]] * target(s[:-1])[s[-1]]
    return known, drawn


def sum_bound(target: Chain, draft: Chain, shape: Shape, siblings: str) -> Fraction:
    """``sum of min(P(s), pi(s))`` over texts s: no lossless rule accepts more, and few trees allow it."""
    target, draft = read_chains(target, draft, shape, siblings)
    known, drawn = inclusions(target, path_sets(draft, shape, siblings))
    return sum((min(known[s], mass) for s, mass in drawn.items() if s), Fraction(0))


def longest_by_node(target: Chain, draft: Chain, shape: Shape, siblings: str, prefix: Path = ()) -> Fraction:
    """The greatest expected number of accepted tokens of a rule that decides node by node, twins merged.

    From the leaves up: at a node the masses of the transport from its children to the next token, a child
    being worth 1 and what is accepted below it.
    """
    return _by_node(*read_chains(target, draft, shape, siblings), shape, siblings, prefix)


def _by_node(target: Chain, draft: Chain, shape: Shape, siblings: str, prefix: Path) -> Fraction:
    if not shape:
        return Fraction(0)
    drawn = children(tuple(draft(prefix)), shape, siblings)
    p = target(prefix)
    gain: list[Fraction] = []
    rows: list[dict[int, Fraction]] = []
    tokens: dict[int, dict[int, Fraction]] = {}
    values: dict[tuple[int, Shape], Fraction] = {}
    for found in drawn:
        row = {}
        for x, below in found:
            if (x, below) not in values:
                values[x, below] = 1 + _by_node(target, draft, below, siblings, (*prefix, x))
            row[len(gain)] = Fraction(1)
            tokens.setdefault(x, {})[len(gain)] = Fraction(1)
            gain.append(values[x, below])
        rows.append(row)
    bounds = [*drawn.values(), *(p[x] for x in tokens)]
    return optimum(Program(gain, [*rows, *tokens.values()], bounds)).value
