"""The longest exact step that decides by node: greedy masses, by minima over prefixes, and their race."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from resispec_verify.oracle import Law, enumerate_rule
from resispec_verify.oracle.shipped.optimal_joint import optimal_joint

from ._laws import pairs
from ._report import ProofReport
from ._symbols import is_zero, symbols
from .layout import envelope, lay_out

__all__ = ["by_ratio", "greatest_first", "prove"]

STATEMENT = (
    "Let accepting token x be worth v(x) >= 0, with n i.i.d. candidates. The masses m that an exact rule "
    "accepts satisfy 0 <= m <= p and m(H) <= f(H) = 1 - (1 - q(H))^n for every H. Let g(S) be the least "
    "f(T) + p(S - T) over T in S: some prefix T of S in descending order of p/q attains it. With S_k the k "
    "tokens that are worth most, m(x_k) = g(S_k) - g(S_{k-1}) are such masses, of the greatest sum v m = sum "
    "(v_k - v_{k+1}) g(S_k). The race on the layout for m in the place of p is exact and accepts as much. "
    "Node by node, from the leaves up, with v(x) = 1 + what is accepted below x, it is the longest of all "
    "exact rules that decide by node, for every V and n >= 1."
)
LINES = (
    "Needed: a token of H is accepted only where some candidate lies in H, so m(H) <= f(H); m <= p.",
    "Bound: m(S) = m(T) + m(S - T) <= f(T) + p(S - T), so m(S) <= g(S), and by parts sum v m = sum (v_k -",
    "v_{k+1}) m(S_k) <= sum (v_k - v_{k+1}) g(S_k).",
    "g: with the best T, T' of S, S', f(T u T') + f(T n T') <= f(T) + f(T'), as f is concave in q(T), and",
    "the p of what is left out is the same in sum: g(S u S') + g(S n S') <= g(S) + g(S'). If S lies in S',",
    "T' n S shows g(S) <= g(S'): m >= 0.",
    "Attained: let x_k be the last token of H. By induction and g's inequality for H and S_{k-1},",
    "m(H) <= g(H - x_k) + g(S_k) - g(S_{k-1}) <= g(H), and g(H) <= f(H), g(H) <= p(H).",
    "Prefix: with c = n (1 - q(T))^(n-1), f(A) <= f(T) + c (q(A) - q(T)), so for A = {x in S: p > c q}",
    "f(A) - p(A) <= f(T) - c q(T) + sum_A (c q - p) <= f(T) - c q(T) + sum_T (c q - p) = f(T) - p(T).",
    "Race: for m in the place of p the envelope starts at F(0) = 0, and F >= 0, since m(A) <= f(A). So its",
    "slopes c are >= 0, and the winner's law w = m + c q >= m exists as a layout (layout). Tested with",
    "min(1, p / w) the race is exact and accepts min(p, w) >= m, which is no better than the best.",
    "Length: candidates below a node that was just reached are fresh draws, whatever happened above. So",
    "what an exact rule accepts at and below a node is sum m(x) (1 + L(x)) with L(x) at most the greatest",
    "below x, by induction; and the races have these m and L.",
)

Rank = Callable[[Sequence[int]], list[int]]
Prefixes = Callable[[Law, Law, Sequence[int]], list[int]]


def greatest_first(values: Sequence[int]) -> list[int]:
    """The tokens by descending value."""
    return sorted(range(len(values)), key=lambda x: -values[x])


def by_ratio(p: Law, q: Law, tokens: Sequence[int]) -> list[int]:
    """The tokens by descending p/q; those without draft, on which f does not depend, first."""
    return sorted(tokens, key=lambda x: (q[x] > 0, -p[x] / q[x] if q[x] else 0))


def prove(*, rank: Rank = greatest_first, prefixes: Prefixes = by_ratio) -> ProofReport:
    """Prove the theorem.

    Parameters
    ----------
    rank : callable (values) -> tokens in the order in which they take
        Any but `greatest_first` is a mutation, which must fail.
    prefixes : callable (p, q, tokens) -> tokens in the order whose prefixes are tried
        Any but `by_ratio` is a mutation, which must fail.
    """
    symbolic = _by_parts()
    feasible = best = short = raced = exact = True
    family = [
        pair
        for i, pair in enumerate(pairs(range(1, 5), range(1, 6)))
        if i % (1, 1, 17, 499)[len(pair[0]) - 1] == 0
    ]
    for number, (p, q) in enumerate(family):
        n, size = 1 + number % 4, len(p)
        every = _least(p, q, n)
        for values in ((3, 1, 2, 0)[:size], (0, 2, 2, 5)[:size], (4, 3, 2, 1)[:size]):
            order, m, before = rank(values), [Fraction(0)] * size, Fraction(0)
            for k in range(1, size + 1):
                least = _by_prefixes(p, q, n, prefixes(p, q, order[:k]))
                short &= least == every[frozenset(order[:k])]
                m[order[k - 1]], before = least - before, least
            feasible &= _feasible(m, p, q, n)
            worth = sum((v * a for v, a in zip(values, m, strict=True)), Fraction(0))
            best &= worth == _dual(every, values)
            if n == 2 and _feasible(m, p, q, n):
                found = _race(tuple(m), p, q)
                raced &= found is not None
                if found is not None:
                    law, accepted = found
                    exact &= law == p
                    raced &= sum(v * a for v, a in zip(values, accepted, strict=True)) == worth
    checks = (
        ("sum v m by parts, and the tangent of f at T lies above f, n <= 6", symbolic),
        (f"the least over prefixes is that over all sets, {len(family)} pairs with V <= 4, n <= 4", short),
        ("m >= 0, m <= p and m(H) <= f(H) for every H, the same with three v each", feasible),
        ("sum v m is sum (v_k - v_{k+1}) g(S_k), which no feasible masses exceed, the same", best),
        ("n = 2: the layout for m exists exactly, and its race accepts as much", raced),
        ("n = 2: the race on it emits p", exact),
    )
    return ProofReport(
        STATEMENT, "proved", ("SymPy", "rational"), checks, LINES,
        left="inductions in words; the layout itself is built for n = 2",
    )  # fmt: skip


def _by_parts() -> bool:
    """``sum v m`` by parts for four tokens; ``1 - b^n <= 1 - a^n + n a^(n-1) (a - b)`` for a, b >= 0."""
    v, m = symbols("v1:5"), symbols("m1:5")
    parts = sum((v[k] - (v[k + 1] if k < 3 else 0)) * sum(m[: k + 1]) for k in range(4))
    good = is_zero(parts - sum(x * y for x, y in zip(v, m, strict=True)))
    a, b = symbols("a b")
    for n in range(1, 7):
        # a^n - ... is (a - b)^2 times a polynomial of positive coefficients
        square = sum((j + 1) * a**j * b ** (n - 2 - j) for j in range(n - 1))
        good &= is_zero(b**n - a**n + n * a ** (n - 1) * (a - b) - (a - b) ** 2 * square)
    return good


def _subsets(tokens: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(
        itertools.combinations(tokens, size) for size in range(len(tokens) + 1)
    )


def _wins(q: Law, chosen: Sequence[int], n: int) -> Fraction:
    return 1 - (1 - sum((q[x] for x in chosen), Fraction(0))) ** n


def _least(p: Law, q: Law, n: int) -> dict[frozenset[int], Fraction]:
    """``g`` of every set, by its definition."""
    return {
        frozenset(chosen): min(
            _wins(q, part, n) + sum((p[x] for x in chosen if x not in part), Fraction(0))
            for part in _subsets(chosen)
        )
        for chosen in _subsets(range(len(p)))
    }


def _by_prefixes(p: Law, q: Law, n: int, tokens: list[int]) -> Fraction:
    return min(
        _wins(q, tokens[:k], n) + sum((p[x] for x in tokens[k:]), Fraction(0)) for k in range(len(tokens) + 1)
    )


def _feasible(m: Sequence[Fraction], p: Law, q: Law, n: int) -> bool:
    return all(0 <= a <= b for a, b in zip(m, p, strict=True)) and all(
        sum((m[x] for x in chosen), Fraction(0)) <= _wins(q, chosen, n) for chosen in _subsets(range(len(p)))
    )


def _dual(least: dict[frozenset[int], Fraction], values: Sequence[int]) -> Fraction:
    """``sum (v_k - v_{k+1}) g(S_k)``: no feasible masses are worth more."""
    order = greatest_first(values)
    ends = [*(values[x] for x in order), 0]
    return sum(
        ((ends[k] - ends[k + 1]) * least[frozenset(order[: k + 1])] for k in range(len(order))), Fraction(0)
    )


def _race(m: Law, p: Law, q: Law) -> tuple[Law, Law] | None:
    """The law and the accepted masses of the race of two on the layout for m; None where there is none."""
    line = []
    for begin, slope, tokens in envelope(m, q, 2):
        parts = lay_out(begin, [(q[x], m[x] + slope * q[x]) for x in tokens])
        if parts is None:
            return None
        line += [(u, x, size) for x, part in zip(tokens, parts, strict=True) for u, size in part]
    pieces, won = [(x, size) for _, x, size in sorted(line)], [Fraction(0)] * len(p)
    for u, x, size in line:
        won[x] += (1 - u) ** 2 - (1 - u - size) ** 2
    return enumerate_rule(optimal_joint(2, pieces), p, q, 2).law, tuple(map(min, p, won))
