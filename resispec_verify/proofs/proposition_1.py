"""Proposition 1: the proxy is normalised exactly if slack and reserve have the same mass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from resispec_verify.oracle import get_proxy

from ._laws import overfull, pairs
from ._report import ProofReport
from ._symbols import is_zero, symbols

__all__ = ["as_defined", "prove"]

STATEMENT = (
    "For k = p - r + s (Eq. 3), sum k = 1 if and only if sum s = sum r = Z, for every V >= 1. The "
    "condition r <= p is not needed for it."
)
LINES = (
    "Token by token k - p = s - r. Summed over any number of tokens, sum k - 1 = sum s - Z.",
    "r <= p enters elsewhere: it makes k >= 0.",
)


def as_defined(target: Any, reserve: Any, slack: Any) -> Any:
    """``k = p - r + s`` at one token (Eq. 3)."""
    return target - reserve + slack


def prove(*, proxy: Callable[[Any, Any, Any], Any] = as_defined) -> ProofReport:
    """Prove Proposition 1; any other `proxy` of a token's (p, r, s) is a mutation, which must fail."""
    p, r, s = symbols("p r s")
    token = is_zero(proxy(p, r, s) - p - (s - r))
    whole = True
    for size in (1, 2, 3, 4):
        (*some,) = symbols(f"p:{size}")[:-1]
        target = [*some, 1 - sum(some)]
        reserve, slack = symbols(f"r:{size}"), symbols(f"s:{size}")
        excess = sum(map(proxy, target, reserve, slack)) - 1
        whole &= is_zero(excess - (sum(slack) - sum(reserve)))
    met = missed = 0
    agrees = True
    for target, draft in pairs(range(2, 4), range(2, 5)):
        for x in overfull(target, draft):
            for budget in ("local", "floor"):
                found = get_proxy(target, draft, x, budget=budget)
                k = tuple(map(proxy, target, found.r, found.s))
                agrees &= sum(k) - 1 == found.excess == sum(found.s) - found.Z
                met, missed = met + (found.excess == 0), missed + (found.excess != 0)
    checks = (
        ("k - p = s - r at a token", token),
        ("sum k - 1 = sum s - sum r with sum p = 1, V = 1, 2, 3, 4", whole),
        (f"GetProxy in fractions: {met} proxies with sum s = Z and sum k = 1, {missed} with neither",
         agrees and met > 0 and missed > 0),
    )  # fmt: skip
    return ProofReport(STATEMENT, "proved", ("SymPy", "rational"), checks, LINES, left="nothing")
