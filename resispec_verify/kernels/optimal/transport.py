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
from resispec_verify.kernels.elementwise.ratio_buckets import RatioBuckets, edges, ratio_buckets
from resispec_verify.kernels.elementwise.residuals import density_ratio
from resispec_verify.kernels.jit import jit, may_compile

__all__ = ["limit_in_buckets", "transport_limit", "transport_limit_by_sorting"]

_UNIT = float(np.finfo(np.float64).eps) / 2.0


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
    rows = zip(*(np.asarray(a, np.float64).reshape(-1, vocab) for a in (target, draft)), strict=True)
    limits = [limit_in_buckets(p, q, ratio_buckets(p, q, candidates), candidates) for p, q in rows]
    found = xp.asarray(np.asarray(limits, np.float64).reshape(target.shape[:-1]))
    return _in_dtype(found, target.dtype)


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


def limit_in_buckets(
    p: NDArray[np.float64], q: NDArray[np.float64], buckets: RatioBuckets, candidates: int
) -> float:
    """The limit of one position ``(V,)`` for ``1 <= n <= highest``, with its buckets."""
    least, first, last = _at_ends(buckets.sums, buckets.below, edges(buckets), candidates)
    if first <= last:
        inside = np.flatnonzero((buckets.keys >= first) & (buckets.keys <= last))
        order = inside[np.argsort(density_ratio(p[inside], q[inside]))]
        least = min(least, _inside(order, p, q, *buckets.below[first], candidates))
    return min(max(1.0 + least + _slack(p.shape[0], candidates), 0.0), 1.0)
