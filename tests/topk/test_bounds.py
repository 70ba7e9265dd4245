"""Intervals of what rules do, against the laws they really emit on completions."""

import numpy as np
import pytest
from topk_helpers import excess, random_completion, random_pairs

import resispec_verify as rv
from resispec_verify import topk
from resispec_verify.catalogue.measured import rules_table
from resispec_verify.dumps.kinds.top_rows import TopPairs, TopRows
from resispec_verify.errors import InputError
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.rules import ResiSpec, SpecInfer, make_rule
from resispec_verify.topk.known import PROOFS
from resispec_verify.verdict import Tier, Verdict

ROUNDING = 1e-12  # of what is compared with; the intervals are rounded outwards by themselves
SHARP = ["speculative", "specinfer", "optimal-sequential", "optimal-joint", "k-seq"]


def completions(pairs, rng, count):
    """Random completions of one position, ``(count, V)`` each."""
    found = [random_completion(pairs, rng) for _ in range(count)]
    return np.array([p for p, _ in found]), np.array([q for _, q in found])


def limits(p, q, n):
    """``min_H 1 + p(H) - q(H)^n`` over prefixes in ascending order of p/q, row by row."""
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(np.where(q > 0, p / q, np.inf), axis=1)
    p, q = (np.cumsum(np.take_along_axis(a, order, axis=1), axis=1) for a in (p, q))
    return np.minimum(1.0 + np.min(p - q**n, axis=1), 1.0)


@pytest.mark.parametrize("name", [*SHARP, "token-match", "resispec"])
def test_no_completion_leaves_the_intervals(name):
    rng = np.random.default_rng(sum(map(ord, name)))
    rule = make_rule(name)
    for _ in range(20):
        pairs = random_pairs(rng, 1)
        n = int(rng.integers(1, 2 if name == "speculative" else 4))
        found = topk.bounds(pairs, rule, n)
        p, q = completions(pairs, rng, 50)
        law = rv.operational_marginals(rule, p, q, n)
        accepted = law.acceptance.sum(axis=1)
        inside(found.acceptance[0], accepted, law.rounding)
        inside(found.limit[0], limits(p, q, n))
        inside(found.tv[0], 0.5 * np.abs(p - q).sum(axis=1))
        low, high = tv_interval(law, p)
        assert np.all(high + law.rounding + ROUNDING >= found.emitted_tv[0, 0])
        assert np.all(low <= found.emitted_tv[0, 1] + law.rounding + ROUNDING)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside(found.kl[0], np.where(p > 0, p * (np.log(p) - np.log(q)), 0.0).sum(axis=1))


def inside(interval, values, rounding=0.0):
    """Every value in the interval."""
    low, high = interval
    assert np.all(values >= low - rounding - ROUNDING)
    assert np.all(values <= high + rounding + ROUNDING)


@pytest.mark.parametrize("name", SHARP)
def test_the_two_completions_attain_the_ends(name):
    rng = np.random.default_rng(7)
    rule, n = make_rule(name), 1 if name == "speculative" else 3
    for _ in range(30):
        pairs = random_pairs(rng, 1)
        found, ends = topk.bounds(pairs, rule, n), topk.reduced(pairs)
        most, least = (
            float(rv.operational_marginals(rule, *law, n).acceptance.sum())
            for law in (ends.least, ends.greatest)
        )
        inside(found.acceptance[0], np.array([least, most]), 1e-10)
        for end, value, tight in zip(
            found.acceptance[0], (least, most), found.tight["acceptance"], strict=True
        ):
            assert not tight or end == pytest.approx(value, abs=1e-9)
        assert found.tight["acceptance"] == (True, name != "specinfer")


def test_specinfer_may_accept_more_of_a_pair_that_is_easier_to_tell_apart():
    # Two tokens of one pair are one of the other: M is greater between their ratios, equal elsewhere.
    p, q = np.array([[0.1, 0.28, 0.62, 0.0]]), np.array([[0.2, 0.2, 0.12, 0.48]])
    merged_p, merged_q = np.array([[0.38, 0.62, 0.0]]), np.array([[0.4, 0.12, 0.48]])
    assert all(excess(p, q, s) >= excess(merged_p, merged_q, s) - 1e-15 for s in np.linspace(0.0, 6.0, 61))
    rule = make_rule("specinfer")
    apart = rv.operational_marginals(rule, p, q, 2).acceptance.sum()
    together = rv.operational_marginals(rule, merged_p, merged_q, 2).acceptance.sum()
    # rejected twice: .62 - .12 (1 + .58), and .62 - .12 (1 + .5)
    assert [apart, together] == pytest.approx([0.5696, 0.56], abs=1e-12)


def test_resispec_is_proved_inexact_by_known_tokens():
    # Token 0 may be rejected, token 1 has q > p and is emitted then: more often than it may be.
    p = np.r_[0.3, 0.2, 0.4, np.full(10, 0.01)][None]
    q = np.r_[0.5, 0.25, 0.15, np.full(10, 0.01)][None]
    pairs = TopPairs(topk.cut(p, 3), topk.cut(q, 3))
    for n in (1, 2, 3):
        found = topk.bounds(pairs, ResiSpec(), n)
        assert (found.verdict, found.tier) == (Verdict.INEXACT, Tier.CERTIFIED)
        # by hand: token 1 gains min(.2 x .25, .2), token 0 gains min(.05 x .5, .3), token 2 lacks .25
        assert found.emitted_tv[0, 0] == pytest.approx(0.05 + 0.025, abs=1e-12)
        low, _ = tv_interval(rv.operational_marginals(ResiSpec(), p, q, n), p)
        assert low[0] >= found.emitted_tv[0, 0] - ROUNDING
    assert topk.least_k(pairs, ResiSpec(), 1) == 3  # the first two of each are 2, 0 and 0, 1: one known token
    one = TopPairs(topk.cut(p, 1), topk.cut(q, 1))
    assert topk.bounds(one, ResiSpec(), 1).verdict is Verdict.UNDECIDED
    assert topk.least_k(one, ResiSpec(), 1) is None


