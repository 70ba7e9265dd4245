"""The path identity of Appendix B holds for every choice of proxies.

Statement. Let p be a law over V tokens, R_0 = p, and let k_1, ..., k_n be any real functions of the
token. With ``m_i = min(k_i, R_{i-1})``, ``beta_i = sum m_i``, ``R_i = (R_{i-1} - m_i) / (1 - beta_i)``
the sum of the paths of Eq. 25-27, ``sum_i prod_{j<i} (1 - beta_j) m_i + prod_j (1 - beta_j) R_n``,
equals p at every token. A round with ``beta_i = 1`` ends the sum. This for every V >= 1 and every n >= 0.

Why it matters: the identity does not know what the sampler does, so its KL divergence (Eq. 28, Table 4) is
zero up to rounding whether the sampler is exact or not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import path_identity

from ._report import ProofReport
from ._symbols import import_sympy

__all__ = ["prove", "standard_residual"]

Residual = Callable[[Any, Any, Any], Any]

STATEMENT = (
    "For every V >= 1, every n >= 0, every target p and every real proxies k_1..k_n, the sum of the paths "
    "of Appendix B (Eq. 25-27) equals p at every token; a round with beta = 1 ends the sum."
)
LINES = (
    "Invariant at each token: S_i + W_i R_i = p, with S_i the paths added so far and W_i the product of",
    "(1 - beta_j). Start: S_0 = 0, W_0 = 1, R_0 = p. Step (beta_i != 1): m_i and beta_i are free symbols,",
    "so neither the minimum, nor k_i, nor beta_i = sum m_i is used. End: S_n + W_n R_n is the sum over",
    "paths.",
    "beta_i = 1: here the minimum is used. m_i <= R_{i-1} at each token and both sum to 1 (sum R_i = 1 is",
    "kept by the step when beta_i = sum m_i), so R_{i-1} - m_i >= 0 sums to 0 and m_i = R_{i-1}: the rest",
    "of p is added in this round, and W_i = 0. For an m that is not below R this fails.",
)


def standard_residual(residual: Any, accepted: Any, beta: Any) -> Any:
    """``(R - m) / (1 - beta)`` (Eq. 15), on numbers or symbols."""
    return (residual - accepted) / (1 - beta)


def check_symbolically(residual: Residual) -> list[tuple[str, bool]]:
    """Check the induction step, that residuals stay normalised, and the case beta = 1."""
    sympy = import_sympy()
    S, W, R, m, beta = sympy.symbols("S W R m beta", real=True)
    other_R, other_m = sympy.symbols("R' m'", real=True)
    before = S + W * R
    after = (S + W * m) + W * (1 - beta) * residual(R, m, beta)
    step = sympy.simplify(after - before) == 0
    joint = residual(R + other_R, m + other_m, beta)
    linear = sympy.simplify(joint - residual(R, m, beta) - residual(other_R, other_m, beta)) == 0
    unit = sympy.simplify(residual(1, beta, beta) - 1) == 0
    rest = sympy.Symbol("rest", nonnegative=True)  # sum of (R - m) over all other tokens
    forced = bool((-rest).is_nonpositive)  # R - m at this token is then -rest: <= 0, and >= 0 by the minimum
    return [
        ("induction step: S_i + W_i R_i = S_{i-1} + W_{i-1} R_{i-1}, for free m_i and beta_i", step),
        ("sum R_i = 1 when sum R_{i-1} = 1 and beta_i = sum m_i (linear; 1 at the total)", linear and unit),
        ("beta_i = 1: R_{i-1} - m_i is both >= 0 and <= 0 at each token", forced),
    ]


def sum_over_paths(
    target: Sequence[Fraction],
    rounds: Sequence[Sequence[Fraction]],
    residual: Residual,
    *,
    minimum: bool = True,
) -> tuple[Fraction, ...]:
    """Eq. 25-27 with a given residual; with ``minimum=False`` the rounds are the m_i themselves."""
    total, weight, current = [Fraction(0)] * len(target), Fraction(1), tuple(target)
    for values in rounds:
        accepted = tuple(map(min, values, current)) if minimum else tuple(values)
        beta = sum(accepted, Fraction(0))
        total = [t + weight * m for t, m in zip(total, accepted, strict=True)]
        if beta == 1:
            return tuple(total)
        current = tuple(residual(R, m, beta) for R, m in zip(current, accepted, strict=True))
        weight *= 1 - beta
    return tuple(t + weight * R for t, R in zip(total, current, strict=True))


def check_rationals(residual: Residual, samples: int, seed: int) -> list[tuple[str, bool]]:
    """Random targets with zeros and random proxies: negative, unnormalised, and some with beta = 1."""
    draw = random.Random(seed)
    identity = agrees = free = True
    ended = 0
    for _ in range(samples):
        size, n = draw.randint(1, 5), draw.randint(0, 4)
        counts = [draw.randint(0, 4) for _ in range(size)]
        counts[draw.randrange(size)] += 1
        target = tuple(Fraction(count, sum(counts)) for count in counts)
        proxies = [[Fraction(draw.randint(-6, 12), 7) for _ in range(size)] for _ in range(n)]
        if n and draw.random() < 0.3:
            proxies[draw.randrange(n)] = [Fraction(60)] * size  # above any R here, so m = R and beta = 1
        oracle = path_identity(target, proxies)
        ended += 1 in oracle.betas
        identity &= sum_over_paths(target, proxies, residual) == target
        agrees &= oracle.law == target
        rounds = [[value / 3 for value in proxy] for proxy in proxies if sum(proxy) != 3]
        free &= sum_over_paths(target, rounds, residual, minimum=False) == target
    broken = sum_over_paths([Fraction(1, 2)] * 2, [[Fraction(1), Fraction(0)]], residual, minimum=False)
    return [
        (f"equal to p in Fractions for {samples} random lists of proxies ({ended} with beta = 1)", identity),
        ("the same for arbitrary m_i, not minima, as long as beta_i != 1", free),
        ("the oracle's path identity gives p for the same lists", agrees and ended > 0),
        ("m = (1, 0), R = (1/2, 1/2), beta = 1 is not p: the minimum is needed there", broken == (1, 0)),
    ]


def prove(*, residual: Residual = standard_residual, samples: int = 200, seed: int = 20) -> ProofReport:
    """Prove the identity.

    Parameters
    ----------
    residual : callable (R, m, beta) -> next R
        The residual of one round. Anything but the standard one is a mutation, which must fail.
    samples, seed : int
        Number and seed of the random lists of proxies.

    Returns
    -------
    ProofReport
        The checks and the argument.
    """
    checks = check_symbolically(residual) + check_rationals(residual, samples, seed)
    return ProofReport(
        STATEMENT, "proved", ("SymPy", "rational"), tuple(checks), LINES,
        left="nothing", coq=("path_identity.v: path_identity", "path_identity.v: path_identity_any"),
    )  # fmt: skip
