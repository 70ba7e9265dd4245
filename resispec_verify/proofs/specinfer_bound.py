"""How far SpecInfer can be below the limit of exact rules: never below three quarters of it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import Law, enumerate_rule, limit_by_subsets, specinfer

from ._laws import pairs
from ._report import ProofReport
from ._symbols import is_zero, symbols

__all__ = ["limit_bound", "prove", "rejected"]

STATEMENT = (
    "Let SpecInfer accept one of n i.i.d. candidates with probability a. For some u in (0, 1], every exact "
    "rule accepts at most 1 + u - u^n - (1 - a) / u^(n-1). So none accepts more than r_n a with r_n = "
    "1 / (1 - (n-1)/(2n-1) (n/(2n-1))^(n/(n-1))), r_1 = 1: 27/23 for n = 2, 1.2284 for n = 3, below 4/3 "
    "for every n. At one position, and on average over any positions, with any weights. For n >= 2 the pair "
    "p = (u^n, 1 - u^n), q = (u, 1 - u) with u^(n-1) = n/(2n-1) attains r_n, at a limit of 1."
)
LINES = (
    "phi(t) = sum min(p, t q) is concave; it does not fall and t - phi(t) does not fall. SpecInfer",
    "accepts phi(S_n) in all, S_1 = 1, S_{k+1} = S_k + 1 - phi(S_k).",
    "Below. Let u and c be the mass of q and p where p <= S_n q. S_n >= 1, so u > 0. The line l(t) = c +",
    "(1 - u) t is at least phi(t), and equal at S_n. With l for phi the recursion gives S'_k <= S_k, as",
    "t + 1 - phi(t) does not fall and is at least t + 1 - l(t). So a = l(S_n) >= l(S'_n). And 1 -",
    "l(S'_{k+1}) = u (1 - l(S'_k)), 1 - l(1) = u - c: 1 - a <= u^(n-1) (u - c).",
    "Above. The limit is at most 1 + p(H) - q(H)^n for every set H of tokens; here 1 + c - u^n.",
    "Together: limit <= 1 + c - u^n <= 1 + u - u^n - (1 - a) / u^(n-1).",
    "Ratio. F(a), the maximum of that over u, is convex, as a maximum of functions linear in a, and F(0)",
    "= 0: at a = 0 the derivative in u, 1 - n u^(n-1) + (n-1) / u^n, falls and is 0 at u = 1. F reaches 1",
    "where 1 - a is the maximum of u^n - u^(2n-1), at u^(n-1) = n/(2n-1). So min(1, F(a)) is below the line",
    "from (0, 0) to there, of slope r_n. A line can be averaged.",
    "Limit of r_n: x^(n/(n-1)) < x for x = n/(2n-1) < 1, so the product is below n(n-1)/(2n-1)^2 < 1/4.",
)


def limit_bound(a: Fraction, u: Fraction, n: int) -> Fraction:
    """``1 + u - u^n - (1 - a) / u^(n-1)``."""
    return 1 + u - u**n - (1 - a) / u ** (n - 1)


def rejected(covered: Fraction) -> Fraction:
    """By how much S grows: ``1 - phi(S)``."""
    return 1 - covered


def _phi(p: Law, q: Law, t: Fraction) -> Fraction:
    return sum((min(a, t * b) for a, b in zip(p, q, strict=True)), Fraction(0))


def prove(
    *,
    bound: Callable[[Fraction, Fraction, int], Fraction] = limit_bound,
    grows: Callable[[Fraction], Fraction] = rejected,
    ratio: Callable[[Any], Any] = lambda n: n / (2 * n - 1),
) -> ProofReport:
    """Prove the bound and the ratio.

    Parameters
    ----------
    bound : callable (a, u, n) -> most that an exact rule accepts
        A smaller one is a mutation that must fail on some pair, a larger one on the extremal pairs.
    grows : callable phi(S) -> growth of S
        Anything but ``1 - phi(S)`` is a mutation.
    ratio : callable n -> u^(n-1) at the extremal pair
        Anything but n/(2n-1) is a mutation.
    """
    shrinks, starts = _induction(grows)
    recursion, side, below, above, count = _cases(bound, grows)
    attained = _extremal(bound, grows)
    flat, stationary, starts_at_0 = _ratio(ratio)
    checks = (
        ("1 - l(t + 1 - l(t)) = u (1 - l(t)) with l(t) = c + (1 - u) t", shrinks),
        ("1 - l(1) = u - c", starts),
        (f"the enumerated acceptance is phi(S_n), {count} cases with V <= 3, n <= 3", recursion),
        ("1 - a <= u^(n-1) (u - c), the same", below),
        ("the limit, over all sets, is at most 1 + c - u^n, the same", side),
        ("the limit is at most the bound, the same", above),
        ("equality at p = (c, 1 - c), q = (u, 1 - u) for c <= u^n, 81 pairs, n = 2, 3, 4", attained),
        ("at a = 0 the bound is 0 at u = 1, and its derivative in u is 0 there", starts_at_0),
        ("u^n - u^(2n-1) is stationary at u^(n-1) = n/(2n-1), n a symbol", stationary),
        ("there the bound is 1, and 1/r_n = 1 - (n-1)/(2n-1) u^n; r_2 = 27/23", flat),
    )
    return ProofReport(
        STATEMENT, "proved", ("SymPy", "rational"), checks, LINES,
        left="that S'_k <= S_k, and that the stationary point is the maximum, are argued in words",
        coq=(
            "specinfer_bound.v: specinfer_accepts", "specinfer_bound.v: specinfer_gap",
            "specinfer_bound.v: transport_bound",
        ),
    )  # fmt: skip


def _last_time(p: Law, q: Law, n: int, grows: Callable[[Fraction], Fraction]) -> Fraction:
    time = Fraction(1)
    for _ in range(n - 1):
        time += grows(_phi(p, q, time))
    return time


def _cases(
    bound: Callable[..., Fraction], grows: Callable[[Fraction], Fraction]
) -> tuple[bool, bool, bool, bool, int]:
    """SpecInfer's acceptance and the limit of every pair: the recursion, both estimates, and the bound."""
    recursion = side = below = above = True
    count = 0
    for p, q in pairs(range(1, 4), range(1, 5)):
        for n in (1, 2, 3):
            accepted = sum(enumerate_rule(specinfer(), p, q, n).acceptance, Fraction(0))
            limit = limit_by_subsets(p, q, n)
            time = _last_time(p, q, n, grows)
            u = 1 - sum((b for a, b in zip(p, q, strict=True) if a > time * b), Fraction(0))
            recursion &= accepted == _phi(p, q, time)
            c = _phi(p, q, time) - (1 - u) * time
            side &= limit <= 1 + c - u**n
            below &= 1 - accepted <= u ** (n - 1) * (u - c)
            above &= limit <= bound(accepted, u, n)
            count += 1
    return recursion, side, below, above, count


