"""Linear programs solved exactly: HiGHS finds a vertex in floats, and fractions prove that it is the optimum.

A program is ``max gain x`` under ``rows x <= bounds`` and ``x >= 0``. From the solution of HiGHS only this
is taken: which variables and prices are not 0, and which rows and columns are tight. The equations that they
make are solved in fractions; a feasible point and feasible prices of the same value are a proof, and are
checked as such against the program itself. Where that fails `Uncertified` is raised: nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

__all__ = ["Optimum", "Program", "Uncertified", "certified", "optimum"]

Row = Mapping[int, Fraction]

# Bounds are multiplied by the first for HiGHS, whose tolerance is absolute and whose bounds can be small;
# numbers of its solution below the second count as 0. The next pair is tried where no certificate is found.
_READINGS = ((1e4, 1e-8), (1e9, 1e-9))
_TOLERANCE = 1e-10  # the least that HiGHS takes
_GUESS = 10**6  # largest denominator of a number that no equation determines


class Uncertified(RuntimeError):
    """No exact optimum was found: the solution in floats does not lead to one."""


@dataclass(frozen=True)
class Program:
    """``max gain x`` under ``rows x <= bounds``, ``x >= 0``.

    Attributes
    ----------
    gain : sequence of Fraction, one a variable
    rows : sequence of mappings from variables to coefficients
    bounds : sequence of Fraction, one a row
    """

    gain: Sequence[Fraction]
    rows: Sequence[Row]
    bounds: Sequence[Fraction]


@dataclass(frozen=True)
class Optimum:
    """A feasible point, and prices of the rows that prove it the best; both in fractions."""

    value: Fraction
    point: tuple[Fraction, ...]
    prices: tuple[Fraction, ...]


def certified(program: Program, point: Sequence[Fraction], prices: Sequence[Fraction]) -> bool:
    """Whether a point and prices are feasible and of one value, which is then the optimum."""
    if min(point, default=0) < 0 or min(prices, default=0) < 0:
        return False
    cost = [Fraction(0)] * len(program.gain)
    for row, bound, price in zip(program.rows, program.bounds, prices, strict=True):
        if sum((c * point[j] for j, c in row.items()), Fraction(0)) > bound:
            return False
        if price:
            for j, c in row.items():
                cost[j] += c * price
    if any(a < b for a, b in zip(cost, program.gain, strict=True)):
        return False
    return _value(program.gain, point) == _value(program.bounds, prices)


def optimum(program: Program) -> Optimum:
    """The optimum, with its certificate.

    Raises
    ------
    Uncertified
        Where HiGHS finds no optimum, or its vertex does not lead to one in fractions.
    """
    if not program.gain:
        return Optimum(Fraction(0), (), tuple(Fraction(0) for _ in program.rows))
    for scale, zero in _READINGS:
        whole, paid = _read(program, scale, zero)
        if certified(program, whole, paid):
            return Optimum(_value(program.gain, whole), whole, paid)
    raise Uncertified(
        f"the vertex of HiGHS is no optimum in fractions ({len(program.gain)} variables); masses that lie "
        "many orders of magnitude apart do this, so use laws with smaller denominators"
    )


def _read(program: Program, scale: float, zero: float) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    """A point and prices in fractions, from what is not 0 and what is tight in the solution of HiGHS."""
    x, slack, y, reduced = _in_floats(program, scale)
    used = [j for j, value in enumerate(x) if value > zero]
    at = set(used)
    tight = [i for i, gap in enumerate(slack) if gap < zero]
    point = _solved(
        [({j: c for j, c in program.rows[i].items() if j in at}, program.bounds[i]) for i in tight],
        {j: Fraction(float(x[j] / scale)).limit_denominator(_GUESS) for j in used},
    )
    priced = [i for i, price in enumerate(y) if price > zero]
    columns: dict[int, dict[int, Fraction]] = {j: {} for j, gap in enumerate(reduced) if gap < zero}
    for i in priced:
        for j, c in program.rows[i].items():
            if j in columns:
                columns[j][i] = c
    prices = _solved(
        [(column, program.gain[j]) for j, column in columns.items()],
        {i: Fraction(float(y[i])).limit_denominator(_GUESS) for i in priced},
    )
    return (
        tuple(point.get(j, Fraction(0)) for j in range(len(program.gain))),
        tuple(prices.get(i, Fraction(0)) for i in range(len(program.rows))),
    )


def _value(weights: Sequence[Fraction], values: Sequence[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(weights, values, strict=True) if b), Fraction(0))


def _in_floats(program: Program, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The point and the slacks, both times the scale, the prices and the reduced costs."""
    entries = [(i, j, float(c)) for i, row in enumerate(program.rows) for j, c in row.items()]
    rows, columns, values = (np.array(part) for part in zip(*entries, strict=True))
    matrix = csr_array((values, (rows, columns)), shape=(len(program.rows), len(program.gain)))
    gain = np.array([float(g) for g in program.gain])
    answer = linprog(
        -gain,
        A_ub=matrix,
        b_ub=scale * np.array([float(b) for b in program.bounds]),
        bounds=(0, None),
        method="highs-ds",
        options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE},
    )
    if answer.status != 0:
        raise Uncertified(f"HiGHS found no optimum (status {answer.status}): {answer.message}")
    prices = -answer.ineqlin.marginals
    return answer.x, answer.slack, prices, matrix.T @ prices - gain


def _solved(
    equations: Sequence[tuple[dict[int, Fraction], Fraction]], guess: Mapping[int, Fraction]
) -> dict[int, Fraction]:
    """Unknowns of sparse linear equations, by elimination; those that none determines are as guessed.

    An equation that the others contradict is left out: the certificate will fail.
    """
    left = {i: ({j: c for j, c in row.items() if c}, bound) for i, (row, bound) in enumerate(equations)}
    holds: dict[int, set[int]] = {}
    for i, (row, _) in left.items():
        for j in row:
            holds.setdefault(j, set()).add(i)
    order: list[tuple[int, dict[int, Fraction], Fraction]] = []
    while left:
        i = min(left, key=lambda i: len(left[i][0]))
        row, bound = left.pop(i)
        for j in row:
            holds[j].discard(i)
        if not row:
            continue
        pivot = min(row, key=lambda j: len(holds[j]))
        lead = row.pop(pivot)
        row, bound = {j: c / lead for j, c in row.items()}, bound / lead
        order.append((pivot, row, bound))
        for other in holds.pop(pivot):
            there, right = left[other]
            times = there.pop(pivot)
            for j, c in row.items():
                new = there.get(j, Fraction(0)) - times * c
                if new:
                    there[j] = new
                    holds[j].add(other)
                elif j in there:
                    del there[j]
                    holds[j].discard(other)
            left[other] = (there, right - times * bound)
    found = dict(guess)
    for pivot, row, bound in reversed(order):
        found[pivot] = bound - sum((c * found[j] for j, c in row.items()), Fraction(0))
    return found
