"""Slow samplers: the clock is ours, and a call moves it; nothing sleeps."""

from __future__ import annotations

import time

import numpy as np
import pytest

from resispec_verify.sampler_check.battery import battery_names, named
from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.lines import lines
from resispec_verify.sampler_check.pace import Pace, sizes


def pick(law, rng):
    total = law.sum(axis=-1, keepdims=True)
    last = law.shape[-1] - 1 - np.argmax(law[:, ::-1] > 0, axis=-1)
    return np.minimum((np.cumsum(law, axis=-1) <= rng.random((len(law), 1)) * total).sum(axis=-1), last)


def right(target, draft, rng):
    return pick(target, rng)


class Clock:
    """A monotonic clock that only calls of a sampler move."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.calls: list[tuple[float, float]] = []  # what was left when it began, and what it took

    def slow(self, sampler, row, call=0.0):
        def slowed(target, draft, rng):
            self.calls.append((self.now, call + row * len(target)))
            self.now += call + row * len(target)
            return sampler(target, draft, rng)

        return slowed


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: found.now)
    return found


def large(result):
    return {row["input"]: row for row in result.inputs if row["rows"] is None}


def test_sixty_milliseconds_a_row_and_a_minute_reach_every_input(clock):
    # 1,000 draws for 17 streams.
    result = check_sampler(clock.slow(right, 0.06), CheckSettings(seconds=60.0))
    assert (result.verdict, result.stopped) == ("not-rejected", "time")
    assert set(battery_names()) <= set(large(result))
    assert result.detectable_tv == max(row["detectable_tv"] for row in large(result).values()) < 0.9
    assert 60.0 <= result.seconds <= 60.0 + 0.06 * 8
    assert sum(row["draws"] for row in result.inputs) <= result.draws <= 1010
    assert {row["rows"] for row in result.inputs} == {None, 1, 2, 4, 8, 64}
    assert any("Not reached" in line for line in lines(result))


def test_a_slow_sampler_of_the_drafts_law_is_rejected_in_a_minute(clock):
    def drafts(target, draft, rng):
        return pick(draft, rng)

    assert check_sampler(clock.slow(drafts, 0.06), CheckSettings(seconds=60.0)).verdict == "rejected"
    settings = CheckSettings(seconds=60.0, search=False)
    result = check_sampler(clock.slow(drafts, 0.06), settings, inputs=[named("v4"), named("adversarial")])
    assert (result.verdict, result.witness["kind"]) == ("rejected", "law")
    assert result.seconds < 30.0


def test_no_call_takes_more_than_a_small_share_of_the_time(clock):
    check_sampler(clock.slow(right, 0.06), CheckSettings(seconds=60.0))
    end = 1000.0 + 60.0
    # A step has a 32nd of what is left, a call of fixed rows may be all of it; 64 rows have a call of 3.84 s.
    assert all(taken <= max(0.06, (end - began) / 8, 64 * 0.06) for began, taken in clock.calls)
    assert sum(taken > 2.0 for _, taken in clock.calls) <= 2


def test_calls_that_cost_the_same_whatever_their_rows_get_many_rows(clock):
    settings = CheckSettings(seconds=60.0, search=False, boundary=False, batches=())
    result = check_sampler(clock.slow(right, 0.0, call=1.0), settings, inputs=[named("base")])
    assert result.verdict == "not-rejected"
    assert result.inputs[0]["draws"] > 1000
    assert 60.0 <= result.seconds <= 61.0


def test_too_slow_for_most_inputs_says_so(clock):
    # 30 draws in all: what two laws of one token show needs the fewest.
    result = check_sampler(clock.slow(right, 2.0), CheckSettings(seconds=60.0))
    assert result.verdict == "not-rejected"
    assert {"base", "wide", "the search"} <= set(result.not_reached)
    assert set(large(result)) == {"one-hot", "both-one-hot"}
    assert result.seconds <= 62.0
    assert result.detectable_tv < 0.5


def test_one_draw_is_no_error(clock):
    settings = CheckSettings(seconds=1.0, search=False, boundary=False, batches=())
    result = check_sampler(clock.slow(right, 0.3), settings, inputs=[named("base")])
    assert (result.verdict, result.stopped) == ("not-rejected", "time")
    assert result.detectable_tv == 1.0
    assert any("Too few draws" in line for line in lines(result))


def test_a_fast_sampler_draws_the_same_at_any_speed(clock):
    settings = CheckSettings(draws=3000, search=False, batches=(1, 8))
    inputs = [named("base"), named("tenths"), named("wide")]
    results = [check_sampler(clock.slow(right, row), settings, inputs=inputs) for row in (0.0, 1e-6, 1e-4)]
    assert results[0].inputs == results[1].inputs == results[2].inputs
    assert {result.stopped for result in results} == {"draws"}


def test_costs_are_lines_through_what_was_measured():
    pace = Pace()
    pace.record(1, 3.0)
    pace.record(1, 1.0)
    assert (pace.seconds(1), pace.seconds(10)) == (1.0, 10.0)  # the fastest; rows alone
    pace.record(4, 2.5)
    assert pace.seconds(64) == pytest.approx(1.0 + 0.5 * 63)
    other = Pace(pace)
    other.record(1, 10.0)
    assert other.seconds(3) == pytest.approx(10.0 * (1 + 2 * 0.5))
    assert pace.remaining(400, 64) == pytest.approx(100 * 2.5)


@pytest.mark.parametrize(
    ("seconds", "fixed", "expected"),
    [
        (1e9, False, (64, 4)),  # all of it
        (7.0, False, (16, 4)),  # 70 draws at .1 s
        (1.0, False, (2, 5)),
        (0.01, False, (1, 1)),  # at least one
        (7.0, True, (64, 1)),
        (13.0, True, (64, 2)),
    ],
)
def test_a_step_is_as_large_as_fits(seconds, fixed, expected):
    pace = Pace()
    pace.record(1, 0.1)
    assert sizes(pace, 64, 4, fixed=fixed, seconds=seconds, longest=1e9) == expected
    assert sizes(pace, 64, 4, fixed=False, seconds=1e9, longest=0.85)[0] == 8
