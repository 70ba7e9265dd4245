"""How much more than SpecInfer an exact rule can accept, from SpecInfer's acceptance alone.

For n i.i.d. candidates of which SpecInfer accepts one with probability a, the limit of exact rules is at most

    f_n(a) = min(1, max over 0 < u <= 1 of 1 + u - u^n - (1 - a) / u^(n-1)) <= r_n a,

and both are attained. The second holds on average over positions. Proof: docs/explanation/optimal-rules.md.
"""

from __future__ import annotations

from scipy.optimize import root_scalar

from resispec_verify.errors import InputError

__all__ = ["largest_ratio", "most_accepted", "worst_pair"]


def most_accepted(accepted: float, candidates: int) -> float:
    """``f_n(a)``: the most that an exact rule can accept at a position where SpecInfer accepts ``a``.

    Parameters
    ----------
    accepted : float
        In [0, 1].
    candidates : int
        ``n >= 1``.

    Raises
    ------
    InputError
        Outside of these.
    """
    _check(accepted, candidates)
    u = _best_split(accepted, candidates)
    return min(1.0, 1 + u - u**candidates - (1 - accepted) / u ** (candidates - 1))


def worst_pair(accepted: float, candidates: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Target and draft over two tokens where SpecInfer accepts ``a`` and the limit is ``f_n(a)``."""
    _check(accepted, candidates)
    u = _best_split(accepted, candidates)
    c = u - (1 - accepted) / u ** (candidates - 1)
    return (c, 1 - c), (u, 1 - u)


def largest_ratio(candidates: int) -> float:
    """``r_n = 1 / (1 - (n-1)/(2n-1) (n/(2n-1))^(n/(n-1)))``: 1 for one candidate, always below 4/3."""
    _check(0.0, candidates)
    n = candidates
    if n == 1:
        return 1.0
    return 1.0 / (1.0 - (n - 1) / (2 * n - 1) * (n / (2 * n - 1)) ** (n / (n - 1)))


def _check(accepted: float, candidates: int) -> None:
    if candidates < 1:
        raise InputError(f"candidates must be at least 1, got {candidates}")
    if not 0 <= accepted <= 1:
        raise InputError(f"an acceptance must be in [0, 1], got {accepted:g}")


def _best_split(accepted: float, n: int) -> float:
    """The maximiser u: the root of ``1 - n u^(n-1) + (n - 1) (1 - a) / u^n``, which falls in u.

    It is not negative at ``(1 - a)^(1/n)``, where it is ``n (1 - u^(n-1))``, and not positive at 1.
    """
    if n == 1 or not 0 < accepted < 1:
        return 1.0
    low = (1.0 - accepted) ** (1.0 / n)

    def slope(u: float) -> float:
        return 1 - n * u ** (n - 1) + (n - 1) * (1 - accepted) / u**n

    return float(root_scalar(slope, bracket=(low, 1.0), method="brentq").root)
