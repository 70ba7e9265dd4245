"""Certified answers at the ends of float64: some seconds of ``extremes.py``'s hour, and known cases."""

from __future__ import annotations

from fractions import Fraction as F

import numpy as np
import pytest
from extreme_pairs import KINDS, exact, extreme_pair
from extremes import EVERY, compared, path_comparison
from hold import SETTINGS, hold
from truth import law_of

from resispec_verify.catalogue.measured import CATALOGUE
from resispec_verify.evidence import operational_marginals
from resispec_verify.oracle import MARGINALS, marginal
from resispec_verify.rules import ResiSpec, make_rule
from resispec_verify.verdict import RESOLUTION, Verdict, judge, judge_all, resolution

FEW, MANY = (times * len(SETTINGS) for times in (12, 240))


@pytest.mark.parametrize(
    "span", [(0, FEW), pytest.param((FEW, MANY), marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("first", range(len(SETTINGS)), ids=map(str, SETTINGS))
def test_certified_intervals_hold_the_truth(first, span):
    # Every comparison of a setting has a number that leaves the same remainder.
    for number in range(span[0] + first, span[1], len(SETTINGS)):
        name, kind, n, held = compared(7, number, "")
        assert not held.trouble, (number, name, kind, n)


def test_rules_that_verify_paths():
    for number in range(EVERY - 1, 60 * EVERY, EVERY):
        name, kind, n, held = compared(7, number)
        assert not held.trouble, (number, name, kind, n)
    assert len({path_comparison(7, k)[0] for k in range(EVERY - 1, 60 * EVERY, EVERY)}) == 3


def test_a_wrong_answer_is_noticed():
    """The same comparison of a law that the rule does not have."""
    target, draft = np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1])
    (setting,) = (s for s in SETTINGS if str(s) == "resispec['proportional', 'local', 'excluded']")
    assert hold(setting, target, draft, 1).trouble == []
    for wrong in (
        {"redistribution": "water-filling"},
        {"redistribution": "water-filling", "budget": "floor"},
    ):
        other = type(setting)(setting.rule, setting.most_tokens, wrong)
        assert "outside" in hold(other, target, draft, 1).trouble[0]


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_rows_as_a_softmax_leaves_them(kind):
    rng = np.random.default_rng(3)
    for _ in range(200):
        for row in KINDS[kind](rng, int(rng.integers(2, 30))):
            assert np.isfinite(row).all()
            assert (row >= 0).all()
            assert abs(row.sum() - 1.0) <= 1e-12
            assert sum(exact(row)) == 1


def test_the_generator_reaches_the_ends():
    rng = np.random.default_rng(4)
    rows = [row for _ in range(600) for row in extreme_pair(rng, 6)[1:]]
    positive = np.concatenate([row[row > 0] for row in rows])
    assert positive.min() == 5e-324
    assert any((row == 0).any() for row in rows)
    assert any(np.count_nonzero(row) == 1 for row in rows)


@pytest.mark.parametrize("name", [name for name in MARGINALS if MARGINALS[name].counts(3)])
def test_shared_prefixes_change_nothing(name):
    rng = np.random.default_rng(5)
    rule = CATALOGUE[name]
    options = (rule.inexact_with or rule.measured_with) if rule.open_parameters else {}
    for n in MARGINALS[name].counts(3):
        for _ in range(3):
            p, q = (exact(row) for row in extreme_pair(rng, 3)[1:])
            if len([x for x in q if x]) >= n:
                assert law_of(name, p, q, n, **options) == _without_flag(marginal(name, p, q, n, **options))


def _without_flag(result):
    return type(result)(result.law, result.acceptance)


def one(rule, target, draft, n):
    found = operational_marginals(rule, np.array([target]), np.array([draft]), n)
    return np.asarray(found.placed)[0], float(found.rounding[0]), found


FAINT = [0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1e-300, 2e-300]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_water_fills_tokens_whose_ratio_overflows(n):
    placed, rounding, _ = one(ResiSpec("water-filling"), *FAINT, n)
    right = marginal("resispec", *map(exact, map(np.array, FAINT)), n, redistribution="water-filling").law
    if n == 1:
        assert right == (0, 0, F(1, 3), F(2, 3))
    assert rounding < 1e-12
    np.testing.assert_allclose(placed, [float(x) for x in right], atol=rounding, rtol=0.0)


@pytest.mark.parametrize("budget", ["local", "floor"])
@pytest.mark.parametrize("small", [1e-4, 1e-9, 1e-16, 1e-100, 1e-310])
@pytest.mark.parametrize("n", [1, 2])
def test_two_tokens_and_the_hole_read_literally(small, budget, n):
    target, draft = [0.3, 0.7], [small, 1.0 - small]
    placed, rounding, found = one(ResiSpec("water-filling", budget, "literal"), target, draft, n)
    # With two tokens a rejected one leaves the other, whatever the reading: exact.
    tv = 0.5 * float(np.abs(placed - target).sum())
    assert tv <= 1e-15
    assert judge(tv, tv, rounding) is Verdict.EXACT
    assert float(found.gap[0]) == 0.0


@pytest.mark.parametrize("least", [1e-310, 5e-324, 1e-200])
def test_two_distinct_candidates_of_which_one_is_faint(least):
    target, draft = [0.4, 0.0, 0.6], [1.0, least, 0.0]
    placed, rounding, found = one(make_rule("optimal-without-replacement"), target, draft, 2)
    np.testing.assert_allclose(placed, target, atol=rounding, rtol=0.0)
    right = marginal("optimal-without-replacement", *(exact(np.array(x)) for x in (target, draft)), 2)
    np.testing.assert_allclose(
        np.asarray(found.acceptance)[0].sum(), float(sum(right.acceptance)), atol=1e-12
    )


def test_a_residual_of_rounding_is_no_proof():
    """Candidates from another law: 2**-53 is divided by 2**-53, and that is all there is."""
    target, draft = np.array([[0.5, 0.5 - 2**-53, 2**-53]]), np.array([[0.5, 0.5, 0.0]])
    other, own = np.array([[0.0, 0.0, 1.0]]), None
    rule = make_rule("specinfer")
    bounds = {}
    for name, drawn in (("other", other), ("own", own)):
        found = operational_marginals(rule, target, draft[:, [2, 1, 0]], 2, drawn_from=drawn)
        bounds[name] = float(found.rounding[0])
    assert bounds["own"] < 1e-12
    near = operational_marginals(rule, target, target[:, [0, 2, 1]], 1, drawn_from=draft)
    assert float(near.rounding[0]) < 1e-12  # half of the target is left: nothing is magnified
    tiny = operational_marginals(rule, target, draft, 2, drawn_from=np.array([[0.25, 0.75, 0.0]]))
    assert float(tiny.rounding[0]) < 1e-12  # hardly anything is rejected
    lost = operational_marginals(rule, target, draft, 2, drawn_from=np.array([[0.0, 0.0, 1.0]]))
    assert float(lost.rounding[0]) < 1e-12  # accepted for certain
    zero = np.array([[0.5, 0.5, 0.0, 0.0]]), np.array([[0.5, 0.5 + 2**-53, 0.0, 0.0]])
    drawn = np.array([[0.0, 0.0, 0.0, 1.0]])
    most = operational_marginals(rule, *zero, 1, drawn_from=drawn)
    assert float(most.rounding[0]) >= 1.0  # all is rejected, and the residual is rounding


@pytest.mark.parametrize(
    ("seed", "number", "rule"), [(20261130, 36992, "optimal-without-replacement"), (777, 15966, "k-seq")]
)
def test_what_hours_found(seed, number, rule):
    """What was wrong in 79,501 comparisons: tests that other draws hold to more digits than they have."""
    *_, held = compared(seed, number, rule)
    assert held.trouble == []
    assert held.verdict == "undecided"


def test_a_bound_that_admits_anything_proves_nothing():
    assert judge(0.2, 0.2, 0.3) is Verdict.UNDECIDED
    assert judge(0.0, 0.0, RESOLUTION) is Verdict.EXACT
    assert judge(0.0, 0.0, 2 * RESOLUTION) is Verdict.UNDECIDED
    assert judge(0.4, 0.4, 0.3) is Verdict.INEXACT
    single = resolution(float(np.finfo(np.float32).eps))
    assert judge_all(np.zeros(1), np.zeros(1), np.full(1, 1e-4), single) == [Verdict.EXACT]
