"""Three candidates without replacement: the best test of the second depends on which token came first."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import (
    Law,
    Transcription,
    enumerate_rule,
    limit_without_replacement,
    marginal,
    normalise,
    sequential_optimum_by_histories,
    without_replacement,
)
from resispec_verify.oracle.distinct import (
    SetPolicy,
    most_at_prices,
    most_by_places,
    optimum_by_sets,
    policy_masses,
)

from ._laws import laws
from ._report import ProofReport

__all__ = ["INSTANCES", "prove"]

TOLERANCE = 1e-6  # of HiGHS, 1e-7 a row, over a few rows
STATEMENT = (
    "For n candidates without replacement the best sequential rule needs to remember the set of rejected "
    "tokens and not their order. For n = 3 it needs the set: with p = (4, 1, 1, 0)/6, q = (1, 1, 1, 3)/6 a "
    "rule that tests by the set always accepts, and no rule whose test of a candidate depends only on its "
    "token and its place accepts more than 27/28, one coin for the choice of such a rule included. Four "
    "tokens are the fewest: with three, Sequoia's tests are of places and attain the limit of exact rules."
)
LINES = (
    "Sets suffice: after the rejected tokens s the next is x with q(x) / (1 - q(s)), which has no order.",
    "W and a, summed over the orders of a set, satisfy the same constraints, and accepting with the",
    "quotient of the sums is a rule with these masses.",
    "Prices: for y >= 0 an exact rule accepts sum m <= sum p y + sum m (1 - y); the greatest of the last",
    "sum is found backwards over sets, and for rules of places by trying the deterministic ones, since",
    "masses are affine in every single test: of the masses of all, mixtures included, no others are corners.",
    "p = (4, 1, 1, 0)/6, q = (1, 1, 1, 3)/6: accept token 0 always, tokens 1 and 2 unless they come first or",
    "right after token 3, token 3 never: m = p. Prices (0, 3/14, 3/14, 1) bound rules of places by 27/28.",
    "p = (4, 2, 2, 0)/8, q = (1, 2, 2, 3)/8: 39/40 by sets, prices (0, 3/4, 3/4, 1); 15/16 at most by",
    "places, prices (0, 15/32, 15/32, 1).",
    "Three tokens: only x with q > p is rejected first. If there is one, what comes next starts from one",
    "state. If there are two, what is left is on the third token, which is accepted, and they never are. The",
    "third candidate's state is known from its token. Once all tokens with q > 0 are drawn, Sequoia has",
    "accepted whatever lies on them.",
)


def _fractions(numbers: Sequence[int], over: int) -> Law:
    return tuple(Fraction(number, over) for number in numbers)


def _policy(**accepted: Any) -> dict[tuple[frozenset[int], int], Fraction]:
    """``s13_0=1``: after the set {1, 3}, token 0 is accepted with probability 1."""
    found = {}
    for name, share in accepted.items():
        rejected, token = name[1:].split("_")
        found[frozenset(map(int, rejected)), int(token)] = Fraction(share)
    return found


_ZERO = {f"s{s}_0": 1 for s in ("", "1", "2", "3", "12", "13", "23")}
#: Target, draft, a rule by sets, its acceptance, prices that bound it, prices that bound places, their bound.
INSTANCES: tuple[tuple[Law, Law, SetPolicy, Fraction, Law, Law, Fraction], ...] = (
    (
        _fractions((4, 1, 1, 0), 6), _fractions((1, 1, 1, 3), 6),
        _policy(**_ZERO, s1_2=1, s2_1=1, s13_2=1, s23_1=1), Fraction(1),
        _fractions((1, 1, 1, 1), 1), _fractions((0, 3, 3, 14), 14), Fraction(27, 28),
    ),
    (
        _fractions((4, 2, 2, 0), 8), _fractions((1, 2, 2, 3), 8),
        _policy(**_ZERO, s1_2=Fraction(4, 5), s2_1=Fraction(4, 5), s13_2=1, s23_1=1), Fraction(39, 40),
        _fractions((0, 3, 3, 4), 4), _fractions((0, 15, 15, 32), 32), Fraction(15, 16),
    ),
)  # fmt: skip


def prove(
    *,
    known: Callable[[tuple[int, ...]], Any] = frozenset,
    places: Callable[[Law, int, Law], Fraction] = most_by_places,
) -> ProofReport:
    """Prove the theorem.

    Parameters
    ----------
    known : callable (rejected tokens in order) -> what is kept of them
        Anything less than the set is a mutation: with their number alone the rule is not the optimum's.
    places : callable (draft, n, prices) -> bound
        The greatest sum at prices of rules of places; `most_at_prices` is a mutation: for rules of sets.
    """
    exact = attained = bounded = strict = True
    for p, q, policy, value, prices, place_prices, place_value in INSTANCES:
        result = enumerate_rule(_rule(policy, known), p, q, 3, without_replacement(q, 3))
        exact &= result.law == p
        attained &= sum(result.acceptance) == sum(policy_masses(q, 3, _of(policy))) == value
        bounded &= min(prices) >= 0 and _bound(p, prices, most_at_prices(q, 3, prices)) == value
        bound = _bound(p, place_prices, places(q, 3, place_prices))
        strict &= min(place_prices) >= 0 and bound == place_value < value
    merged, programs, count = _orders()
    by_places, limit, tried = _three_tokens()
    checks = (
        (f"masses of a rule by orders are those of the rule by sets, {count} random rules", merged),
        ("the linear program over sets gives that over histories (to 1e-6), the same drafts", programs),
        ("both rules by sets emit p", exact),
        ("they accept 1 and 39/40", attained),
        ("prices prove that no sequential rule accepts more", bounded),
        ("prices prove 27/28 and 15/16 for rules of places, over all 256 of the first two tests", strict),
        (f"three tokens: Sequoia's test is of places, {tried} pairs with V <= 3", by_places),
        ("it accepts as often as the limit allows, the same", limit),
    )
    return ProofReport(
        STATEMENT, "proved", ("rational",), checks, LINES,
        left="the arguments for sets and for three tokens in words; how much the set is worth at most",
    )  # fmt: skip


def _bound(p: Law, prices: Law, gain: Fraction) -> Fraction:
    return sum((a * y for a, y in zip(p, prices, strict=True)), gain)


def _of(policy: SetPolicy) -> Callable[[frozenset[int], int], Fraction]:
    return lambda rejected, x: policy.get((rejected, x), Fraction(0))


def _rule(policy: SetPolicy, known: Callable[[tuple[int, ...]], Any]) -> Transcription:
    """The rule: its test by what is known of the rejected tokens; then what is left of p, whatever they were.

    Where several sets are known as one, the first of them decides.
    """
    tests: dict[tuple[Any, int], Fraction] = {}
    for (rejected, x), share in policy.items():
        tests.setdefault((known(tuple(sorted(rejected))), x), share)

    def left(state: tuple[Law, Law, tuple[int, ...]]) -> Law:
        p, q, _ = state
        masses = policy_masses(q, 3, _of(policy))
        return normalise([max(a - m, Fraction(0)) for a, m in zip(p, masses, strict=True)], fallback=p)

    return Transcription(
        start=lambda p, q: (p, q, ()),
        accept=lambda state, x: tests.get((known(state[2]), x), Fraction(0)),
        reject=lambda state, x: (state[0], state[1], (*state[2], x)),
        final=left,
    )


def _orders() -> tuple[bool, bool, int]:
    """Rules that remember the order, with some tests, against the rule by sets with the same masses."""
    merged = programs = True
    drafts = [q for size in (3, 4) for q in laws(size, 5, 1)]
    for number, q in enumerate(drafts):

        def test(order: tuple[int, ...], x: int, number: int = number) -> Fraction:
            return Fraction((7 * number + 3 * x + sum((i + 2) * y for i, y in enumerate(order))) % 5, 4)

        reach: dict[tuple[int, ...], Fraction] = {(): Fraction(1)}
        offered: dict[tuple[frozenset[int], int], Fraction] = {}
        taken: dict[tuple[frozenset[int], int], Fraction] = {}
        masses = [Fraction(0)] * len(q)
        for length in range(3):
            for order in itertools.permutations(range(len(q)), length):
                for x in set(range(len(q))) - set(order):
                    mass = reach[order] * q[x] / (1 - sum((q[y] for y in order), Fraction(0)))
                    share, key = test(order, x), (frozenset(order), x)
                    reach[(*order, x)] = mass * (1 - share)
                    masses[x] += mass * share
                    offered[key] = offered.get(key, Fraction(0)) + mass
                    taken[key] = taken.get(key, Fraction(0)) + mass * share
        policy = {key: taken[key] / offered[key] for key in offered if offered[key]}
        merged &= policy_masses(q, 3, _of(policy)) == tuple(masses)
        p = q[1:] + q[:1]
        histories = sequential_optimum_by_histories(p, q, 3, distinct=True)
        programs &= abs(optimum_by_sets(p, q, 3)[0] - histories) < TOLERANCE
    return merged, programs, len(drafts)


def _three_tokens() -> tuple[bool, bool, int]:
    """Whether Sequoia's tests are of places, and attain the limit, on all pairs of a family with V <= 3."""
    from resispec_verify.oracle.shipped.sequoia import sequoia

    rule, places, limit, count = sequoia(), True, True, 0
    for size in (2, 3):
        for p, q in itertools.product(laws(size, 6), laws(size, 6)):
            count += 1
            accepted = sum(marginal("sequoia", p, q, 3).acceptance)
            limit &= accepted == limit_without_replacement(p, q, 3)
            tests: dict[tuple[int, int], Fraction] = {}
            for order in without_replacement(q, 3):
                state = rule.start(p, q)
                for place, x in enumerate(order):
                    share = rule.accept(state, x)
                    places &= tests.setdefault((place, x), share) == share
                    if share == 1:
                        break
                    state = rule.reject(state, x)
    return places, limit, count
