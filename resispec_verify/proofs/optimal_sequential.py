"""The optimal sequential rule: it exists, it is feasible and exact, and no sequential rule accepts more."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import (
    Law,
    enumerate_rule,
    sequential_limit_by_program,
    sequential_optimum_by_histories,
    sequential_times,
)
from resispec_verify.oracle.shipped.optimal_sequential import optimal_sequential

from ._laws import pairs
from ._report import ProofReport
from ._symbols import is_nonnegative, is_zero, least, orders, positive_part, symbols

__all__ = ["prove", "taken"]

TOLERANCE = 1e-7  # of HiGHS
STATEMENT = (
    "Let phi(t) = sum min(p, t q). For every V, n >= 1 there is T_1 in [1, n] for which z = 1 - phi(T_1), "
    "W_k = z + phi(T_k), T_{k+1} = T_k - W_k ends in T_{n+1} = 0 (existence). The rule with r_k = (p - "
    "T_1 q)_+ + min(p, T_{k+1} q) is exact and accepts with phi(T_1) (feasibility). No sequential rule "
    "for n i.i.d. candidates with the marginal p accepts more, whatever it remembers and wherever it "
    "stops (optimality)."
)
LINES = (
    "Existence. W_1 = 1, so T_2 = T_1 - 1; then T_{k+1} = G(T_k) - z with G(t) = t - phi(t). G does not",
    "fall and z does not rise with T_1, so T_{n+1} is continuous and does not fall. T_1 = 1: T_2 = 0, and",
    "T_{k+1} = -z <= 0 from there on, as phi(t) = t for t <= 0. T_1 = n: every W_k <= W_1 = 1, so T_{n+1}",
    ">= 0. A value in between gives 0.",
    "Feasibility. r_0 = p, |r_{k-1}| = z + phi(T_k) = W_k, and r_{k-1} - r_k = min(p, T_k q) - min(p,",
    "T_{k+1} q) lies between 0 and W_k q: token-free shaping with weights. In all min(p, T_1 q) is",
    "accepted.",
    "Optimality. A rule looks at candidate k with probability W'_k; T'_k = W'_k + ... + W'_n; z' is the",
    "probability that none is accepted. From round k on it accepts at a token at most T'_k q and at most p,",
    "in all at least W'_k - z'. So G(T'_k) <= z' + T'_{k+1}. If z' < z, from T'_{n+1} = T_{n+1} = 0",
    "downwards: T'_{k+1} <= T_{k+1} gives G(T'_k) < G(T_k), so T'_k < T_k. But then what it accepts in all,",
    "1 - z', is at most phi(T'_1) <= phi(T_1) = 1 - z, a contradiction.",
)


def taken(p: Any, time_draft: Any) -> Any:
    """``min(p, t q)`` at one token."""
    return least(p, time_draft)


def prove(
    *, covered: Callable[[Any, Any], Any] = taken, times: Callable[..., Any] = sequential_times
) -> ProofReport:
    """Prove the theorem.

    Parameters
    ----------
    covered : callable (p, t q) -> what t looked-at candidates can accept of a token
        Anything but the minimum is a mutation, which must fail.
    times : callable (p, q, n) -> T_1, ..., T_{n+1}
        The levels whose rule is checked to be optimal; SpecInfer's, say, must fail.
    """
    monotone, whole, negative, feasible, induction = _at_a_token(covered)
    family = [pair for i, pair in enumerate(pairs(range(2, 4), range(2, 5))) if i % 5 == 0]
    ends, exact, attained = _enumerated(family, covered, times)
    values, programs = _worked(family, covered, times)
    checks = (
        ("0 <= phi(t') - phi(t) <= t' - t at a token, all orders: G and phi do not fall", monotone),
        ("min(p, t q) = t q for t <= 0", negative),
        ("(p - T_1 q)_+ + min(p, T_1 q) = p, both orders", whole),
        ("0 <= r_{k-1} - r_k <= (T_k - T_{k+1}) q and 0 <= r_k <= p, all orders", feasible),
        ("induction step: G(T_k) - G(T'_k) >= z - z'", induction),
        (f"the levels solve the recursion, {len(family)} pairs with V = 2, 3 and n = 1, 2, 3", ends),
        ("the enumerated law is p, the same", exact),
        ("the enumerated acceptance is phi(T_1), the same", attained),
        ("worked pair (3, 4, 3)/10, (6, 3, 1)/10: 61/70, 166/175, 1 for n = 2, 3, 4",
         values == [Fraction(61, 70), Fraction(166, 175), 1]),
        ("linear programs over masses, and over histories, agree (to 1e-7), n = 2", programs),
    )  # fmt: skip
    return ProofReport(
        STATEMENT, "proved", ("SymPy", "rational"), checks, LINES,
        left="the intermediate value theorem, and the sums over rounds and tokens, are argued in words",
        coq=("optimal_sequential.v: optimal_sequential", "optimal_sequential.v: levels_exist",
             "optimal_sequential.v: optimal_exact", "optimal_sequential.v: rule_bound"),
    )  # fmt: skip


def _at_a_token(covered: Callable[[Any, Any], Any]) -> tuple[bool, bool, bool, bool, bool]:
    """The inequalities between symbols: G and phi, the accepted mass, feasibility, and the induction step."""
    monotone = feasible = whole = True
    step, back = symbols("step back")
    for p, low in orders(2):  # low = t q
        for high in _above(p, low, step):
            change = covered(p, high) - covered(p, low)
            monotone &= is_nonnegative(change) and is_nonnegative((high - low) - change)
        whole &= is_zero(positive_part(p - low) + covered(p, low) - p)  # low = T_1 q
    negative = is_zero(covered(symbols("p"), -back) + back)
    for p, low, first in orders(3):  # T_{k+1} q <= T_k q <= T_1 q
        if is_nonnegative(first - low):
            before = positive_part(p - first) + covered(p, first)
            after = positive_part(p - first) + covered(p, low)
            feasible &= is_nonnegative(before - after) and is_nonnegative((first - low) - (before - after))
            feasible &= is_nonnegative(after) and is_nonnegative(p - after)
    z_other, below, behind, slack = symbols("z_other below behind slack")
    # T'_{k+1} = T_next, T_{k+1} = T_next + behind, z = z' + below, G(T'_k) + slack = z' + T'_{k+1}
    T_next = symbols("T_next")
    ahead = (z_other + below + T_next + behind) - (z_other + T_next - slack)  # G(T_k) - G(T'_k)
    return monotone, whole, negative, feasible, is_nonnegative(ahead - below)


def _enumerated(
    family: list[tuple[Law, Law]], covered: Callable[[Any, Any], Any], times: Callable[..., Any]
) -> tuple[bool, bool, bool]:
    """Whether the levels solve the recursion, and the rule of them emits p and accepts phi(T_1)."""
    ends = exact = attained = True
    for p, q in family:
        for n in (1, 2, 3):
            T = times(p, q, n)
            found = enumerate_rule(optimal_sequential(n, T), p, q, n)
            best = _phi(covered, p, q, T[0])
            exact &= found.law == p
            attained &= sum(found.acceptance) == best
            looked = [1 - best + _phi(covered, p, q, t) for t in T[:-1]]
            ends &= T[-1] == 0 and 1 <= T[0] <= n
            ends &= all(a - b == W for (a, b), W in zip(itertools.pairwise(T), looked, strict=True))
    return ends, exact, attained


def _worked(
    family: list[tuple[Law, Law]], covered: Callable[[Any, Any], Any], times: Callable[..., Any]
) -> tuple[list[Fraction], bool]:
    """Acceptances of the worked pair, n = 2, 3, 4; and whether two linear programs agree, n = 2."""
    p, q = (tuple(Fraction(a, 10) for a in law) for law in ((3, 4, 3), (6, 3, 1)))
    values = [_phi(covered, p, q, times(p, q, n)[0]) for n in (2, 3, 4)]
    programs = True
    for pair in [(p, q), *family[3::29]]:
        best = float(_phi(covered, *pair, times(*pair, 2)[0]))
        programs &= abs(sequential_limit_by_program(*pair, 2) - best) < TOLERANCE
        programs &= abs(sequential_optimum_by_histories(*pair, 2) - best) < TOLERANCE
    return values, programs


def _phi(covered: Callable[[Any, Any], Any], p: Law, q: Law, t: Fraction) -> Fraction:
    return sum((covered(a, t * b) for a, b in zip(p, q, strict=True)), Fraction(0))


def _above(p: Any, low: Any, step: Any) -> list[Any]:
    """All places of t' q >= t q relative to p, by a further gap."""
    if is_nonnegative(low - p):
        return [low + step]
    rest = symbols("rest")
    return [low + (p - low) * step / (step + rest), p + step]
