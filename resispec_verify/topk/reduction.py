"""Pairs of lists as pairs of small laws: the completions hardest and easiest to tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resispec_verify.dumps.kinds.top_rows import TopPairs, TopRows
from resispec_verify.errors import InputError
from resispec_verify.kernels.topk.completions import FAR, WIDE, reduce_rows
from resispec_verify.kernels.topk.laws import Lists, empty_law, empty_row

__all__ = ["Reduced", "blocks", "reduced", "refuse"]

_BLOCK = 8192  # positions that are worked on at once: some MB


@dataclass(frozen=True)
class Reduced:
    """Two pairs of laws at each position, each over atoms: one token, or several of one ratio together.

    Attributes
    ----------
    least, greatest : float64 array (2, N, m)
        Target and draft of the completion that is hardest to tell apart, and of the one that is easiest;
        atoms in ascending order of p/q, zeros behind them.
    """

    least: NDArray[np.float64]
    greatest: NDArray[np.float64]


def reduced(pairs: TopPairs) -> Reduced:
    """The two extreme completions of every position: what ``sum (p - s q)_+`` decides lies between.

    Parameters
    ----------
    pairs : TopPairs
        N positions with k and j tokens listed.

    Returns
    -------
    Reduced
        Over ``m = k + j + 3`` atoms.

    Raises
    ------
    InputError
        Lists that are no laws: see `bounds`.
    """
    first, second = pairs.target.tokens.shape[1], pairs.draft.tokens.shape[1]
    atoms = first + second + 3
    found = np.zeros((2, 2, len(pairs), atoms))
    for start, target, draft in blocks(pairs):
        laws = (empty_law(atoms), empty_law(atoms))
        part = found[:, :, start : start + len(target.tokens)]
        refuse(start, *reduce_rows(target, draft, vocab_of(pairs), empty_row(first, second), laws, part))
    return Reduced(found[0], found[1])


def vocab_of(pairs: TopPairs) -> int:
    """V, or -1 where neither side knows it."""
    known = {rows.vocab for rows in (pairs.target, pairs.draft) if rows.vocab is not None}
    if len(known) > 1:
        raise InputError(
            f"target and draft have vocabularies of {' and '.join(map(str, sorted(known)))} tokens"
        )
    return known.pop() if known else -1


def blocks(pairs: TopPairs) -> Iterator[tuple[int, Lists, Lists]]:
    """Positions in blocks, checked and contiguous."""
    if len(pairs.target) != len(pairs.draft):
        raise InputError(f"{len(pairs.target)} positions of the target, {len(pairs.draft)} of the draft")
    for start in range(0, len(pairs), _BLOCK):
        part = slice(start, start + _BLOCK)
        yield start, _lists(pairs.target[part], start, "target"), _lists(pairs.draft[part], start, "draft")


def _lists(rows: TopRows, start: int, side: str) -> Lists:
    tokens = np.ascontiguousarray(rows.tokens, np.int32)
    listed = np.ascontiguousarray(rows.probabilities, np.float64)
    tail = np.ascontiguousarray(rows.tail, np.float64)
    most = np.ascontiguousarray(rows.most, np.float64)
    off = np.full(len(tokens), -1.0) if rows.off is None else np.ascontiguousarray(rows.off, np.float64)
    one = (len(tokens),)
    if (listed.shape, tail.shape, most.shape, off.shape) != (tokens.shape, (*one, 2), one, one):
        raise InputError(f"the {side}'s columns do not fit each other")
    good = np.all((listed >= 0.0) & (listed <= 1.0 + FAR), axis=1)
    good &= (tail[:, 0] >= 0.0) & (tail[:, 0] <= tail[:, 1]) & (tail[:, 1] <= 1.0)
    good &= (most >= 0.0) & (most <= 1.0 + FAR)
    if rows.off is not None:
        good &= off >= 0.0
    if rows.vocab is not None:
        good &= np.all(tokens < rows.vocab, axis=1)
    if not good.all():
        at = start + int(np.argmin(good))
        raise InputError(
            f"position {at}: the {side}'s list holds what is no probability, or no token; "
            f"see docs/explanation/top-k-bounds.md"
        )
    return Lists(tokens, listed, tail, most, off)


def refuse(start: int, row: int, status: int) -> None:
    """Say what is wrong with a row that a kernel could not use."""
    if row < 0:
        return
    if status == 1:
        raise InputError(f"position {start + row}: a token is listed twice; log each once")
    side = "target" if status == 2 else "draft"
    raise InputError(
        f"position {start + row}: the {side}'s list and its tail are not 1 together (the tail must be known "
        f"to {WIDE:g}, and fit into the vocabulary): log normalised probabilities, or logits with their "
        "logsumexp"
    )
