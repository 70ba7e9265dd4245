"""Sequential rules for n candidates without replacement: those that remember the rejected tokens, and those
that do not.

What comes next depends on the rejected tokens only through their set S: the next candidate is x with
``q(x) / (1 - q(S))``. Let W(S) be the probability that exactly the tokens of S were looked at and rejected,
and a(S, x) the mass accepted at the next candidate x. The masses of a rule that remembers the order, added up
over the orders of each set, are masses of a rule that remembers the set: it accepts x after S with
``a(S, x) (1 - q(S)) / (W(S) q(x))``. Masses can be completed to an exact rule exactly when no token has more
than p(x) of them: what is left is emitted after the last rejection.

A rule is *of places* if its test of a candidate depends only on the token and on how many came before. The
masses of these are no convex set, and `optimum_by_places` allows one coin for the choice of the rule, which
can only help; the masses are then mixtures of those of deterministic rules, because they are affine in every
single test.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .laws import Law, as_law, read_pair
from .programs import best_value

__all__ = [
    "SetPolicy",
    "most_at_prices",
    "most_by_places",
    "optimum_by_places",
    "optimum_by_sets",
    "policy_masses",
]

#: (set of rejected tokens, candidate) -> probability of accepting it; 0 where it says nothing.
SetPolicy = Mapping[tuple[frozenset[int], int], Fraction]


def _support(q: Sequence[Any]) -> list[int]:
    return [x for x, mass in enumerate(q) if mass > 0]


def _sets(support: Sequence[int], n: int) -> list[frozenset[int]]:
    """The sets of at most n - 1 tokens after which there is a candidate, small ones first."""
    sizes = range(min(n, len(support)))
    return [frozenset(chosen) for size in sizes for chosen in itertools.combinations(support, size)]


def _next(q: Sequence[Fraction], rejected: frozenset[int]) -> Iterator[tuple[int, Fraction]]:
    """The next candidates and their probabilities."""
    left = 1 - sum((q[x] for x in rejected), Fraction(0))
    return ((x, q[x] / left) for x in _support(q) if x not in rejected)


def _read(draft: Sequence[Any], n: int) -> Law:
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"the number of candidates must be a whole number and at least 0, got {n!r}")
    return as_law(draft, name="draft")


def _read_prices(prices: Sequence[Any], vocab: int) -> list[Fraction]:
    y = [Fraction(price) for price in prices]
    if len(y) != vocab or min(y) < 0:
        raise ValueError(f"prices must be {vocab} numbers, one a token, and at least 0; got {list(prices)}")
    return y


def policy_masses(draft: Sequence[Any], n: int, accept: Callable[[frozenset[int], int], Any]) -> Law:
    """What a rule accepts of each token in all, ``accept(rejected, x)`` being its test, exactly.

    Parameters
    ----------
    draft : sequence of rationals, length V
    n : int
        Number of candidates.
    accept : callable (set of rejected tokens, candidate) -> rational in [0, 1]

    Returns
    -------
    tuple of Fraction, length V
    """
    q = _read(draft, n)
    taken = [Fraction(0)] * len(q)
    reach = {frozenset[int](): Fraction(1)}
    for rejected in _sets(_support(q), n):
        for x, chance in _next(q, rejected):
            share = Fraction(accept(rejected, x))
            if not 0 <= share <= 1:
                raise ValueError(f"accept must be between 0 and 1, got {share} for {x} after {set(rejected)}")
            offered = reach.get(rejected, Fraction(0)) * chance
            taken[x] += offered * share
            after = rejected | {x}
            reach[after] = reach.get(after, Fraction(0)) + offered * (1 - share)
    return tuple(taken)


def most_at_prices(draft: Sequence[Any], n: int, prices: Sequence[Any]) -> Fraction:
    """The greatest ``sum_x m(x) (1 - prices(x))`` over the masses m that any sequential rule accepts.

    Backwards over sets: after S the next candidate x is worth ``max(1 - prices(x), value of going on)``. By
    weak duality no exact rule accepts more than ``sum_x p(x) prices(x)`` plus this, for any prices >= 0.
    """
    q = _read(draft, n)
    y = _read_prices(prices, len(q))
    value: dict[frozenset[int], Fraction] = {}
    for rejected in reversed(_sets(_support(q), n)):
        value[rejected] = sum(
            (
                chance * max(1 - y[x], value.get(rejected | {x}, Fraction(0)))
                for x, chance in _next(q, rejected)
            ),
            Fraction(0),
        )
    return value.get(frozenset(), Fraction(0))


def _place_masses(q: Sequence[Any], n: int) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    """For every deterministic rule of places: masses of the first n - 1 tests, and what the last is offered.

    A test is the set of tokens that it accepts. Numbers are of the type of q.
    """
    support = _support(q)
    zero = q[0] * 0
    subsets = [
        frozenset(chosen)
        for size in range(len(support) + 1)
        for chosen in itertools.combinations(support, size)
    ]

    def go(
        reach: dict[frozenset[int], Any], taken: list[Any], left: int
    ) -> Iterator[tuple[list[Any], list[Any]]]:
        offers = [
            (rejected, x, mass * q[x] / sum(q[z] for z in support if z not in rejected))
            for rejected, mass in reach.items()
            for x in support
            if x not in rejected
        ]
        if left == 1:
            offered = [zero] * len(q)
            for _, x, mass in offers:
                offered[x] += mass
            yield taken, offered
            return
        for test in subsets:
            after: dict[frozenset[int], Any] = {}
            masses = list(taken)
            for rejected, x, mass in offers:
                if x in test:
                    masses[x] += mass
                else:
                    after[rejected | {x}] = after.get(rejected | {x}, zero) + mass
            yield from go(after, masses, left - 1)

    yield from go({frozenset(): zero + 1}, [zero] * len(q), n)


def most_by_places(draft: Sequence[Any], n: int, prices: Sequence[Any]) -> Fraction:
    """`most_at_prices` over the rules of places, one coin at the start included: by trying all of them."""
    q = _read(draft, n)
    gains = [1 - price for price in _read_prices(prices, len(q))]
    if n == 0:
        return Fraction(0)
    return max(
        sum((mass * gain for mass, gain in zip(taken, gains, strict=True)), Fraction(0))
        + sum((mass * max(gain, Fraction(0)) for mass, gain in zip(offered, gains, strict=True)), Fraction(0))
        for taken, offered in _place_masses(q, n)
    )


def optimum_by_places(target: Sequence[Any], draft: Sequence[Any], n: int) -> float:
    """The best of the rules of places, as a linear program over mixtures of the deterministic ones.

    ``2 ** (V (n - 1))`` columns. To the tolerance of HiGHS, as all of `oracle.programs`.
    """
    p, q = read_pair(target, _read(draft, n), n)
    if n == 0:
        return 0.0
    taken, offered = map(
        np.array, zip(*_place_masses([float(mass) for mass in q], n), strict=True)
    )  # (rules, V) each
    rules, size = taken.shape
    at_most = np.block([[taken.T, np.eye(size)], [-offered.T, np.eye(size)]])
    return best_value(
        np.concatenate([taken.sum(axis=1), np.ones(size)]),
        A_ub=at_most,
        b_ub=np.concatenate([[float(mass) for mass in p], np.zeros(size)]),
        A_eq=np.concatenate([np.ones(rules), np.zeros(size)])[None, :],
        b_eq=[1.0],
        bounds=(0, None),
    )[0]


def optimum_by_sets(
    target: Sequence[Any], draft: Sequence[Any], n: int
) -> tuple[float, dict[tuple[frozenset[int], int], float], np.ndarray]:
    """The sequential optimum, as a linear program over sets of rejected tokens.

    Returns
    -------
    value : float
        The optimum, to the tolerance of HiGHS (1e-7).
    policy : dict
        The probability of accepting each candidate after each set that is reached.
    prices : float64 (V,)
        Dual prices of the tokens: what one more unit of p(x) would bring.
    """
    p, q = read_pair(target, _read(draft, n), n)
    if n == 0:
        return 0.0, {}, np.zeros(len(p))
    sets = _sets(_support(q), n)
    row = {rejected: i for i, rejected in enumerate(sets)}
    moves = [(s, x, float(chance)) for s in sets for x, chance in _next(q, s)]
    size = len(sets) + len(moves)  # W(S), then a(S, x)
    equal = np.zeros((len(sets), size))
    at_most = np.zeros((len(p) + len(moves), size))
    for column, (s, x, chance) in enumerate(moves, start=len(sets)):
        at_most[x, column] = 1.0
        at_most[len(p) + column - len(sets), [column, row[s]]] = 1.0, -chance
        if (after := row.get(s | {x})) is not None:
            equal[after, [column, row[s]]] += 1.0, -chance
    equal[:, : len(sets)] += np.eye(len(sets))
    gain = np.concatenate([np.zeros(len(sets)), np.ones(len(moves))])
    value, found, duals = best_value(
        gain,
        A_ub=at_most,
        b_ub=np.concatenate([[float(mass) for mass in p], np.zeros(len(moves))]),
        A_eq=equal,
        b_eq=(np.arange(len(sets)) == 0).astype(float),
        bounds=(0, None),
    )
    policy = {
        (s, x): float(found[column] / (found[row[s]] * chance))
        for column, (s, x, chance) in enumerate(moves, start=len(sets))
        if found[row[s]] * chance > 0
    }
    return value, policy, duals[: len(p)]
