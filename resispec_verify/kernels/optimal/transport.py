"""The speed limit: the acceptance that no exact rule can exceed (the optimal-transport value).

``OT_n = min_H 1 + p(H) - q(H)^n`` over the prefixes H of the tokens in ascending order of p/q. Tokens are
put in buckets by p/q (`ratio_buckets`), which gives the value at the ends of every bucket. In a bucket whose
ratios are at least a, a prefix that takes the mass x of its q takes at least a x of its p. With a x in place
of p the value is concave in x, so it is least at an end: no prefix that ends in there is below both the value
where the bucket begins and that where it ends, with ``a q`` in place of its p. Only buckets that can hold the
minimum by this bound are sorted: of thousands one or two.
"""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, is_numpy_array, is_torch_array
from numpy.typing import NDArray

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.ratio_buckets import RatioBuckets, edges, empty_buckets, fill
from resispec_verify.kernels.elementwise.residuals import density_ratio
from resispec_verify.kernels.jit import jit, may_compile

__all__ = ["limit_in_buckets", "transport_limit", "transport_limit_by_sorting"]

_UNIT = float(np.finfo(np.float64).eps) / 2.0
_FEW = 2048  # tokens that are sorted in compiled code; NumPy sorts more than these faster


def transport_limit(target: Array, draft: Array, candidates: int) -> Array:
    """Largest P(emitted token is a candidate) over all exact rules, for i.i.d. candidates.

    ``OT_n = min_H 1 + p(H) - q(H)^n``; a minimiser is a prefix of the tokens sorted by p/q ascending, because
    ``t^n`` is a maximum of tangents, so that some minimiser is a set ``p < s q``.

    Parameters
    ----------
    target, draft : array (..., V)
    candidates : int
        ``n >= 0``; without candidates nothing is accepted.

    Returns
    -------
    array (...,)
        In [0, 1], rounded up by what sums and powers can err: acceptance above the limit is called proof.

    References
    ----------
    Hu et al., Towards Optimal Multi-draft Speculative Decoding, arXiv 2502.18779.
    """
    xp = array_namespace(target, draft)
    if candidates == 0:
        return xp.zeros(target.shape[:-1], dtype=target.dtype, device=target.device)
    on_host = is_numpy_array(target) or (is_torch_array(target) and target.device.type == "cpu")
    if not (on_host and may_compile()):
        return transport_limit_by_sorting(target, draft, candidates)
    vocab = target.shape[-1]
    p, q = (np.ascontiguousarray(a, np.float64).reshape(-1, vocab) for a in (target, draft))
    least, buckets = np.empty(len(p)), empty_buckets(vocab, candidates)
    _least_of_rows(p, q, buckets, edges(buckets), candidates, *_room_to_sort(), least)
    for b in np.flatnonzero(np.isnan(least)):
        fill(p[b], q[b], buckets)
        least[b] = _least_by_sorting(p[b], q[b], buckets, candidates)
    found = np.clip(1.0 + least + _slack(vocab, candidates), 0.0, 1.0)
    return _in_dtype(xp.asarray(found.reshape(target.shape[:-1])), target.dtype)


def transport_limit_by_sorting(target: Array, draft: Array, candidates: int) -> Array:
    """The same for ``n >= 1`` by a sort of all tokens, all rows at once: where arrays live on a device."""
    xp = array_namespace(target, draft)
    p, q = (xp.astype(a, xp.float64, copy=False) for a in (target, draft))  # sums need the digits
    order = xp.argsort(density_ratio(p, q), axis=-1)
    p, q = (xp.cumulative_sum(xp.take_along_axis(a, order, axis=-1), axis=-1) for a in (p, q))
    least = xp.clip(xp.min(p - q**candidates, axis=-1), None, 0.0)
    limit = xp.clip(1.0 + least + _slack(p.shape[-1], candidates), 0.0, 1.0)
    return _in_dtype(limit, target.dtype)


def _slack(vocab: int, candidates: int) -> float:
    """What the value at a prefix can err: at most V - 1 additions in p(H) and in each factor of q(H)^n,
    n - 1 products, a subtraction and two additions.
    """  # fmt: skip
    return ((candidates + 1) * vocab + candidates + 2) * _UNIT


