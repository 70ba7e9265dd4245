"""The transcribed one-position rules: worked values, exactness or its failure, proposals, edges."""

from __future__ import annotations

from fractions import Fraction as F

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shipped_rules import KNOWN, measured, remedy

from resispec_verify.catalogue.measured import CATALOGUE, cases, measure
from resispec_verify.oracle import (
    MARGINALS,
    PROPOSALS,
    enumerate_rule,
    fixed,
    hub_pairs,
    independent,
    k_seq_rho,
    limit_by_prefixes,
    limit_fixed,
    limit_pairs,
    limit_without_replacement,
    marginal,
    normalise,
    shuffled,
    total_variation,
    without_replacement,
)
from resispec_verify.oracle.shipped.k_seq import k_seq_overlap
from resispec_verify.rules.registry import SHIPPED

P, Q = (F(3, 10), F(4, 10), F(3, 10)), (F(6, 10), F(3, 10), F(1, 10))
P4, Q4 = tuple(F(k, 10) for k in (1, 2, 3, 4)), tuple(F(k, 10) for k in (4, 3, 2, 1))
EXACT = [name for name in measured("exact", "exact-if") if name in MARGINALS]
WRONG = measured("inexact", "exact-if")
GATE = {"target_entropy": 1.0, "draft_entropy": 1.0, "top_n": 2, "overlap": F(1, 2)}
OPTIONS = {rule.name: rule.measured_with for rule in SHIPPED}
LIMITS = {
    "iid": limit_by_prefixes,
    "without-replacement": limit_without_replacement,
    "fixed": lambda p, q, n: limit_fixed(p, next(iter(fixed(q, n)))),
    "pairs": lambda p, q, n: limit_pairs(p, q),
}


@st.composite
def pairs(draw, max_size=4):
    size = draw(st.integers(1, max_size))
    entries = st.lists(st.integers(0, 5), min_size=size, max_size=size).filter(any)
    return tuple(normalise([F(count) for count in draw(entries)]) for _ in range(2))


def f(*values):
    return tuple(F(value) for value in values)


# ---- exactness --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=25, deadline=None)
@given(laws=pairs(), n=st.integers(1, 3))
def test_exact_rules_are_exact_and_below_the_limit_of_their_candidates(name, laws, n):
    entry = MARGINALS[name]
    n = min(max(n, entry.least), entry.most or n)
    result = marginal(name, *laws, n, **OPTIONS.get(name, {}))
    assert result.law == laws[0], remedy(name, measured="inexact")
    accepted, limit = sum(result.acceptance), LIMITS[entry.proposal](*laws, n)
    assert accepted <= limit
    if KNOWN[name].best_always:
        assert accepted == limit, remedy(name, best_always=False)
    elif n == 1 and KNOWN[name].best_alone:
        assert accepted == limit, remedy(name, best_alone=False)


@pytest.mark.parametrize("name", WRONG)
def test_the_others_are_as_far_off_as_is_known(name):
    """On the family of `resispec-verify rules`, whose laws have four tokens and more."""
    rule = CATALOGUE[name]
    options = rule.measured_with if KNOWN[name].measured == "inexact" else rule.inexact_with
    found = str(max(measure(name, case, **options)[0] for case in cases(name)))
    assert found == KNOWN[name].worst, remedy(name, worst=found)


@pytest.mark.parametrize("name", list(MARGINALS))
def test_no_candidates_and_total_mass(name):
    options = OPTIONS.get(name, {})
    none = marginal(name, P4, Q4, 0, **options)
    assert (none.law, none.acceptance) == (P4, ())
    for n in MARGINALS[name].counts(3):
        result = marginal(name, P4, Q4, n, **options)
        assert sum(result.law) == 1
        assert len(result.acceptance) == n
        assert sum(result.acceptance) <= 1


# ---- worked values ----------------------------------------------------------------------------------


def test_skipped_duplicates():
    """n = 2, x = 0 twice: the second draw is skipped, so R stays (p - q)_+ and is emitted in its place."""
    result = marginal("specinfer-skip-duplicates", P, Q, 2)
    # p - q = (-3, 1, 2)/10: R = (0, 1/3, 2/3). After 0: 1 is accepted with 1, 2 with 1; otherwise
    # (0, 0) emits R and not norm (R - q)_+ = (0, 1/18, 17/30)
    reach = F(3, 5) * F(1, 2)
    assert result.acceptance == (F(7, 10), reach * F(4, 10))
    assert result.law == (
        F(3, 10),
        F(3, 10) + reach * (F(3, 10) + F(6, 10) * F(1, 3)),
        F(1, 10) + reach * (F(1, 10) + F(6, 10) * F(2, 3)),
    )
    assert total_variation(result.law, P) == F(1, 20)
    assert marginal("specinfer-skip-duplicates", P, Q, 1).law == P


def test_sequoia_on_the_worked_pair():
    result = marginal("sequoia", P, Q, 2)
    assert result.law == P
    # after 0: D = (0, 3/4, 1/4), R = (0, 1/3, 2/3): overlap 1/3 + 1/4
    assert result.acceptance == (F(7, 10), F(3, 10) * F(7, 12))


