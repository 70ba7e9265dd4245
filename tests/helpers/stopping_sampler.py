"""Block verification of paths that were cut before they came; also written as a user's file, as it is."""

from __future__ import annotations

import numpy as np

from resispec_verify.rules import Block


def draw(laws, rng):
    """A token of each row's law."""
    edges = laws.cumsum(axis=-1)
    return (rng.random((len(laws), 1)) * edges[:, -1:] >= edges).sum(axis=1)


def ragged(targets, drafts, path, rng):
    """Block verification of paths that were cut before they came; it makes no cut of its own."""
    rows, length = path.shape
    tokens = np.full((rows, length + 1), -1)
    kept = (path >= 0).sum(axis=1)
    for count in range(1, length + 1):
        mine = np.flatnonzero(kept == count)
        lengths, laws = Block().outcome(targets[mine, : count + 1], drafts[mine, :count], path[mine, :count])
        for row, number, law in zip(mine, draw(lengths, rng), laws, strict=True):
            tokens[row, :number] = path[row, :number]
            tokens[row, number] = draw(law[number][None], rng)[0]
    return tokens
