"""The path identity of ResiSpec's Appendix B (Eq. 25-28) in exact rationals, for any proxies at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .laws import Law, as_law

__all__ = ["PathIdentity", "path_identity"]


@dataclass(frozen=True)
class PathIdentity:
    """The sum over paths of Appendix B, and its parts.

    Attributes
    ----------
    law : tuple of Fraction, length V
        ``sum_i P_i + P_fail``. It equals the target whatever the proxies were, so it says nothing about
        a sampler.
    paths : tuple of tuples of Fraction
        ``P_1, ..., P_n`` (Eq. 25, 26) and then ``P_fail`` (Eq. 27), each of length V.
    betas : tuple of Fraction, length n
        ``beta_i = sum min(k_i, R_{i-1})``; zero for the rounds after one with ``beta_i = 1``.
    """

    law: Law
    paths: tuple[Law, ...]
    betas: tuple[Fraction, ...]


def path_identity(target: Sequence[Any], proxies: Sequence[Sequence[Any]]) -> PathIdentity:
    """Add up the paths of Appendix B for an arbitrary list of proxies.

    ``m_i = min(k_i, R_{i-1})``, ``beta_i = sum m_i``, ``R_i = (R_{i-1} - m_i) / (1 - beta_i)``, and
    ``law = sum_i prod_{j<i} (1 - beta_j) m_i + prod_j (1 - beta_j) R_n``.

    Parameters
    ----------
    target : sequence of rationals, length V
        The target, R_0.
    proxies : sequence of sequences of rationals, each of length V
        ``k_1, ..., k_n``: any real numbers, normalised or not, negative ones included.

    Returns
    -------
    PathIdentity
        The sum and its parts.

    Raises
    ------
    ValueError
        If the target is not a law or a proxy has another length.

    Notes
    -----
    A round with ``beta_i = 1`` ends the sum: its weight on all that follows is zero. Nothing is lost,
    because m_i <= R_{i-1} token by token and both then sum to one, so m_i = R_{i-1}.
    """
    residual = as_law(target, name="target")
    size = len(residual)
    weight = Fraction(1)
    paths, betas = [], []
    for index, values in enumerate(proxies):
        proxy = tuple(Fraction(value) for value in values)
        if len(proxy) != size:
            raise ValueError(f"proxy {index} must have the target's {size} tokens, got {len(proxy)}")
        if weight == 0:
            paths.append((Fraction(0),) * size)
            betas.append(Fraction(0))
            continue
        accepted = tuple(min(k, R) for k, R in zip(proxy, residual, strict=True))
        beta = sum(accepted, Fraction(0))
        paths.append(tuple(weight * mass for mass in accepted))
        betas.append(beta)
        if beta != 1:
            residual = tuple((R - m) / (1 - beta) for R, m in zip(residual, accepted, strict=True))
        weight *= 1 - beta
    paths.append(tuple(weight * mass for mass in residual))
    law = tuple(sum((path[x] for path in paths), Fraction(0)) for x in range(size))
    return PathIdentity(law, tuple(paths), tuple(betas))
