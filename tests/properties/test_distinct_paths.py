"""The path sums of Sequoia and of skipped duplicates: against fractions, and against the general engine."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import EPS, EVERYTHING, Law, distance, pairs, row
from test_wide import KINDS, pair_of

from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.elementwise.residuals import standard_residual
from resispec_verify.kernels.paths import distinct as sequoia_paths
from resispec_verify.kernels.paths import skipped_draws
from resispec_verify.kernels.paths.clusters import clustered
from resispec_verify.oracle import independent, marginal
from resispec_verify.rules import Iid, ResiSpec, Sequoia, SpecInferSkipDuplicates, State, WithoutReplacement
from resispec_verify.rules.proposals import strike_out
from resispec_verify.verdict import Verdict, judge

SUMMED = [Sequoia(), SpecInferSkipDuplicates()]


@dataclass(frozen=True)
class ExpandedSequoia(Sequoia):
    """Not summed: a subclass may do something else."""


@dataclass(frozen=True)
class ExpandedSkip(SpecInferSkipDuplicates):
    """Not summed."""


@dataclass(frozen=True)
class NotRenormalised(Sequoia):
    """A fault: the draft loses the rejected token and keeps its other entries as they are."""

    def reject(self, state, tokens):
        draft = strike_out(state.draft[..., None, :], tokens)
        residual = standard_residual(state.residual, state.draft)[..., None, :]
        return State(np.broadcast_to(residual, draft.shape), draft, state.round + 1)


EXPANDED = {"sequoia": ExpandedSequoia(), "specinfer-skip-duplicates": ExpandedSkip()}


def by_rule(rule):
    return rule.name


def summed(rule, target, draft, n, budget=EVERYTHING, **options):
    """The marginals, made sure to come from the rule's own sums."""
    assert rule.sum_paths(target[0], draft[0], n, budget.gap, budget.most_paths) is not None
    return operational_marginals(rule, target, draft, n, budget=budget, **options)


def check_against_oracle(rule, pair, n, found):
    right, bound = marginal(rule.name, *pair, n), float(found.rounding[0])
    assert bound < 1e-10
    assert distance(found.placed[0], right.law) <= bound
    for a, b in zip(found.acceptance[0], right.acceptance, strict=True):
        assert abs(F(float(a)) - b) <= bound


@pytest.mark.parametrize("rule", SUMMED, ids=by_rule)
@settings(max_examples=80)
@given(pair=pairs(max_size=5), n=st.integers(1, 4))
def test_the_sums_are_those_of_the_oracle(rule, pair, n):
    check_against_oracle(rule, pair, n, summed(rule, row(pair[0]), row(pair[1]), n))


def law(*weights: int) -> Law:
    return tuple(F(w, sum(weights)) for w in weights)


