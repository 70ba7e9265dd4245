"""Exact probability laws: tuples of ``fractions.Fraction`` that are non-negative and sum to one."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

__all__ = ["Law", "as_law", "normalise", "read_pair", "total_variation"]

Law = tuple[Fraction, ...]


def as_law(values: Iterable[numbers.Rational | float | str], *, name: str = "law") -> Law:
    """Read a probability law exactly.

    Parameters
    ----------
    values : iterable of Fraction, int, str or float, length V
        The probabilities. A float is taken at its exact binary value.
    name : str
        What to call the law in an error message.

    Returns
    -------
    tuple of Fraction
        The same numbers, checked. Nothing is normalised silently.

    Raises
    ------
    ValueError
        If the law is empty, has a negative entry, or does not sum to exactly one.
    """
    law = tuple(Fraction(value) for value in values)
    if not law:
        raise ValueError(f"{name} must have at least one token, got an empty sequence")
    for token, mass in enumerate(law):
        if mass < 0:
            raise ValueError(f"{name} must be non-negative, got {mass} at token {token}")
    if sum(law) != 1:
        raise ValueError(
            f"{name} must sum to exactly 1, got {sum(law)}; pass Fractions, or call normalise() first"
        )
    return law


def read_pair(target: Iterable[Any], draft: Iterable[Any], candidates: int) -> tuple[Law, Law]:
    """Read a target and a draft over the same tokens, and check the number of candidates."""
    p, q = as_law(target, name="target"), as_law(draft, name="draft")
    if len(p) != len(q):
        raise ValueError(f"target and draft must have the same length, got {len(p)} and {len(q)}")
    if candidates < 0:
        raise ValueError(f"the number of candidates must be at least 0, got {candidates}")
    return p, q


def normalise(weights: Sequence[Fraction], fallback: Law | None = None) -> Law:
    """Divide non-negative weights by their sum.

    Parameters
    ----------
    weights : sequence of Fraction, length V
        Non-negative weights.
    fallback : tuple of Fraction, optional
        The law to return when the weights carry no mass.

    Returns
    -------
    tuple of Fraction
        The normalised law, or `fallback`.

    Raises
    ------
    ValueError
        If the weights carry no mass and there is no fallback.
    """
    exact = [Fraction(weight) for weight in weights]
    mass = sum(exact, Fraction(0))
    if mass == 0:
        if fallback is None:
            raise ValueError("weights must carry some mass to be normalised; all of them are 0")
        return fallback
    return tuple(weight / mass for weight in exact)


def total_variation(first: Sequence[Fraction], second: Sequence[Fraction]) -> Fraction:
    """Half the L1 distance between two laws over the same V tokens."""
    return sum((abs(a - b) for a, b in zip(first, second, strict=True)), Fraction(0)) / 2
