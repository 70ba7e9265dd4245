"""Sun et al. (2024), Block Verification Accelerates Speculative Decoding: Algorithm 2."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from math import factorial

from ..laws import Law, normalise
from ..paths import drawn
from ..registry import Blocks, Chain, Path, transcribes_paths

__all__ = ["block"]


def _accept_block(target: Chain, draft: Chain, path: Path) -> list[tuple[Fraction, Law]]:
    """Block verification: for i = 0..L, the acceptance h_i and the law of the token after i tokens.

    ``w_i = min(1, w_{i-1} p/q)``, ``S_i = sum (w_i p - q)_+``, ``h_i = S_i / (S_i + 1 - w_i)``,
    ``h_L = w_L``. Where S_i = 1 - w_i = 0 the two laws agree and all that follows is accepted, so the
    value does not matter.
    """
    weight, steps = Fraction(1), []
    for i in range(len(path) + 1):
        p = target(path[:i])
        if i > 0:
            p_x, q_x = target(path[: i - 1])[path[i - 1]], draft(path[: i - 1])[path[i - 1]]
            weight = min(Fraction(1), weight * p_x / q_x)
        if i == len(path):
            steps.append((weight, p))
            continue
        left = [max(weight * a - b, Fraction(0)) for a, b in zip(p, draft(path[:i]), strict=True)]
        total = sum(left, Fraction(0))
        accept = total / (total + 1 - weight) if total + 1 > weight else Fraction(1)
        steps.append((accept, normalise(left, fallback=p)))
    return steps


def _by_products(weights: Sequence[Fraction]) -> list[Fraction]:
    """Probability that ``u_1 ... u_i <= w_i`` holds last at i = 0, ..., L; logarithms to 60 digits.

    ``-ln(u_1 ... u_i)`` is the i-th arrival of a Poisson process of rate 1, and prefix i fails when it comes
    before ``-ln w_i``. Later arrivals come later, so those from prefix k on all fail when at the time ``-ln
    max(w_i, w_{i+1}, ...)`` at least i have come, for every i (for i < k the maximum from k on).
    """
    count = len(weights)

    def none_from(k: int) -> Fraction:
        arrived, before = {0: Fraction(1)}, Fraction(1)
        for i in range(1, count + 1):
            level = max(weights[max(i, k) - 1 :])
            if level == 0:
                break
            mean = _minus_log(level / before)
            chance = [level / before * mean**n / factorial(n) for n in range(count)]
            later = dict.fromkeys(range(count + 1), Fraction(0))
            for n, mass in arrived.items():
                for more in range(count - n):
                    later[n + more] += mass * chance[more]
                later[count] += mass * (1 - sum(chance[: count - n], Fraction(0)))
            arrived = {n: mass for n, mass in later.items() if n >= i}
            before = level
        return sum(arrived.values(), Fraction(0))

    none = [*(none_from(k) for k in range(1, count + 1)), Fraction(1)]
    return [none[0], *(after - before for before, after in pairwise(none))]


def _minus_log(value: Fraction) -> Fraction:
    with localcontext() as context:
        context.prec = 60
        return -Fraction((Decimal(value.numerator) / Decimal(value.denominator)).ln())


@transcribes_paths("block", drawn)
def block(
    target: Chain, draft: Chain, paths: Sequence[Path], *, residual: str = "block", coins: str = "independent"
) -> Blocks:
    """The longest prefix whose own test passes is kept; the empty prefix always passes.

    With ``coins = "product"`` and ``residual = "token"`` what vllm-ascend did: w_i against the product of the
    coins up to i, and ``norm((p - q)_+)``.
    """
    blocks: Blocks = {}
    for path in paths:
        steps, kept = _accept_block(target, draft, path), []
        beyond = Fraction(1)  # no longer prefix passed
        for i in reversed(range(len(steps))):
            kept.append(beyond * (steps[i][0] if i > 0 else 1))
            beyond -= kept[-1]
        kept = kept[::-1] if coins == "independent" else _by_products(_weights(target, draft, path))
        for i, (_, correction) in enumerate(steps):
            law = correction
            if residual == "token" and i < len(path):
                p, q = target(path[:i]), draft(path[:i])
                law = normalise([max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)], fallback=p)
            for token, mass in enumerate(law):
                key = (*path[:i], token)
                blocks[key] = blocks.get(key, Fraction(0)) + kept[i] * mass
    return blocks


def _weights(target: Chain, draft: Chain, path: Path) -> list[Fraction]:
    """w_1, ..., w_L."""
    found = [Fraction(1)]
    for i, x in enumerate(path):
        found.append(min(Fraction(1), found[-1] * target(path[:i])[x] / draft(path[:i])[x]))
    return found[1:]