def test_eagle_and_token_match_accept_the_mass_of_the_candidates():
    assert marginal("eagle", P4, Q4, 3).acceptance == P4[:3]
    matched = marginal("token-match", P4, Q4, 2, proposal=fixed(Q4, 2))
    assert matched == marginal("eagle", P4, Q4, 2)
    assert marginal("token-match", P4, Q4, 1).acceptance == (sum(a * b for a, b in zip(P4, Q4, strict=True)),)


@settings(max_examples=25, deadline=None)
@given(pairs(), pairs(), st.integers(0, 3))
def test_token_match_is_exact_for_any_candidates(laws, others, n):
    proposal = others[0] if len(others[0]) == len(laws[0]) else laws[0]
    assert marginal("token-match", *laws, n, proposal=proposal).law == laws[0]
    assert marginal("eagle", *laws, n, proposal=independent(proposal, n)).law == laws[0]


def test_llama_cpp_accepts_the_top_token_as_if_drawn():
    same = marginal("llama-cpp", Q4, Q4, 1)
    assert (same.law, same.acceptance) == (f(1, 0, 0, 0), (1,))
    # its order is drawn at random; that does not repair it
    tuples = shuffled(fixed(Q4, 2))
    assert tuples == {(0, 1): F(1, 2), (1, 0): F(1, 2)}
    assert marginal("llama-cpp", Q4, Q4, 2, proposal=tuples).law == f("1/2", "1/2", 0, 0)


# ---- K-SEQ ------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(pairs(), st.integers(1, 4))
def test_rho_is_the_smallest_root_to_1e_30_from_above(laws, n):
    def excess(rho):
        overlap = k_seq_overlap(*laws, rho)
        return 1 - (1 - overlap) ** n - rho * overlap

    rho = k_seq_rho(*laws, n)
    assert 1 <= rho <= n
    assert excess(rho) <= 0
    if rho > 1:
        assert excess(rho - F(1, 10**30)) >= 0


def test_rho_exactly_where_it_is_rational():
    assert k_seq_rho(P, Q, 1) == 1
    # b = 3/4 for rho <= 4/3, and 1 - 1/16 = 3/4 rho
    assert k_seq_rho(f("1/3", "1/3", "1/3", 0), f("1/4", "1/4", "1/4", "1/4"), 2) == F(5, 4)
    # one token, p = 1/4 on it: b = min(1, 1/(4 rho)), so rho b = 1/4 and b = 1 - sqrt(3)/2: irrational
    rho = k_seq_rho(f("1/4", "3/4"), f(1, 0), 2)
    assert abs(float(rho) - 1 / (4 * (1 - 3**0.5 / 2))) < 1e-15


@settings(max_examples=30, deadline=None)
@given(pairs(), st.integers(1, 3), st.fractions(0, 3))
def test_every_rho_from_the_root_up_is_exact(laws, n, more):
    least = k_seq_rho(*laws, n)
    result = marginal("k-seq", *laws, n, rho=least + more)
    assert result.law == laws[0]
    assert sum(result.acceptance) <= sum(marginal("k-seq", *laws, n).acceptance) + F(1, 10**25)


def test_a_rho_below_the_root_is_refused():
    with pytest.raises(ValueError, match="rho must be at least the root"):
        marginal("k-seq", P, Q, 3, rho=1)


# ---- SpecHub ----------------------------------------------------------------------------------------


def test_hub_pairs():
    assert hub_pairs(Q) == {
        (1, 0): F(3, 10), (0, 1): F(6, 10) * F(3, 4), (2, 0): F(1, 10), (0, 2): F(6, 10) * F(1, 4)
    }  # fmt: skip
    assert hub_pairs(f(0, 1)) == {(1,): 1}
    assert hub_pairs(f("1/2", "1/2")) == {(1, 0): F(1, 2), (0, 1): F(1, 2)}  # ties to the lowest index


def test_spechub_meets_the_limit_of_its_pairs_and_force_does_not_stay_exact():
    assert marginal("spechub", P, Q, 2).acceptance == (F(7, 10), F(1, 4))
    # place 1: 3/10 + 1/10 of others under (i, 0), all 3/10 of the hub under (0, 1); place 2: i under (0, i)
    certain = f("9999/10000", "1/20000", "1/20000")
    forced = marginal("spechub-force", certain, Q, 2)
    assert forced.law == f(1, 0, 0)
    assert forced.acceptance == (F(6, 10), F(4, 10))  # the hub's place in the pair
    assert total_variation(forced.law, certain) == F(1, 10_000)
    edge = f("999/1000", "1/1000", 0)  # not above: the distance stays below 1e-3
    assert marginal("spechub-force", edge, Q, 2).law == edge
    assert marginal("spechub", certain, Q, 2).law == certain


