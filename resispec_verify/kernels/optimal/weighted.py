"""Masses that accept candidates of the greatest total value: the longest exact step that decides by node.

In a tree of candidates an accepted token x is worth ``v(x)``, the expected number of tokens that it brings:
itself and what is accepted under it. With n i.i.d. candidates the masses m that an exact rule can accept are
those with ``0 <= m <= p`` and ``m(H) <= 1 - (1 - q(H))**n`` for every set H: a polymatroid cut by a box,
which is a polymatroid again. So ``sum v m`` is greatest where the tokens, by descending v, take as much as
they can.

What token x can still take is ``min over H of 1 - (1 - q(H + x))**n - m(H)`` over the tokens H before it. The
right-hand side is concave in q(H), so that the least is attained by the tokens T whose sets are exhausted
together with some first tokens of the others in descending order of p/q, all of which have ``m = p``. So one
minimum over prefixes decides each token, and a token that cannot take its p makes its prefix part of T. The
proof is in docs/explanation/optimal-rules.md.

Prefixes are kept in blocks, each with a bound from below on how much its sets have left; a block is walked
only where the bound does not decide. A token costs one step a block, and a walk of all tokens at worst.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.jit import jit
from resispec_verify.kernels.optimal.layouts import Layout, _mass, best_layout

__all__ = ["longest_layout", "weighted_masses"]


@jit()
def _walk(p, q, there, first, last, start, wins, more, n):
    """Of the prefixes that end in a block: the least that is left, and that is left beside a new token.

    Returns ``(least left, least left with the token, rank of the last prefix where that is attained)``.
    The token's draft is ``more``; before the block the prefixes reach ``start`` and hold the mass ``wins``.
    """
    least, beside, at = np.inf, np.inf, -1
    for r in range(first, last):
        if not there[r]:
            continue
        start += q[r]
        wins += p[r]
        left = _mass(0.0, start, n) - wins
        least = min(least, left)
        left += _mass(start, more, n)
        if left <= beside:
            beside, at = left, r
    return least, beside, at


@jit()
def _greedy(p, q, turn, size, n):
    """Masses of tokens in descending order of p/q, all with q > 0, taken in the order of `turn`."""
    vocab = p.shape[0]
    blocks = (vocab + size - 1) // size
    there = np.zeros(vocab, np.bool_)  # holds its p, and is in no exhausted set
    held_q, held_p, floor = np.zeros(blocks), np.zeros(blocks), np.full(blocks, np.inf)
    masses = np.zeros(vocab)
    full = 0.0  # the draft of the exhausted tokens: they hold all that their set can
    for x in turn:
        # The least over the prefixes, the empty one first; blocks whose bound is no less are left out.
        take, at = _mass(full, q[x], n), -1
        start, wins = full, _mass(0.0, full, n)
        for b in range(blocks):
            end = start + held_q[b]
            if floor[b] + _mass(end, q[x], n) < min(take, p[x]):
                floor[b], left, rank = _walk(
                    p, q, there, b * size, min(vocab, (b + 1) * size), start, wins, q[x], n
                )
                if left <= take:
                    take, at = left, rank
            start, wins = end, wins + held_p[b]
        exhausted = take < p[x]
        masses[x] = max(min(take, p[x]), 0.0)
        if exhausted:
            full += q[x]
            for r in range(at + 1):
                if there[r]:
                    there[r] = False
                    full += q[r]
                    held_q[r // size] -= q[r]
                    held_p[r // size] -= p[r]
        else:
            there[x] = True
            held_q[x // size] += q[x]
            held_p[x // size] += p[x]
        start = full
        for b in range(blocks):
            start += held_q[b]
            if exhausted and b * size <= at:
                if (b + 1) * size <= at + 1:
                    held_q[b], held_p[b], floor[b] = 0.0, 0.0, np.inf
                else:
                    floor[b] = -np.inf
            elif not exhausted and b == x // size:
                floor[b] = -np.inf
            elif exhausted or b > x // size:
                # Prefixes that end here grew by q(x): least where they are longest, since wins are concave.
                floor[b] += _mass(start - q[x], q[x], n) - masses[x]
    return masses


def weighted_masses(
    target: NDArray[np.float64], draft: NDArray[np.float64], values: NDArray[np.float64], candidates: int
) -> NDArray[np.float64]:
    """Masses to accept, of the greatest ``sum values * masses`` that an exact rule can have.

    Parameters
    ----------
    target, draft : float64 (V,)
        Probabilities of one position.
    values : float64 (V,)
        What accepting each token is worth; not negative. Tokens that are worth the same are taken by
        descending p/q.
    candidates : int
        ``n >= 1`` i.i.d. draws from the draft.

    Returns
    -------
    float64 (V,)
        ``0 <= m <= p`` and ``m(H) <= 1 - (1 - q(H))**n`` for every set H, to rounding.

    Raises
    ------
    InputError
        Values of another shape, negative or not finite.
    """
    values = np.asarray(values, np.float64)
    if values.shape != target.shape or not (np.isfinite(values) & (values >= 0)).all():
        raise InputError(
            f"what accepted tokens are worth must be {target.shape[0]} numbers, one a token, finite and not "
            f"negative; got an array of shape {values.shape}, least {values.min() if values.size else None}"
        )
    order = ratio_order(target, draft)
    size = int(np.count_nonzero(order.q > 0))  # tokens without draft come last in the order
    tokens = order.order[:size][::-1]
    p, q = order.p[:size][::-1].copy(), order.q[:size][::-1].copy()
    turn = np.argsort(-values[tokens], kind="stable")
    masses = np.zeros(target.shape[0])
    masses[tokens] = _greedy(p, q, turn, max(int(np.sqrt(size)), 1), candidates)
    return masses


def longest_layout(values: NDArray[np.float64]) -> Callable[..., Layout]:
    """What finds the layout of the greatest value: ``OptimalJoint(find_layout=longest_layout(values))``.

    The best layout for a target is that of a winner's law w with the least ``sum (p - w)+``. With the masses
    in the place of p that is 0, so ``w >= m``, and of the winner at least ``min(p, w) >= m`` is accepted.

    Parameters
    ----------
    values : float64 (V,)
        As for `weighted_masses`.

    Returns
    -------
    callable
        Maps target, draft ``(V,)`` and n to a `Layout`. Wrong values cost length and never exactness.
    """

    def layout(target: NDArray[np.float64], draft: NDArray[np.float64], candidates: int) -> Layout:
        return best_layout(weighted_masses(target, draft, values, candidates), draft, candidates)

    return layout
