"""Exact, inexact or undecided, with the tier of evidence that says so.

With the placed mass ``m``, the target ``p``, the unexpanded mass ``gap`` and a rounding bound ``e``:

* ``inexact`` as soon as ``sum (m - p)_+ > e``: mass above the target is never taken back, whatever the gap;
* ``exact`` only if ``TV(m, p) + gap <= e``, and e is small enough to mean it (`resolution`);
* ``undecided`` otherwise.

Over positions any inexact makes inexact, else any undecided makes undecided.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import numpy as np

__all__ = ["Tier", "Verdict", "judge", "overall"]


class Verdict(str, enum.Enum):
    """What is known of a marginal."""

    EXACT = "exact"
    INEXACT = "inexact"
    UNDECIDED = "undecided"


class Tier(str, enum.Enum):
    """How it is known."""

    #: A proof for every pair of laws: nothing was computed.
    PROVED = "proved"
    #: Equality of fractions.
    RATIONAL = "rational"
    #: Floating point with a derived rounding bound, plus the unexpanded mass.
    CERTIFIED = "certified"
    #: A test with an error rate; not rejecting is no proof.
    STATISTICAL = "statistical"


#: The largest bound on rounding with which a rule may be called exact: one that admits a total variation that
#: somebody could see proves nothing. 1e9 paths in float64 round to less.
RESOLUTION = 1e-6


def resolution(eps: float) -> float:
    """`RESOLUTION` for a machine epsilon: in float32 1e-3, which is what many rounds over 2**18 tokens do."""
    return max(RESOLUTION, 2.0**13 * eps)


def judge(tv_low: float, tv_high: float, rounding: float, most: float = RESOLUTION) -> Verdict:
    """The verdict on one position.

    Parameters
    ----------
    tv_low : float
        The placed excess, a lower bound on the total variation.
    tv_high : float
        An upper bound on it: the excess plus the gap.
    rounding : float
        Bound on what rounding alone can do.
    most : float
        The largest such bound that can make a rule exact; see `resolution`.
    """
    if tv_low > rounding:
        return Verdict.INEXACT
    return Verdict.EXACT if tv_high <= rounding <= most else Verdict.UNDECIDED


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict over all positions; undecided where there are none."""
    seen = set(verdicts)
    if Verdict.INEXACT in seen:
        return Verdict.INEXACT
    return Verdict.EXACT if seen == {Verdict.EXACT} else Verdict.UNDECIDED


def judge_all(
    tv_low: np.ndarray, tv_high: np.ndarray, rounding: np.ndarray, most: float = RESOLUTION
) -> list[Verdict]:
    """`judge`, position by position, for arrays ``(B,)``."""
    rows = zip(tv_low.tolist(), tv_high.tolist(), rounding.tolist(), strict=True)
    return [judge(*row, most) for row in rows]