@pytest.mark.parametrize("redistribution", ["proportional", "water-filling"])
@pytest.mark.parametrize("budget", ["local", "floor"])
@pytest.mark.parametrize("hole", ["excluded", "literal"])
def test_the_bias_is_a_lower_bound_in_every_reading(redistribution, budget, hole):
    rng, rule = np.random.default_rng(8), ResiSpec(redistribution, budget, hole)
    for _ in range(8):
        pairs = random_pairs(rng, 1)
        p, q = completions(pairs, rng, 4)
        for n in (1, 2):
            law = rv.operational_marginals(rule, p, q, n)
            assert np.all(
                tv_interval(law, p)[1] + law.rounding + ROUNDING
                >= topk.bounds(pairs, rule, n).emitted_tv[0, 0]
            )


def test_a_rule_is_exact_by_proof_and_not_by_name():
    table = {row["rule"]: row["measured"] for row in rules_table()}
    assert all(table[name] == "exact" for name in PROOFS)
    pairs = random_pairs(np.random.default_rng(9), 3)
    for name in PROOFS:
        rule = make_rule(name)
        found = topk.bounds(pairs, rule, 1 if rule.most_candidates == 1 else 2)
        assert (found.verdict, found.tier) == (Verdict.EXACT, Tier.PROVED)
        assert found.proof
        assert np.all(found.emitted_tv == 0.0)

    class Impostor(SpecInfer):
        name = "specinfer"

    assert topk.bounds(pairs, Impostor(), 2).verdict is Verdict.UNDECIDED
    assert topk.bounds(pairs, Impostor(), 2).acceptance.tolist() == [[0.0, 1.0]] * 3


def test_longer_lists_never_widen():
    rng = np.random.default_rng(10)
    p, q = rng.dirichlet(np.full(60, 0.3), (2, 20))
    p, q = 0.7 * p + 0.3 * q, q
    for name in (*SHARP, "resispec"):
        rule, n = make_rule(name), 1 if name == "speculative" else 2
        before = None
        for k in (1, 5, 20, 60):
            found = topk.bounds(TopPairs(topk.cut(p, k), topk.cut(q, k)), rule, n).acceptance
            if before is not None:
                assert np.all(found[:, 0] >= before[:, 0] - 1e-11)
                assert np.all(found[:, 1] <= before[:, 1] + 1e-11)
            before = found


def test_lists_made_shorter_are_lists_cut_shorter():
    p = np.random.default_rng(11).dirichlet(np.ones(30), 6)
    for k in (1, 7, 12):
        ours, cut = topk.shorten(topk.cut(p, 12), k), topk.cut(p, k)
        assert np.array_equal(ours.tokens, cut.tokens)
        assert np.array_equal(ours.most, cut.most)
        assert np.allclose(ours.tail, cut.tail, rtol=0, atol=1e-15)
    with pytest.raises(InputError, match="k must be at least 1"):
        topk.cut(p, 0)


def test_candidates_that_a_rule_does_not_take_are_refused():
    pairs = random_pairs(np.random.default_rng(12), 1)
    with pytest.raises(InputError, match="speculative does not verify 2 candidates"):
        topk.bounds(pairs, make_rule("speculative"), 2)
    with pytest.raises(InputError, match="does not verify 0 candidates"):
        topk.bounds(pairs, make_rule("specinfer"), 0)


def test_laws_known_to_a_width_are_held_with_that_width():
    """Log-probabilities of single and half precision: the tail is an interval, the laws are not as listed."""
    rng = np.random.default_rng(13)
    p, q = rng.dirichlet(np.full(200, 0.2), (2, 40))
    for size in (1e-7, 1e-4, 1e-2):
        sides = []
        for law in (p, q):
            rows = topk.cut(law, 25)
            listed = rows.probabilities * (1.0 + size * rng.uniform(-1.0, 1.0, rows.probabilities.shape))
            left = 1.0 - listed.sum(axis=1)
            tail = np.clip(np.stack([left - size, left + size], axis=1), 0.0, 1.0)
            sides.append(TopRows(rows.tokens, listed, tail, rows.most * (1.0 + size), 200))
        found = topk.bounds(TopPairs(*sides), make_rule("optimal-sequential"), 2)
        tv, kl = 0.5 * np.abs(p - q).sum(axis=1), (p * (np.log(p) - np.log(q))).sum(axis=1)
        assert np.all((found.tv[:, 0] <= tv) & (tv <= found.tv[:, 1]))
        assert np.all(found.kl[:, 0] <= kl)
        exact = topk.bounds(TopPairs(topk.cut(p, 25), topk.cut(q, 25)), make_rule("optimal-sequential"), 2)
        assert size > 1e-7 or np.all(found.kl[:, 0] > 0.95 * exact.kl[:, 0])
        accepted = rv.operational_marginals(make_rule("optimal-sequential"), p, q, 2).acceptance.sum(axis=1)
        assert np.all((found.acceptance[:, 0] <= accepted) & (accepted <= found.acceptance[:, 1]))


def test_a_tail_that_no_token_may_have_is_refused():
    rows = TopRows(
        np.array([[0, 1]], np.int32), np.array([[0.5, 0.45]]), np.array([[0.05, 0.05]]), np.array([0.0])
    )
    with pytest.raises(InputError, match="position 0: the target's list and its tail"):
        topk.bounds(TopPairs(rows, rows), make_rule("specinfer"), 1)
