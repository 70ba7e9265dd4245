"""What is left unexpanded is certified: the whole marginal lies inside the reported bounds."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import (
    EPS,
    EVERYTHING,
    NAMES,
    Enumerated,
    divergence,
    divergence_slack,
    laws,
    pairs,
    row,
)

from resispec_verify.evidence import expansion, operational_marginals
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.evidence.marginal import estimated_acceptance, tv_interval, verdict_on
from resispec_verify.kernels.elementwise.divergences import divergence_bounds
from resispec_verify.oracle import marginal, total_variation
from resispec_verify.rules import ResiSpec, Sequoia, SpecInfer
from resispec_verify.verdict import Verdict, judge

# Paths for the scalar recursion, residuals for the general engine.
BUDGETS = st.one_of(
    st.builds(lambda gap: replace(EVERYTHING, gap=gap), st.sampled_from([0.5, 0.2, 0.05, 1e-2, 1e-3, 1e-5])),
    st.builds(lambda work: replace(EVERYTHING, most_paths=work, most_states=work), st.integers(0, 80)),
)
ENGINES = {
    "scalar": ResiSpec(),
    "general": Enumerated(),
    "general, floor": Enumerated("water-filling", "floor"),
}


def oracle(rule, laws, n):
    options = (rule.redistribution, rule.budget, rule.hole)
    return marginal("resispec", *laws, n, **dict(zip(NAMES, options, strict=True)))


@pytest.mark.parametrize("rule", ENGINES.values(), ids=ENGINES)
@settings(max_examples=40)
@given(data=st.data())
def test_the_whole_marginal_lies_inside_the_bounds(rule, data):
    # Right value: full enumeration in fractions.
    n = data.draw(st.integers(1, 3))
    pair, budget = data.draw(pairs(max_size=4)), data.draw(BUDGETS)
    target = row(pair[0])
    marginals = operational_marginals(rule, target, row(pair[1]), n, budget=budget)
    right = oracle(rule, pair, n)
    rounding, gap = float(marginals.rounding[0]), float(marginals.gap[0])

    # Placed mass is never taken back, and what is missing is the gap.
    over = sum(max(float(a) - float(b), 0.0) for a, b in zip(marginals.placed[0], right.law, strict=True))
    assert over <= 2 * rounding
    assert abs(1.0 - float(marginals.placed.sum()) - gap) <= 2 * rounding

    low, high = (float(bound[0]) for bound in tv_interval(marginals, target))
    tv = float(total_variation(right.law, pair[0]))
    assert low - 2 * rounding <= tv <= high + 2 * rounding

    bounds = divergence_bounds(marginals.placed, target, marginals.gap, target > 0)
    kl, slack = divergence(right.law, pair[0]), divergence_slack(pair[0], rounding)
    assert float(bounds.kl_low[0]) - slack <= kl <= float(bounds.kl_high[0]) + slack
    assert float(bounds.tv_low[0]) - 2 * rounding <= tv <= float(bounds.tv_high[0]) + 2 * rounding

    said = judge(low, high, rounding)
    if said is Verdict.INEXACT:
        assert tv > 0
    if said is Verdict.EXACT:
        assert tv <= 2 * rounding


@pytest.mark.parametrize("rule", ENGINES.values(), ids=ENGINES)
@settings(max_examples=40)
@given(data=st.data())
def test_placed_acceptance_grows_to_the_whole(rule, data):
    n = data.draw(st.integers(1, 3))
    pair, budget = data.draw(pairs(max_size=4)), data.draw(BUDGETS)
    marginals = operational_marginals(rule, row(pair[0]), row(pair[1]), n, budget=budget)
    right = oracle(rule, pair, n)
    rounding, gap = float(marginals.rounding[0]), float(marginals.gap[0])
    estimate = estimated_acceptance(np.asarray(marginals.acceptance), np.asarray(marginals.unexpanded))
    for i in range(n):
        placed, whole = float(marginals.acceptance[0, i]), float(right.acceptance[i])
        assert placed - 2 * rounding <= whole <= placed + gap + 2 * rounding
        # The estimate shares out the gap, and no more than it.
        assert placed <= estimate[0, i] <= placed + gap + n * EPS


@pytest.mark.parametrize("rule", ENGINES.values(), ids=ENGINES)
@settings(max_examples=40)
@given(pair=pairs(max_size=5), n=st.integers(2, 4), gap=st.sampled_from([0.3, 0.1, 1e-2, 1e-3, 1e-6]))
def test_the_requested_gap_is_met_where_work_is_not_limited(rule, pair, n, gap):
    marginals = operational_marginals(
        rule, row(pair[0]), row(pair[1]), n, budget=replace(EVERYTHING, gap=gap)
    )
    assert float(marginals.gap[0]) <= gap
    assert marginals.exhausted == [False]


@pytest.mark.parametrize("rule", ENGINES.values(), ids=ENGINES)
@settings(max_examples=15)
@given(pair=pairs(max_size=5), n=st.integers(1, 3))
def test_more_expansions_never_widen_the_gap(rule, pair, n):
    gaps = []
    for work in (*range(0, 24), 30, 50, 100, 300, 1000):
        budget = replace(EVERYTHING, most_paths=work, most_states=work)
        marginals = operational_marginals(rule, row(pair[0]), row(pair[1]), n, budget=budget)
        gaps.append(float(marginals.gap[0]))
        assert marginals.exhausted == [gaps[-1] > 0]
    # Two gaps are sums of at most 5^3 terms in different orders.
    slack = 125 * EPS
    assert all(later <= earlier + slack for earlier, later in itertools.pairwise(gaps)), gaps
    assert gaps[-1] == 0.0


@settings(max_examples=40)
@given(pair=pairs(max_size=5), n=st.integers(1, 4), work=st.integers(0, 200))
def test_the_budget_of_work_is_kept(pair, n, work):
    target, draft = row(pair[0]), row(pair[1])
    budget = replace(EVERYTHING, most_states=work)
    assert operational_marginals(Enumerated(), target, draft, n, budget=budget).expansions[0] <= work


@pytest.mark.parametrize("rule", ENGINES.values(), ids=ENGINES)
@settings(max_examples=40)
@given(data=st.data())
def test_looking_on_for_a_verdict_never_loses_ground(rule, data):
    # `until_decided` runs again with smaller gaps; what it returns is at least as good as the first run.
    n = data.draw(st.integers(2, 4))
    pair = data.draw(pairs(max_size=5))
    work = data.draw(st.integers(1, 300))
    first = Budget(gap=data.draw(st.sampled_from([0.2, 1e-2, 1e-3])), most_paths=work, most_states=work)
    target, draft = row(pair[0]), row(pair[1])
    once = operational_marginals(rule, target, draft, n, budget=replace(first, until_decided=False))
    again = operational_marginals(rule, target, draft, n, budget=first)
    assert float(again.gap[0]) <= float(once.gap[0]) + 5**4 * EPS  # sums of at most V^n terms


@pytest.mark.parametrize(
    "rule", [*ENGINES.values(), SpecInfer(), Sequoia()], ids=[*ENGINES, "free", "distinct"]
)
@settings(max_examples=40)
@given(data=st.data())
def test_a_verdict_alone_is_that_of_the_whole(rule, data):
    n = data.draw(st.integers(1, 3))
    pair = data.draw(pairs(max_size=5))
    target, draft = row(pair[0]), row(pair[1])
    assume(not isinstance(rule, Sequoia) or sum(x > 0 for x in pair[1]) >= n)
    whole = operational_marginals(rule, target, draft, n, budget=EVERYTHING)
    quick = operational_marginals(rule, target, draft, n, budget=Budget(until_verdict=True))
    verdict = verdict_on(whole, target)
    # At the edge of the bound on rounding, which grows with the work, either may be undecided.
    assume(verdict is not Verdict.UNDECIDED)
    found = verdict_on(quick, target)
    assert found in (verdict, Verdict.UNDECIDED)
    assert found is verdict or float(quick.gap[0]) == 0.0
    slack = float(whole.rounding[0]) + float(quick.rounding[0])
    assert (quick.placed <= whole.placed + 2 * slack).all()


def test_a_verdict_alone_costs_little():
    # What is accepted second exceeds the target where p < q: no path need be followed.
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.ones(400), 2)
    for rule, most in ((ResiSpec(), 400), (Enumerated(), 2)):
        quick = operational_marginals(rule, p[None], q[None], 3, budget=Budget(until_verdict=True))
        assert verdict_on(quick, p[None]) is Verdict.INEXACT
        assert quick.expansions[0] <= most
        assert quick.exhausted == [False]
        assert float(quick.gap[0]) > 1e-3


def test_paths_that_fall_off_the_frontier_stay_in_the_gap(monkeypatch):
    # The frontier is bounded by memory; with room for two paths many of them are given up.
    target = (F(1, 16), F(2, 16), F(1, 16), F(2, 16), F(4, 16), F(6, 16))
    draft = target[::-1]
    monkeypatch.setattr(expansion, "_FRONTIER_ELEMENTS", 2 * len(target))
    marginals = operational_marginals(Enumerated(), row(target), row(draft), 4, budget=EVERYTHING)
    gap, rounding = float(marginals.gap[0]), float(marginals.rounding[0])
    assert gap > 0
    assert marginals.exhausted == [True]
    assert abs(1.0 - float(marginals.placed.sum()) - gap) <= 2 * rounding
    monkeypatch.undo()
    whole = operational_marginals(Enumerated(), row(target), row(draft), 4, budget=EVERYTHING)
    rounding += float(whole.rounding[0])
    assert (marginals.placed <= whole.placed + 2 * rounding).all()
    assert (marginals.acceptance <= whole.acceptance + 2 * rounding).all()


@settings(max_examples=150)
@given(data=st.data())
def test_divergence_bounds_hold_for_every_completion(data):
    # Right value: complete the placed mass in some way, and compute the distances of that law.
    size = data.draw(st.integers(1, 5))
    target, whole = data.draw(laws(size)), data.draw(laws(size))
    taken = data.draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=size, max_size=size))
    p, m = row(target), row(whole)
    rest = m * np.array([taken])
    assume((rest[0] > 0).any())
    allowed = rest > 0
    for x in data.draw(st.sets(st.integers(0, size - 1))):
        allowed[0, x] = True
    bounds = divergence_bounds(m - rest, p, rest.sum(axis=-1), allowed)
    tv, kl = float(total_variation(whole, target)), divergence(whole, target)
    rounding = 16 * size * EPS  # a dozen operations on each of V terms and their sum
    slack = divergence_slack(target, rounding)
    assert float(bounds.tv_low[0]) - rounding <= tv <= float(bounds.tv_high[0]) + rounding
    assert float(bounds.kl_low[0]) <= kl + slack or math.isinf(kl)
    assert kl <= float(bounds.kl_high[0]) + slack
