"""Bands of a mean acceptance, and of what is accepted of N drafts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from resispec_verify.evidence.mean_band import _STAKES, mean_band, share_band


def test_the_end_of_the_band_is_where_the_evidence_is_two_over_alpha():
    values, sizes = [0.9, 0.6, 0.7, 0.8, 0.75], [4, 1, 2, 4, 3]
    low, high = mean_band(values, values, sizes, 0.1)

    def evidence(m, means):
        w = np.array(sizes) / 4
        return np.mean([np.prod(1 - t * w + t * w * np.array(means) / m) for t in _STAKES])

    assert evidence(low, values) == pytest.approx(20)
    assert evidence(1 - high, 1 - np.array(values)) == pytest.approx(20)
    assert low < np.average(values, weights=sizes) < high


def test_bounds_on_the_means_widen_the_band():
    sure, wide = (
        mean_band([0.5] * 40, [0.5] * 40, [1] * 40, 0.05),
        mean_band([0.4] * 40, [0.6] * 40, [1] * 40, 0.05),
    )
    assert wide[0] < sure[0] < 0.5 < sure[1] < wide[1]


@pytest.mark.parametrize("values", [[0.0] * 5, [1.0] * 5, [0.5], [0.0, 1.0]])
def test_ends_are_in_the_unit_interval(values):
    low, high = mean_band(values, values, [1] * len(values), 0.05)
    assert 0.0 <= low <= np.mean(values) + 1e-12
    assert np.mean(values) - 1e-12 <= high <= 1.0


def test_one_prompt_says_nearly_nothing():
    low, high = mean_band([0.5], [0.5], [1000], 0.01)
    assert low < 0.01
    assert high > 0.99


@pytest.mark.parametrize("law", ["coins", "beta", "sizes"])
def test_it_misses_no_more_often_than_it_says(law):
    rng, alpha, missed, runs = np.random.default_rng(7), 0.2, 0, 400
    for _ in range(runs):
        n = 12
        sizes = np.ones(n, int)
        if law == "coins":
            values, truth = (rng.random(n) < 0.9).astype(float), 0.9
        elif law == "beta":
            values, truth = rng.beta(2, 1, n), 2 / 3
        else:  # long prompts are accepted less: the mean over positions is not that over prompts
            long = rng.random(n) < 0.5
            sizes, values, truth = np.where(long, 10, 1), np.where(long, 0.2, 0.9), (10 * 0.2 + 0.9) / 11
        low, high = mean_band(values, values, sizes.tolist(), alpha)
        missed += not low <= truth <= high
    assert missed <= alpha * runs + 3 * math.sqrt(alpha * (1 - alpha) * runs)


def test_prompts_and_not_positions_make_it_narrow():
    rng = np.random.default_rng(0)
    few, many = rng.random(10), rng.random(1000)
    width = [np.subtract(*mean_band(v, v, [1] * len(v), 0.05)[::-1]) for v in (few, many)]
    assert width[1] < 0.15 * width[0]


def log_tail(count, p, k):
    """log P(Bin <= k)."""
    terms = [
        math.lgamma(count + 1) - math.lgamma(i + 1) - math.lgamma(count - i + 1)
        + i * math.log(p) + (count - i) * math.log(1 - p)
        for i in range(k + 1)
    ]  # fmt: skip
    return math.log(math.fsum(map(math.exp, terms)))


def test_the_share_of_coins_is_bounded_by_their_tail():
    low, high = share_band(0.7, 0.8, 500, 0.01)
    kl = low * math.log(low / 0.7) + (1 - low) * math.log((1 - low) / 0.3)
    assert 500 * kl == pytest.approx(math.log(200))
    below = math.ceil(low * 500) - 1  # the greatest count that is outside
    assert log_tail(500, 0.7, below) <= math.log(0.005)
    assert log_tail(500, 0.7, below + 12) > math.log(0.005)  # and it is not far from the least possible
    assert low < 0.7 < 0.8 < high


def test_dependent_drafts_stay_within():
    """Blocks of 20 coins share a probability, 0.3 or 0.9 in turn by what was accepted before."""
    rng, outside = np.random.default_rng(1), 0
    low, high = share_band(0.6, 0.6, 200, 0.1)
    for _ in range(500):
        seen = 0
        for _ in range(5):  # the second of each two blocks makes up for the first: the mean is 0.6
            p = 0.3 if seen % 2 else 0.9
            seen += rng.binomial(20, p)
            seen += rng.binomial(20, 1.2 - p)
        outside += not low <= seen / 200 <= high
    assert outside <= 0.1 * 500


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
def test_sure_drafts(low, high):
    least, most = share_band(low, high, 100, 0.01)
    assert least == pytest.approx(low, abs=1e-12)
    assert most == pytest.approx(high, abs=1e-12)
