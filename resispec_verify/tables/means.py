"""Means over positions, as every table takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["known_mean", "mean", "mean_and_error"]


def mean(values: Sequence[float]) -> float:
    """The mean; infinite where a value is."""
    return math.inf if any(map(math.isinf, values)) else math.fsum(values) / len(values)


def known_mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where there are no values, or one is not known."""
    known = [value for value in values if value is not None]
    return mean(known) if known and len(known) == len(values) else None


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and its standard error; None for an infinite mean, and for the mean of one value."""
    found, n = mean(values), len(values)
    if n < 2 or math.isinf(found):
        return found, None
    return found, math.sqrt(math.fsum((v - found) ** 2 for v in values) / (n - 1) / n)
