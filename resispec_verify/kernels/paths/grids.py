"""Rejection paths of ResiSpec merged by their probability: certified lower bounds for what they emit.

`shaped_paths` follows paths one by one. What follows a path depends on little: its probability ``t``, its
holes, and its residual ``U`` only through ``S U``, with ``S`` a number. Given ``t`` and the holes, the
continuation emits ``G(t) + S(t) U``, where ``G`` sums atoms ``w min(t' q, p)`` over what is rejected next.
So light paths are laid on a grid in ``t``, and each cell of the grid is continued once for all of them.

**Everything grows with t.** Rejecting x next gives ``t' = t q(x) - p(x)``. The probability that the one
after is rejected too, ``D(t') = sum (t' q - p)_+ + sum_holes min(t' q_h, p_h)``, is convex with
``D(0) = 0``: a hole contributes ``t' q_h`` in all. So ``D(t') / t`` grows with t, and with it
``c = D / (t (1 - q(x)) + D)``. As ``U >= min(t' q, p)`` off the holes, the next
``U' = (1 - c) min(t' q, p) + c U`` grows with c, t' and U. By induction over the candidates that are left,
``G`` and ``S`` grow with t, for each token and for each next rejection separately. Hence two lower bounds:

* *with two rejections and more to come*: move t down to the lower end of its cell;
* *with one to come*: share the path out to both ends of its cell [a, b], in proportion. For each x with
  ``p/q < a``, D has a tangent at a, affine in t with an intercept ``-i <= 0``. It lies below D, so
  ``L / (t (1 - q) + L)`` with ``L = s t - i`` lies below c; it is concave and increasing, so its chord ``l``
  lies below it; and ``(1 - l(t)) min((t q(x) - p(x)) q, p)`` is a minimum of two concave functions of t. So
  the proportional mixture bounds ``(1 - c) min(t' q, p) + c U`` from below, and is of second order in
  ``b - a``. Rejections with ``a <= p/q < b`` are left out.

**Water-filling.** The continuation emits ``G(t)`` alone. Its last term is ``U' = min(l q, p)`` off the
holes; l, for which the sum is t', grows with t' and is convex: the inverse of a concave increasing
function. (So is what tokens with q = 0 get: 0, and then affine.) Moving t down is a lower bound as
before. Where one rejection is left, the tangent of l at the lower end, affine in t, lies below l, and
``min(tangent q, p)`` is concave: the mixture of ``min(l(a) q, p)`` and ``min(tangent(b) q, p)`` bounds U'
from below. Where all tokens with q > 0 are full at the lower end, they are so in the whole cell, and the
mixture is exact. A forgotten hole takes part of t' from the other tokens: their level is lower, and only
what is placed on the hole itself is too much. There ``min(l q, p) = min(min(l, 1) q, p)``, as no hole has
p >= q.

**Eq. 13's budget** concerns the first rejection alone, before the first grid: it gives t and the weight
with which a path is laid on the grid.

**Forgotten holes.** A grid remembers one hole of a path, one of few tokens, or none. Forgetting a hole takes
its term from D, and p(x) off ``t'`` where x is rejected again: both are lower bounds. But nothing may be
placed on it. What a continuation places on a token x is at most ``min(T q(x), W p(x))``, with
``T = sum w t'`` and ``W = sum w`` over its atoms, and that is taken off. On the remembered hole the sum is
known and taken off.

The mass that all this loses is part of the gap; it is measured, as 1 less the mass placed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.elementwise.ratio_order import RatioOrder
from resispec_verify.kernels.jit import inline
from resispec_verify.kernels.paths.knots import NO_KNOTS, look_up

__all__ = [
    "MOST_BITS",
    "OCTAVES",
    "Grids",
    "Sums",
    "build_grids",
    "cell_of",
    "cell_or_bare",
    "mixed",
    "new_sums",
    "rejected_next",
    "remembered",
]

MOST_BITS = 12
OCTAVES = 96  # octave OCTAVES - 1 - k holds the path probabilities in [2**-k, 2**(1-k))
_LOWEST = 1024 - OCTAVES  # biased exponent of octave 0
# What a path hands its continuation: coefficient of U, sums of w t' and of w, mass on the remembered hole,
# and the probability that is rejected next.
SHARE, T_SUM, W_SUM, HOLE, NEXT = range(5)


class Grids(NamedTuple):
    """Cells ``[low, high)`` of path probabilities, by number of rejections and by remembered hole.

    Attributes
    ----------
    first, bits : int64 (n, sets, OCTAVES)
        First cell of an octave, -1 where it has none; the octave has ``2**bits`` cells of equal width.
    span : int64 (n, sets, 2)
        First cell, and one past the last.
    low, high, per_width, loss : float64 (cells,)
        Ends of a cell; one over its width, exactly; expected loss of a path that is merged there, as a share
        of its D (a guess, which only decides where work is spent).
    value : float64 (cells, 2, 5)
        What a path at the lower and at the upper end hands its continuation.
    set_of : int64 (V,)
        Which set remembers the token at a rank; 0 if none does. Lower sets have larger q.
    hole : int64 (sets,)
        The rank that a set remembers; -1 for set 0.
    hole_law : float64 (sets, 2)
        Its q and p; 0 for set 0.
    knots : float64 (knots, 4)
        What is looked up instead of ranks (`kernels.paths.knots`); none where ranks are.
    """

    first: NDArray[np.int64]
    bits: NDArray[np.int64]
    span: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    per_width: NDArray[np.float64]
    loss: NDArray[np.float64]
    value: NDArray[np.float64]
    set_of: NDArray[np.int64]
    hole: NDArray[np.int64]
    hole_law: NDArray[np.float64]
    knots: NDArray[np.float64]


class Sums(NamedTuple):
    """What one worker has placed, in rank order."""

    atoms: NDArray[np.float64]  # (V + 1, 2) sum of w t and of w, by the rank of t
    correction: NDArray[np.float64]  # (V,) what the atoms put on holes
    spilled: NDArray[np.float64]  # (1,) coefficient of p where q = 0
    acceptance: NDArray[np.float64]  # (n,)
    overcount: NDArray[np.float64]  # (n + 1,) what later acceptances may hold too much, by rejections
    unexpanded: NDArray[np.float64]  # (n + 2,)
    deposits: NDArray[np.float64]  # (cells, 2) paths at the lower and the upper end of each cell
    paths: NDArray[np.int64]  # (1,)
    knots: NDArray[np.float64]  # (knots,) weights of atoms at knots, in place of ``atoms``


def new_sums(vocab: int, n: int, cells: int, knots: int = 0) -> Sums:
    """Empty accumulators."""
    return Sums(
        np.zeros((vocab + 1, 2)),
        np.zeros(vocab),
        np.zeros(1),
        np.zeros(n + 1),
        np.zeros(n + 1),
        np.zeros(n + 2),
        np.zeros((cells, 2)),
        np.zeros(1, np.int64),
        np.zeros(knots),
    )


@inline
def octave_of(t):
    return (np.float64(t).view(np.int64) >> 52) - _LOWEST


@inline
def cell_of(t, level, s, first, bits) -> Any:
    """The cell that holds t, or -1."""
    octave = octave_of(t)
    if octave < 0 or first[level, s, octave] < 0:
        return -1
    fraction = np.float64(t).view(np.int64) & ((1 << 52) - 1)
    return first[level, s, octave] + (fraction >> (52 - bits[level, s, octave]))


@inline
def cell_or_bare(t, level, s, first, bits) -> Any:
    """The cell that holds t on the grid of set ``s``, else on that of set 0, or -1; and the set."""
    cell = cell_of(t, level, s, first, bits)
    if cell < 0 and s > 0:
        return cell_of(t, level, 0, first, bits), 0
    return cell, s


@inline
def remembered(s, token_set):
    """The set of a path in ``s`` after the rejection of a token in ``token_set``: the larger q stays."""
    if s == 0 or token_set == 0:
        return s + token_set
    return min(s, token_set)


@inline
def mixed(value, cell, up, what):
    """What a path hands its continuation that is shared out to a cell, ``up`` of it to the upper end."""
    return (1.0 - up) * value[cell, 0, what] + up * value[cell, 1, what]


@inline
def rejected_next(t, q, free, hole_q, hole_p, law) -> Any:
    """After a path of probability t, by `look_up`.

    (place of t, min(t q, p) at its token and at a hole, D, its slope, D from above, rank of t).
    """
    r, f, slope, most, rank = look_up(t, law)
    own, at_hole = min(t * q, free), min(t * hole_q, hole_p)
    slope += (q if own < free else 0.0) + (hole_q if at_hole < hole_p else 0.0)
    return r, own, at_hole, f + own + at_hole, slope, most + own + at_hole, rank


def build_grids(
    order: RatioOrder,
    bits: NDArray[np.int64],
    holes: NDArray[np.int64],
    knots: NDArray[np.float64] = NO_KNOTS,
) -> Grids:
    """Empty grids of a given resolution.

    Parameters
    ----------
    bits : int64 (n, sets, OCTAVES)
        By number of rejections, remembered hole and octave: the octave gets ``2**bits`` cells, -1 for none.
    holes : int64 (sets - 1,)
        Ranks to be remembered, in descending order of q.
    knots : float64 (knots, 4)
        As `knots_of` makes them, if ranks are not to be looked up.
    """
    n, sets, _ = bits.shape
    cells = np.where(bits < 0, 0, 1 << np.clip(bits, 0, None))
    ends = np.cumsum(cells).reshape(cells.shape)
    first = np.where(bits < 0, -1, ends - cells)
    flat = np.repeat(np.arange(cells.size), cells.ravel())
    inside = np.arange(flat.size) - (ends - cells).ravel()[flat]
    width = np.exp2(-bits.ravel()[flat].astype(np.float64))
    base = np.exp2((flat % OCTAVES + 1 - OCTAVES).astype(np.float64))
    level = flat // (OCTAVES * sets)
    at = bits.ravel()[flat], flat % OCTAVES
    set_of = np.zeros(order.p.shape[0], np.int64)
    set_of[holes] = np.arange(1, sets)
    return Grids(
        first,
        np.clip(bits, 0, None),
        np.stack([ends[:, :, 0] - cells[:, :, 0], ends[:, :, -1]], axis=-1),
        np.asarray(base * (1.0 + inside * width), np.float64),
        np.asarray(base * (1.0 + (inside + 1) * width), np.float64),
        1.0 / (base * width),
        np.where(level == n - 1, *(merge_loss(order, last)[at] for last in (True, False))),
        np.zeros((flat.size, 2, 5)),
        set_of,
        np.append(np.int64(-1), holes),
        np.stack([np.append(0.0, order.q[holes]), np.append(0.0, order.p[holes])], axis=-1),
        knots,
    )


def merge_loss(order: RatioOrder, last: bool) -> NDArray[np.float64]:
    """Expected loss of merging, as a share of D, by bits and octave: ``(MOST_BITS + 1, OCTAVES)``.

    Of first order in the width of the cells; with one rejection to come of second, for what is accepted.
    """
    bits = np.arange(MOST_BITS + 1)[:, None]
    if not last:
        return np.broadcast_to(np.asarray(0.7 * 0.5**bits, np.float64), (MOST_BITS + 1, OCTAVES))
    t = 1.4 * np.exp2(np.arange(OCTAVES) + 1.0 - OCTAVES)
    rank = np.searchsorted(order.ratio, t)
    accepted = 1.0 - order.prefix[rank, 0] + order.prefix[rank, 1] / t
    return np.asarray(0.06 * 0.25**bits * np.clip(accepted, 0.05, 1.0), np.float64)