def test_spechub_refuses_what_are_no_pairs():
    with pytest.raises(ValueError, match="hold the hub 0 once"):
        marginal("spechub", P, Q, 2, proposal={(1, 2): 1})
    with pytest.raises(ValueError, match="spechub verifies 2 candidates, got candidates = 1"):
        marginal("spechub", P, Q, 1)
    with pytest.raises(ValueError, match="spechub verifies 2 candidates, got candidates = 3"):
        marginal("spechub", P, Q, 3)
    with pytest.raises(ValueError, match="pairs have 2 candidates"):
        hub_pairs(Q, 3)


# ---- SGLang -----------------------------------------------------------------------------------------


def test_sglang_thresholds_and_duplicates():
    half = F(1, 2)
    loose = marginal("sglang", P4, Q4, 2, threshold_acc=half)
    assert loose.acceptance == (F(2, 10), F(4, 10))  # the coin must be below twice the mass
    assert loose.law == f("1/5", "2/5", "6/35", "8/35")
    single = marginal("sglang", P4[::-1], Q4, 2, threshold_single=F(3, 10))
    assert (single.law, single.acceptance) == (f(1, 0, 0, 0), (1, 0))
    assert marginal("sglang", P4, Q4, 3, threshold_single=half).law == P4  # no token has that much
    # a duplicate counts twice: after 0 is refused, 0 again is accepted with (2/10 - 1/10) / (9/10)
    doubled = marginal("sglang", P4, Q4, 2, proposal={(0, 0): 1})
    assert doubled.acceptance == (F(1, 10), F(1, 10))
    assert doubled.law[0] == F(2, 10)
    for bad in (0, F(3, 2)):
        with pytest.raises(ValueError, match="threshold_acc must lie in"):
            marginal("sglang", P4, Q4, 2, threshold_acc=bad)


def test_sglang_emits_the_last_token_where_nothing_is_left():
    """Thresholds of 1 and a rejected candidate of target 1 cannot meet; a target of 1 is accepted."""
    assert marginal("sglang", f(1, 0, 0), Q, 3).law == f(1, 0, 0)
    refused = marginal("sglang", f(0, 0, 1), Q, 2, threshold_single=1)
    assert refused.law == f(0, 0, 1)


# ---- EASD -------------------------------------------------------------------------------------------


def test_easd_is_exact_if_its_gate_does_not_look_at_the_candidate():
    apart = marginal("easd", P4, Q4, 1, rejects="position", **GATE)  # no token in both top twos: never closed
    assert apart == marginal("speculative", P4, Q4, 1)
    flat = f("1/4", "1/4", "1/4", "1/4")
    pair = marginal("easd", flat, Q4, 1, rejects="position", **GATE)
    assert (pair.law, pair.acceptance) == (flat, (0,))
    token = marginal("easd", flat, Q4, 1, rejects="overlap", **GATE)
    assert total_variation(token.law, flat) > 0
    unreached = {**GATE, "target_entropy": 9, "draft_entropy": 9}
    never = marginal("easd", flat, Q4, 1, rejects="overlap", **unreached)
    assert never == marginal("speculative", flat, Q4, 1)
    with pytest.raises(ValueError, match="rejects must be position or overlap"):
        marginal("easd", flat, Q4, 1, rejects="all", **GATE)
    with pytest.raises(TypeError):
        marginal("easd", flat, Q4, 1)


# ---- combinations, proposals, misuse ----------------------------------------------------------------


def test_combinations_with_resispec():
    """One candidate from the draft: the combination is ResiSpec; a fixed one tests a soft q."""
    assert marginal("sequoia+resispec", P, Q, 1).law == marginal("resispec", P, Q, 1).law
    assert marginal("sequoia+resispec", P, Q, 2, redistribution="water-filling").law != P
    once = marginal("eagle+resispec", P, Q, 1)
    assert once.acceptance == (F(1, 2),)
    assert once.law[0] == F(1, 2)


def test_right_rule_wrong_proposal():
    """A law over tokens is drawn from the rule's own way; tuples are taken as they are."""
    other = P4
    assert marginal("sequoia", P4, Q4, 2, proposal=Q4).law == P4
    assert marginal("sequoia", P4, Q4, 2, proposal=other).law != P4
    assert marginal("sequoia", P4, Q4, 2, proposal=without_replacement(Q4, 2)).law == P4
    assert marginal("sequoia", P4, Q4, 2, proposal=independent(Q4, 2)).law != P4
    assert marginal("specinfer", P4, Q4, 2, proposal=without_replacement(Q4, 2)).law != P4
    assert marginal("eagle", P4, Q4, 2, proposal=other).acceptance == (F(4, 10), F(3, 10))
    assert set(PROPOSALS) == {entry.proposal for entry in MARGINALS.values()}


def test_fixed_candidates():
    assert fixed(f("1/4", "1/2", "1/4"), 2) == {(1, 0): 1}
    assert fixed(f(1, 0), 5) == {(0, 1): 1}  # as many as there are, those of probability 0 last


def test_a_joint_rule_must_return_a_law():
    with pytest.raises(ValueError, match="law of the outcomes"):
        enumerate_rule(lambda p, q, tokens: [(0, 0, F(1, 2))], P, Q, 1)
