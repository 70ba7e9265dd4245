"""Why a law is rejected: the grouping that shows it, intervals that go with it, dependence told apart."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from resispec_verify.evidence.intervals import tv_in_grouping, tv_interval
from resispec_verify.evidence.statistical import fit_test
from resispec_verify.sampler_check.battery import Input, named
from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.lines import lines
from resispec_verify.sampler_check.probes import evenness

ALONE = CheckSettings(draws=4096, search=False, batches=(), boundary=False)


def right(target, draft, rng):
    cumulative = np.cumsum(target[0])
    return np.searchsorted(cumulative, rng.random(len(target)) * cumulative[-1], side="right")


def copies(lag):
    """The target's law; row i is row i - lag with probability 1/2."""

    def sampler(target, draft, rng):
        tokens = right(target, draft, rng)
        if (n := len(tokens)) > lag:
            tokens[lag:] = np.where(rng.random(n - lag) < 0.5, tokens[:-lag], tokens[lag:])
        return tokens

    return sampler


@pytest.mark.parametrize("lag", [3, 4, 16])
def test_rows_that_copy_earlier_ones_are_dependent_whatever_the_lag(lag):
    result = check_sampler(copies(lag), ALONE, inputs=[named("wide")])
    assert result.witness is not None
    assert (result.verdict, result.witness["kind"]) == ("rejected", "independence")
    found = result.witness["dependence"]
    assert (found["calls_apart"], found["rows_apart"]) == (0, lag)


def test_dependence_at_a_lag_that_is_not_tried_is_left_open():
    result = check_sampler(copies(11), ALONE, inputs=[named("wide")])
    assert result.verdict == "rejected"
    assert result.reason == "emitted tokens do not look like independent draws of the target's law"
    # Independent draws of a wrong law are said to be that.
    wrong = check_sampler(lambda p, q, rng: right(q, p, rng), ALONE, inputs=[named("wide")])
    assert wrong.reason == "emitted tokens do not have the target's law"


def test_counts_of_calls_are_even_where_rows_are_independent():
    rng = np.random.default_rng(0)
    free = rng.integers(3, size=(400, 64))
    copied = free.copy()
    copied[:, 1::2] = copied[:, ::2]
    assert evenness(free, np.arange(3)) > 0.01
    assert evenness(copied, np.arange(3)) < 0.01  # too uneven
    assert evenness(np.tile(np.arange(3), (400, 20)), np.arange(3)) < 0.01  # too even


def test_a_dropped_tail_is_named_with_its_mass_and_noise_is_left_out():
    law = np.random.default_rng(0).dirichlet(np.full(20_000, 0.1))
    order = np.argsort(-law)
    kept = order[: int(np.searchsorted(np.cumsum(law[order]), 0.97)) + 1]
    dropped = np.zeros_like(law)
    dropped[kept] = law[kept] / law[kept].sum()
    cumulative = np.cumsum(dropped)

    def sampler(target, draft, rng):
        return np.searchsorted(cumulative, rng.random(len(target)) * cumulative[-1], side="right")

    result = check_sampler(sampler, ALONE, inputs=[Input("tailed", law, law)])
    assert result.witness is not None
    grouping = result.witness["grouping"]
    assert grouping["name"] == "tail beyond mass 0.97"
    due = 1.0 - law[kept].sum()
    (row,) = grouping["differences"]
    assert (row["seen"], row["target"]) == (0.0, pytest.approx(due))
    assert 0.01 < grouping["tv_low"] < due
    assert grouping["tv_high"] == pytest.approx(due)  # nothing is below a mass of 0
    text = lines(result)
    assert any(
        line.strip() == f"tail beyond mass 0.97: 0.0000 of the draws, target {due:.4f}" for line in text
    )
    assert any("TV between the tail and the rest: 0.0" in line for line in text)
    assert not any("token " in line for line in text)
    assert not any("1.0000" in line for line in text)


