"""Residuals and GetProxy on values worked out by hand, and the registry of rules."""

from __future__ import annotations

from fractions import Fraction as F

import numpy as np
import pytest

from resispec_verify.errors import InputError
from resispec_verify.evidence.marginal import summation_error
from resispec_verify.kernels.elementwise.residuals import accept_ratio, normalize, proxy, standard_residual
from resispec_verify.rules import RULES, ResiSpec, SpecInfer, Speculative, State, get_proxy, make_rule

EPS = float(np.finfo(np.float64).eps)
# Entries at most 2, from one row sum and a handful of operations.
BOUND = 2 * EPS * (summation_error(3) + 8)
P, Q = np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1])  # a worked pair, exact values by hand


def close(computed, right, bound=BOUND):
    right = np.array([float(value) for value in np.ravel(right)])
    return float(np.abs(np.ravel(np.asarray(computed)) - right).max()) <= bound


def test_acceptance_ratio_and_its_corners():
    current, draft = np.array([0.3, 0.4, 0.3, 0.0, 0.2, 0.0]), np.array([0.6, 0.3, 0.3, 0.1, 0.0, 0.0])
    # .3/.6; above the draft, equal to it: 1; R = 0: 0; q = 0 < R: 1; both 0: 0.
    assert accept_ratio(current, draft).tolist() == [0.5, 1.0, 1.0, 0.0, 1.0, 0.0]


def test_standard_residual_and_its_fallback():
    # (p - q)+ = (0, .1, .2), normalised 1/3 and 2/3.
    assert close(standard_residual(P, Q), [0, F(1, 3), F(2, 3)])
    np.testing.assert_array_equal(standard_residual(P, P), P)
    assert normalize(np.zeros((1, 2)), np.array([[0.25, 0.75]])).tolist() == [[0.25, 0.75]]


# GetProxy: Z = q0 - p0 = 3/10 at the rejected token 0; min(Z q, p) off it is (9, 3)/100, so Delta = 18/100.


def test_proxy_spread_in_proportion():
    # Remaining capacity (31, 27)/100, 58 in all: 9/100 + (18/58)(31/100) = 27/145, and 33/290.
    parts = get_proxy(P, Q, 0)
    assert close(parts.Z, F(3, 10))
    assert close(parts.Delta, F(18, 100))
    assert close(parts.r, [0, F(27, 145), F(33, 290)])
    assert close(parts.k, [F(6, 10), F(4, 10) - F(27, 145), F(3, 10) - F(33, 290)])
    assert close(parts.s, [F(3, 10), 0, 0])
    assert close(parts.k.sum(), 1)
    assert not parts.capped


def test_proxy_with_the_hole_read_literally():
    # Capacity with token 0: 30 + 31 + 27 = 88; the rejected token itself takes (18/88)(30/100).
    parts = get_proxy(P, Q, 0, hole="literal")
    share = F(18, 88)
    assert close(
        parts.r, [share * F(30, 100), F(9, 100) + share * F(31, 100), F(3, 100) + share * F(27, 100)]
    )
    assert close(parts.k[0], F(6, 10))


def test_proxy_by_water_filling():
    # min(level q, p) off token 0 sums to 3/10 at level 3/4: (9/40, 3/40).
    parts = get_proxy(P, Q, 0, redistribution="water-filling")
    assert close(parts.r, [0, F(9, 40), F(3, 40)])


def test_proxy_with_the_floor_of_equation_13():
    # Z* = min p/q = 1/2 at token 0, above the gap 3/10; mass off token 0 is 7/10. sum k - 1 = 3/10 + ... :
    # k = q0 + (7/10 - Z), so the excess is 6/10 + 2/10 - 1 = -1/5.
    parts = get_proxy(P, Q, 0, budget="floor")
    assert close(parts.Z, F(1, 2))
    assert close(parts.k.sum() - 1, F(-1, 5))
    assert not parts.capped


