"""Uniforms that came again: in one of the decisions just before, or a stretch of them from earlier on.

A uniform takes a given value with probability a at most, whatever came before. So one of the `NEAR` values
before comes again with probability ``NEAR a`` at most, and k of n uniforms do so with at most ``(n NEAR a)^k
/ k!`` (a union over which). Stretches of `STRETCH` decisions, by their place in the file, are held against
each other as the rounds of a rounds dump are (`logged.coins`), up to `MOST` of them.
"""

from __future__ import annotations

import math

import numpy as np

from resispec_verify.logged.coins import repeats

__all__ = ["Repeats"]

NEAR = 8
STRETCH = 4
MOST = 1 << 17


class Repeats:
    """Counts as uniforms come."""

    def __init__(self) -> None:
        self.near = self.stretches = 0
        self._count = 0
        self._bits = 32.0
        self._tail = np.zeros(0)
        self._rest = np.zeros(0)
        self._kept: list[np.ndarray] = []

    def add(self, u: np.ndarray, bits: float) -> None:
        """Add uniforms ``(n,)``; ``bits`` is what is known of their grid so far."""
        self._bits = bits
        whole = np.concatenate([self._tail, u])
        again = np.zeros(len(whole), bool)
        for lag in range(1, NEAR + 1):
            again[lag:] |= whole[lag:] == whole[:-lag]
        self.near += int(again[len(self._tail) :].sum())
        self._count += len(u)
        self._tail = whole[-NEAR:]
        rest = np.concatenate([self._rest, u])
        full = len(rest) // STRETCH * STRETCH
        room = MOST - len(self._kept)
        self._kept += list(rest[:full].reshape(-1, STRETCH)[:room])
        self._rest = rest[full:]

    def chance(self) -> float | None:
        """Bound on the probability of so many repeats; None where there were no uniforms."""
        if not self._count:
            return None
        self.stretches, stretches = repeats(self._kept, [STRETCH] * len(self._kept), self._bits)
        if not self.near:
            return min(1.0, 2 * stretches)
        expected = math.log(self._count * NEAR) - self._bits * math.log(2.0)
        near = math.exp(min(0.0, self.near * expected - math.lgamma(self.near + 1)))
        return min(1.0, 2 * near, 2 * stretches)
