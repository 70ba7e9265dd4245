"""Inequalities between symbols: every symbol is a number >= 0, every pattern of signs is tried.

A polynomial in numbers >= 0 is >= 0 if all its coefficients are; so is a quotient of two such polynomials.
That is the only certificate used here. Minima and positive parts are resolved by it, within one *order*:
numbers sorted from small to large are partial sums of gaps >= 0. Every list of numbers >= 0 has an order, so
the orders are exhaustive; equal numbers belong to two of them, with a gap of 0. Fractions will do too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from resispec_verify.errors import InputError

__all__ = [
    "absolute",
    "greatest",
    "import_sympy",
    "is_nonnegative",
    "is_positive",
    "is_zero",
    "least",
    "orders",
    "positive_part",
    "symbols",
]


def import_sympy() -> Any:
    """SymPy, or `InputError` with the command that installs it."""
    try:
        import sympy
    except ImportError:
        raise InputError(
            "prove: this statement needs SymPy, which is not installed; pip install 'resispec-verify[proofs]'"
        ) from None
    return sympy


def symbols(names: str) -> Any:
    """Symbols for numbers >= 0."""
    return import_sympy().symbols(names, nonnegative=True)


def orders(count: int, *, prefix: str = "gap") -> Iterator[tuple[Any, ...]]:
    """`count` numbers >= 0 in each of their orders, as partial sums of gaps."""
    gaps = symbols(f"{prefix}:{count}")
    steps = tuple(itertools.accumulate(gaps))
    for ranks in itertools.permutations(range(count)):
        yield tuple(steps[rank] for rank in ranks)


def _coefficients(expression: Any) -> list[Any]:
    sympy = import_sympy()
    expanded = sympy.expand(expression)
    names = sorted(expanded.free_symbols, key=str)
    return sympy.Poly(expanded, *names).coeffs() if names else [expanded]


def _fraction(expression: Any) -> tuple[Any, Any]:
    """Numerator and denominator in lowest terms."""
    sympy = import_sympy()
    return sympy.fraction(sympy.cancel(sympy.together(expression)))


def is_zero(expression: Any) -> bool:
    """Whether an expression is identically zero."""
    sympy = import_sympy()
    return sympy.expand(sympy.fraction(sympy.together(expression))[0]) == 0


def is_nonnegative(expression: Any) -> bool:
    """Whether numerator and denominator have no negative coefficient (or, both, no positive one)."""
    above, below = map(_coefficients, _fraction(expression))
    return any(all(sign * c >= 0 for c in above + below) for sign in (1, -1))


def is_positive(expression: Any, where: Any) -> bool:
    """Whether it is >= 0, and > 0 where all factors of the monomial `where` are: it holds such a term."""
    if not is_nonnegative(expression):
        return False
    sympy = import_sympy()
    numerator = sympy.expand(_fraction(expression)[0])
    allowed = sympy.sympify(where).free_symbols
    return any(term.free_symbols <= allowed for term in sympy.Add.make_args(numerator) if term != 0)


def _is_number(*values: Any) -> bool:
    return all(isinstance(value, (int, Fraction)) for value in values)


def least(first: Any, second: Any) -> Any:
    """The smaller of two expressions; ValueError where the order does not decide."""
    if _is_number(first, second):
        return min(first, second)
    if is_nonnegative(second - first):
        return first
    if is_nonnegative(first - second):
        return second
    raise ValueError(f"the order does not decide between {first} and {second}")


def greatest(first: Any, second: Any) -> Any:
    """The larger of two expressions."""
    return -least(-first, -second)


def positive_part(value: Any) -> Any:
    """``(a)_+``."""
    return value - least(value, 0 * value)


def absolute(value: Any) -> Any:
    """``|a| = a + 2 (-a)_+``."""
    return value + 2 * positive_part(-value)
