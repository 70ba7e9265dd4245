"""Look-ups at knots instead of ranks: what makes a merged path cheap.

With ``f(t) = sum (t q - p)_+``, a path of probability t needs ``f(t)`` and places ``w min(t q, p)``. Both are
known at knots, 2**BITS an octave. Between two of them, ``a <= t < b`` with ``t = (1 - u) a + u b``:

* f is convex: its tangent at a lies below it, its chord above;
* ``min(t q, p)`` is concave: ``(1 - u) min(a q, p) + u min(b q, p)`` lies below it, for each token.

So the tangent in the place of f, and two atoms at the knots in the place of one at t, bound from below what
paths place: D is rounded down, and with it c (`kernels.paths.grids`). Both are off by second order in the
width of an octave's part, some 1e-6 of a path; that is part of the gap, and measured with it. What is taken
off at holes is what an atom at t would put there, not less than the two put. A path below the lowest knot is
left out. The chord bounds what is accepted from below.

Neither needs the rank of t: no search, and tables that stay in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.elementwise.ratio_order import RatioOrder, rank_of
from resispec_verify.kernels.jit import inline

__all__ = ["NO_KNOTS", "atoms_at", "knots_of", "look_up", "put"]

_BITS = 8
_LOWEST, _HIGHEST = -60, 1  # octaves; a path has a probability of at most 1
_SHIFT = 52 - _BITS
_BASE = (1023 + _LOWEST) << _BITS
_PARTS = 2.0 ** -(52 - _BITS)

#: Look up exact ranks.
NO_KNOTS = np.zeros((0, 4))


def _knots() -> NDArray[np.float64]:
    bits = (np.arange(((_HIGHEST - _LOWEST) << _BITS) + 1, dtype=np.int64) + _BASE) << _SHIFT
    return np.asarray(bits.view(np.float64), np.float64)


def knots_of(order: RatioOrder) -> NDArray[np.float64]:
    """``(knots, 4)``: sums of q and p below the knot, f, and the rank."""
    t = _knots()
    rank = np.searchsorted(order.ratio, t)
    q, p = order.prefix[rank, 0], order.prefix[rank, 1]
    return np.asarray(np.stack([q, p, np.clip(t * q - p, 0.0, None), rank], axis=-1), np.float64)


def atoms_at(knots: NDArray[np.float64], weight: NDArray[np.float64], atoms: NDArray[np.float64]) -> None:
    """Add what was put at knots to ``atoms``, sums of ``w t`` and of w by rank."""
    if knots.size:
        rank = knots[:, 3].astype(np.int64)
        np.add.at(atoms, rank, np.stack([weight * _knots(), weight], axis=-1))


@inline
def look_up(t, law) -> Any:
    """(place of t, f from below, slope there, f from above, rank); ``law`` is (ratio, table, prefix, knots).

    The place is the rank, or the knot below; -1 where there is none.
    """
    ratio, table, prefix, knots = law
    if knots.shape[0] > 0:
        k = (np.float64(t).view(np.int64) >> _SHIFT) - _BASE
        if k < 0:
            return -1, 0.0, 0.0, t, 0
        u = (np.float64(t).view(np.int64) & ((1 << _SHIFT) - 1)) * _PARTS
        f = max(t * knots[k, 0] - knots[k, 1], 0.0)
        return k, f, knots[k, 0], knots[k, 2] + u * (knots[k + 1, 2] - knots[k, 2]), int(knots[k, 3])
    r = rank_of(t, ratio, table)
    f = max(t * prefix[r, 0] - prefix[r, 1], 0.0)
    return r, f, prefix[r, 0], f, r


@inline
def put(w, t, place, atoms, weight):
    """Place ``w min(t q, p)``, by its place."""
    if weight.shape[0] > 0:
        if place >= 0:
            u = (np.float64(t).view(np.int64) & ((1 << _SHIFT) - 1)) * _PARTS
            weight[place] += w * (1.0 - u)
            weight[place + 1] += w * u
    else:
        atoms[place, 0] += w * t
        atoms[place, 1] += w
