"""Exact rules that look wrong, or that the engine has to handle generally: no checker may reject them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest
from controls import Eagle2, OneHotTest, Sequoia
from faults import Blend, TargetOnly

from resispec_verify.distributions import Pair
from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.kernels.optimal.transport import transport_limit
from resispec_verify.oracle import (
    Transcription,
    accept_ratio,
    enumerate_rule,
    normalise,
    positive_part_residual,
    without_replacement,
)
from resispec_verify.rules import Greedy, Iid, ResiSpec, SpecInfer, Speculative, State
from resispec_verify.tables.marginals import Evaluation, evaluate
from resispec_verify.tables.reading import Clock, by_hand
from resispec_verify.tables.row import Row
from resispec_verify.verdict import Verdict, judge

EPS = float(np.finfo(np.float64).eps)
EVERYTHING = Budget(gap=0.0, most_paths=math.inf, most_states=math.inf, until_decided=False)
P, Q = np.array([[0.5, 0.3, 0.2]]), np.array([[0.6, 0.3, 0.1]])
P4, Q4 = np.array([[0.1, 0.2, 0.3, 0.4]]), np.array([[0.4, 0.3, 0.2, 0.1]])


def verdict(rule, target, draft, n, **options):
    marginals = operational_marginals(rule, target, draft, n, budget=EVERYTHING, **options)
    low, high = tv_interval(marginals, target)
    return judge(float(low[0]), float(high[0]), float(marginals.rounding[0]))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "rule", [SpecInfer(), Sequoia(), Eagle2(), OneHotTest(), TargetOnly(1.0)], ids=lambda r: r.name
)
def test_exact_rules_are_found_exact(rule, n):
    # By the papers (SpecInfer, Sequoia, EAGLE-2, token match; SGLang's test at threshold 1 with distinct
    # siblings); n = 5 asks for more candidates than there are tokens.
    assert verdict(rule, P4, Q4, n) is Verdict.EXACT


@pytest.mark.parametrize("rule", [Sequoia(), Eagle2(), OneHotTest(), TargetOnly(1.0)], ids=lambda r: r.name)
def test_they_are_exact_on_laws_with_zeros_and_little_overlap(rule):
    rng = np.random.default_rng(7)
    for _ in range(40):
        size = int(rng.integers(1, 6))
        pair = rng.multinomial(8, np.ones(size) / size, size=2) / 8.0  # eighths: no rounding on the way in
        assert verdict(rule, pair[:1], pair[1:], 3) is Verdict.EXACT


def test_a_sibling_tried_twice_is_counted_twice():
    # The condition "distinct siblings" of SGLang's test is needed: i.i.d. candidates repeat.
    assert verdict(TargetOnly(1.0), P4, Q4, 2, proposal=Iid()) is Verdict.INEXACT


def test_vllm_40149_a_soft_draw_tested_as_one_hot_only_costs_acceptance():
    marginals = operational_marginals(OneHotTest(), P, Q, 1)
    # sum p q = .3 + .09 + .02, against sum min(p, q) = .5 + .3 + .1.
    assert abs(float(marginals.acceptance[0, 0]) - 0.41) <= float(marginals.rounding[0])
    assert abs(float(transport_limit(P, Q, 1)[0]) - 0.90) <= float(marginals.rounding[0])
    assert verdict(OneHotTest(), P, Q, 1) is Verdict.EXACT


@pytest.mark.parametrize("weight", [0.5, 0.9, 1.0])
def test_transformers_45979_blend_is_exact_for_its_own_target(weight):
    marginals = operational_marginals(Blend(weight), P, Q, 1)
    blend = weight * P + (1 - weight) * Q
    assert 0.5 * np.abs(marginals.placed - blend).sum() <= float(marginals.rounding[0])
    # sum min(w p + (1 - w) q, q) = 1 - w TV(p, q), and TV(p, q) = 1/10: .95 at w = 1/2.
    assert abs(float(marginals.acceptance[0, 0]) - (1 - weight / 10)) <= float(marginals.rounding[0])
    assert verdict(Blend(weight), P, Q, 1) is (Verdict.EXACT if weight == 1.0 else Verdict.INEXACT)


@pytest.mark.parametrize("rule", [Speculative(), SpecInfer(), ResiSpec()], ids=lambda r: r.name)
def test_a_rejection_that_cannot_happen_falls_back_to_the_target(rule):
    # jaymody#5, MTPLX#82: p = q, so the residual is 0/0. Forced all the same, it must be p and not NaN.
    one_hot = np.array([0.0, 1.0, 0.0])
    state = State(one_hot, one_hot)
    tokens = None if rule.depends_on == "nothing" else np.array([0, 1, 2])
    residual = np.atleast_2d(rule.reject(state, tokens).residual)
    for row in residual:
        np.testing.assert_array_equal(row, one_hot)


@pytest.mark.parametrize("rule", [SpecInfer(), ResiSpec(), Sequoia(), Eagle2()], ids=lambda r: r.name)
def test_and_its_branch_has_no_probability(rule):
    one_hot = np.array([[0.0, 1.0, 0.0]])
    marginals = operational_marginals(rule, one_hot, one_hot, 3)
    np.testing.assert_array_equal(marginals.placed, one_hot)
    np.testing.assert_array_equal(marginals.acceptance, [[1.0, 0.0, 0.0]])
    np.testing.assert_array_equal(marginals.unexpanded, np.zeros((1, 4)))
    assert verdict(rule, one_hot, one_hot, 3) is Verdict.EXACT


def test_sequoia_agrees_with_its_rational_transcription():
    # Oracle: acceptance by candidate, in fractions, for a rule whose declared draft changes on the way.
    def reject(state, token):
        left = [F(0) if x == token else mass for x, mass in enumerate(state.draft)]
        return replace(positive_part_residual(state, token), draft=normalise(left, fallback=tuple(left)))

    target, draft = [F(k, 10) for k in (1, 2, 3, 4)], [F(k, 10) for k in (4, 3, 2, 1)]
    right = enumerate_rule(
        Transcription(accept_ratio, reject), target, draft, 3, without_replacement(draft, 3)
    )
    marginals = operational_marginals(Sequoia(), P4, Q4, 3, budget=EVERYTHING)
    errors = [
        abs(float(F(float(a)) - b)) for a, b in zip(marginals.acceptance[0], right.acceptance, strict=True)
    ]
    assert max(errors) <= float(marginals.rounding[0]) + 4 * EPS  # p and q rounded once a round, n = 3


@pytest.mark.parametrize("rule", [SpecInfer(), Sequoia(), Eagle2(), OneHotTest()], ids=lambda r: r.name)
def test_an_exact_rule_is_never_reported_above_the_limit(rule):
    # Acceptance above the limit is called proof of inexactness, so the limit has to be the one of the rule's
    # own proposal: with the best token as the only candidate, [.9, .1] accepts .9; i.i.d. draws at most .7.
    target, draft = np.array([[0.9, 0.1]]), np.array([[0.6, 0.4]])
    rows: dict[tuple[str, str], Row] = {}
    evaluate(
        by_hand(Pair(target, draft)),
        Evaluation((rule,), candidates=1, identity=False),
        rows,
        clock=Clock(),
    )
    assert rows[rule.name, "operational"].above_limit() == []


def test_no_greedy_candidate_is_left_once_every_token_was_tried():
    # "The best token not drawn yet": there is none, so there is no further candidate (a row that sums to 0).
    tried = tuple(np.asarray(x) for x in (0, 1, 2))
    np.testing.assert_array_equal(Greedy().next(Q[0], tried), np.zeros(3))
