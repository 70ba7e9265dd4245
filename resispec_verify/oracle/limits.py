"""The acceptance that no exact rule can exceed with given candidates, in exact rationals.

For any law of the candidate tuple, max-flow min-cut gives the limit over all exact rules as

    min over sets H of  1 + p(H) - f(H),   f(H) = P(all candidates lie in H):

a set H of tokens is paid for, and so are the tuples that do not lie inside H. For n independent candidates
``f(H) = q(H)**n``.

Without replacement a prefix of the tokens in ascending order of p/q attains the minimum, as for independent
candidates (proof in docs/explanation/exactness.md). Let every token ring at an exponential time of rate
q, all
independent: the order of the rings is the order of drawing. With e_j the elementary symmetric polynomials,

    1 - f(H) = (1 - q(H)) sum_{j < n} integral_0^inf exp(-t) e_j(exp(q(x) t) - 1 : x in H) dt,

the probability that the outside rings before n tokens of H do. Expanding the product makes it rational
(`probability_inside`).

References
----------
Hu et al. (2025), Towards Optimal Multi-Draft Speculative Decoding, arXiv 2502.18779.
Sun et al. (2024), SpecHub: its pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from .engine import TupleLaw
from .laws import as_law, read_pair
from .proposals import hub

__all__ = [
    "limit_by_prefixes",
    "limit_by_subsets",
    "limit_fixed",
    "limit_of_tuples",
    "limit_pairs",
    "limit_without_replacement",
    "probability_inside",
]


def _subsets(size: int) -> Iterator[set[int]]:
    return (set(H) for k in range(size + 1) for H in itertools.combinations(range(size), k))


def limit_of_tuples(target: Sequence[Any], tuples: TupleLaw) -> Fraction:
    """``min_H 1 + p(H) - P(all candidates in H)`` over all 2**V sets H, for any law of the tuple.

    Parameters
    ----------
    target : sequence of rationals, length V
        The target.
    tuples : mapping from tuples of tokens to rationals
        Law of the candidates.

    Returns
    -------
    Fraction
        The limit.
    """
    p = as_law(target, name="target")
    as_law(tuples.values(), name="law of the candidates")
    sets: dict[frozenset[int], Fraction] = {}
    for tokens, weight in tuples.items():
        sets[frozenset(tokens)] = sets.get(frozenset(tokens), Fraction(0)) + weight
    values = []
    for H in _subsets(len(p)):
        inside = sum((weight for members, weight in sets.items() if members <= H), Fraction(0))
        values.append(1 + sum((p[x] for x in H), Fraction(0)) - inside)
    return min(values)


def limit_by_subsets(target: Sequence[Any], draft: Sequence[Any], n: int) -> Fraction:
    """The limit ``OT_n`` for n i.i.d. candidates: 0 for n = 0, and 1 - TV(target, draft) for n = 1."""
    p, q = read_pair(target, draft, n)
    return min(
        1 + sum((p[x] for x in H), Fraction(0)) - sum((q[x] for x in H), Fraction(0)) ** n
        for H in _subsets(len(p))
    )


def limit_by_prefixes(target: Sequence[Any], draft: Sequence[Any], n: int) -> Fraction:
    """``OT_n`` by trying the V + 1 prefixes of the tokens in ascending order of target / draft.

    Parameters and result are those of `limit_by_subsets`. Tokens that the draft does not cover come last.
    """
    p, q = read_pair(target, draft, n)
    order = sorted(range(len(p)), key=lambda x: (q[x] == 0, p[x] / q[x] if q[x] else p[x]))
    p_H, q_H = Fraction(0), Fraction(0)
    best = 1 + p_H - q_H**n
    for x in order:
        p_H, q_H = p_H + p[x], q_H + q[x]
        best = min(best, 1 + p_H - q_H**n)
    return best


def probability_inside(draft: Sequence[Any], inside: Iterable[int], n: int) -> Fraction:
    """P(all of n candidates drawn without replacement lie in `inside`).

    Where the support has fewer than n tokens all of it is drawn. Costs ``2**n C(|inside|, n - 1)`` terms.
    """
    q = as_law(draft, name="draft")
    n = min(n, sum(mass > 0 for mass in q))
    members = [q[x] for x in set(inside) if q[x] > 0]
    outside = 1 - sum(members, Fraction(0))
    if outside == 0:
        return Fraction(1)
    missed = Fraction(0)
    for size in range(n):
        for chosen in itertools.combinations(members, size):
            for kept in itertools.product((False, True), repeat=size):
                rate = sum((mass for mass, keep in zip(chosen, kept, strict=True) if keep), Fraction(0))
                missed += (-1) ** (size - sum(kept)) / (1 - rate)
    return 1 - outside * missed


def limit_without_replacement(target: Sequence[Any], draft: Sequence[Any], n: int) -> Fraction:
    """The limit for n candidates drawn without replacement, by the V + 1 prefixes in order of p/q.

    Parameters
    ----------
    target, draft : sequence of rationals, length V
        The two laws.
    n : int
        Number of candidates, at least 0; all of the support where it is smaller.

    Returns
    -------
    Fraction
        The exact limit; see the derivation at the top of this file.
    """
    p, q = read_pair(target, draft, n)
    order = sorted((x for x in range(len(p)) if q[x] > 0), key=lambda x: p[x] / q[x])
    values = [
        1 + sum((p[x] for x in order[:size]), Fraction(0)) - probability_inside(q, order[:size], n)
        for size in range(len(order) + 1)
    ]
    return min(values)


def limit_fixed(target: Sequence[Any], candidates: Iterable[int]) -> Fraction:
    """The limit for candidates that are certain: the target's mass on them."""
    p = as_law(target, name="target")
    return sum((p[x] for x in set(candidates)), Fraction(0))


def limit_pairs(target: Sequence[Any], draft: Sequence[Any]) -> Fraction:
    """The limit for SpecHub's pairs: ``p(a) + sum over i of min(p(i), q(i) / (1 - q(a)))``.

    The pair {a, i} has probability q(i) / (1 - q(a)) in either order together. A set H without a holds no
    pair; with a, each i is worth p(i) or its pair, whichever is less. Never above 1. Where q(a) = 1 the
    only candidate is a.
    """
    p, q = read_pair(target, draft, 2)
    a = hub(q)
    if q[a] == 1:
        return p[a]
    return p[a] + sum((min(p[i], q[i] / (1 - q[a])) for i in range(len(p)) if i != a), Fraction(0))
