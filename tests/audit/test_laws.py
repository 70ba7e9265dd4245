"""Coarse laws of what engines report, held against whole laws."""

import math

import numpy as np
import pytest

from resispec_verify.audit.interface import EngineError, RawLaw, Sampling
from resispec_verify.audit.laws import BeyondReported, coarse_law, distance


def whole_law(seed, vocab=500):
    rng = np.random.default_rng(seed)
    logits = 3.0 * rng.standard_normal(vocab)
    return np.exp(logits - np.logaddexp.reduce(logits))


def reported(p, k):
    order = np.argsort(-p)[:k]
    return RawLaw(tuple(int(x) for x in order), tuple(float(x) for x in np.log(p[order])), k == len(p))


def filtered(p, sampling):
    """The law of an engine that has all probabilities, written straight down."""
    p = p ** (1 / sampling.temperature)
    p = p / p.sum()
    order = np.argsort(-p)
    if sampling.top_k:
        p[order[sampling.top_k :]] = 0.0
        p = p / p.sum()
    kept, mass = [], 0.0
    for token in order:
        if mass >= sampling.top_p or p[token] == 0:
            break
        kept.append(token)
        mass += p[token]
    q = np.zeros_like(p)
    q[kept] = p[kept]
    q[q < sampling.min_p * q.max()] = 0.0
    return q / q.sum()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.7),
        Sampling(temperature=1.5),
        Sampling(top_k=20),
        Sampling(temperature=0.8, top_k=30, top_p=0.9),
        Sampling(top_k=50, top_p=0.8, min_p=0.1),
        Sampling(top_p=0.8),
    ],
)
def test_the_bounds_hold_the_law_that_the_engine_has(seed, sampling):
    p = whole_law(seed)
    law = coarse_law(reported(p, 100), sampling, vocab=len(p))
    true = filtered(p.copy(), sampling)
    masses = [true[token] for token in law.tokens]
    masses.append(1.0 - sum(masses))
    assert np.all(law.low <= np.array(masses) + 1e-15)
    assert np.all(law.high >= np.array(masses) - 1e-15)
    assert len(law.low) == len(law.tokens) + 1
    if sampling.top_k:
        assert law.high[-1] == 0.0


def test_a_whole_law_leaves_nothing_open():
    p = whole_law(0, vocab=30)
    law = coarse_law(reported(p, 30), Sampling(temperature=0.6))
    np.testing.assert_allclose(
        law.law[:-1], np.sort(p ** (1 / 0.6) / (p ** (1 / 0.6)).sum())[::-1], rtol=1e-4
    )
    assert law.cell(int(np.argmax(p))) == 0
    assert law.cell(99) == 30


@pytest.mark.parametrize(
    ("raw", "sampling", "message"),
    [
        (RawLaw((1, 2), (0.5, 0.2)), Sampling(), "positive"),
        (RawLaw((1, 2), (math.nan, -1.0)), Sampling(), "not a number"),
        (RawLaw((1, 2), (-2.0, -1.0)), Sampling(), "not in order"),
        (RawLaw((), ()), Sampling(), "no law after some texts"),
        (RawLaw((1, 2), (-0.1, -0.2)), Sampling(), "sum to 1.7"),
        (RawLaw((1, 2), (-1.0, -2.0)), Sampling(top_k=3), "fewer than top-k 3"),
        (RawLaw((1, 2), (-1.0, -2.0)), Sampling(top_p=0.9), "top-p 0.9"),
        (RawLaw((1, 2), (-1.0, -1.5)), Sampling(min_p=0.1), "min-p 0.1"),
    ],
)
def test_what_is_no_law_and_filters_that_reach_too_far_are_refused(raw, sampling, message):
    with pytest.raises(EngineError, match=message):
        coarse_law(raw, sampling)


