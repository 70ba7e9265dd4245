"""How candidates are drawn, as exact laws over tuples: the rules' own proposals.

References
----------
Li et al. (2024), EAGLE-2: the draft's best tokens as siblings.
Sun et al. (2024), SpecHub: pairs of the draft's best token, the hub, and another token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import permutations
from math import factorial

from .engine import independent, without_replacement

__all__ = ["PROPOSALS", "fixed", "hub", "hub_pairs", "shuffled"]

Tuples = dict[tuple[int, ...], Fraction]


def fixed(draft: Sequence[Fraction], candidates: int) -> Tuples:
    """The draft's best tokens in turn, with certainty; ties go to the lowest index.

    Tokens of draft probability 0 come last and are candidates too; there are never more than V.
    """
    order = sorted(range(len(draft)), key=lambda x: (-draft[x], x))
    return {tuple(order[:candidates]): Fraction(1)}


def hub(draft: Sequence[Fraction]) -> int:
    """SpecHub's hub a: the draft's best token, ties to the lowest index."""
    return max(range(len(draft)), key=lambda x: (draft[x], -x))


def hub_pairs(draft: Sequence[Fraction], candidates: int = 2) -> Tuples:
    """SpecHub's pairs: ``Q(i, a) = q(i)`` and ``Q(a, i) = q(a) q(i) / (1 - q(a))`` for i other than a.

    Where ``q(a) = 1`` there is no other token to draw, and a is the only candidate.
    """
    if candidates != 2:
        raise ValueError(f"pairs have 2 candidates, got candidates = {candidates}")
    a = hub(draft)
    if draft[a] == 1:
        return {(a,): Fraction(1)}
    law: Tuples = {}
    for i, mass in enumerate(draft):
        if i != a and mass > 0:
            law[i, a] = Fraction(mass)
            law[a, i] = draft[a] * mass / (1 - draft[a])
    return law


def shuffled(tuples: Tuples) -> Tuples:
    """The same candidates, looked at in an order drawn uniformly (llama.cpp's example does so)."""
    law: Tuples = {}
    for tokens, weight in tuples.items():
        for order in permutations(tokens):
            law[order] = law.get(order, Fraction(0)) + weight / factorial(len(tokens))
    return law


PROPOSALS: dict[str, Callable[[Sequence[Fraction], int], Tuples]] = {
    "iid": independent,
    "without-replacement": without_replacement,
    "fixed": fixed,
    "pairs": hub_pairs,
}
