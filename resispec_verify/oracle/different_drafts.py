"""Independent candidates from different laws q_1, ..., q_n: the limit, and the best sequential rule.

*Limit.* A rule that is exact accepts masses ``m <= p`` with ``m(H) <= f(H) = 1 - prod_i (1 - q_i(H))``, the
probability that some candidate lies in H, and all such masses can be had (max-flow min-cut), so the most is

    min over sets H of  p(outside H) + f(H).

f is submodular. With ``l_i = prod_{j != i} (1 - q_j(H))`` at a least H,

    p(x) >= sum_i l_i q_i(x) in H,    p(x) <= sum_i l_i q_i(x) outside:

taking x out of H gains ``prod_i (1 - q_i(H) + q_i(x)) - prod_i (1 - q_i(H))``, at least ``sum_i l_i q_i(x)``,
and putting x into it costs at most that, since the product is convex in the share of x. So H is a prefix of
the tokens by descending ``p / sum_i l_i q_i``, for weights that depend on H: no order by one law decides.

*Sequential.* A candidate is independent of what was rejected, so that with W_k the probability of looking at
the k-th, only its averaged masses ``A_k <= W_k q_k`` matter, and ``sum_k A_k <= p``. With
``O_k = sum_{j >= k} W_j q_j`` and ``Phi(O) = sum_x min(p(x), O(x))``, what is accepted from k on is
``W_k - z <= Phi(O_k)``, z being the probability that all are rejected. In return, any W with
``W_1 = 1`` and ``W_k - z = Phi(O_k)`` for every k is attained by ``A_k = min(p, O_k) - min(p, O_{k+1})``:
priority to the last. The least z for which they exist is the optimum (docs/explanation/optimal-rules.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from .laws import Law, as_law
from .programs import best_value

__all__ = [
    "drafts_limit",
    "drafts_limit_by_prefixes",
    "drafts_optimum",
    "drafts_optimum_by_program",
    "drafts_times",
]

_ZERO = Fraction(0)


def _read(target: Sequence[Any], drafts: Sequence[Sequence[Any]]) -> tuple[Law, list[Law]]:
    p = as_law(target, name="target")
    laws = [as_law(draft, name="draft") for draft in drafts]
    if any(len(q) != len(p) for q in laws):
        raise ValueError(f"every draft must have the target's {len(p)} tokens")
    return p, laws


def _cut(p: Law, drafts: Sequence[Law], inside: Sequence[int]) -> Fraction:
    """``p(outside H) + 1 - prod (1 - q_i(H))``."""
    return (
        2 - sum((p[x] for x in inside), _ZERO) - prod(1 - sum((q[x] for x in inside), _ZERO) for q in drafts)
    )


def drafts_limit(target: Sequence[Any], drafts: Sequence[Sequence[Any]]) -> Fraction:
    """The limit on acceptance, by trying all 2**V sets.

    Parameters
    ----------
    target : sequence of rationals, length V
    drafts : sequence of n laws
        The k-th candidate is drawn from the k-th, independently.
    """
    p, laws = _read(target, drafts)
    tokens = range(len(p))
    sets = itertools.chain.from_iterable(itertools.combinations(tokens, size) for size in range(len(p) + 1))
    return min(_cut(p, laws, inside) for inside in sets)


def drafts_limit_by_prefixes(
    target: Sequence[Any], drafts: Sequence[Sequence[Any]], weights: Sequence[Any]
) -> Fraction:
    """The least cut over the prefixes by descending ``p / sum_i weights_i q_i``: at least the limit."""
    p, laws = _read(target, drafts)
    if len(weights) != len(laws):
        raise ValueError(f"there must be a weight for each of the {len(laws)} drafts, got {len(weights)}")
    mixed = [
        sum((Fraction(w) * q[x] for w, q in zip(weights, laws, strict=True)), _ZERO) for x in range(len(p))
    ]
    order = sorted(range(len(p)), key=lambda x: (mixed[x] > 0, -p[x] / mixed[x] if mixed[x] else _ZERO))
    return min(_cut(p, laws, order[:size]) for size in range(len(p) + 1))


def drafts_optimum_by_program(target: Sequence[Any], drafts: Sequence[Sequence[Any]]) -> float:
    """The best sequential rule, as a program in the masses A_k(x); to the tolerance of HiGHS (1e-7)."""
    p, laws = _read(target, drafts)
    if not laws:
        return 0.0
    n, size = len(laws), len(p)
    looked = np.zeros((n, size, n, size))
    for k, q in enumerate(laws):
        for x in range(size):
            looked[k, x, :k] = float(q[x])  # W_k = 1 - what was accepted before
            looked[k, x, k, x] = 1.0
    at_most = np.concatenate([looked.reshape(n * size, n * size), np.tile(np.eye(size), n)])
    room = [float(mass) for q in (*laws, p) for mass in q]
    return best_value(np.ones(n * size), A_ub=at_most, b_ub=room, bounds=(0, None))[0]


def _most_looks(p: Law, q: Law, later: Law, z: Fraction) -> Fraction:
    """The greatest w with ``w - Phi(w q + later) <= z``: it never falls, and its pieces are linear."""

    def excess(w: Fraction) -> Fraction:
        return w - sum((min(a, w * b + c) for a, b, c in zip(p, q, later, strict=True)), _ZERO) - z

    kinks = sorted({(a - c) / b for a, b, c in zip(p, q, later, strict=True) if b > 0 and a > c} | {_ZERO})
    last = max((w for w in kinks if excess(w) <= 0), default=_ZERO)
    # From here to the next kink the slope is constant.
    rising = (b for a, b, c in zip(p, q, later, strict=True) if b > 0 and a > last * b + c)
    slope = 1 - sum(rising, _ZERO)
    return last - excess(last) / slope


def drafts_times(target: Sequence[Any], drafts: Sequence[Sequence[Any]], z: Any) -> tuple[Fraction, ...]:
    """The greatest ``W_1, ..., W_n`` with ``W_k - z <= Phi(O_k)`` for every k, found backwards."""
    p, laws = _read(target, drafts)
    if not 0 <= z <= 1:
        raise ValueError(f"z is the probability that all are rejected, so from 0 to 1; got {z}")
    later, found = (_ZERO,) * len(p), []
    for q in reversed(laws):
        w = _most_looks(p, q, later, Fraction(z))
        later = tuple(c + w * b for c, b in zip(later, q, strict=True))
        found.append(w)
    return tuple(reversed(found))


def drafts_optimum(target: Sequence[Any], drafts: Sequence[Sequence[Any]]) -> tuple[Fraction, Fraction]:
    """Bounds on the optimum, 2**-40 apart, by bisection of the least z for which W_1 reaches 1."""
    p, laws = _read(target, drafts)
    if not laws:
        return _ZERO, _ZERO
    low, high = _ZERO, Fraction(1)  # every z below `low` is too little
    for _ in range(40):
        z = (low + high) / 2
        low, high = (low, z) if drafts_times(p, laws, z)[0] >= 1 else (z, high)
    return 1 - high, 1 - low
