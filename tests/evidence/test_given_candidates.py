"""One node, given its candidates: averaged over them it is the operational marginal."""

import itertools

import numpy as np
import pytest

import resispec_verify as rv
from resispec_verify.evidence.given_candidates import outcome_given_candidates
from resispec_verify.evidence.tuple_rules import all_tuples
from resispec_verify.rules import RULES, make_rule

PAIRS = {
    "worked": ([0.3, 0.4, 0.3], [0.6, 0.3, 0.1]),
    "zeros": ([0.0, 0.5, 0.25, 0.25], [0.5, 0.0, 0.25, 0.25]),
    "equal": ([0.5, 0.25, 0.25], [0.5, 0.25, 0.25]),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", RULES)
def test_the_mean_over_the_candidates_is_the_operational_marginal(name, pair):
    rule = make_rule(name)
    target, draft = map(np.array, PAIRS[pair])
    for n in range(max(rule.least_candidates, 1), min(3, rule.most_candidates or 3) + 1):
        tuples, weights = all_tuples(rule.proposal, draft, n)
        marginal, acceptance = np.zeros(len(target)), np.zeros(n)
        for drawn, weight in zip(tuples, weights, strict=True):
            drawn = drawn[drawn >= 0]
            if len(drawn) < rule.least_candidates:
                pytest.skip("the draft has no second token to draw")
            found = outcome_given_candidates(rule, target, draft, drawn)
            assert found.emitted.sum() <= 1 + 1e-15
            np.add.at(marginal, drawn, weight * found.emitted)
            acceptance[: len(drawn)] += weight * found.emitted
            if found.rest is not None:
                marginal += weight * (1 - found.emitted.sum()) * found.rest
        expected = rv.operational_marginals(
            rule, target[None], draft[None], n, budget=rv.Budget(gap=0, most_states=1e6)
        )
        # Both are sums of at most 27 products of a few roundings each.
        np.testing.assert_allclose(marginal, expected.placed[0], atol=1e-14)
        np.testing.assert_allclose(acceptance, expected.acceptance[0], atol=1e-14)


def test_no_candidate_leaves_the_target_and_too_many_are_never_emitted():
    target, draft = map(np.array, PAIRS["worked"])
    found = outcome_given_candidates(make_rule("specinfer"), target, draft, [])
    assert found.emitted.shape == (0,)
    assert (found.rest == target).all()
    found = outcome_given_candidates(make_rule("speculative"), target, draft, [0, 0, 1])
    assert found.emitted.tolist() == [0.5, 0.0, 0.0]
    with pytest.raises(rv.InputError, match="needs 2 candidates, got 1"):
        outcome_given_candidates(make_rule("spechub"), target, draft, [0])


def test_a_sure_acceptance_leaves_nothing_to_draw_from():
    target = np.array([0.5, 0.5])
    for name, tokens in itertools.product(("specinfer", "resispec", "optimal-joint"), ([0], [1, 1])):
        found = outcome_given_candidates(make_rule(name), target, target, tokens)
        assert found.emitted.sum() == pytest.approx(1, abs=1e-15)
