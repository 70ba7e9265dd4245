"""What calls of a sampler cost, as measured, and how large the next ones may be.

Sizes depend on the time that calls took, which is past when they are chosen, and no draw is dropped for it:
the tests stay valid. A fast sampler never meets these limits, so that its draws depend on the seed alone.
"""

from __future__ import annotations

import math

__all__ = ["Pace", "sizes"]

#: A step is planned to take at most this share of the seconds left, and is cut when it takes twice that.
SHARE = 1 / 32
# Seconds that a step may take in any case.
LEAST = 0.05
# Seconds of a call that the clock did not see.
TICK = 1e-9
# Calls of a step where rows can be chosen: dependence shows between calls.
CALLS = 4
# Of the draws that fit into a step, how many it must have: fewer, where the calls are then more, or larger.
ENOUGH = 0.8


class Pace:
    """Seconds of the calls on one input, by their number of rows.

    Parameters
    ----------
    like : Pace, optional
        Of another input of the same sampler: how much of a call's time its rows take, until it is known here.
    """

    def __init__(self, like: Pace | None = None) -> None:
        self._fastest: dict[int, float] = {}
        self.like = like

    @property
    def known(self) -> bool:
        """Whether any call was measured."""
        return bool(self._fastest)

    def record(self, rows: int, seconds: float) -> None:
        """Add a call. The fastest of a size counts: the first ones may compile."""
        self._fastest[rows] = max(TICK, min(seconds, self._fastest.get(rows, math.inf)))

    def seconds(self, rows: int) -> float:
        """What a call with so many rows will take: linear through the smallest and the largest known size.

        Where a single size is known, as much of it is taken to be the rows' as elsewhere; all, if that is not
        known either.
        """
        if not self._fastest:
            return 0.0
        if rows in self._fastest:
            return self._fastest[rows]
        small, large = min(self._fastest), max(self._fastest)
        if small < large:
            slope = max(0.0, (self._fastest[large] - self._fastest[small]) / (large - small))
        elif self.like is not None and self.like.known:
            slope = self._fastest[small] * (self.like.seconds(small + 1) / self.like.seconds(small) - 1.0)
        else:
            slope = self._fastest[small] / small
        return max(self._fastest[small], self._fastest[large] + slope * (rows - large))

    def remaining(self, draws: int, most_rows: int) -> float:
        """Seconds of so many draws, at the largest calls that are known."""
        if not self._fastest:
            return 0.0
        rows = min(max(self._fastest), most_rows)
        return draws / rows * self.seconds(rows)


def sizes(
    pace: Pace, rows: int, calls: int, *, fixed: bool, seconds: float, longest: float
) -> tuple[int, int]:
    """Rows and calls of a step that is wanted in this size, or as much of it as fits; at least one draw.

    Parameters
    ----------
    rows, calls : int
        What is wanted.
    fixed : bool
        Rows must stay.
    seconds : float
        What the step may take.
    longest : float
        What one call may take.
    """
    if pace.seconds(rows) * calls <= seconds and (fixed or pace.seconds(rows) <= longest):
        return rows, calls
    if fixed:
        return rows, max(1, int(seconds / pace.seconds(rows)))
    fitting: list[tuple[int, int]] = []
    size = rows
    while size:
        each = pace.seconds(size)
        if each <= min(longest, seconds):
            fitting.append((size, min(-(-rows * calls // size), int(seconds / each))))
        size //= 2
    if not fitting:
        return 1, 1
    most = max(size * times for size, times in fitting)
    good = [(size, times) for size, times in fitting if size * times >= ENOUGH * most]
    return max(good, key=lambda one: (min(one[1], CALLS), one[0]))