def _in_dtype(limit: Array, dtype: Array) -> Array:
    xp = array_namespace(limit)
    if dtype == xp.float64:
        return limit
    up = 1.0 + float(xp.finfo(dtype).eps)  # rounded up once more
    return xp.astype(xp.clip(limit * up, None, 1.0), dtype)


@jit()
def _value(p_sum, q_sum, candidates):
    power = 1.0
    for _ in range(candidates):
        power *= q_sum
    return p_sum - power


@jit()
def _at_ends(sums, below, least_ratio, candidates):
    """The least value at the ends of buckets, and the first and the last bucket that can hold less."""
    count = sums.shape[0]
    least = 0.0
    for b in range(1, count + 1):
        least = min(least, _value(below[b, 0], below[b, 1], candidates))
    first, last = count, -1
    for b in range(count):
        if sums[b, 1] > 0.0:
            p_least = below[b, 0] + least_ratio[b] * sums[b, 1]
            if _value(p_least, below[b + 1, 1], candidates) < least:
                first, last = min(first, b), b
    return least, first, last


@jit()
def _inside(order, p, q, p_sum, q_sum, candidates):
    """The least value at prefixes that end among these tokens."""
    least = 0.0
    for x in order:
        p_sum += p[x]
        q_sum += q[x]
        least = min(least, _value(p_sum, q_sum, candidates))
    return least


@jit()
def _sort(ratios, tokens):
    """Tokens into ascending order of their ratios, in place (Shell's method, for a few hundred)."""
    for gap in (701, 301, 132, 57, 23, 10, 4, 1):
        for i in range(gap, ratios.shape[0]):
            ratio, token, j = ratios[i], tokens[i], i
            while j >= gap and ratios[j - gap] > ratio:
                ratios[j], tokens[j] = ratios[j - gap], tokens[j - gap]
                j -= gap
            ratios[j], tokens[j] = ratio, token


@jit()
def _least(p, q, buckets, least_ratio, candidates, ratios, tokens):
    """The least value at all prefixes; NaN where there is no room to sort those that can hold it."""
    least, first, last = _at_ends(buckets.sums, buckets.below, least_ratio, candidates)
    if first > last:
        return least
    count = 0
    for x in range(p.shape[0]):
        if first <= buckets.keys[x] <= last:
            if count == tokens.shape[0]:
                return np.nan
            ratios[count], tokens[count] = p[x] / q[x] if q[x] > 0.0 else np.inf, x
            count += 1
    _sort(ratios[:count], tokens[:count])
    before = buckets.below[first]
    return min(least, _inside(tokens[:count], p, q, before[0], before[1], candidates))


@jit()
def _least_of_rows(p, q, buckets, least_ratio, candidates, ratios, tokens, least):
    """All rows in one call, so that other threads have the interpreter meanwhile."""
    for b in range(p.shape[0]):
        fill(p[b], q[b], buckets)
        least[b] = _least(p[b], q[b], buckets, least_ratio, candidates, ratios, tokens)


def _room_to_sort() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return np.empty(_FEW), np.empty(_FEW, np.int64)


def _least_by_sorting(
    p: NDArray[np.float64], q: NDArray[np.float64], buckets: RatioBuckets, candidates: int
) -> float:
    """`_least` where most tokens share a bucket."""
    least, first, last = _at_ends(buckets.sums, buckets.below, edges(buckets), candidates)
    inside = np.flatnonzero((buckets.keys >= first) & (buckets.keys <= last))
    order = inside[np.argsort(density_ratio(p[inside], q[inside]))]
    return min(least, _inside(order, p, q, *buckets.below[first], candidates))


def limit_in_buckets(
    p: NDArray[np.float64], q: NDArray[np.float64], buckets: RatioBuckets, candidates: int
) -> float:
    """The limit of one position ``(V,)`` for ``1 <= n <= highest``, with its buckets."""
    least = _least(p, q, buckets, edges(buckets), candidates, *_room_to_sort())
    if np.isnan(least):
        least = _least_by_sorting(p, q, buckets, candidates)
    return min(max(1.0 + least + _slack(p.shape[0], candidates), 0.0), 1.0)
