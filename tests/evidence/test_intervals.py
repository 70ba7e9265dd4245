"""The interval of the total variation: it contains the truth, and its parts have their values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from resispec_verify.evidence.eprocess import CONCENTRATIONS, FitTest, Grouping, mixture
from resispec_verify.evidence.intervals import _bernoulli, _least, tv_interval
from resispec_verify.evidence.statistical import detectable, detectable_tail, fit_test, groupings

TARGET = np.array([0.5, 0.3, 0.2, 0.0])


@pytest.mark.parametrize("emitted", [TARGET, np.array([0.4, 0.3, 0.25, 0.05])], ids=["right", "wrong"])
def test_the_truth_is_inside_at_all_numbers_of_draws_at_once(emitted):
    # Error .05 over a whole stream; of 200 streams at most 20 fail but for a probability below 1e-3.
    truth = 0.5 * np.abs(emitted - TARGET).sum()
    rng, failed = np.random.default_rng(1), 0
    for _ in range(200):
        test = fit_test(TARGET)
        inside = True
        for _ in range(12):
            test.update(rng.choice(4, size=1 + test.draws, p=emitted))
            low, high = tv_interval(test, 0.05)
            inside &= low <= truth <= high
        failed += not inside
    assert failed <= 20
    # Its twin: after 4,095 draws it is narrow, so that it could fail.
    assert high - low < 0.15
    assert (low > 0) == (truth > 0)


def test_a_wide_law_has_a_bound_from_below_by_its_groups():
    # 200 draws of 4,096 tokens say nothing about single tokens, but that half of the mass never comes.
    law = np.full(4096, 1 / 4096) * np.linspace(0.5, 1.5, 4096)
    test = fit_test(law / law.sum())
    test.update(np.random.default_rng(0).integers(3072, 4096, size=200))
    low, high = tv_interval(test, 0.01)
    assert 0.3 < low < 1.0 - law[3072:].sum() / law.sum()
    assert high == 1.0


def test_without_draws_nothing_is_said():
    assert tv_interval(fit_test(TARGET), 0.01) == (0.0, 1.0)


def test_by_hand():
    # One grouping of two cells, 6 draws of 8: mixture, divergence and bounds from their definitions.
    test = FitTest(np.array([0.5, 0.5]), [Grouping.of("tokens", np.arange(2), np.array([0.5, 0.5]))])
    test.update(np.repeat([0, 1], [6, 2]))
    # Priors Beta(a, a), a = 1/2 and half of each concentration: B(6 + a, 2 + a) / B(a, a).
    rising = [
        math.prod(a + i for i in range(6)) * math.prod(a + i for i in range(2))
        / math.prod(2 * a + i for i in range(8))
        for a in (0.5, *(c / 2 for c in CONCENTRATIONS))
    ]  # fmt: skip
    assert mixture(np.array([6.0, 2.0]), np.array([0.5, 0.5])) == pytest.approx(math.log(sum(rising) / 5))
    # A draw of probability 0 leaves the first prior alone, with three cells: G(3/2) / G(9 + 3/2) * ...
    first = math.prod(0.5 + i for i in range(6)) * 0.75 * 0.5 / math.prod(1.5 + i for i in range(9))
    assert mixture(np.array([6.0, 2.0, 1.0]), np.array([0.5, 0.5])) == pytest.approx(math.log(first / 5))
    loss = math.log(0.75**6 * 0.25**2 / (sum(rising) / 5))
    divergence = (math.log(1 / 0.01) + loss) / 8
    low, high = tv_interval(test, 0.01)
    assert high == pytest.approx(max(0.5 - _least(0.75, divergence), 0.5 - _least(0.25, divergence)))
    assert low == pytest.approx(max(0.0, _least(0.75, divergence) - 0.5))
    assert _bernoulli(0.75, _least(0.75, divergence)) == pytest.approx(divergence)


def test_a_pair_of_ends_of_the_bernoulli_divergence():
    assert (_bernoulli(0.0, 0.0), _bernoulli(1.0, 1.0), _bernoulli(0.5, 1.0)) == (0.0, 0.0, math.inf)
    assert _bernoulli(1.0, 0.5) == pytest.approx(math.log(2))
    assert _least(1.0, math.log(2)) == pytest.approx(0.5)


# Tails


def test_tails_are_what_is_left_beyond_a_mass_or_a_rank():
    law = np.array([0.4, 0.05, 0.3, *[0.01] * 25])
    found = {one.name: one for one in groupings(law) if one.tail}
    whole = found["tail beyond mass 0.5"]  # the two most probable have .7
    assert whole.cell.tolist() == [0, 1, 0, *[1] * 25]
    assert whole.law == pytest.approx([0.7, 0.3])
    assert found["tail beyond the 20 most probable"].law == pytest.approx([0.92, 0.08])
    assert "tail beyond the 50 most probable" not in found
    assert not any(one.tail for one in groupings(np.full(16, 1 / 16)))


def test_two_cells_are_not_called_the_law():
    test = fit_test(np.arange(1, 101) / 5050)
    test.update(np.zeros(4000, dtype=np.int64))
    bound = detectable(test, 1e-9, 0.99)
    assert bound.cells > 2
    assert min(bound.by_grouping) < bound.tv
    assert len(bound.by_grouping) == len(test.groupings)


def test_a_dropped_tail_of_the_stated_mass_is_found_for_sure():
    law = 1.0 / np.arange(1, 4097)
    law /= law.sum()
    test, rng = fit_test(law), np.random.default_rng(0)
    assert detectable_tail(test, 1e-9) is None
    test.update(rng.choice(4096, size=1500, p=law))
    stated = detectable_tail(test, 1e-9)
    # A tail with so much mass: what is emitted is renormalised.
    kept = np.where(
        np.arange(4096) < np.count_nonzero(np.cumsum(law[::-1])[::-1] >= stated * (1 - 1e-12)), law, 0.0
    )
    planted = fit_test(law)
    planted.update(rng.choice(4096, size=1500, p=kept / kept.sum()))
    assert planted.log_evidence >= -math.log(1e-9)
    # Its twin: the right law is not rejected.
    assert test.log_evidence < -math.log(1e-9)