def test_distance_is_that_of_the_merged_laws():
    one = coarse_law(RawLaw((1, 2), (math.log(0.5), math.log(0.3))), Sampling())
    other = coarse_law(RawLaw((2, 3), (math.log(0.4), math.log(0.35))), Sampling())
    # Only token 2 is in both: .3 and .4, the others .7 and .6.
    assert distance(one, other) == pytest.approx(0.1, abs=1e-4)
    assert distance(one, one) == 0.0


def logs(*masses):
    return tuple(math.log(mass) for mass in masses)


@pytest.mark.parametrize(
    ("masses", "sampling", "message"),
    [
        # Equally probable: 2 and 3, and the last reported and perhaps one that is not.
        ((0.5, 0.2, 0.2, 0.05), Sampling(top_k=2), "top-k 2 parts tokens that are equally probable"),
        ((0.5, 0.2, 0.1), Sampling(top_k=3), "too few to tell what top-k 3 keeps"),
        ((0.5, 0.2, 0.2, 0.05), Sampling(top_p=0.6), "top-p 0.6 parts tokens that are equally probable"),
        # A sum in float32, one after the other, ends before or after the token.
        ((0.5, 0.3, 0.15, 0.04), Sampling(top_p=0.8), "rounding decides what top-p 0.8 keeps"),
        ((0.5, 0.2, 0.05, 0.01), Sampling(min_p=0.1), "rounding decides what min-p 0.1 keeps"),
    ],
)
def test_a_filter_that_rounding_decides_leaves_the_law_unknown(masses, sampling, message):
    with pytest.raises(BeyondReported, match=message):
        coarse_law(RawLaw((1, 2, 3, 4)[: len(masses)], logs(*masses)), sampling)


def test_filters_that_end_between_tokens_are_applied():
    raw = RawLaw((1, 2, 3, 4), logs(0.5, 0.2, 0.1, 0.05))
    for sampling in (Sampling(top_k=2), Sampling(top_p=0.6), Sampling(min_p=0.3)):
        law = coarse_law(raw, sampling)
        assert law.tokens == (1, 2)
        np.testing.assert_allclose(law.law, [5 / 7, 2 / 7, 0.0], atol=1e-4)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [1e-320, 0.001, 0.01, 1.0, 2.0, 100.0, 1e300])
def test_probabilities_of_0_and_extreme_temperatures_make_a_law(temperature):
    # vLLM writes -9999 for the logarithm of 0.
    law = coarse_law(RawLaw((1, 2, 3, 4), (*logs(0.004, 0.002), -740.0, -9999.0)), Sampling(temperature))
    assert law.tokens == (1, 2)
    assert np.all((law.low >= 0) & (law.low <= law.high) & (law.high <= 1))
    assert law.low.sum() <= 1 <= law.high.sum()


def test_probabilities_that_are_all_0_are_refused():
    with pytest.raises(EngineError, match="all 0"):
        coarse_law(RawLaw((1,), (-9999.0,)), Sampling())


def test_mass_that_rounding_lost_is_not_that_of_tokens_too_improbable_to_have_it():
    # .9997 is reported; 1,000 others of at most 1e-9 have 1e-6 at most, and at temperature 2 the square root.
    raw = RawLaw((1, 2, 3), logs(0.9, 0.0997, 1e-9))
    law = coarse_law(raw, Sampling(temperature=2.0), vocab=1003)
    weights = np.sqrt([0.9, 0.0997, 1e-9])
    true = 1000 * math.sqrt(1e-9)
    assert law.low[-1] <= true / (true + weights.sum()) * (1 + 1e-3)
    assert law.high[0] >= weights[0] / (weights.sum() + 1e-9)


@pytest.mark.parametrize("complete", [True, False])
def test_what_is_all_but_impossible_comes_at_a_temperature_that_is_high(complete):
    law = coarse_law(RawLaw((1, 2), (-1e-9, -800.0), complete), Sampling(temperature=1000.0), vocab=2)
    assert law.high[-1] > math.exp(-0.8) / (1 + math.exp(-0.8))
