"""Rounds whose logged uniforms all came in an earlier round, and how probable that is by chance.

Uniforms lie on a grid: a given value comes with probability a at most, 2^-8 in bfloat16, 2^-11 in float16
and 2^-23 in float32 (the coarsest generators in use; the type is the narrowest that holds all of them, for an
engine may draw in one and log in another). Only those that a rule used are sure to be fresh: after a
rejection an engine may log what it likes. So given all earlier rounds, round r repeats round s with
probability at most ``a^(d_s)``, where d_s of the uniforms of s were used, and any of them with at most
``e_r = sum_(s < r) a^(d_s)``. By a union over which rounds they are, n rounds or more repeat with probability
at most ``sum_(r_1 < ... < r_n) prod e <= E^n / n!``, where ``E = sum_r e_r``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import ml_dtypes  # type: ignore[import]
import numpy as np

__all__ = ["repeats"]

# Bits of a uniform by the narrowest type that holds it; above float32 what 32-bit generators give.
_GRIDS = ((ml_dtypes.bfloat16, 8), (np.float16, 11), (np.float32, 23))
_FINEST = 32


def repeats(coins: Sequence[np.ndarray], used: Sequence[int], bits: float | None = None) -> tuple[int, float]:
    """Rounds that repeat the uniforms of an earlier one, and a bound on the probability of so many.

    Parameters
    ----------
    coins : sequence of float64 arrays (g,)
        By round, not empty.
    used : sequence of int
        How many of them decided something.
    bits : float, optional
        Of a uniform, where more is known than its type says.
    """
    if not coins:
        return 0, 1.0
    bits = _bits(np.concatenate(coins)) if bits is None else bits
    chance: dict[int, float] = defaultdict(float)  # by length: a round may repeat only one as long
    seen: set[bytes] = set()
    count, expected = 0, 0.0
    for u, decided in zip(coins, used, strict=True):
        count += u.tobytes() in seen
        seen.add(u.tobytes())
        expected += min(1.0, chance[len(u)])
        chance[len(u)] += 2.0 ** (-bits * decided)
    if not count or not expected:
        return count, 1.0
    return count, math.exp(min(0.0, count * math.log(expected) - math.lgamma(count + 1)))


def _bits(values: np.ndarray) -> int:
    for kind, bits in _GRIDS:
        if np.array_equal(values.astype(kind).astype(np.float64), values):
            return bits
    return _FINEST
