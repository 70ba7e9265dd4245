"""Whole sequences: the joint law of what repeated steps over trees emit, on chains of a few tokens.

A target and a draft are Markov chains: the law of the next token given the last one. A step draws a tree of
candidates from the draft, walks it with the rule, and emits a block; the next step begins at the block's
last token. `emitted_law` lists every tree, every outcome on it, and every continuation. A rule is exact over
sequences when that is the target's own law, `chain_law`.

Randomness that is used again at every step leaves each step right on its own. `reused_coins` and
`reused_race` show it: their decoders draw fresh numbers once a sequence and use them for every token, and
are enumerated over the boxes of the unit cube on which the tokens are the same.

References
----------
Miao et al. (2023), SpecInfer: trees of candidates.
Leviathan et al. (2023): speculative sampling, one candidate.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from .engine import Outcomes, outcomes_of
from .laws import Law, as_law, normalise
from .paths import sequence_law
from .proposals import PROPOSALS
from .registry import MARGINALS

__all__ = ["chain_law", "emitted_law", "reused_coins", "reused_race", "step_law"]

Words = dict[tuple[int, ...], Fraction]


def chain_law(rows: Sequence[Sequence[Any]], last: int, length: int) -> Words:
    """The law of the next `length` tokens of a Markov chain after the token `last`.

    Parameters
    ----------
    rows : V sequences of V rationals
        Row x is the law of the token after x.
    """
    laws = [as_law(row) for row in rows]
    return sequence_law(lambda word: laws[word[-1] if word else last], length)


def step_law(
    rule: str,
    target: Sequence[Sequence[Any]],
    draft: Sequence[Sequence[Any]],
    parents: Sequence[int],
    last: int,
) -> Words:
    """The law of the block that one step emits after the token `last`.

    Parameters
    ----------
    rule : str
        A key of `MARGINALS`; candidates are drawn its own way.
    target, draft : V sequences of V rationals
        Markov chains.
    parents : sequence of int
        The tree of candidates: -1 for the root, and for each other node one before it. Children of a node
        are verified in order. Where the draft has fewer candidates than a node has children, the others and
        all below them are left out.
    last : int
        The token at the root.
    """
    entry = MARGINALS[rule]
    p, q = [as_law(row) for row in target], [as_law(row) for row in draft]
    children = [[i for i, parent in enumerate(parents) if parent == node] for node in range(len(parents))]

    @cache
    def outcomes(token: int, candidates: tuple[int, ...], planned: int) -> Outcomes:
        made = entry.make(planned) if entry.counted else entry.make()
        return [found for found in outcomes_of(made, p[token], q[token], candidates) if found[2] > 0]

    def walk(tree: dict[int, int], node: int) -> Words:
        here = [child for child in children[node] if child in tree]
        if not children[node]:
            return {(token,): mass for token, mass in enumerate(p[tree[node]]) if mass > 0}
        words: Words = {}
        for token, place, chance in outcomes(tree[node], tuple(tree[c] for c in here), len(children[node])):
            tails = {(): Fraction(1)} if place is None else walk(tree, here[place])
            for tail, weight in tails.items():
                word = (token, *tail)
                words[word] = words.get(word, Fraction(0)) + chance * weight
        return words

    law: Words = {}
    for tree, weight in _trees(PROPOSALS[entry.proposal], q, children, last):
        for word, chance in walk(tree, 0).items():
            law[word] = law.get(word, Fraction(0)) + weight * chance
    return law


def emitted_law(
    rule: str,
    target: Sequence[Sequence[Any]],
    draft: Sequence[Sequence[Any]],
    parents: Sequence[int],
    last: int,
    length: int,
) -> Words:
    """The law of the first `length` tokens that repeated steps emit; see `step_law`."""

    @cache
    def blocks(token: int) -> Words:
        return step_law(rule, target, draft, parents, token)

    @cache
    def after(token: int, count: int) -> Words:
        if count <= 0:
            return {(): Fraction(1)}
        law: Words = {}
        for block, weight in blocks(token).items():
            for tail, chance in after(block[-1], count - len(block)).items():
                word = (*block, *tail)[:count]
                law[word] = law.get(word, Fraction(0)) + weight * chance
        return law

    return after(last, length)


def _trees(
    proposal: Any, draft: Sequence[Law], children: Sequence[Sequence[int]], last: int
) -> Iterator[tuple[dict[int, int], Fraction]]:
    """Every tree of candidates, as the tokens of the nodes that it has, with its probability."""
    trees: list[tuple[dict[int, int], Fraction]] = [({0: last}, Fraction(1))]
    for node, below in enumerate(children):
        if not below:
            continue
        grown = []
        for tree, weight in trees:
            if node not in tree:
                grown.append((tree, weight))
                continue
            for drawn, chance in proposal(draft[tree[node]], len(below)).items():
                grown.append((tree | dict(zip(below, drawn, strict=False)), weight * chance))
        trees = grown
    return iter(trees)


def reused_coins(
    target: Sequence[Sequence[Any]], draft: Sequence[Sequence[Any]], last: int, length: int
) -> Words:
    """The law of `length` tokens of speculative sampling that uses the same three coins for every token.

    One candidate a token: ``x = F_q^{-1}(u_1)``, accepted iff ``u_2 q(x) < p(x)``, else the token is drawn
    from the residual with ``u_3``. With fresh coins for every token that is exact.
    """
    p, q = [as_law(row) for row in target], [as_law(row) for row in draft]
    rest = [_residual(a, b) for a, b in zip(p, q, strict=True)]

    def token(last: int, coins: Sequence[Fraction]) -> int:
        x = _inverse(q[last], coins[0])
        if coins[1] * q[last][x] < p[last][x]:
            return x
        return _inverse(rest[last], coins[2])

    ratios = [a / b for x, y in zip(p, q, strict=True) for a, b in zip(x, y, strict=True) if b > 0]
    return _reused(token, [_ends(q), {r for r in ratios if r < 1}, _ends(rest)], last, length)


def reused_race(target: Sequence[Sequence[Any]], last: int, length: int) -> Words:
    """The law of `length` tokens that are each the argmax of ``log p + g`` with the same Gumbel noise g.

    For two tokens: token 0 wins iff ``E_0 / p(0) < E_1 / p(1)`` with the exponentials ``E = exp(-g)``: iff
    ``u < p(0)`` with ``u = E_0 / (E_0 + E_1)``, which is uniform: one coin.
    """
    p = [as_law(row) for row in target]
    if len(p) != 2:
        raise ValueError(f"the noise is one coin for two tokens only, got {len(p)}")
    return _reused(lambda last, coins: _inverse(p[last], coins[0]), [_ends(p)], last, length)


def _reused(
    token: Callable[[int, Sequence[Fraction]], int], cuts: Sequence[set[Fraction]], last: int, length: int
) -> Words:
    """Tokens by the same coins: sum over the boxes between the cuts, each by its middle and its volume."""
    axes = [sorted({Fraction(0), *cut, Fraction(1)}) for cut in cuts]
    law: Words = {}
    for box in itertools.product(*(itertools.pairwise(axis) for axis in axes)):
        coins, volume, word = [(low + high) / 2 for low, high in box], Fraction(1), []
        for low, high in box:
            volume *= high - low
        for _ in range(length):
            word.append(token(word[-1] if word else last, coins))
        law[tuple(word)] = law.get(tuple(word), Fraction(0)) + volume
    return law


def _residual(target: Law, draft: Law) -> Law:
    return normalise([max(a - b, Fraction(0)) for a, b in zip(target, draft, strict=True)], fallback=target)


def _ends(laws: Sequence[Law]) -> set[Fraction]:
    """All cumulative probabilities."""
    return {end for law in laws for end in itertools.accumulate(law)}


def _inverse(law: Law, u: Fraction) -> int:
    """The first token whose cumulative probability exceeds u < 1."""
    return next(token for token, end in enumerate(itertools.accumulate(law)) if end > u)
