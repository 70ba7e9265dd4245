"""The engines against the rational oracle, and against each other, on small vocabularies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from array_api_compat import array_namespace
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import (
    EPS,
    NAMES,
    OPTIONS,
    Enumerated,
    General,
    distance,
    everything,
    laws,
    pairs,
    row,
)

from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.kernels.elementwise.residuals import standard_residual
from resispec_verify.kernels.optimal.transport import transport_limit
from resispec_verify.oracle import (
    enumerate_rule,
    limit_by_program,
    limit_by_subsets,
    marginal,
    total_variation,
    without_replacement,
)
from resispec_verify.oracle import specinfer as oracle_specinfer
from resispec_verify.rules import Iid, ResiSpec, Rule, SpecInfer, State, WithoutReplacement
from resispec_verify.verdict import Verdict, judge

HIGHS_TOLERANCE = 1e-7  # HiGHS's default feasibility and optimality tolerance
SCALAR, GENERAL, ENUMERATED = ResiSpec, General, Enumerated


def verdict(marginals, target) -> Verdict:
    low, high = tv_interval(marginals, target)
    return judge(float(low[0]), float(high[0]), float(marginals.rounding[0]))


@settings(max_examples=150)
@given(pairs(), st.integers(0, 4))
def test_specinfer_emits_the_target(laws, n):
    # SpecInfer is exact (Miao et al. 2024), whatever the pair and the number of candidates.
    marginals = everything(SpecInfer(), *laws, n)
    assert distance(marginals.placed[0], laws[0]) <= float(marginals.rounding[0])
    assert verdict(marginals, row(laws[0])) is Verdict.EXACT


@settings(max_examples=60)
@given(pairs(), st.integers(0, 3))
def test_specinfer_accepts_what_the_oracle_says(laws, n):
    marginals, right = everything(SpecInfer(), *laws, n), marginal("specinfer", *laws, n)
    for computed, exact in zip(marginals.acceptance[0], right.acceptance, strict=True):
        assert abs(float(computed) - float(exact)) <= float(marginals.rounding[0]) + EPS


@pytest.mark.parametrize("kind", [GENERAL, ENUMERATED], ids=["closed last round", "enumerated"])
@pytest.mark.parametrize("options", OPTIONS, ids=",".join)
@settings(max_examples=20)
@given(data=st.data())
def test_every_option_of_resispec_agrees_with_the_oracle(kind, options, data):
    n = data.draw(st.integers(0, 3))
    laws = data.draw(pairs(max_size=6 if n < 3 else 4))
    marginals = everything(kind(*options), *laws, n)
    right = marginal("resispec", *laws, n, **dict(zip(NAMES, options, strict=True)))
    rounding = float(marginals.rounding[0])
    assert float(marginals.gap[0]) == 0.0
    assert distance(marginals.placed[0], right.law) <= rounding
    for computed, exact in zip(marginals.acceptance[0], right.acceptance, strict=True):
        assert abs(float(computed) - float(exact)) <= rounding + EPS


@settings(max_examples=100)
@given(st.data())
def test_the_scalar_recursion_agrees_with_the_oracle(data):
    n = data.draw(st.integers(1, 3))
    laws = data.draw(pairs(max_size=6 if n < 3 else 4))
    marginals, right = everything(SCALAR(), *laws, n), marginal("resispec", *laws, n)
    rounding = float(marginals.rounding[0])
    assert float(marginals.gap[0]) == 0.0
    assert distance(marginals.placed[0], right.law) <= rounding
    for computed, exact in zip(marginals.acceptance[0], right.acceptance, strict=True):
        assert abs(float(computed) - float(exact)) <= rounding + EPS


@settings(max_examples=40)
@given(pairs(max_size=4), st.integers(3, 4))
def test_the_scalar_recursion_agrees_with_full_enumeration(laws, n):
    fast, slow = everything(SCALAR(), *laws, n), everything(ENUMERATED(), *laws, n)
    rounding = float(fast.rounding[0] + slow.rounding[0])
    assert 0.5 * np.abs(fast.placed - slow.placed).sum() <= rounding
    assert np.abs(fast.acceptance - slow.acceptance).max() <= rounding


@settings(max_examples=60)
@given(st.data())
def test_a_proposal_that_is_not_the_declared_draft(data):
    # Oracle with `proposal=`; the proposal stays inside the declared support, where acceptance is continuous.
    target, draft = data.draw(pairs(max_size=5))
    inside = [x for x, mass in enumerate(draft) if mass > 0]
    compact = data.draw(laws(len(inside)))
    drawn = [target[0] * 0] * len(draft)
    for x, mass in zip(inside, compact, strict=True):
        drawn[x] = mass
    name, rule = data.draw(st.sampled_from([("specinfer", SpecInfer()), ("resispec", ResiSpec())]))
    marginals = everything(rule, target, draft, 2, drawn_from=row(tuple(drawn)))
    right = marginal(name, target, draft, 2, proposal=drawn)
    assert distance(marginals.placed[0], right.law) <= float(marginals.rounding[0])


@settings(max_examples=60)
@given(pairs(max_size=5))
def test_candidates_without_replacement(laws):
    # Oracle over ordered tuples; the tuples get shorter where the support runs out.
    marginals = everything(SpecInfer(), *laws, 3, proposal=WithoutReplacement())
    right = enumerate_rule(oracle_specinfer(), *laws, 3, without_replacement(laws[1], 3))
    assert distance(marginals.placed[0], right.law) <= float(marginals.rounding[0])


@pytest.mark.parametrize("rule", [SpecInfer(), SCALAR(), ENUMERATED("water-filling", "floor", "literal")])
@settings(max_examples=40)
@given(data=st.data())
def test_placed_mass_and_gap_add_up_to_one(rule, data):
    n = data.draw(st.integers(0, 3))
    laws = data.draw(pairs(max_size=5))
    marginals = everything(rule, *laws, n)
    total = float(marginals.placed.sum() + marginals.gap.sum())
    # A missing total is twice a total variation, at most.
    assert abs(total - 1.0) <= 2 * float(marginals.rounding[0])
    assert float(marginals.acceptance.sum()) <= 1.0 + 2 * float(marginals.rounding[0])


@settings(max_examples=80)
@given(pairs(), st.integers(0, 4))
def test_no_exact_rule_accepts_more_than_the_limit(laws, n):
    # Speculative sampling's acceptance is the limit itself at n = 1.
    marginals = everything(SpecInfer(), *laws, n)
    limit = float(transport_limit(row(laws[0]), row(laws[1]), n)[0])
    accepted, rounding = float(marginals.acceptance.sum()), float(marginals.rounding[0])
    assert accepted <= limit + 2 * rounding
    if n == 1:
        assert accepted >= limit - 2 * rounding


@settings(max_examples=100)
@given(pairs(), st.integers(0, 4))
def test_the_limit_is_the_least_cut(laws, n):
    size = len(laws[0])
    # Two sums of up to V terms, a power, two subtractions.
    bound = (2 * size + n + 2) * EPS
    assert (
        abs(float(transport_limit(row(laws[0]), row(laws[1]), n)[0]) - float(limit_by_subsets(*laws, n)))
        <= bound
    )


@settings(max_examples=30)
@given(pairs(max_size=4), st.integers(1, 3))
def test_the_limit_is_the_value_of_the_transport_program(laws, n):
    computed = float(transport_limit(row(laws[0]), row(laws[1]), n)[0])
    assert abs(computed - limit_by_program(*laws, n)) <= HIGHS_TOLERANCE


@dataclass(frozen=True)
class Shifted(Rule):
    """SpecInfer for a target in which ``amount`` has moved between two tokens: TV exactly ``amount``."""

    amount: float = 0.0
    taker: int = 0
    giver: int = 0
    name, claims_exact, source, depends_on = "shifted", True, "ours", "token"

    def start(self, target: Any, draft: Any, candidates: int) -> State:
        xp = array_namespace(target)
        tokens = xp.arange(target.shape[-1])
        moved = xp.astype(tokens == self.taker, target.dtype) - xp.astype(tokens == self.giver, target.dtype)
        return State(target + self.amount * moved, draft)

    def reject(self, state: State, tokens: Any) -> State:
        xp = array_namespace(state.residual)
        shape = (tokens.shape[-1], state.residual.shape[-1])
        residual = standard_residual(state.residual, state.draft)
        return State(xp.broadcast_to(residual, shape), xp.broadcast_to(state.draft, shape), state.round + 1)


@settings(max_examples=150)
@given(st.data())
def test_a_verdict_never_contradicts_the_law(data):
    # "exact" bounds the computed distance by the rounding bound, which bounds what computing can have hidden:
    # a law further than twice that is not exact. "inexact" is never said of a law that equals the target.
    target, draft = data.draw(pairs(max_size=5))
    giver = max(range(len(target)), key=lambda x: target[x])
    taker = data.draw(st.integers(0, len(target) - 1))
    amount = data.draw(st.sampled_from([0.0, *(2.0**-k for k in range(6, 52, 2))]))
    goal = row(target)
    moved = goal[0, giver] - amount
    exact_in_float = moved + amount == goal[0, giver] and goal[0, taker] + amount - amount == goal[0, taker]
    if not exact_in_float or moved < 0:
        amount = 0.0
    marginals = everything(Shifted(amount, taker, giver), target, draft, 2)
    distance_from_target = 0.0 if taker == giver else amount
    said = verdict(marginals, goal)
    if distance_from_target == 0.0:
        assert said is Verdict.EXACT
    elif distance_from_target > 2 * float(marginals.rounding[0]):
        assert said is Verdict.INEXACT


@settings(max_examples=60)
@given(st.data())
def test_a_verdict_on_resispec_never_contradicts_the_oracle(data):
    n = data.draw(st.integers(1, 3))
    laws = data.draw(pairs(max_size=4))
    options = data.draw(st.sampled_from(OPTIONS))
    marginals = operational_marginals(ResiSpec(*options), row(laws[0]), row(laws[1]), n)
    right = marginal("resispec", *laws, n, **dict(zip(NAMES, options, strict=True)))
    tv, rounding = float(total_variation(right.law, laws[0])), float(marginals.rounding[0])
    said = verdict(marginals, row(laws[0]))
    if said is Verdict.EXACT:
        assert tv <= 2 * rounding
    if said is Verdict.INEXACT:
        assert tv > 0


def test_no_candidates_and_one_token():
    one = np.ones((1, 1))
    for rule in (SpecInfer(), SCALAR(), ENUMERATED()):
        for n in range(4):
            marginals = operational_marginals(rule, one, one, n)
            np.testing.assert_array_equal(marginals.placed, one)
            assert marginals.acceptance.shape == (1, n)
            assert float(marginals.acceptance.sum()) == min(n, 1)
    assert Iid().next(one, ()) is one
