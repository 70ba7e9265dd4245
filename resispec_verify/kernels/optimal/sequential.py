"""The levels of optimal sequential verification: a safeguarded Newton search for a root, without a sort.

With ``phi(t) = sum_x min(p(x), t q(x))``, concave and piecewise linear, the optimum over all sequential rules
for n i.i.d. candidates is given by the ``T_1`` in [1, n] for which the recursion

    z = 1 - phi(T_1),    W_k = z + phi(T_k),    T_{k+1} = T_k - W_k

ends in ``T_{n+1} = 0``. ``W_k`` is the probability that candidate k is looked at, z that all are rejected.

Any levels with ``0 <= T_k - T_{k+1} <= W_k`` and ``T_{n+1} = 0`` make an exact rule, so an error of the
search costs acceptance and never exactness. To keep it so in floating point every step is shorter than
``W_k`` by what rounding of the sums can do to it (V eps), and the search stops on the side where the
recursion ends at or below 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array, is_torch_array
from numpy.typing import NDArray

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.compiled import compilable
from resispec_verify.kernels.elementwise.ratio_buckets import (
    Inside,
    empty_buckets,
    fill,
    filled_and_open,
    looked_into,
)
from resispec_verify.kernels.jit import jit, may_compile

__all__ = ["levels", "levels_by_reductions", "overlap"]

# Newton steps on a concave piecewise linear function end on the exact segment; bisection halves what is left
# where they leave the bracket. Far more than either ever took.
_MOST_STEPS = 200
_EPS = float(np.finfo(np.float64).eps)


@jit()
def _unroll_buckets(t, buckets, inside, roughly, n, T):
    """The recursion from ``T_1 = t`` into ``T (n + 1,)``; returns the slope of its end in t."""
    margin = buckets.keys.shape[0] * _EPS
    filled, first_slope = filled_and_open(t, buckets, inside, roughly)
    z = max(1.0 - (filled + t * first_slope), 0.0)
    T[0], T[1] = t, t - 1.0 + margin
    d = 1.0
    for k in range(1, n):
        filled, slope = filled_and_open(T[k], buckets, inside, roughly)
        T[k + 1] = T[k] - (z + filled + T[k] * slope) + margin
        d = (1.0 - slope) * d + first_slope
    return d


@jit()
def _search(t, buckets, inside, roughly, n, T):
    """Fill ``T (n + 1,)`` from a first ``T_1 = t``, from the side where the recursion ends at or below 0."""
    low, high = 1.0, float(n)
    d = _unroll_buckets(t, buckets, inside, roughly, n, T)
    for _ in range(_MOST_STEPS):
        if T[n] == 0.0:
            return
        if T[n] > 0.0:
            high = t
        else:
            low = t
        new = t - T[n] / d if d > 0.0 else low
        if not low < new < high:
            new = 0.5 * (low + high)
        if new == t or not low < new < high:
            break
        t = new
        d = _unroll_buckets(t, buckets, inside, roughly, n, T)
    step = 2.0**-50 * t
    while T[n] > 0.0 and t > 1.0:
        t = max(t - step, 1.0)
        step *= 2.0
        _unroll_buckets(t, buckets, inside, roughly, n, T)


@jit()
def _find(buckets, inside, n, T):
    """Few buckets have to be looked into: the search begins where one over whole buckets ends."""
    _search(0.5 * (1.0 + n), buckets, inside, True, n, T)
    _search(T[0], buckets, inside, False, n, T)


@jit()
def _levels_of_rows(p, q, buckets, looked, n, T):
    """``T_1..T_{n+1}`` of all rows in one call, so that other threads have the interpreter meanwhile."""
    tokens, place, used = looked
    for b in range(p.shape[0]):
        fill(p[b], q[b], buckets)
        place[:], used[0] = -1, 0
        _find(buckets, Inside(p[b], q[b], tokens, place, used), n, T[b])


def _settled(T: NDArray[np.float64]) -> NDArray[np.float64]:
    """Levels ``(..., n + 1)`` descending to exactly 0; the recursion ended at or below it: no step grows."""
    T = np.minimum.accumulate(np.clip(T, 0.0, None), axis=-1)
    T[..., -1] = 0.0
    return T


def levels(target: Array, draft: Array, candidates: int) -> Array:
    """Levels of the optimal sequential rule, descending from ``T_1`` to ``T_{n+1} = 0``.

    Parameters
    ----------
    target, draft : array (..., V)
        Probabilities.
    candidates : int
        ``n >= 0`` i.i.d. candidates from the draft.

    Returns
    -------
    array (..., n + 1)
        In float64; ``T_1`` is the expected number of candidates looked at.
    """
    xp = array_namespace(target, draft)
    on_host = is_numpy_array(target) or (is_torch_array(target) and target.device.type == "cpu")
    if not (on_host and may_compile()):
        return levels_by_reductions(target, draft, candidates)
    vocab = target.shape[-1]
    p, q = (np.ascontiguousarray(a, np.float64).reshape(-1, vocab) for a in (target, draft))
    T = np.zeros((len(p), candidates + 1))
    if candidates:
        buckets = empty_buckets(vocab, candidates)
        _levels_of_rows(p, q, buckets, looked_into(vocab, buckets), candidates, T)
    return xp.asarray(_settled(T).reshape(*target.shape[:-1], candidates + 1))


@jit(fastmath={"reassoc"})
def _overlap(p, q, t, found):
    """Sums over blocks of 128 and then over the blocks, so that no term passes through many additions."""
    vocab = p.shape[1]
    for b in range(p.shape[0]):
        level, total = t[b], p.dtype.type(0)
        for start in range(0, vocab, 128):
            part = p.dtype.type(0)
            for x in range(start, min(start + 128, vocab)):
                part += min(p[b, x], level * q[b, x])
            total += part
        found[b] = total


def overlap(target: Array, draft: Array, t: Array) -> Array:
    """``phi(t) = sum min(p, t q)``: rows ``(..., V)`` at levels ``(...,)``."""
    if is_numpy_array(target) and t.shape == target.shape[:-1] and t.dtype == target.dtype:
        p, q = (a.reshape(-1, a.shape[-1]) for a in (target, draft))
        if compilable(p, q):
            found = np.empty(p.shape[0], p.dtype)
            _overlap(p, q, np.ascontiguousarray(t).reshape(-1), found)
            return found.reshape(t.shape)[()]
    xp = array_namespace(target, draft, t)
    return xp.sum(xp.minimum(target, t[..., None] * draft), axis=-1)


def levels_by_reductions(target: Array, draft: Array, candidates: int) -> Array:
    """The same without buckets: every phi is one reduction over the vocabulary, all rows at once.

    What `levels` does where arrays live on a device.
    """
    xp = array_namespace(target, draft)
    p, q = xp.astype(target, xp.float64, copy=False), xp.astype(draft, xp.float64, copy=False)
    shape = target.shape[:-1]
    # An end this far below 0 costs that much acceptance, as rounding does. The search aims at its middle.
    enough = 4 * candidates * p.shape[-1] * _EPS
    low = xp.ones(shape, dtype=xp.float64, device=p.device)
    high = low * candidates
    t = 0.5 * (low + high)
    for _ in range(_MOST_STEPS):
        T, slope = _unroll(p, q, t, candidates)
        end = T[-1]
        found = (end <= 0) & (end >= -enough)
        high, low = xp.where(end > 0, t, high), xp.where(end <= 0, t, low)
        with np.errstate(over="ignore"):  # a slope may be subnormal; the step is then outside and not taken
            new = t - (end + 0.5 * enough) / xp.where(slope > 0, slope, 1.0)
        new = xp.where((slope > 0) & (new > low) & (new < high), new, 0.5 * (low + high))
        if bool(xp.all(found | (new <= low) | (new >= high))):
            break
        t = xp.where(found, t, new)
    T, _ = _unroll(p, q, low, candidates)
    settled = [xp.clip(T[0], 0.0, None)]
    for k in range(1, candidates):
        settled.append(xp.minimum(xp.clip(T[k], 0.0, None), settled[-1]))
    return xp.stack([*settled[:candidates], xp.zeros_like(low)], axis=-1)


def _unroll(p: Array, q: Array, t: Array, n: int) -> tuple[list[Any], Any]:
    """The recursion from ``T_1 = t``: the levels, and the slope of the last one in t."""
    xp = array_namespace(p)
    z = xp.clip(1.0 - overlap(p, q, t), 0.0, None)
    first_slope = xp.sum(xp.where(p >= t[..., None] * q, q, 0.0), axis=-1)
    margin = p.shape[-1] * _EPS
    T, d = [t, t - 1.0 + margin], xp.ones_like(t)
    for _ in range(1, n):
        T.append(T[-1] - (z + overlap(p, q, T[-1])) + margin)
        slope = xp.sum(xp.where(p >= T[-2][..., None] * q, q, 0.0), axis=-1)
        d = (1.0 - slope) * d + first_slope
    return T, d