@pytest.mark.parametrize("redistribution", ["proportional", "water-filling"])
def test_proxy_where_equation_13_is_infeasible(redistribution):
    # Z* = 9/10 but only 11/20 is left off token 0: Z is cut to that, and token 1 is full.
    p, q = np.array([9 / 20, 11 / 20]), np.array([0.5, 0.5])
    parts = get_proxy(p, q, 0, budget="floor", redistribution=redistribution)
    assert bool(parts.capped)
    assert close(parts.Z, F(11, 20))
    assert close(parts.r, [0, F(11, 20)])
    assert close(parts.k, [F(1, 2), 0])
    local = get_proxy(p, q, 0, redistribution=redistribution)
    assert not bool(local.capped)
    assert close(local.Z, F(1, 20))


def test_proxy_where_everything_drafted_is_full():
    # q lives on tokens 0 and 1; off token 0, token 1 holds 1/10 < Z = 1/2: the rest goes to q = 0 tokens
    # in proportion to p, 4/10 of their 6/10.
    p, q = np.array([0.3, 0.1, 0.2, 0.4]), np.array([0.8, 0.2, 0.0, 0.0])
    parts = get_proxy(p, q, 0, redistribution="water-filling")
    assert close(parts.r, [0, F(1, 10), F(2, 3) * F(2, 10), F(2, 3) * F(4, 10)])


def test_one_call_serves_many_rejected_tokens():
    options = {"redistribution": "proportional", "budget": "local", "hole": "excluded"}
    p, q = np.array([0.2, 0.2, 0.3, 0.3]), np.array([0.4, 0.3, 0.2, 0.1])
    batch = proxy(p, q, np.array([0, 1]), **options)
    for i, token in enumerate((0, 1)):
        one = get_proxy(p, q, token)
        assert close(batch.k[i], one.k)
        assert close(batch.Z[i], one.Z)


@pytest.mark.parametrize(
    ("rejected", "message"),
    [
        (3, r"rejected token 3 is outside the vocabulary 0\.\.2"),
        (-1, r"rejected token -1 is outside the vocabulary 0\.\.2"),
        (1, "token 1 cannot be rejected: draft 0.3 is not above target 0.4"),
    ],
)
def test_tokens_that_get_proxy_refuses(rejected, message):
    with pytest.raises(InputError, match=message):
        get_proxy(P, Q, rejected)


@pytest.mark.parametrize(
    ("option", "choices"),
    [
        ("redistribution", "proportional, water-filling"),
        ("budget", "local, floor"),
        ("hole", "excluded, literal"),
    ],
)
def test_options_that_get_proxy_refuses(option, choices):
    with pytest.raises(InputError, match=f"{option} must be one of {choices}; got 'other'"):
        get_proxy(P, Q, 0, **{option: "other"})


# Rules


def test_the_first_rejection_of_each_rule():
    state = State(P, Q)
    for rule in (Speculative(), SpecInfer()):
        after = rule.reject(state, None)
        assert close(after.residual, [0, F(1, 3), F(2, 3)])
        assert after.round == 1
    after = ResiSpec().reject(state, np.array([0]))
    # r / Z: (27/145, 33/290) over 3/10.
    assert close(after.residual, [0, F(18, 29), F(11, 29)], 10 * BOUND / 3)
    assert after.residual.shape == after.draft.shape == (1, 3)


def test_a_rule_is_found_by_its_name_and_takes_its_options():
    assert make_rule("specinfer") == SpecInfer()
    assert make_rule("resispec", budget="floor") == ResiSpec(budget="floor")
    # Options of other rules are passed over: one set of options serves a list of rules.
    assert make_rule("specinfer", budget="floor") == SpecInfer()
    assert all(make_rule(name).name == name for name in RULES)


@pytest.mark.parametrize(
    ("wrong", "near"), [("resispek", "resispec"), ("specinfr", "specinfer"), ("speculativ", "speculative")]
)
def test_an_unknown_rule_is_answered_with_the_nearest(wrong, near):
    with pytest.raises(InputError, match=f"unknown rule '{wrong}'; did you mean '{near}'\\?"):
        make_rule(wrong)


def test_a_rule_unlike_any_is_answered_with_the_list():
    with pytest.raises(InputError, match="unknown rule 'zzz'; 'resispec-verify rules' lists all of them"):
        make_rule("zzz")
    with pytest.raises(InputError, match="redistribution must be one of"):
        make_rule("resispec", redistribution="even")
