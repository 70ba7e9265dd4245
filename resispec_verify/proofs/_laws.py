"""All laws with small denominators: what is exhausted, and where counterexamples are looked for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

from resispec_verify.oracle import Law

__all__ = ["laws", "least_ratio", "overfull", "pairs", "show"]


def laws(size: int, denominator: int, smallest: int = 0) -> Iterator[Law]:
    """All laws over `size` tokens that are multiples of 1/denominator, entries at least `smallest` units."""
    for counts in itertools.product(range(smallest, denominator + 1), repeat=size):
        if sum(counts) == denominator:
            yield tuple(Fraction(count, denominator) for count in counts)


def pairs(sizes: range, denominators: range, smallest: int = 0) -> Iterator[tuple[Law, Law]]:
    """All pairs (target, draft): by size, then by denominator, then in lexicographic order."""
    for size, denominator in itertools.product(sizes, denominators):
        family = list(laws(size, denominator, smallest))
        yield from itertools.product(family, family)


def overfull(target: Law, draft: Law) -> list[int]:
    """The tokens x with q(x) > p(x): those that can be rejected."""
    return [x for x in range(len(target)) if draft[x] > target[x]]


def least_ratio(target: Law, draft: Law) -> Fraction:
    """``Z* = min_{q>0} p/q``."""
    return min(p / q for p, q in zip(target, draft, strict=True) if q > 0)


def show(*values: Law) -> list[str]:
    """Laws as text, ``(1/2, 1/2)``."""
    return ["(" + ", ".join(map(str, law)) + ")" for law in values]