def test_the_lower_end_is_positive_wherever_a_law_is_rejected():
    # Many cells, each a little off: no single one, and no two sets of them, need say much.
    rng = np.random.default_rng(1)
    law = np.full(16, 1 / 16)
    for seed in range(6):
        test = fit_test(law)
        tilt = law * (1 + 0.35 * np.random.default_rng(seed).choice([-1, 1], 16))
        tilt /= tilt.sum()
        while test.log_evidence < np.log(1e9):
            test.update(rng.choice(16, size=64, p=tilt))
        low, high = tv_interval(test, 0.01)
        assert 0.0 < low <= 0.5 * np.abs(tilt - law).sum() <= high


def test_the_interval_between_three_cells_is_the_nearest_law_in_the_divergence():
    from resispec_verify.evidence.intervals import _nearest

    seen, law, divergence = np.array([0.6, 0.4, 0.0]), np.array([0.3, 0.4, 0.3]), 0.2
    grid = np.linspace(1e-6, 1.0, 1501)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    third = 1.0 - first - second
    with np.errstate(invalid="ignore"):
        inside = (third >= 0) & (0.6 * np.log(0.6 / first) + 0.4 * np.log(0.4 / second) <= divergence)
    distance = 0.5 * (abs(first - 0.3) + abs(second - 0.4) + abs(third - 0.3))
    assert _nearest(seen, law, divergence) == pytest.approx(distance[inside].min(), abs=2e-3)
    # Two cells in closed form: KL((1, 0) || (r, 1 - r)) = -log r.
    assert _nearest(np.array([1.0, 0.0]), np.array([0.9, 0.1]), 0.05) == pytest.approx(np.exp(-0.05) - 0.9)


def test_without_evidence_the_interval_reaches_zero():
    test = fit_test(np.array([0.5, 0.5]))
    test.update(np.array([0, 1] * 50))
    low, high = tv_in_grouping(test, test.groupings[0], 0.01)
    assert low == 0.0 < high < 0.3


@pytest.mark.parametrize("give", ["logits", "log-probabilities"])
@pytest.mark.parametrize(("style", "name"), [("tokens", "wide"), ("block", "bonus")])
def test_reserved_tokens_as_logits_warn_of_nothing(give, style, name):
    from resispec_verify.sampler_check.sources.styles import named_inputs

    settings = CheckSettings(
        draws=300, search=False, batches=(), boundary=False, style=style, give=give, offset=3
    )

    def sampler(laws, *rest):
        shape = laws.shape[:1] if style == "tokens" else laws.shape[:2]
        return np.full(shape, 3)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check_sampler(sampler, settings, inputs=named_inputs([name], style))
    assert [str(one.message) for one in seen] == []


def test_ragged_inputs_have_names_of_their_own():
    from resispec_verify.sampler_check.sources.styles import inputs_of_witness, named_inputs

    settings = CheckSettings(
        draws=300, search=False, batches=(), boundary=False, style="block", ragged=True, flat=True
    )

    def fails(*arguments):
        raise ValueError("never")

    result = check_sampler(fails, settings, inputs=named_inputs(["bonus", "random-3"], "block"))
    names = [row["input"] for row in result.inputs if row["rows"] is None]
    assert names[:4] == ["bonus", "bonus, ragged", "random-3", "random-3, ragged"]
    assert inputs_of_witness({"input": "random-3, ragged"}, "block") == ["random-3"]
    assert inputs_of_witness({"input": "rows of v4 and equal"}, "tokens") == ["v4", "equal"]
    assert inputs_of_witness({"input": "rows of v4 and by hand"}, "tokens") is None


def test_an_interval_that_reaches_zero_says_why_and_gives_no_frequency_alone():
    from resispec_verify.sampler_check.lines import _ends_of

    found = {"tv_low": 0.0, "tv_high": 0.3, "tv_seen": 0.1}
    assert _ends_of(found, 0.99) == "at most 0.3000 (confidence 0.99; alpha is too large for a lower end)"
    assert _ends_of({**found, "tv_low": 0.02, "tv_high": 1.0}, 0.99) == "at least 0.0200 (confidence 0.99)"