def _extremal(bound: Callable[..., Fraction], grows: Callable[[Fraction], Fraction]) -> bool:
    """Whether the bound is attained on two tokens."""
    attained = True
    for n in (2, 3, 4):
        for tenth in range(1, 10):
            u = Fraction(tenth, 10)
            for part in (1, 2, 3):  # c = part of u, small enough for the limit to be 1 + c - u^n
                c = u**n * Fraction(part, 3)
                p, q = (c, 1 - c), (u, 1 - u)
                accepted = _phi(p, q, _last_time(p, q, n, grows))
                attained &= limit_by_subsets(p, q, n) == bound(accepted, u, n)
    return attained


def _induction(grows: Callable[[Any], Any]) -> tuple[bool, bool]:
    c, u, t = symbols("c u t")

    def line(time: Any) -> Any:
        return c + (1 - u) * time

    return is_zero(1 - line(t + grows(line(t))) - u * (1 - line(t))), is_zero(1 - line(1) - (u - c))


def _ratio(ratio: Callable[[Any], Any]) -> tuple[bool, bool, bool]:
    """With w = u^(n-1): u^n = u w, u^(2n-1) = u w^2."""
    n, u, w, a = symbols("n u w a")
    value = 1 + u - u * w - (1 - a) / w
    best = ratio(n)
    # d/du (u^n - u^(2n-1)) = n w - (2n-1) w^2.
    stationary = is_zero((n * w - (2 * n - 1) * w**2).subs({w: best}))
    least = 1 - (1 - best) * u * best  # 1 - a = u^n (1 - w)
    flat = is_zero(value.subs({a: least}).subs({w: best}) - 1)
    flat &= is_zero(1 - least - (n - 1) / (2 * n - 1) * u * best)
    flat &= 1 / least.subs({n: 2, u: best.subs({n: 2})}) == Fraction(27, 23)
    starts = is_zero(value.subs({a: 0, u: 1, w: 1}))
    starts &= is_zero((1 - n * w + (n - 1) / (u * w)).subs({u: 1, w: 1}))
    return flat, stationary, starts
