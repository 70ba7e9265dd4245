"""Pairs of laws whose entries are exact in float64, so that the rational oracle sees the very same input.

All probabilities are multiples of ``2**-53`` or more: they and their sums are exact.
"""

from __future__ import annotations

import math
from fractions import Fraction as F

import numpy as np
from hypothesis import strategies as st

from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.evidence.marginal import Marginals
from resispec_verify.rules import ResiSpec

EPS = float(np.finfo(np.float64).eps)
EVERYTHING = Budget(gap=0.0, most_paths=math.inf, most_states=math.inf, until_decided=False)
Law = tuple[F, ...]


class General(ResiSpec):
    """ResiSpec without its sums over paths, which only the rule itself has."""


class Enumerated(ResiSpec):
    """ResiSpec without its scalar recursion and without its closed last round: plain enumeration."""

    def last_round(self, state):
        return None


OPTIONS = [
    (redistribution, budget, hole)
    for redistribution in ("proportional", "water-filling")
    for budget in ("local", "floor")
    for hole in ("excluded", "literal")
]
NAMES = ("redistribution", "budget", "hole")


@st.composite
def laws(draw, size: int) -> Law:
    """A law over ``size`` tokens; a coarse grid makes zeros and ties likely, a fine one tiny entries."""
    total = 1 << draw(st.sampled_from([2, 3, 4, 6, 10, 24, 50]))
    cuts = sorted(draw(st.lists(st.integers(0, total), min_size=size - 1, max_size=size - 1)))
    return tuple(F(b - a, total) for a, b in zip([0, *cuts], [*cuts, total], strict=True))


KINDS = ("unrelated", "unrelated", "equal", "moved", "permuted", "peaked", "disjoint", "outside")


@st.composite
def pairs(draw, max_size: int = 6) -> tuple[Law, Law]:
    """A target and a draft in one of these relations; "moved" is equal but for a little."""
    size = draw(st.integers(1, max_size))
    target = draw(laws(size))
    kind = draw(st.sampled_from(KINDS))
    if kind == "equal":
        return target, target
    if kind == "moved":
        return target, moved(draw, target)
    if kind == "permuted":
        return target, tuple(draw(st.permutations(target)))
    if kind == "peaked":
        where = draw(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)))
        target, draft = (tuple(F(int(x == best)) for x in range(size)) for best in where)
        return moved(draw, target), moved(draw, draft)
    if kind == "disjoint" and size > 1:
        cut = draw(st.integers(1, size - 1))
        left, right = draw(laws(cut)), draw(laws(size - cut))
        return (*left, *(F(0),) * (size - cut)), (*(F(0),) * cut, *right)
    if kind == "outside" and size > 1:
        # Most of the target is not drafted: what is drafted cannot hold the budget, and the rest has to.
        cut = draw(st.integers(1, size - 1))
        inside, outside, draft = draw(laws(cut)), draw(laws(size - cut)), draw(laws(cut))
        target = (*(mass / 8 for mass in inside), *(7 * mass / 8 for mass in outside))
        return target, (*draft, *(F(0),) * (size - cut))
    return target, draw(laws(size))


def moved(draw, law: Law) -> Law:
    """The law with a little, ``2**-8`` to ``2**-50``, moved from its largest entry to another one."""
    a = max(range(len(law)), key=lambda x: law[x])
    b = draw(st.integers(0, len(law) - 1))
    amount = F(1, 1 << draw(st.integers(8, 50)))
    # Entries below 2**-50 of a law with a large one would need more than 53 bits: leave such laws alone.
    values = [mass - amount * (x == a) + amount * (x == b) for x, mass in enumerate(law)]
    return tuple(values) if all(F(float(value)) == value >= 0 for value in values) else law


def row(law: Law) -> np.ndarray:
    """A law as one position ``(1, V)``, exactly."""
    values = np.array([[float(mass) for mass in law]])
    assert all(F(float(value)) == mass for value, mass in zip(values[0], law, strict=True))
    return values


def everything(rule, target: Law, draft: Law, n: int, **options) -> Marginals:
    return operational_marginals(rule, row(target), row(draft), n, budget=EVERYTHING, **options)


def distance(placed: np.ndarray, law: Law) -> float:
    """Total variation between a computed row and a rational law, itself without rounding."""
    return float(sum(abs(F(float(a)) - b) for a, b in zip(placed, law, strict=True)) / 2)


def divergence(law: Law, target: Law) -> float:
    """``KL(law || target)`` of rational laws, in float64 from the exact ratios."""
    total = 0.0
    for mass, goal in zip(law, target, strict=True):
        if mass > 0 and goal == 0:
            return math.inf
        if mass > 0:
            ratio = mass / goal
            # log of a ratio near 1 by log1p of the exact difference, so that no digits are lost
            log = math.log1p(float(ratio - 1)) if abs(ratio - 1) < F(1, 2) else math.log(ratio)
            total += float(mass) * log
    return total


def divergence_slack(target: Law, rounding: float) -> float:
    """What a total variation of ``rounding`` can do to a KL divergence from ``target``.

    ``|a log a - b log b| <= |a - b| (1 + log(1/|a - b|))`` on [0, 1]; summed over V tokens with total
    difference ``2 rounding`` at most ``2 rounding (1 + log(V / (2 rounding)))``, and each unit of mass weighs
    at most ``log(1 / min p)`` against the target. Twice, for the evaluation of the logarithms themselves.
    """
    least = min(mass for mass in target if mass > 0)
    return 4 * rounding * (1 + math.log(len(target) / (2 * rounding)) - math.log(least))
