"""Rules on values worked out by hand, on inputs at the edge, and at the width of a real vocabulary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from shipped_rules import KNOWN, remedy

from resispec_verify.errors import InputError
from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.evidence.tuple_rules import all_tuples
from resispec_verify.kernels.optimal.transport import transport_limit
from resispec_verify.rules import (
    CSD,
    EASD,
    RULES,
    Eagle,
    EagleResiSpec,
    Greedy,
    Iid,
    KSeq,
    LlamaCpp,
    Pairs,
    Rule,
    Sequoia,
    SequoiaResiSpec,
    SGLang,
    SpecHub,
    SpecHubForce,
    SpecInfer,
    SpecInferSkipDuplicates,
    TokenMatch,
    WithoutReplacement,
    make_rule,
)
from resispec_verify.rules.shipped.k_seq import solve_rho
from resispec_verify.verdict import Verdict, judge

EPS = float(np.finfo(np.float64).eps)
EVERYTHING = Budget(gap=0.0, most_paths=math.inf, most_states=math.inf, until_decided=False)
P, Q = np.array([[0.5, 0.3, 0.2]]), np.array([[0.6, 0.3, 0.1]])
P4, Q4 = np.array([[0.1, 0.2, 0.3, 0.4]]), np.array([[0.4, 0.3, 0.2, 0.1]])

EXACT = [Sequoia(), Eagle(), TokenMatch(), KSeq(), SpecHub(), SGLang()]
EASD_SETTINGS = {"target_entropy": 1.0, "draft_entropy": 1.0, "top_n": 2, "overlap": 0.5}


def emitted(rule: Rule, target: np.ndarray, draft: np.ndarray, n: int, **options: Any) -> Any:
    return operational_marginals(rule, target, draft, n, budget=EVERYTHING, **options)


def verdict(rule: Rule, target: np.ndarray, draft: np.ndarray, n: int, **options: Any) -> Verdict:
    found = emitted(rule, target, draft, n, **options)
    low, high = tv_interval(found, target)
    return judge(float(low[0]), float(high[0]), float(found.rounding[0]))


def close(computed: Any, right: list[float], found: Any) -> None:
    assert 0.5 * np.abs(np.asarray(computed) - right).sum() <= float(found.rounding[0]) + 4 * EPS


@pytest.mark.parametrize("rule", EXACT, ids=lambda rule: rule.name)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_exact_rules_are_exact(rule, n):
    # n = 5 asks for more candidates than there are tokens: those without replacement run out, and the rest is
    # drawn from the residual.
    if n < rule.least_candidates:
        n = rule.least_candidates
    assert verdict(rule, P4, Q4, n) is Verdict.EXACT


@pytest.mark.parametrize("rule", EXACT, ids=lambda rule: rule.name)
def test_a_draft_with_less_support_than_candidates(rule):
    target, draft = np.array([[0.25, 0.25, 0.5, 0.0]]), np.array([[0.0, 0.0, 0.25, 0.75]])
    found = emitted(rule, target, draft, max(3, rule.least_candidates))
    close(found.placed[0], target[0].tolist(), found)
    one = np.array([[0.0, 1.0, 0.0, 0.0]])
    for law in (target, one):
        found = emitted(rule, law, one, max(3, rule.least_candidates))
        close(found.placed[0], law[0].tolist(), found)
        assert not np.isnan(found.acceptance).any()


@pytest.mark.parametrize("name", list(RULES))
def test_equal_laws_accept_at_once_where_the_candidate_is_drawn(name):
    rule = make_rule(name)
    found = emitted(rule, Q4, Q4, max(2, rule.least_candidates))
    if name == "optimal-joint":  # either candidate may win the race, and is accepted
        np.testing.assert_allclose(found.acceptance[0], [0.5, 0.5], atol=4 * EPS)
    elif isinstance(rule.proposal, Iid) and KNOWN[name].best_alone:
        at_once = np.abs(found.acceptance[0] - [1.0, 0.0][: found.acceptance.shape[1]]).max() <= 4 * EPS
        assert at_once, f"accepted with {found.acceptance[0]}; {remedy(name, best_alone=False)}"
    assert np.isfinite(found.placed).all()


def test_skipping_a_duplicate_loses_its_mass():
    # By hand, n = 2: token 0 is rejected with .1 and comes again with .6; R_1 is then kept instead of being
    # updated. R_1 = (0, 0, 1) either way, so nothing shows with three tokens here; with four it does.
    assert verdict(SpecInferSkipDuplicates(), P, Q, 2) is Verdict.EXACT
    found = emitted(SpecInferSkipDuplicates(), P4, Q4, 2)
    # d_0 = (.3, .1, 0, 0), R_1 = (0, 0, 1/4, 3/4), R_2 = (0, 0, 1/14, 13/14); duplicates .3*.4 + .1*.3 = .15.
    # New rejections: .4 (.7) - .15 = .13. Accepted at once (.1, .2, .2, .1), then .4 (0, 0, .2, .1).
    right = [0.1, 0.2, 0.28 + 0.15 / 4 + 0.13 / 14, 0.14 + 0.15 * 3 / 4 + 0.13 * 13 / 14]
    close(found.placed[0], right, found)


def test_eagle_and_token_match_by_hand():
    found = emitted(Eagle(), P, Q, 2)
    close(found.acceptance[0], [0.5, 0.3], found)  # the draft's two best tokens, with the target's own mass
    found = emitted(TokenMatch(), P, Q, 2)
    # sum p q = .41, then sum p (1 - q) q = .12 + .063 + .018.
    close(found.acceptance[0], [0.41, 0.201], found)
    assert verdict(TokenMatch(), P4, Q4, 3, proposal=WithoutReplacement()) is Verdict.EXACT
    assert verdict(TokenMatch(), P4, Q4, 3, proposal=Greedy()) is Verdict.EXACT
    assert verdict(TokenMatch(), P4, Q4, 3, drawn_from=P4) is Verdict.EXACT


def test_token_match_sums_what_the_engine_expands():
    class Expanded(TokenMatch):
        def sum_paths(self, *arguments: Any) -> None:
            return None

    fast, slow = emitted(TokenMatch(), P4, Q4, 3), emitted(Expanded(), P4, Q4, 3)
    close(fast.placed[0], slow.placed[0].tolist(), slow)
    close(fast.acceptance[0], slow.acceptance[0].tolist(), slow)


def test_k_seq_by_hand():
    # p = (1, 0), q = (1/2, 1/2), n = 2: b = 1/2 for every rho <= 2, and 1 - 1/4 = rho / 2 at rho = 3/2.
    p, q = np.array([1.0, 0.0]), np.array([0.5, 0.5])
    np.testing.assert_allclose(solve_rho(p, q, 2), [1.5], rtol=0, atol=16 * EPS)
    found = emitted(KSeq(), p[None, :], q[None, :], 2)
    close(found.acceptance[0], [0.5, 0.25], found)
    np.testing.assert_array_equal(solve_rho(p, p, 3), [1.0])
    np.testing.assert_array_equal(solve_rho(q, q, 1), [1.0])


@pytest.mark.parametrize("n", [2, 3, 7])
def test_rho_solves_its_equation(n):
    rng = np.random.default_rng(n)
    p, q = (rng.dirichlet(np.full(6, 0.3), size=200) for _ in range(2))
    rho = solve_rho(p, q, n)
    assert ((rho >= 1) & (rho <= n)).all()
    b = np.minimum(q, p / rho).sum(axis=-1, keepdims=True)
    # The solver's tolerance, and as much again for the rounding of this check.
    assert (np.abs(rho * b - 1 + (1 - b) ** n) <= 16 * n * EPS).all()
    found = operational_marginals(KSeq(), p, q, n)
    limit = transport_limit(p, q, n)
    total = found.acceptance.sum(axis=-1)
    assert (total <= limit + 2 * found.rounding).all()
    assert (total >= (1 - 1 / math.e) * limit - 2 * found.rounding).all()  # SpecTr's guarantee
    assert (0.5 * np.abs(found.placed - p).sum(axis=-1) <= found.rounding).all()


def test_spechub_by_hand():
    # Hub 0. (i, a): min(p, q) = (-, .3, .1), all of it. (a, i): Q = .6 (.75, .25) = (.45, .15) and
    # p' = (-, 0, .1): accepts .1. Hub: .5 of the (a, i) left, .6 - .1 = .5: all. Nothing is ever rejected.
    found = emitted(SpecHub(), P, Q, 2)
    close(found.acceptance[0], [0.9, 0.1], found)
    close(found.placed[0], [0.5, 0.3, 0.2], found)
    with pytest.raises(InputError, match="'spechub' needs 2 candidates, got 1"):
        operational_marginals(SpecHub(), P, Q, 1)
    with pytest.raises(InputError, match="decides about all its candidates at once"):
        SpecHub().reject(SpecHub().start(P[0], Q[0], 2), None)


def test_spechub_force_by_hand():
    # .9995 > 1 - 1e-3: the hub is emitted, and the TV is what the target has elsewhere.
    target, draft = np.array([[0.9995, 0.0003, 0.0002]]), Q
    found = emitted(SpecHubForce(), target, draft, 2)
    close(found.placed[0], [1.0, 0.0, 0.0], found)
    assert verdict(SpecHub(), target, draft, 2) is Verdict.EXACT
    assert verdict(SpecHubForce(), target, draft, 2) is Verdict.INEXACT
    assert verdict(SpecHubForce(), P, Q, 2) is Verdict.EXACT  # the guard does not hold


def test_pairs_and_their_law():
    np.testing.assert_array_equal(Pairs().next(Q[0], ()), Q[0])
    np.testing.assert_allclose(Pairs().next(Q[0], (np.asarray(0),)), [0, 0.75, 0.25], atol=EPS)
    np.testing.assert_array_equal(Pairs().next(Q[0], (np.asarray(2),)), [1, 0, 0])
    np.testing.assert_array_equal(Pairs().next(Q[0], (np.asarray(2), np.asarray(0))), np.zeros(3))
    tokens, weights = Pairs().tuples(Q[0])
    law = {tuple(pair): w for pair, w in zip(tokens.tolist(), weights, strict=True)}
    assert law.keys() == {(1, 0), (2, 0), (0, 1), (0, 2)}
    np.testing.assert_allclose([law[1, 0], law[2, 0], law[0, 1], law[0, 2]], [0.3, 0.1, 0.45, 0.15], atol=EPS)

    class Unlisted:
        name, next = "pairs", Pairs().next

    other_tokens, other = all_tuples(Unlisted(), Q[0], 2)
    assert {tuple(pair) for pair in other_tokens.tolist()} == law.keys()
    np.testing.assert_allclose(other, [law[tuple(pair)] for pair in other_tokens.tolist()], atol=4 * EPS)
    one = np.array([0.0, 1.0])
    assert Pairs().tuples(one)[0].tolist() == [[1, -1]] == all_tuples(Unlisted(), one, 2)[0].tolist()


def test_the_right_rule_with_the_wrong_pairs():
    # SpecHub's test on i.i.d. candidates; and on pairs from another draft than the declared one.
    assert verdict(SpecHub(), P4, Q4, 2, proposal=Iid()) is Verdict.INEXACT
    assert verdict(SpecHub(), P4, Q4, 2, drawn_from=P4) is Verdict.INEXACT
    assert verdict(SpecHub(), P4, Q4, 2, drawn_from=Q4) is Verdict.EXACT


def test_too_many_tuples_are_refused():
    wide = np.full((1, 1 << 13), 2.0**-13)
    with pytest.raises(InputError, match="proposal 'iid' has too many tuples of 2 candidates"):
        operational_marginals(SpecHub(), wide, wide, 2, proposal=Iid())


def test_sglang_by_hand():
    # One child, token 0 of Q: accepted with min(1, .5 / .5) at threshold_acc = .5; nothing else is emitted.
    found = emitted(SGLang(threshold_acc=0.5), P, Q, 1)
    close(found.placed[0], [1.0, 0.0, 0.0], found)
    # p(0) = .5 >= threshold_single = .4: the same.
    found = emitted(SGLang(threshold_single=0.4), P, Q, 1)
    close(found.placed[0], [1.0, 0.0, 0.0], found)
    # At (1, 1) it is EAGLE's test.
    for n in (1, 2, 3):
        ours, theirs = emitted(SGLang(), P4, Q4, n), emitted(Eagle(), P4, Q4, n)
        close(ours.acceptance[0], theirs.acceptance[0].tolist(), theirs)
    assert verdict(SGLang(), P4, Q4, 2, proposal=Iid()) is Verdict.INEXACT  # a child tried twice counts twice
    assert np.isfinite(emitted(SGLang(0.0, 0.0), P4, Q4, 2).placed).all()
    assert SGLang(0.5).options() == {"threshold_single": "0.5", "threshold_acc": "1"}
    for bad in ((1.5, 1.0), (1.0, -0.1), (math.nan, 1.0)):
        with pytest.raises(InputError, match=r"threshold_(single|acc) must be in"):
            SGLang(*bad)


def test_llama_cpp_by_hand():
    # The best token always: accepted with 5/6, else the residual, one-hot at 2 (transformers#32867).
    found = emitted(LlamaCpp(), P, Q, 1)
    close(found.placed[0], [5 / 6, 0.0, 1 / 6], found)
    assert (
        verdict(LlamaCpp(), P, Q, 1, proposal=Iid()) is Verdict.EXACT
    )  # the rule is right, the proposal is not


@pytest.mark.parametrize("name", ["sequoia+resispec", "eagle+resispec"])
def test_combinations(name):
    rule = make_rule(name)
    assert verdict(rule, P4, Q4, 2) is Verdict.INEXACT
    assert make_rule(name, budget="floor").options()["budget"] == "floor"
    with pytest.raises(InputError, match="hole must be one of"):
        make_rule(name, hole="none")
    first = emitted(SequoiaResiSpec(), P4, Q4, 1)
    right = emitted(make_rule("resispec"), P4, Q4, 1)
    close(first.placed[0], right.placed[0].tolist(), first)  # one candidate: the proposals agree
    assert verdict(EagleResiSpec(), P4, Q4, 1) is Verdict.INEXACT


def test_csd_by_hand():
    # Base: residual one-hot at 2, token 0 rejected with .1. The memory (0, 2) rescues it: all accepted.
    found = emitted(CSD(ratio=1.0, memory=[(0, 2)]), P, Q, 1)
    close(found.placed[0], [0.6, 0.3, 0.1], found)
    close(found.acceptance[0], [1.0], found)
    for harmless in (CSD(ratio=1.0, memory=[]), CSD(ratio=1.0, memory=[(0, 1), (7, 2)])):
        assert verdict(harmless, P, Q, 1) is Verdict.EXACT
    # V4: residual (0, 0, 1/4, 3/4). Token 0 fails the gate at 1/2 of .4; token 1 passes, and 1/4 of its .1 is
    # rescued.
    found = emitted(CSD(ratio=0.5, memory=[(0, 2), (1, 2)]), P4, Q4, 1)
    close(found.placed[0], [0.1, 0.225, 0.2 + 0.3 / 4, 0.1 + 0.3 * 3 / 4 + 0.075], found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs ratio, memory"),
        ({"ratio": 0.5}, "needs memory"),
        ({"ratio": 0.0, "memory": []}, "ratio must be in"),
        ({"ratio": 0.5, "memory": [3]}, "memory must be pairs"),
        ({"ratio": 0.5, "memory": [(0, -1)]}, "none of them negative"),
    ],
)
def test_csd_asks_for_what_its_abstract_does_not_say(options, message):
    with pytest.raises(InputError, match=message):
        make_rule("csd", **options)


def test_easd_is_exact_or_not_by_what_it_rejects():
    # P4 and Q4 have entropy 1.28 nats each and share no token of their top 2.
    rule = {name: EASD(**EASD_SETTINGS, rejects=name) for name in ("position", "overlap")}
    assert verdict(rule["overlap"], P4, Q4, 1) is Verdict.EXACT  # the gate stays shut
    target, draft = np.array([[0.3, 0.3, 0.2, 0.2]]), np.array([[0.5, 0.2, 0.2, 0.1]])
    assert verdict(rule["position"], target, draft, 1) is Verdict.EXACT
    found = emitted(rule["position"], target, draft, 1)
    np.testing.assert_array_equal(found.acceptance, [[0.0]])
    # Shared: 0 and 1 (ties to the lower index). Both are always rejected: .7 p; 2 is accepted, 3 is too.
    found = emitted(rule["overlap"], target, draft, 1)
    close(found.placed[0], [0.21, 0.21, 0.34, 0.24], found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs target_entropy, draft_entropy, top_n, overlap, rejects"),
        (EASD_SETTINGS, "needs rejects;|needs rejects:"),
        ({**EASD_SETTINGS, "rejects": "all"}, "rejects must be position or overlap"),
        ({**EASD_SETTINGS, "rejects": "overlap", "top_n": 0}, "top_n must be"),
        ({**EASD_SETTINGS, "rejects": "overlap", "overlap": 2}, "overlap must be in"),
        ({**EASD_SETTINGS, "rejects": "overlap", "draft_entropy": -1.0}, "draft_entropy must be"),
    ],
)
def test_easd_asks_for_what_its_abstract_does_not_say(options, message):
    with pytest.raises(InputError, match=message):
        make_rule("easd", **options)


def test_figures_of_random_pairs():
    # The orders of magnitude that transcriptions by others have shown on random pairs, V = 5.
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.ones(5), size=200) for _ in range(2))

    def tv(rule: Rule, n: int) -> np.ndarray:
        return 0.5 * np.abs(operational_marginals(rule, p, q, n).placed - p).sum(axis=-1)

    skipping = tv(SpecInferSkipDuplicates(), 2)
    assert 0.012 < skipping.mean() < 0.018
    assert 0.07 < skipping.max() < 0.16
    assert 0.27 < tv(LlamaCpp(), 1).mean() < 0.32
    assert 0.45 < tv(SGLang(threshold_acc=0.5), 3).max() <= 0.5
    assert 0.65 < tv(SGLang(threshold_acc=0.3), 3).max() <= 0.7


@pytest.mark.parametrize("name", ["k-seq", "token-match", "spechub", "specinfer-skip-duplicates", "eagle"])
def test_a_real_vocabulary_is_done_without_a_gap(name):
    rng = np.random.default_rng(1)
    logits = 4 * rng.standard_normal((2, 1 << 15))
    p, q = (np.exp(v) / np.exp(v).sum() for v in (logits[:1], logits[:1] + rng.standard_normal((1, 1 << 15))))
    rule = make_rule(name)
    found = operational_marginals(rule, p, q, max(2, rule.least_candidates))
    assert float(found.gap[0]) == 0.0
    distance = 0.5 * np.abs(found.placed - p).sum()
    assert (distance > 1e-6) if name == "specinfer-skip-duplicates" else (distance <= found.rounding[0])


def test_the_residual_of_specinfer_serves_any_order():
    # A control for the engine: i.i.d. duplicates that update R, as SpecInfer has them, are right.
    assert verdict(SpecInfer(), P4, Q4, 3) is Verdict.EXACT
