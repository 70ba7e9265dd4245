"""What a sampler raises on one input does not hide what it does on others."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from resispec_verify.sampler_check.battery import Input, named
from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.lines import lines

QUICK = CheckSettings(draws=3000, search=False, batches=(1, 8))
INPUTS = [named("base"), named("v4"), named("tenths")]


def right(target, draft, rng):
    total = target.sum(axis=-1, keepdims=True)
    last = target.shape[-1] - 1 - np.argmax(target[:, ::-1] > 0, axis=-1)
    return np.minimum((np.cumsum(target, axis=-1) <= rng.random((len(target), 1)) * total).sum(-1), last)


def fails_on_ten(target, draft, rng):
    if target.shape[1] == 10:
        raise ValueError("no ten")
    return right(target, draft, rng)


def test_an_input_on_which_it_raises_is_an_error_and_the_others_go_on():
    result = check_sampler(fails_on_ten, QUICK, inputs=INPUTS)
    assert (result.verdict, result.stopped) == ("error", "error")
    place = f"at {Path(__file__).relative_to(Path.cwd())}:27 in fails_on_ten"
    assert result.reason == f"raised ValueError: no ten {place} (on tenths)"
    rows = {row["input"]: row for row in result.inputs if row["rows"] is None}
    assert (rows["tenths"]["error"], rows["tenths"]["draws"]) == (f"raised ValueError: no ten {place}", 0)
    assert (rows["base"]["error"], rows["v4"]["error"]) == (None, None)
    assert min(rows["base"]["draws"], rows["v4"]["draws"] * 2) >= 3000
    assert result.detectable_tv == max(rows["base"]["detectable_tv"], rows["v4"]["detectable_tv"]) < 0.2
    json.dumps(result.result(), allow_nan=False)
    assert any("would have been found" in line for line in lines(result))


def test_a_rejection_elsewhere_wins():
    def sampler(target, draft, rng):
        return fails_on_ten(target, draft, rng) if target.shape[1] != 4 else target.argmax(axis=-1)

    result = check_sampler(sampler, QUICK, inputs=INPUTS[::-1])
    assert (result.verdict, result.witness["input"]) == ("rejected", "v4")
    assert "raised ValueError: no ten at " in result.reason
    assert "in fails_on_ten (on tenths" in result.reason


def test_one_reason_for_the_same_error_everywhere():
    def raises(target, draft, rng):
        raise ValueError("never")

    result = check_sampler(raises, QUICK, inputs=INPUTS)
    assert result.verdict == "error"
    assert result.detectable_tv is None
    (reason,) = result.reasons
    assert reason.startswith("raised ValueError: never at ")
    assert "in raises (on base and " in reason


def test_the_place_of_an_error_is_in_ones_own_code():
    def sampler(target, draft, rng):
        return np.linalg.inv(np.zeros((2, 3)))

    (reason,) = check_sampler(sampler, QUICK, inputs=INPUTS[:1]).reasons
    assert "test_failures.py:" in reason
    assert "in sampler (on base" in reason
    assert "linalg.py" not in reason


def test_another_interface_is_told_how_it_is_called():
    def block(targets, drafts, path, rng):
        return path

    (reason,) = check_sampler(block, QUICK, inputs=INPUTS[:1]).reasons
    assert "missing 1 required positional argument" in reason
    assert "called as tokens: sampler(target, draft, rng); for another interface give --style" in reason


def test_a_fault_of_small_batches_is_recorded_there():
    def sampler(target, draft, rng):
        if len(target) == 8:
            raise IndexError("eight rows")
        return right(target, draft, rng)

    result = check_sampler(sampler, CheckSettings(draws=3000, search=False), inputs=[named("zeros")])
    assert result.verdict == "error"
    assert "eight rows" in result.reasons[0]
    assert {row["rows"] for row in result.inputs if row["error"]} >= {8}


def test_a_hang_ends_the_run():
    calls = []

    def hangs(target, draft, rng):
        calls.append(target.shape[1])
        if target.shape[1] == 4:
            time.sleep(3)
        return right(target, draft, rng)

    settings = CheckSettings(draws=3000, search=False, call_seconds=0.5, batches=())
    result = check_sampler(hangs, settings, inputs=INPUTS)
    assert result.verdict == "error"
    assert "did not return within 0.5 s (on v4)" in result.reason
    assert 10 not in calls


def test_an_error_of_the_search_is_one_of_the_search():
    def sampler(target, draft, rng):
        if target.shape[1] > 4:
            raise ValueError("wide")
        return right(target, draft, rng)

    result = check_sampler(
        sampler, CheckSettings(draws=600, batches=(), boundary=False), inputs=[named("v4")]
    )
    assert result.verdict == "error"
    assert "a pair of the search" in result.reason
    assert result.detectable_tv < 1.0


# Dependence in numbers


def test_one_coin_for_two_neighbouring_rows():
    def sampler(target, draft, rng):
        tokens = right(target, draft, rng)
        return np.repeat(tokens[::2], 2)[: len(tokens)]

    law = Input("mine", np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.3, 0.1]))
    result = check_sampler(sampler, CheckSettings(draws=3000, search=False, batches=()), inputs=[law])
    assert (result.verdict, result.witness["kind"]) == ("rejected", "independence")
    found = result.witness["dependence"]
    assert (found["pairing"], found["calls_apart"], found["rows_apart"]) == ("rows 1 apart in a call", 0, 1)
    assert (found["what"], found["seen"]) == ("equal", 1.0)
    # .5 ** 2 + .3 ** 2 + .2 ** 2 = .38; 128 pairs or more, a standard deviation of about .03.
    assert abs(found["expected"] - 0.38) < 0.12
    assert f"rows 1 apart in a call are equal in 1.0000 of {found['pairs']} pairs" in result.reason
    assert (result.witness["tv_low"], result.witness["confidence"]) == (None, None)


def test_the_same_coins_in_every_call():
    def sampler(target, draft, rng):
        return right(target, draft, np.random.default_rng(len(target)))

    result = check_sampler(sampler, CheckSettings(draws=3000, search=False, batches=(64,)), inputs=INPUTS[:1])
    found = result.witness["dependence"]
    assert (found["pairing"], found["seen"]) == ("the same rows of neighbouring calls", 1.0)
    assert (found["calls_apart"], found["rows_apart"]) == (1, 0)


def test_dependence_that_no_equal_tokens_show_names_what_it_shows():
    from resispec_verify.sampler_check.probes import PAIRINGS, Probe
    from resispec_verify.sampler_check.sources.tokens import TokenSource

    # A token is followed by the next one: equal never, and 0 by 1 always.
    probe = Probe(TokenSource(Input("three", np.full(3, 1 / 3), np.full(3, 1 / 3))), 1, 1e-9, 0, 8)
    first = np.random.default_rng(0).integers(3, size=(256, 4, 1))
    for part in np.split(np.concatenate([first, (first + 1) % 3], axis=2).reshape(256, 8), 4):
        probe.fit.update(part.ravel())
        probe.look_for_dependence(part)
    finding = probe.finding()
    assert finding.kind == "independence"
    found = finding.dependence
    assert found["pairing"] == PAIRINGS[0][0]
    assert found["pairs"] == 1024
    assert abs(found["expected"] - (1 / 3 if found["what"] == "equal" else 1 / 9)) < 0.05
