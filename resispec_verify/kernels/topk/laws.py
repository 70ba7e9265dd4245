"""What is known of pairs of listed laws, as kernels hold it: columns, atoms, and one row's scratch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.jit import jit

__all__ = ["Law", "Lists", "Row", "empty_law", "empty_row", "excess_at"]


class Lists(NamedTuple):
    """Columns of `TopRows`, contiguous: int32 and float64; ``off`` is -1 where nothing says it."""

    tokens: NDArray[np.int32]
    probabilities: NDArray[np.float64]
    tail: NDArray[np.float64]
    most: NDArray[np.float64]
    off: NDArray[np.float64]


class Law(NamedTuple):
    """A pair as atoms in ascending order of p/q, with sums over the atoms from each rank on.

    Attributes
    ----------
    p, q, ratio : float64 (m,)
    above_p, above_q : float64 (m + 1,)
    size : int64 (1,)
        Of the m atoms there is room for, those in use.
    """

    p: NDArray[np.float64]
    q: NDArray[np.float64]
    ratio: NDArray[np.float64]
    above_p: NDArray[np.float64]
    above_q: NDArray[np.float64]
    size: NDArray[np.int64]


class Row(NamedTuple):
    """What is known of one position, and scratch.

    Attributes
    ----------
    keys, stamps, places : int64 (a power of two,)
        A hash table from tokens to places in the draft's list, emptied by the number of the row.
    known_p, known_q : float64 (k,)
        Tokens of both lists.
    p_only, q_only : float64 (k,)
        Tokens of the target's list alone, and of the draft's.
    more_p, more_q : float64 (m,)
        Atoms that are not yet in order.
    counts : int64 (4,)
        Of the four above: known, of the target alone, of the draft alone; tokens of neither, or -1.
    masses : float64 (5,)
        The two tails; what the least completion leaves of them; the error of its level.
    """

    keys: NDArray[np.int64]
    stamps: NDArray[np.int64]
    places: NDArray[np.int64]
    known_p: NDArray[np.float64]
    known_q: NDArray[np.float64]
    p_only: NDArray[np.float64]
    q_only: NDArray[np.float64]
    more_p: NDArray[np.float64]
    more_q: NDArray[np.float64]
    counts: NDArray[np.int64]
    masses: NDArray[np.float64]


def empty_law(atoms: int) -> Law:
    """Room for ``atoms`` atoms."""
    p, q, ratio = np.zeros((3, atoms))
    above_p, above_q = np.zeros((2, atoms + 1))
    return Law(p, q, ratio, above_p, above_q, np.zeros(1, np.int64))


def empty_row(first: int, second: int) -> Row:
    """Room for lists of these lengths."""
    size = 1 << max(2 * (first + second), 2).bit_length()
    keys, stamps, places = np.full((3, size), -1, np.int64)
    k, m = max(first, second, 1), first + second + 3
    known_p, known_q, p_only, q_only = np.zeros((4, k))
    more_p, more_q = np.zeros((2, m))
    counts, masses = np.zeros(4, np.int64), np.zeros(5)
    return Row(keys, stamps, places, known_p, known_q, p_only, q_only, more_p, more_q, counts, masses)


@jit(inner=True)
def excess_at(law: Law, s: float) -> float:
    """``M(s) = sum (p - s q)_+`` of the atoms."""
    low, high = 0, law.size[0]
    while low < high:
        middle = (low + high) // 2
        if law.ratio[middle] > s:
            high = middle
        else:
            low = middle + 1
    return max(law.above_p[low] - s * law.above_q[low], 0.0)
