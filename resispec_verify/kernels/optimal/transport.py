"""The speed limit: the acceptance that no exact rule can exceed (the optimal-transport value)."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.elementwise.residuals import density_ratio
from resispec_verify.kernels.jit import jit, may_compile

__all__ = ["limit_of_prefix", "transport_limit"]

EPS = float(np.finfo(np.float64).eps)


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
        In [0, 1].

    References
    ----------
    Hu et al., Towards Optimal Multi-draft Speculative Decoding, arXiv 2502.18779.
    """
    xp = array_namespace(target, draft)
    if candidates == 0:
        return xp.zeros(target.shape[:-1], dtype=target.dtype, device=target.device)
    dtype, wide = target.dtype, xp.float64  # prefix sums over a vocabulary need the digits
    up = 1.0 if dtype == wide else 1.0 + float(xp.finfo(dtype).eps)  # a limit is rounded up
    target, draft = xp.astype(target, wide, copy=False), xp.astype(draft, wide, copy=False)
    if is_numpy_array(target) and may_compile():
        shape, vocab = target.shape[:-1], target.shape[-1]
        rows = zip(target.reshape(-1, vocab), draft.reshape(-1, vocab), strict=True)
        limits = [limit_of_prefix(ratio_order(p, q).prefix, candidates) for p, q in rows]
        return np.asarray(np.minimum(np.asarray(limits) * up, 1.0), dtype).reshape(shape)
    order = xp.argsort(density_ratio(target, draft), axis=-1)
    p = xp.cumulative_sum(xp.take_along_axis(target, order, axis=-1), axis=-1)
    q = xp.cumulative_sum(xp.take_along_axis(draft, order, axis=-1), axis=-1)
    slack = p.shape[-1] * xp.finfo(wide).eps
    least = xp.clip(xp.min(p - q**candidates, axis=-1), None, 0.0) + slack
    return xp.astype(xp.clip((1.0 + least) * up, 0.0, 1.0), dtype)


@jit()
def limit_of_prefix(prefix, candidates):
    """The same from the sorted prefix sums ``(V + 1, 2)`` of q and p."""
    least = 0.0
    for j in range(prefix.shape[0]):
        power = 1.0
        for _ in range(candidates):
            power *= prefix[j, 0]
        least = min(least, prefix[j, 1] - power)
    # Rounded up by what sequential sums can err: acceptance above the limit is called proof.
    return min(max(1.0 + least + (prefix.shape[0] - 1) * EPS, 0.0), 1.0)
