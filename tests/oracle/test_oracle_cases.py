"""Public reports turned into small inputs, transcribed in a few lines each and enumerated exactly."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as F

import pytest

from resispec_verify.oracle import (
    Transcription,
    accept_ratio,
    enumerate_rule,
    independent,
    marginal,
    normalise,
    positive_part_residual,
    specinfer,
    total_variation,
    without_replacement,
)


def f(*values):
    return tuple(F(value) for value in values)


P, Q = f("1/2", "3/10", "1/5"), f("3/5", "3/10", "1/10")
P4, Q4 = f("1/10", "2/10", "3/10", "4/10"), f("4/10", "3/10", "2/10", "1/10")
TOP = f(1, 0, 0)


def one_hot(token, size=3):
    return tuple(F(int(x == token)) for x in range(size))


def test_transformers_32867_greedy_draft_declared_as_soft():
    result = marginal("speculative", P, Q, 1, proposal=TOP)
    assert result.law == f("5/6", 0, "1/6")
    assert total_variation(result.law, P) == F(1, 3)
    assert marginal("speculative", P, TOP, 1).law == P  # declared as what it is


def test_transformers_47932_top_k_draft_declared_raw():
    target, raw = f("5/10", "3/10", "2/10", 0), f("4/10", "3/10", "2/10", "1/10")
    top_2 = normalise([*raw[:2], F(0), F(0)])
    result = marginal("speculative", target, raw, 1, proposal=top_2)
    assert result.law == f("4/7", "3/7", 0, 0)
    assert total_variation(result.law, target) == F(1, 5)
    assert marginal("speculative", target, top_2, 1).law == target


def test_vllm_10198_target_scored_without_top_p():
    nucleus = normalise([*P[:2], F(0)])  # top-p 0.8
    assert nucleus == f("5/8", "3/8", 0)
    emitted = marginal("speculative", P, Q, 1).law
    assert emitted == P
    assert total_variation(emitted, nucleus) == F(1, 5)
    assert sum(mass for mass, kept in zip(emitted, nucleus, strict=True) if kept == 0) == F(1, 5)


def test_spec_rl_14_redraws_from_the_target():
    rule = Transcription(accept=accept_ratio, reject=lambda state, token: state)
    result = enumerate_rule(rule, P, Q, 1)
    assert result.law == f("11/20", "33/100", "3/25")
    assert total_variation(result.law, P) == F(2, 25)


def test_lattice_243_first_draft_token_unchecked():
    unchecked = Transcription(accept=lambda state, token: F(1), reject=lambda state, token: state)
    assert enumerate_rule(unchecked, TOP, one_hot(1), 1).law == one_hot(1)
    assert marginal("speculative", TOP, one_hot(1), 1).law == TOP


def test_atom_2318_argmax_at_positive_temperature():
    rule = Transcription(
        accept=lambda state, token: one_hot(0)[token],
        reject=lambda state, token: state,
        final=lambda state: one_hot(0),
    )
    result = enumerate_rule(rule, P, Q, 1)
    assert result.law == TOP
    assert total_variation(result.law, P) == F(1, 2)
    assert [x for x in range(3) if P[x] > 0 and result.law[x] == 0] == [1, 2]


def test_eagle_110_top_candidate_tested_with_the_soft_draft():
    law = f("51/100", "49/100")
    soft = marginal("speculative", law, law, 1, proposal=[1, 0])
    assert soft.law == f(1, 0)
    assert total_variation(soft.law, law) == F(49, 100)
    assert marginal("speculative", law, [1, 0], 1).law == law


def drop(renormalise):
    """After SpecInfer's residual, set D(x) to 0 and renormalise it, or not."""

    def reject(state, token):
        left = [F(0) if x == token else mass for x, mass in enumerate(state.draft)]
        draft = normalise(left, fallback=tuple(left)) if renormalise else tuple(left)
        return replace(positive_part_residual(state, token), draft=draft)

    return Transcription(accept=accept_ratio, reject=reject)


def test_eagle_74_without_replacement_not_renormalised():
    tuples = without_replacement(Q4, 2)
    wrong = enumerate_rule(drop(False), P4, Q4, 2, tuples)
    assert wrong.law == f("1/10", "1/5", "673/1960", "699/1960")
    assert float(total_variation(wrong.law, P4)) == pytest.approx(0.0434, abs=5e-5)
    assert enumerate_rule(drop(True), P4, Q4, 2, tuples).law == P4


def test_eagle_74_three_tokens_are_too_small_a_test():
    target, draft = f("1/5", "3/10", "1/2"), f("1/2", "3/10", "1/5")
    assert enumerate_rule(drop(False), target, draft, 2, without_replacement(draft, 2)).law == target


def reorder(tuples, key):
    """Law of the tuples after a deterministic change to each."""
    law = {}
    for tokens, weight in tuples.items():
        law[key(tokens)] = law.get(key(tokens), F(0)) + weight
    return law


def test_llama_cpp_5625_candidates_sorted_or_merged_before_the_test():
    drawn = independent(Q4, 2)
    by_draft = reorder(drawn, lambda tokens: tuple(sorted(tokens)))  # Q4 is descending
    assert total_variation(enumerate_rule(specinfer(), P4, Q4, 2, by_draft).law, P4) == F(3, 50)
    merged = reorder(drawn, lambda tokens: tuple(dict.fromkeys(tokens)))
    assert total_variation(enumerate_rule(specinfer(), P4, Q4, 2, merged).law, P4) == F(3, 112)
    assert enumerate_rule(specinfer(), P4, Q4, 2, drawn).law == P4


def test_vllm_40149_soft_draws_treated_as_one_hot_are_exact():
    def reject(state, token):
        kept = [F(0) if x == token else mass for x, mass in enumerate(state.residual)]
        return replace(state, residual=normalise(kept))

    result = enumerate_rule(Transcription(lambda state, token: state.residual[token], reject), P, Q, 1)
    assert result.law == P
    assert result.acceptance == (F(41, 100),)
    assert marginal("speculative", P, Q, 1).acceptance == (F(9, 10),)


def test_transformers_45979_blend_is_a_control_with_a_known_answer():
    blend = tuple((p + q) / 2 for p, q in zip(P, Q, strict=True))
    result = marginal("speculative", blend, Q, 1)
    assert result.law == blend == f("11/20", "3/10", "3/20")
    assert result.acceptance == (F(19, 20),)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_every_exact_rule_here_is_exact_for_more_candidates(n):
    assert marginal("specinfer", P4, Q4, n).law == P4
    assert enumerate_rule(drop(True), P4, Q4, n, without_replacement(Q4, n)).law == P4
