"""The limit of exact rules from SpecInfer's acceptance: it holds, it is attained, and no smaller one does."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import resispec_verify as rv
from resispec_verify.tables.specinfer_bound import largest_ratio, most_accepted, worst_pair


def both(target, draft, n):
    """SpecInfer's acceptance and the limit, at one position."""
    target, draft = np.asarray(target)[None], np.asarray(draft)[None]
    found = rv.operational_marginals(rv.SpecInfer(), target, draft, n)
    limit = rv.make_rule("specinfer").proposal.limit(target, draft, n)
    return float(np.sum(found.acceptance[0])), float(limit[0])


# A sum of up to 16 terms and a division in each of up to 11 rounds; the slope 1 / u^(n-1) of f_n is at most
# (2n - 1) / n < 2 where f_n < 1.
ROUNDING = 2 * 11 * 18 * np.finfo(float).eps


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(2, 16), st.sampled_from([0.1, 1.0, 10.0]))
def test_the_limit_is_below_the_bound(seed, n, vocab, concentration):
    rng = np.random.default_rng(seed)
    target, draft = rng.dirichlet(np.full(vocab, concentration), 2)
    accepted, limit = both(target, draft, n)
    assert limit <= most_accepted(min(accepted, 1.0), n) + ROUNDING
    assert limit <= largest_ratio(n) * accepted + ROUNDING


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("accepted", [0.05, 0.3, 0.647, 0.75, 0.81, 0.9, 0.99])
def test_the_worst_pair_attains_it(accepted, n):
    found, limit = both(*worst_pair(accepted, n), n)
    assert found == pytest.approx(accepted, abs=ROUNDING)
    assert limit == pytest.approx(most_accepted(accepted, n), abs=ROUNDING)


@pytest.mark.parametrize("n", [2, 3, 4, 11])
def test_the_ratio_is_reached_at_a_limit_of_one(n):
    ratio = largest_ratio(n)
    assert most_accepted(1 / ratio, n) == pytest.approx(1.0, abs=ROUNDING)
    assert most_accepted(0.99 / ratio, n) < 0.99  # below the line elsewhere: strictly convex
    grid = np.linspace(0.01, 1.0, 100)
    assert all(most_accepted(a, n) <= ratio * a + ROUNDING for a in grid)


def test_known_ratios():
    assert largest_ratio(1) == 1.0
    assert largest_ratio(2) == pytest.approx(27 / 23, rel=1e-15)
    assert largest_ratio(3) == pytest.approx(1 / (1 - 0.4 * 0.6**1.5), rel=1e-15)
    assert largest_ratio(10**9) == pytest.approx(4 / 3, rel=1e-8)
    assert all(largest_ratio(n) < largest_ratio(n + 1) < 4 / 3 for n in range(1, 50))


@pytest.mark.parametrize(("accepted", "n"), [(0.5, 0), (-0.1, 2), (1.1, 2), (math.nan, 2)])
def test_outside_of_its_range(accepted, n):
    with pytest.raises(rv.InputError):
        most_accepted(accepted, n)


def test_the_ends():
    for n in (1, 2, 5):
        assert most_accepted(0.0, n) == 0.0
        assert most_accepted(1.0, n) == 1.0
