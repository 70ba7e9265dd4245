"""The verdict's logic, as a table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from resispec_verify.verdict import Tier, Verdict, judge, judge_all, overall

EXACT, INEXACT, UNDECIDED = Verdict.EXACT, Verdict.INEXACT, Verdict.UNDECIDED
E = 2.0**-40  # a rounding bound


# (total variation from below, from above, rounding bound): by the definition in the module's docstring.
TABLE = [
    ((0.0, 0.0, E), EXACT),
    ((0.0, 0.0, 0.0), EXACT),
    ((E, E, E), EXACT),  # on the bound is within it
    ((0.0, E, E), EXACT),
    ((0.0, 2 * E, E), UNDECIDED),  # the gap may still hide a fault
    ((0.0, 1.0, E), UNDECIDED),
    ((E, 1.0, E), UNDECIDED),
    ((2 * E, 2 * E, E), INEXACT),
    ((2 * E, 1.0, E), INEXACT),  # placed mass above the target is never taken back, whatever the gap
    ((0.5, 1.0, 0.0), INEXACT),
    # A NaN is never called exact, nor proof of a fault.
    ((math.nan, math.nan, E), UNDECIDED),
    ((0.0, math.nan, E), UNDECIDED),
    ((0.0, 0.0, math.nan), UNDECIDED),
]


@pytest.mark.parametrize(("numbers", "right"), TABLE)
def test_one_position(numbers, right):
    assert judge(*numbers) is right


def test_all_positions_at_once():
    columns = (np.array(column) for column in zip(*(numbers for numbers, _ in TABLE), strict=True))
    assert judge_all(*columns) == [right for _, right in TABLE]


@pytest.mark.parametrize(
    ("verdicts", "right"),
    [
        ([EXACT], EXACT),
        ([EXACT, EXACT], EXACT),
        ([EXACT, UNDECIDED], UNDECIDED),
        ([UNDECIDED], UNDECIDED),
        ([EXACT, UNDECIDED, INEXACT], INEXACT),
        ([INEXACT, EXACT], INEXACT),
        ([], UNDECIDED),  # nothing was looked at
    ],
)
def test_over_positions(verdicts, right):
    assert overall(verdicts) is right
    assert overall(iter(reversed(verdicts))) is right


def test_the_names_in_reports():
    assert [verdict.value for verdict in Verdict] == ["exact", "inexact", "undecided"]
    assert [tier.value for tier in Tier] == ["proved", "rational", "certified", "statistical"]
    assert Verdict.EXACT == "exact"
