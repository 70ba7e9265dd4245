"""The anytime-valid tests: their null expectation by enumeration, their regret, and the bound on what is
found."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction as F

import numpy as np
import pytest

from resispec_verify.evidence import eprocess
from resispec_verify.evidence.eprocess import FitTest, Grouping, SwapTest, detectable_tv, regret
from resispec_verify.evidence.statistical import detectable, fit_test, groupings, swap_test
from resispec_verify.sampler_check.battery import battery, chains, named

EPS = float(np.finfo(np.float64).eps)
# The largest term of an evidence is log G(c) for the largest concentration c, about 6.6e5; a handful of
# them are added.
LOG_ROUNDING = 16 * math.lgamma(max(eprocess.CONCENTRATIONS)) * EPS
LAW = np.array([0.5, 0.25, 0.125, 0.125])


def types(n: int, cells: int):
    """All counts of n draws."""
    for cuts in itertools.combinations(range(n + cells - 1), cells - 1):
        edges = (-1, *cuts, n + cells - 1)
        yield np.array([b - a - 1 for a, b in itertools.pairwise(edges)])


def probability(counts: np.ndarray, law: np.ndarray) -> float:
    ways = math.factorial(int(counts.sum())) // math.prod(math.factorial(int(c)) for c in counts)
    exact = F(ways) * math.prod((F(float(p)) ** int(c) for c, p in zip(counts, law, strict=True)), start=F(1))
    return float(exact)


def evidence(counts: np.ndarray, law: np.ndarray, cells: np.ndarray | None = None) -> float:
    grouping = Grouping.of("cells", np.arange(len(law)) if cells is None else cells, law)
    test = FitTest(law, [grouping])
    test.update(np.repeat(np.arange(len(law)), counts))
    return test.log_evidence


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("cells", [None, np.array([0, 1, 1, 1])])
def test_the_evidence_of_fit_has_expectation_one_under_the_target(n, cells):
    # Over all counts of n draws: a mixture of laws over the target integrates to one. Ville's inequality
    # rests on it.
    total = sum(probability(c, LAW) * math.exp(evidence(c, LAW, cells)) for c in types(n, 4))
    assert abs(total - 1.0) <= LOG_ROUNDING


def test_the_evidence_is_a_martingale():
    before = np.array([3, 1, 0, 2])
    after = [evidence(before + step, LAW) for step in np.eye(4, dtype=int)]
    ahead = float(np.sum(LAW * np.exp(after)))
    assert ahead == pytest.approx(math.exp(evidence(before, LAW)), rel=LOG_ROUNDING)


def test_an_impossible_token_is_infinite_evidence():
    test = fit_test(np.array([0.5, 0.5, 0.0]))
    test.update(np.array([0, 1, 2]))
    assert test.impossible == 2
    assert test.log_evidence == math.inf


@pytest.mark.parametrize("cells", [2, 3, 4])
@pytest.mark.parametrize("n", [1, 5, 12])
def test_the_regret_bounds_every_count_and_is_attained(n, cells):
    losses = []
    law = np.full(cells, 1 / cells)
    for counts in types(n, cells):
        seen = counts[counts > 0] / n
        best = n * float(np.sum(seen * np.log(seen * cells)))
        losses.append(best - eprocess._log_ratios(counts.astype(float), law)[0])
    assert max(losses) <= regret(n, cells) + 400 * EPS
    assert max(losses) == pytest.approx(regret(n, cells), abs=400 * EPS)


def test_what_is_called_detectable_is_found():
    # Draws from a law at exactly the stated distance, on the least visible side; power .9 over 200 seeds.
    alpha, power, n = 1e-3, 0.9, 4000
    tv = detectable_tv(n, 4, 1 + len(eprocess.CONCENTRATIONS), alpha, power)
    moved = LAW + np.array([-tv, tv, 0.0, 0.0])
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(200):
        test = fit_test(LAW)
        test.update(rng.choice(4, size=n, p=moved))
        found += test.log_evidence >= -math.log(alpha)
    # Binomial(200, .9) is at least 164 but for a probability below 1e-3.
    assert found >= 164
    # Its twin: an eighth of that distance is not found so often, so that the test can fail.
    assert detectable(test, alpha, power).tv == tv
    moved = LAW + np.array([-tv, tv, 0.0, 0.0]) / 8
    hits = 0
    for _ in range(50):
        test = fit_test(LAW)
        test.update(rng.choice(4, size=n, p=moved))
        hits += test.log_evidence >= -math.log(alpha)
    assert hits < 25


def test_nothing_is_detectable_without_draws():
    assert detectable_tv(0, 4, 5, 1e-9, 0.99) == 1.0
    assert detectable_tv(10, 4096, 5, 1e-9, 0.99) == 1.0


def swap_evidence(pairs, law_x, law_y):
    test = SwapTest(np.arange(3))
    # Something to bet on: equal entries in the past.
    past = np.array([0, 1, 2, 0])
    test.update(past, past)
    before = test.wealth.copy()
    (a, b), (c, d) = pairs
    test.update(np.array([a, c]), np.array([b, d]))
    return np.exp(test.wealth - before) * law_x[a] * law_x[c] * law_y[b] * law_y[d]


def test_swaps_have_expectation_one_for_independent_pairs_of_any_laws():
    law_x, law_y = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.1, 0.8])
    total = sum(
        swap_evidence(((a, b), (c, d)), law_x, law_y) for a, b, c, d in itertools.product(range(3), repeat=4)
    )
    assert np.abs(total - 1.0).max() <= 81 * 20 * EPS


def test_swaps_reject_equal_rows_and_not_a_wrong_law():
    rng = np.random.default_rng(0)
    x = rng.choice(3, size=400, p=[0.1, 0.1, 0.8])
    equal, free = swap_test(np.full(3, 1 / 3)), swap_test(np.full(3, 1 / 3))
    equal.update(x, x)
    free.update(x, rng.choice(3, size=400, p=[0.8, 0.1, 0.1]))
    assert equal.log_evidence > 20.7
    assert free.log_evidence < 5


def test_groupings_are_laws_of_their_cells():
    for pair in battery():
        for grouping in groupings(pair.target, pair.draft):
            support = pair.target > 0
            mass = np.bincount(grouping.cell[support], weights=pair.target[support], minlength=grouping.cells)
            assert np.abs(mass - grouping.law).max() <= len(pair.target) * EPS
            assert grouping.law.min() > 0


def test_bands_of_the_ratio_show_which_side_of_one_a_token_is_on():
    wide = named("wide")
    ratio = next(g for g in groupings(wide.target, wide.draft) if g.name == "bands of target over draft")
    value = wide.target / wide.draft
    edges = [(value[ratio.cell == i].min(), value[ratio.cell == i].max()) for i in range(ratio.cells)]
    assert all(high <= low for (_, high), (low, _) in itertools.pairwise(sorted(edges)))


def test_inputs_are_distributions():
    for pair in battery():
        for law in (pair.target, pair.draft):
            assert law.min() >= 0
            assert abs(law.sum() - 1) <= len(law) * EPS
    for chain in chains():
        for law in (chain.target, chain.draft):
            assert np.abs(law.sum(axis=-1) - 1).max() <= 10 * EPS
