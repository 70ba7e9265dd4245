"""Whether rows of target and draft are of the same prefixes: where they hardly overlap, the next may fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from resispec_verify.dumps.checks.oddities import Oddity
from resispec_verify.kernels.elementwise.probabilities import softmax, temper

if TYPE_CHECKING:
    from resispec_verify.dumps.kinds.flat import FlatDump

__all__ = ["overlaps"]

LITTLE = 0.1
"""A draft of which less can be accepted is hardly one of the target."""
FITS = 2.0
"""So many times as much overlap one row on, and LITTLE at least, is no chance."""
LEAST_ROWS = 4
MOST_ELEMENTS = 1 << 23
"""Of the first rows, which are enough to tell."""


def overlaps(dump: FlatDump) -> list[Oddity]:
    """What is odd about ``sum min(p, q)`` of the rows at temperature 1, on average; one oddity at most."""
    count = min(dump.positions, max(LEAST_ROWS, MOST_ELEMENTS // dump.vocab))
    if count < LEAST_ROWS:
        return []
    batch = dump.batch(0, count)
    target, draft = (
        softmax(temper(rows, 1.0, dtype=np.dtype(np.float64))) for rows in (batch.target, batch.draft)
    )
    here = _overlap(target, draft)
    if here >= LITTLE:
        return []
    text = (
        f"target and draft hardly overlap (mean sum of min(p, q): {here:.3g}): are rows of the same prefixes?"
    )
    shifts = {"i + 1": _overlap(target[:-1], draft[1:]), "i - 1": _overlap(target[1:], draft[:-1])}
    row = max(shifts, key=lambda name: shifts[name])
    if shifts[row] >= max(LITTLE, FITS * here):
        text += f" Row i of the target fits row {row} of the draft better ({shifts[row]:.3g}): one off?"
    return [Oddity("hardly-overlapping", "target and draft", count, 0, text)]


def _overlap(target: np.ndarray, draft: np.ndarray) -> float:
    return float(np.minimum(target, draft).sum(axis=-1).mean())
