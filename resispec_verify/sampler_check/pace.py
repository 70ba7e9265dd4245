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
# Calls of a step where rows can be chosen: dependence shows between calls.
CALLS = 4


class Pace:
    """Seconds of the calls on one input, by their number of rows."""

    def __init__(self) -> None:
        self._fastest: dict[int, float] = {}

    @property
    def known(self) -> bool:
        """Whether any call was measured."""
        return bool(self._fastest)

    def record(self, rows: int, seconds: float) -> None:
        """Add a call. The fastest of a size counts: the first ones may compile."""
        self._fastest[rows] = min(seconds, self._fastest.get(rows, math.inf))

    def seconds(self, rows: int) -> float:
        """What a call with so many rows will take: linear through the smallest and the largest known size.

        Of a single size that is known, rows are taken to cost alike, which is more than most cost.
        """
        if not self._fastest:
            return 0.0
        if rows in self._fastest:
            return self._fastest[rows]
        small, large = min(self._fastest), max(self._fastest)
        if small == large:
            return self._fastest[small] * max(1.0, rows / small)
        slope = max(0.0, (self._fastest[large] - self._fastest[small]) / (large - small))
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
    """Rows and calls of a step that is wanted in this size, or as much of it as fits.

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
    if not fixed:
        while rows > 1 and pace.seconds(rows) * min(CALLS, calls) > min(seconds, CALLS * longest):
            rows, calls = rows // 2, calls * 2
    each = pace.seconds(rows)
    if each * calls > seconds:
        calls = max(1, int(seconds / each))
    return rows, calls
