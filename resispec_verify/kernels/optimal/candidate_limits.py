"""The acceptance limit for candidates that are not independent.

For any law of the candidate tuple the limit over all exact rules is ``min_H 1 + p(H) - f(H)`` with
``f(H) = P(all candidates lie in H)``. Without replacement a prefix of the tokens in ascending order of p/q
attains it (proof in docs/explanation/exactness.md). With an exponential clock of rate q(x) on every
token the order of
the rings is the order of drawing, which gives f for all prefixes in one scan.
"""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.jit import jit

__all__ = ["NODES", "WEIGHTS", "pairs_limit", "without_replacement_limit"]

# Double-exponential nodes on (0, inf): t = exp(s - exp(-s)). They give f to 1e-14 while 1 - q(H) > 1e-24.
_S = np.arange(-5.0, 60.0 + 1e-9, 0.2)
NODES = np.exp(_S - np.exp(-_S))
_SMALLEST_OUTSIDE = 1e-24
_QUADRATURE_ERROR = 1e-12
WEIGHTS = 0.2 * NODES * (1.0 + np.exp(-_S))


@jit()
def _two(p, q, outside):
    """Two candidates: ``f(H) = q(H) - (1 - q(H)) sum_H q / (1 - q)``, by prefixes."""
    least, p_sum, q_sum, odds = 0.0, 0.0, 0.0, 0.0
    for j in range(p.shape[0]):
        p_sum += p[j]
        others = q_sum + outside[j + 1]  # 1 - q(x) would lose the digits of a peaked draft
        odds += q[j] / others if others > 0.0 else 0.0
        q_sum += q[j]
        rest = outside[j + 1]
        inside = 1.0 if rest <= 0.0 else max(1.0 - rest - rest * odds, 0.0)
        least = min(least, p_sum - inside)
    return least


@jit()
def _insert(value, largest):
    """Keep the largest values, in descending order."""
    for k in range(largest.shape[0]):
        if value > largest[k]:
            value, largest[k] = largest[k], value


@jit()
def _many(p, q, outside, n, nodes, weights):
    """``1 - f(H) = l integral exp(-l t) (c_0 + ... + c_{n-1}) dt``, c_j = P(j tokens of H have rung by t)."""
    vocab = p.shape[0]
    missed = np.zeros(vocab)
    c = np.empty(n)
    for i in range(nodes.shape[0]):
        t, w = nodes[i], weights[i]
        c[:] = 0.0
        c[0] = 1.0
        for j in range(vocab):
            silent = np.exp(-q[j] * t)
            for k in range(n - 1, 0, -1):
                c[k] = c[k] * silent + c[k - 1] * (1.0 - silent)
            c[0] *= silent
            total = 0.0
            for k in range(n):
                total += c[k]
            if total < 1e-18:  # later prefixes have even less
                break
            missed[j] += w * np.exp(-outside[j + 1] * t) * total
    least, p_sum = 0.0, 0.0
    largest = np.zeros(n)  # of the prefix, in descending order
    for j in range(vocab):
        p_sum += p[j]
        rest = outside[j + 1]
        _insert(q[j], largest)
        if 0.0 < rest < _SMALLEST_OUTSIDE:
            # Beyond the quadrature. After k draws inside, at least the next largest token is left there.
            inside = 1.0
            for k in range(n):
                inside -= rest / (rest + largest[k])
            inside = max(inside, 0.0)
        else:
            inside = 1.0 if rest <= 0.0 else min(max(1.0 - rest * missed[j], 0.0), 1.0)
        least = min(least, p_sum - inside)
    return least


def _row(p: NDArray[np.float64], q: NDArray[np.float64], n: int) -> float:
    order = ratio_order(p, q)
    support = int(np.count_nonzero(q))
    n = min(n, support)
    p_sorted, q_sorted = order.p[:support], order.q[:support]  # tokens with q = 0 come last and only cost
    outside = np.append(np.cumsum(q_sorted[::-1])[::-1], 0.0)
    if n == 0:
        return 0.0
    if n == 1:
        least = float(min(np.min(np.cumsum(p_sorted) - np.cumsum(q_sorted)), 0.0))
    elif n == 2:
        least = _two(p_sorted, q_sorted, outside)
    else:
        least = _many(p_sorted, q_sorted, outside, n, NODES, WEIGHTS)
    # Rounded up: acceptance above the limit is called proof.
    slack = 4.0 * support * np.finfo(np.float64).eps + (_QUADRATURE_ERROR if n > 2 else 0.0)
    return min(max(1.0 + least + slack, 0.0), 1.0)


def without_replacement_limit(target: Array, draft: Array, candidates: int) -> Array:
    """Limit for candidates drawn without replacement, ``(..., V) -> (...,)``, in float64 on the CPU.

    One sort and O(V) for n <= 2; for more, O(n V) at each of 326 nodes of a quadrature.

    Parameters
    ----------
    target, draft : array (..., V)
    candidates : int
        ``n >= 0``; all of the support where it is smaller.

    References
    ----------
    Hu et al., Towards Optimal Multi-draft Speculative Decoding, arXiv 2502.18779.
    """
    xp = array_namespace(target, draft)
    p, q = (to_numpy(a).astype(np.float64) for a in (target, draft))
    rows = zip(p.reshape(-1, p.shape[-1]), q.reshape(-1, q.shape[-1]), strict=True)
    limits = np.asarray([_row(*row, candidates) for row in rows]).reshape(p.shape[:-1])
    if target.dtype != xp.float64:  # a limit is rounded up
        limits = np.minimum(limits * (1.0 + float(xp.finfo(target.dtype).eps)), 1.0)
    return xp.asarray(limits, dtype=target.dtype, device=target.device)


def pairs_limit(target: Array, draft: Array) -> Array:
    """Limit for SpecHub's pairs: ``p(a) + sum_{x != a} min(p, q / (1 - q(a)))``, a the draft's best token.

    Every pair holds a and one other token, drawn from the draft without a.
    """
    xp = array_namespace(target, draft)
    hub = xp.argmax(draft, axis=-1, keepdims=True)
    here = xp.arange(draft.shape[-1], dtype=hub.dtype, device=draft.device) == hub
    other = xp.where(here, 0.0, draft)
    total = xp.sum(other, axis=-1, keepdims=True)
    other = other / xp.where(total > 0, total, 1.0)
    on_hub = xp.sum(xp.where(here, target, 0.0), axis=-1)
    return on_hub + xp.sum(xp.where(here, 0.0, xp.minimum(target, other)), axis=-1)