MOST = 1 << 40
EDGES: dict[str, tuple[Law, Law]] = {
    "one-hot": (law(0, 1, 0), law(0, 1, 0)),
    "one-hot, the other": (law(1, 0), law(0, 1)),
    "one-hot draft": (law(2, 1, 1), law(0, 1, 0)),
    "one-hot target": (law(0, 1, 0), law(2, 1, 1)),
    "one token": (law(1), law(1)),
    "equal": (law(1, 2, 1), law(1, 2, 1)),
    "disjoint": (law(1, 1, 0, 0), law(0, 0, 1, 3)),
    "ties": (law(3, 1, 1, 3), law(1, 3, 3, 1)),
    "three tie in q": (law(1, 1, 1, 5), law(5, 5, 5, 1)),
    "peaked": (law(MOST // 2, MOST // 2 - 1, 1), law(MOST - 3, 1, 2)),
    "support of two": (law(1, 1, 2, 0), law(0, 0, 1, 3)),
    "six tokens": (law(1, 2, 1, 2, 4, 6), law(6, 4, 2, 1, 2, 1)),
}


@pytest.mark.parametrize("rule", SUMMED, ids=by_rule)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("case", EDGES)
def test_at_the_edges(rule, n, case):
    check_against_oracle(rule, EDGES[case], n, summed(rule, *map(row, EDGES[case]), n))


def test_more_candidates():
    pair = EDGES["ties"]
    for rule, n in ((Sequoia(), 7), (SpecInferSkipDuplicates(), 6)):
        check_against_oracle(rule, pair, n, summed(rule, row(pair[0]), row(pair[1]), n))
    assert SpecInferSkipDuplicates().sum_paths(row(pair[0])[0], row(pair[1])[0], 7, 0.0, np.inf) is None


@pytest.mark.parametrize("rule", SUMMED, ids=by_rule)
@pytest.mark.parametrize("kind", KINDS)
def test_the_sums_are_those_of_the_general_engine(rule, kind):
    for vocab, n in ((50, 2), (24, 3), (9, 4)):
        p, q = pair_of(kind, vocab, n)
        fast = summed(rule, p, q, n)
        slow = operational_marginals(EXPANDED[rule.name], p, q, n, budget=EVERYTHING)
        bound = float(fast.rounding[0] + slow.rounding[0])
        assert float(fast.gap[0]) == float(slow.gap[0]) == 0.0
        assert 0.5 * np.abs(fast.placed - slow.placed).sum() <= bound < 1e-10
        assert np.abs(fast.acceptance - slow.acceptance).max() <= bound


def test_a_draft_that_is_not_renormalised_is_told_apart():
    p, q = pair_of("flat", 24, 3)
    right, wrong = (
        operational_marginals(rule, p, q, 3, budget=EVERYTHING) for rule in (Sequoia(), NotRenormalised())
    )
    assert np.abs(right.acceptance - wrong.acceptance).max() > 1e-3
    assert 0.5 * np.abs(right.placed - wrong.placed).sum() > 1e-3


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_marginal_is_measured(n):
    # The same walk without 1/(1 - Q): its rounds do not balance, and the marginal shows it.
    order = ratio_order(*(rows[0] for rows in pair_of("flat", 24, n)))
    clusters = clustered(order, n - 1, 24)
    clusters = clusters._replace(top=0, rest=float(order.q.sum()))
    for q, least, most in ((clusters.mean, 0.0, 1e-14), (0.0 * clusters.mean, 1e-3, 1.0)):
        _, atoms, _ = sequoia_paths._run(order, n, clusters, q, clusters.mean, True)
        mass = sequoia_paths._collect(order, atoms)
        assert least <= 0.5 * np.abs(mass[order.order] - order.p).sum() <= most


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_clusters_bound_what_they_cost(kind, n):
    p, q = (rows[0] for rows in pair_of(kind, 40 if n < 4 else 20, 8))
    order = ratio_order(p, q)
    exact = sequoia_paths._bounded(order, n, p.size)
    rounding = 16 * (n + 1) * p.size * EPS
    assert exact.acceptance_error == 0.0
    for most in (n, n + 3, 15):
        found = sequoia_paths._bounded(order, n, most)
        assert np.abs(found.acceptance - exact.acceptance).max() <= found.acceptance_error + rounding
        assert 0.5 * np.abs(found.mass - exact.mass).sum() <= rounding
        clusters = clustered(order, n - 1, most)
        assert clusters.mean.size <= max(most, n)
        assert (clusters.low <= clusters.mean).all()
        assert (clusters.mean <= clusters.high).all()
        sides = ((clusters.low, clusters.high), (clusters.high, clusters.low))
        below, above = (sequoia_paths._run(order, n, clusters, *side, False)[0] for side in sides)
        right = 1.0 - np.cumsum(exact.acceptance)
        assert (below <= right + rounding).all()
        assert (right <= above + rounding).all()


def test_a_wider_cluster_errs_more_than_its_bound_says_without_it():
    # The bound is no formality: with three clusters the acceptance is off by far more than rounding.
    order = ratio_order(*(rows[0] for rows in pair_of("flat", 40, 8)))
    exact, found = (sequoia_paths._bounded(order, 3, most) for most in (40, 3))
    assert 1e-6 < np.abs(found.acceptance - exact.acceptance).max() <= found.acceptance_error


@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_wide_position_is_decided(n):
    p, q = pair_of("flat", 3000, 9)
    budget = Budget(gap=1e-2, most_paths=1e6, until_decided=False)
    found = summed(Sequoia(), p, q, n, budget)
    low, high = tv_interval(found, p)
    assert judge(float(low[0]), float(high[0]), float(found.rounding[0])) is Verdict.EXACT
    assert float(found.gap[0]) == 0.0
    assert float(found.rounding[0]) <= 1e-3
    assert found.expansions[0] <= budget.most_paths


def test_a_budget_that_is_too_small_is_left_to_the_general_engine():
    p, q = (rows[0] for rows in pair_of("flat", 3000, 9))
    assert Sequoia().sum_paths(p, q, 3, 0.0, 1e4) is None
    assert Sequoia().sum_paths(p, q, 4, 1e-9, 1e4) is None


def test_a_rest_whose_inverse_overflows_is_left_to_the_general_engine():
    p, q = np.array([0.5, 0.5]), np.array([1.0, 1e-310])
    assert Sequoia().sum_paths(p, q, 2, 0.0, np.inf) is None
    found = operational_marginals(Sequoia(), p[None, :], q[None, :], 2, budget=EVERYTHING)
    np.testing.assert_array_equal(np.isfinite(found.placed), True)


# Who is summed: only candidates drawn by the rule's own proposal from the declared draft.


def refuse(monkeypatch, rule):
    def sum_paths(self, *arguments):
        raise AssertionError("summed")

    monkeypatch.setattr(type(rule), "sum_paths", sum_paths)


@pytest.mark.parametrize(
    ("rule", "other"),
    [(Sequoia(), Iid()), (ResiSpec(), WithoutReplacement())],
    ids=["sequoia", "resispec"],
)
def test_other_candidates_are_not_summed(monkeypatch, rule, other):
    pair = EDGES["six tokens"]
    p, q = map(row, pair)
    refuse(monkeypatch, rule)
    operational_marginals(rule, p, q, 2, budget=EVERYTHING, proposal=other)
    operational_marginals(rule, p, q, 2, budget=EVERYTHING, drawn_from=p)
    with pytest.raises(AssertionError, match="summed"):
        operational_marginals(rule, p, q, 2, budget=EVERYTHING)
    with pytest.raises(AssertionError, match="summed"):
        operational_marginals(rule, p, q, 2, budget=EVERYTHING, proposal=type(rule).proposal)


def test_sequoia_on_independent_candidates():
    pair = EDGES["six tokens"]
    right = marginal("sequoia", *pair, 2, proposal=independent(pair[1], 2))
    found = operational_marginals(Sequoia(), *map(row, pair), 2, proposal=Iid(), budget=EVERYTHING)
    assert right.law != tuple(pair[0])
    assert distance(found.placed[0], right.law) <= float(found.rounding[0])


# The sums over different tokens


@given(data=st.data(), size=st.integers(1, 4), draws=st.integers(1, 4))
@settings(max_examples=40)
def test_rejected_draws_against_every_tuple(data, size, draws):
    grid = st.lists(st.integers(0, 8), min_size=size, max_size=size)
    q = np.asarray(data.draw(grid)) / 8.0
    masses = [np.asarray(data.draw(grid)) / 8.0 for _ in range(draws)]
    table, magnitude = skipped_draws.rejected_by_draws(masses, q, draws)
    right = np.zeros((draws + 1, draws + 1))
    for k in range(draws + 1):
        for tokens in np.ndindex(*(size,) * k):
            weight, seen = 1.0, []
            for x in tokens:
                weight *= q[x] if x in seen else masses[len(seen)][x]
                seen += [] if x in seen else [x]
            right[k, len(seen)] += weight
    for k, found in enumerate(table):
        np.testing.assert_allclose(found, right[k, : k + 1], rtol=0, atol=64 * EPS * magnitude)


def test_without_the_inversion_tokens_are_counted_twice(monkeypatch):
    monkeypatch.setattr(skipped_draws, "_partitions", lambda size: [[(i,) for i in range(size)]])
    pair = EDGES["six tokens"]
    found = operational_marginals(SpecInferSkipDuplicates(), *map(row, pair), 3, budget=EVERYTHING)
    assert distance(found.placed[0], marginal("specinfer-skip-duplicates", *pair, 3).law) > 1e-3
