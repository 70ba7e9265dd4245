"""Tokens in clusters of similar q, with prefix sums in each: what Sequoia's paths walk over."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.elementwise.ratio_order import RatioOrder
from resispec_verify.kernels.jit import jit

__all__ = ["Clusters", "clustered"]

_BISECTIONS = 60  # of the logarithm of the clusters' width


class Clusters(NamedTuple):
    """Tokens with q > 0 by clusters of similar q, in ascending order of q; by p/q inside a cluster."""

    start: NDArray[np.int64]  # (m + 1,) first token of each cluster
    ratio: NDArray[np.float64]  # (tokens,)
    prefix: NDArray[np.float64]  # (tokens + m, 2) sums of q and p in a cluster; it begins at start[c] + c
    low: NDArray[np.float64]  # (m,) least, mean and largest q
    mean: NDArray[np.float64]
    high: NDArray[np.float64]
    top: int  # clusters at the end with one value of q each, as many as a path has tokens
    rest: float  # sum of q below them


@jit()
def _cut(values, counts, top, width):
    """First value of each cluster if ``q(cluster) (b - a)`` may be ``width``; the last ``top`` stay alone."""
    starts = np.empty(values.shape[0] + 1, np.int64)
    m, held = 0, 0.0
    for i in range(values.shape[0]):
        held += counts[i] * values[i]
        if m == 0 or i >= values.shape[0] - top or held * (values[i] - values[starts[m - 1]]) > width:
            starts[m] = i
            m += 1
            held = counts[i] * values[i]
    starts[m] = values.shape[0]
    return starts[: m + 1]


def clustered(order: RatioOrder, tokens_drawn: int, most: int) -> Clusters:
    """At most ``most`` clusters, or as many as a path has tokens, each of these alone."""
    support = order.q > 0.0
    ratio, p, q = order.ratio[support], order.p[support], order.q[support]
    values, member, counts = np.unique(q, return_inverse=True, return_counts=True)
    top = min(max(tokens_drawn, 1), values.size)
    starts = _cut(values, counts, top, 0.0)
    if starts.size - 1 > most:
        narrow, wide = 1e-40, 1.0
        for _ in range(_BISECTIONS):
            width = float(np.sqrt(narrow * wide))
            starts = _cut(values, counts, top, width)
            narrow, wide = (narrow, width) if starts.size - 1 <= most else (width, wide)
        starts = _cut(values, counts, top, wide)
    m = starts.size - 1
    of_value = np.repeat(np.arange(m), np.diff(starts))
    by_cluster = np.argsort(of_value[member], kind="stable")
    sizes = np.bincount(of_value, weights=counts, minlength=m).astype(np.int64)
    start = np.concatenate([[0], np.cumsum(sizes)])
    ratio, p, q = ratio[by_cluster], p[by_cluster], q[by_cluster]
    low, high = values[starts[:-1]], values[starts[1:] - 1]
    weight = counts * values
    mean = np.add.reduceat(weight * values, starts[:-1]) / np.add.reduceat(weight, starts[:-1])
    mean = np.clip(mean, low, high)
    return Clusters(
        start, ratio, _prefixes(start, p, q), low, mean, high, top, float(np.sum(weight[: starts[m - top]]))
    )


@jit()
def _prefixes(start, p, q):
    m = start.shape[0] - 1
    out = np.zeros((p.shape[0] + m, 2))
    for c in range(m):
        for i in range(start[c], start[c + 1]):
            out[i + c + 1, 0] = out[i + c, 0] + q[i]
            out[i + c + 1, 1] = out[i + c, 1] + p[i]
    return out
