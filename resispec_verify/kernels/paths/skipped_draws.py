"""How many different tokens n independent draws reject when repeats are skipped: sums over tuples.

The first rejection of a token, after j different ones, has mass ``d_j(x)``. A draw of one of the tokens
``x_1..x_j`` rejected before, of probability ``q(x_1) + ... + q(x_j)``, changes nothing. So k draws are all
rejected, with j different tokens among them, with probability

    sum over different x_1..x_j of  d_0(x_1) ... d_{j-1}(x_j) h_{k-j}(Q_1, ..., Q_j),

``Q_i = q(x_1) + ... + q(x_i)`` and h the complete homogeneous polynomial: every way to put k - j repeats
between the first rejections. Expanded, it is a sum of ``prod d_{i-1}(x_i) q(x_i)^{e_i}``. A sum over
different tokens is a sum over set partitions of the positions, by Moebius inversion: a block B counts
``(-1)^{|B|-1} (|B|-1)!`` times the power sum of its product.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["rejected_by_draws"]

Block = tuple[int, ...]


def rejected_by_draws(
    masses: list[NDArray[np.float64]], draft: NDArray[np.float64], draws: int
) -> tuple[list[list[float]], float]:
    """Probability that all of the first k draws are rejected, with j different tokens among them.

    Parameters
    ----------
    masses : list of float64 (V,)
        ``d_0..d_{draws-1}``.
    draft : float64 (V,)
    draws : int

    Returns
    -------
    table : list of lists
        ``table[k][j]`` for ``0 <= j <= k <= draws``.
    magnitude : float
        Largest sum over j of the terms of one k in absolute value: what rounding is relative to.
    """
    sums: dict[tuple[Block, int], float] = {}

    def power_sum(block: Block, exponent: int) -> float:
        if (block, exponent) not in sums:
            product = draft**exponent
            for i in block:
                product = product * masses[i]
            sums[block, exponent] = float(product.sum())
        return sums[block, exponent]

    table, magnitude = [[1.0]], 1.0
    for k in range(1, draws + 1):
        row, size = [0.0], 0.0
        for j in range(1, k + 1):
            terms = [
                times
                * math.prod(_sign(block) * power_sum(block, sum(e[i] for i in block)) for block in blocks)
                for e, times in _exponents(k - j, j).items()
                for blocks in _partitions(j)
            ]
            row.append(max(math.fsum(terms), 0.0))
            size += math.fsum(abs(term) for term in terms)
        table.append(row)
        magnitude = max(magnitude, size)
    return table, magnitude


def _sign(block: Block) -> int:
    return (-1) ** (len(block) - 1) * math.factorial(len(block) - 1)


def _exponents(repeats: int, different: int) -> Counter[tuple[int, ...]]:
    """The monomials of h and their coefficients: each repeat is one of the tokens rejected before it."""
    found: Counter[tuple[int, ...]] = Counter()
    for after in itertools.combinations_with_replacement(range(1, different + 1), repeats):
        for tokens in itertools.product(*(range(seen) for seen in after)):
            found[tuple(tokens.count(i) for i in range(different))] += 1
    return found


def _partitions(size: int) -> Iterator[list[Block]]:
    """Set partitions of ``0..size-1``."""
    if size == 0:
        yield []
        return
    for blocks in _partitions(size - 1):
        yield [*blocks, (size - 1,)]
        for i, block in enumerate(blocks):
            yield [*blocks[:i], (*block, size - 1), *blocks[i + 1 :]]
