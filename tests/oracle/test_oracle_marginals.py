"""The rational oracle: worked values as equalities, conventions, and properties over small rationals."""

from __future__ import annotations

import ast
import itertools
import math
import sys
from fractions import Fraction as F
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify import oracle
from resispec_verify.oracle import (
    State,
    Transcription,
    accept_ratio,
    as_law,
    enumerate_rule,
    get_proxy,
    independent,
    marginal,
    normalise,
    specinfer,
    total_variation,
    without_replacement,
)

P = (F(3, 10), F(4, 10), F(3, 10))
Q = (F(6, 10), F(3, 10), F(1, 10))
READINGS = [
    {"redistribution": spread, "budget": budget, "hole": hole}
    for spread, budget, hole in itertools.product(
        ("proportional", "water-filling"), ("local", "floor"), ("excluded", "literal")
    )
]


@st.composite
def pairs(draw, max_size=4, laws=2):
    """Laws over the same 1 to `max_size` tokens, with zeros and small denominators."""
    size = draw(st.integers(1, max_size))
    entries = st.lists(st.integers(0, 4), min_size=size, max_size=size).filter(any)
    return tuple(normalise([F(count) for count in draw(entries)]) for _ in range(laws))


def f(*values):
    return tuple(F(value) for value in values)


# ---- worked values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
def test_specinfer_worked_pair(n):
    result = marginal("specinfer", P, Q, n)
    assert result.law == P
    assert result.acceptance == f("7/10", "3/25", "7/250")[:n]


@pytest.mark.parametrize(
    ("options", "n", "law", "acceptance"),
    [
        ({}, 1, f("3/10", "141/290", "31/145"), f("7/10")),
        ({}, 2, f("3/10", "5583/11020", "2131/11020"), f("7/10", "3/25")),
        ({}, 3, f("3/10", "54051/104690", "9616/52345"), f("7/10", "3/25", "9/125")),
        ({"redistribution": "water-filling"}, 1, f("3/10", "21/40", "7/40"), f("7/10")),
        ({"redistribution": "water-filling"}, 2, f("3/10", "21/40", "7/40"), f("7/10", "3/25")),
        ({"redistribution": "water-filling"}, 3, f("3/10", "21/40", "7/40"), f("7/10", "3/25", "9/125")),
        ({"hole": "literal"}, 1, f("3/10", "69/140", "29/140"), f("7/10")),
        # not in any table; Z = max(1/2, 3/10), so r = (0, 3/20, 1/20) + 3/10 spread over (1/4, 1/4)
        ({"budget": "floor"}, 1, f("3/10", "12/25", "11/50"), f("7/10")),
    ],
)
def test_resispec_worked_pair(options, n, law, acceptance):
    result = marginal("resispec", P, Q, n, **options)
    assert result.law == law
    assert result.acceptance == acceptance


def test_resispec_worked_divergence():
    law = marginal("resispec", P, Q, 1).law
    divergence = sum(float(a) * math.log(a / b) for a, b in zip(law, P, strict=True))
    assert divergence == pytest.approx(0.0224653659087, abs=5e-14)


def test_speculative_is_one_round_of_specinfer():
    assert marginal("speculative", P, Q, 1) == marginal("specinfer", P, Q, 1)
    with pytest.raises(ValueError, match="speculative verifies one candidate"):
        marginal("speculative", P, Q, 2)


def test_getproxy_on_the_worked_pair():
    proxy = get_proxy(P, Q, 0)
    gain = F(18, 100) / F(58, 100)
    assert (proxy.Z, proxy.Delta, proxy.capped, proxy.excess) == (F(3, 10), F(18, 100), False, 0)
    assert proxy.r == (0, F(9, 100) + gain * F(31, 100), F(3, 100) + gain * F(27, 100))
    assert proxy.s == (F(3, 10), 0, 0)
    assert proxy.k[0] == Q[0]
    assert proxy.residual == tuple(mass / proxy.Z for mass in proxy.r)


def test_eq_13_can_be_infeasible():
    target, draft = f("9/20", "11/20"), f("1/2", "1/2")
    proxy = get_proxy(target, draft, 0, budget="floor")
    assert (proxy.Z, proxy.capped) == (F(11, 20), True)
    assert proxy.excess == F(1, 20) - F(11, 20)  # sum k - 1: the gap less the budget
    assert not get_proxy(target, draft, 0).capped


def test_literal_hole_keeps_mass_at_the_rejected_token_but_not_in_the_residual():
    proxy = get_proxy(P, Q, 0, hole="literal")
    assert proxy.r[0] > 0
    assert proxy.k[0] == Q[0]
    assert proxy.excess == proxy.r[0]
    assert proxy.residual[0] == 0


def test_water_filling_gives_the_rest_to_uncovered_tokens_in_proportion_to_the_target():
    target, draft = f("1/10", "1/10", "2/10", "6/10"), f("9/10", "1/10", 0, 0)
    proxy = get_proxy(target, draft, 0, redistribution="water-filling")
    assert (proxy.Z, proxy.r) == (F(8, 10), f(0, "1/10", "7/40", "21/40"))


def test_literal_water_filling_can_leave_no_residual():
    """The level takes the whole budget back to x0: line 12 has nothing to normalise and R is kept."""
    target, draft = f("1/2", "1/2"), f(1, 0)
    proxy = get_proxy(target, draft, 0, redistribution="water-filling", hole="literal")
    assert proxy.r == f("1/2", 0)
    assert proxy.residual == target


def test_a_wrong_first_residual_undone_by_a_wrong_second():
    """Rounds that are each exact are sufficient, not necessary."""
    target, draft = f(0, "1/2", "1/2"), f("1/2", "3/10", "1/5")

    def reject(state, token):
        first = not state.rejected
        return State(target if first else f(0, "1/5", "4/5"), draft, (*state.rejected, token))

    rule = Transcription(accept=accept_ratio, reject=reject)
    assert enumerate_rule(rule, target, draft, 1).law == f(0, "11/20", "9/20")
    assert enumerate_rule(rule, target, draft, 2).law == target


@pytest.mark.parametrize(
    ("n", "times", "accepted"),
    [
        (2, f("12/7", "5/7", 0), f("2/7", "41/70")),
        (3, f("87/35", "52/35", "41/70", 0), f("1/10", "11/35", "187/350")),
        (4, f(3, 2, "11/10", "9/25", 0), f("1/10", "4/25", "19/50", "9/25")),
    ],
)
def test_optimal_sequential_rule_transcribed_with_the_engine(n, times, accepted):
    """Accept clip((p/q - T_{k+1}) / (T_k - T_{k+1}), 0, 1); at the end (p - T_1 q)_+ normalised."""

    def accept(round_, token):
        spent, left = times[round_ : round_ + 2]
        return min(max((P[token] / Q[token] - left) / (spent - left), F(0)), F(1))

    rule = Transcription(
        start=lambda target, draft: 0,
        accept=accept,
        reject=lambda round_, token: round_ + 1,
        final=lambda round_: normalise([max(p - times[0] * q, F(0)) for p, q in zip(P, Q, strict=True)]),
    )
    result = enumerate_rule(rule, P, Q, n)
    assert result.law == P
    assert result.acceptance == accepted


# ---- conventions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["speculative", "specinfer", "resispec"])
def test_no_candidates_emit_from_the_target(rule):
    result = marginal(rule, P, Q, 0)
    assert (result.law, result.acceptance) == (P, ())


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("options", READINGS)
def test_degenerate_pairs(n, options):
    def law(p, q):
        return marginal("resispec", p, q, n, **options)

    assert law([1], [1]).law == (1,)
    assert law([1], [1]).acceptance == (1, *[0] * (n - 1))
    assert law(P, P).law == P
    assert law(P, P).acceptance == (1, *[0] * (n - 1))
    assert law([0, 1, 0], [0, 1, 0]).law == (0, 1, 0)
    disjoint = law([0, F(1, 4), F(3, 4)], [1, 0, 0])
    assert disjoint.law == f(0, "1/4", "3/4")
    assert disjoint.acceptance == (0,) * n


def test_a_candidate_the_declared_draft_does_not_cover():
    """q(x) = 0: accepted if the current target has mass there, rejected otherwise."""
    accepted = marginal("specinfer", f("1/2", "1/2"), [1, 0], 1, proposal=[0, 1])
    assert (accepted.law, accepted.acceptance) == (f(0, 1), (1,))
    rejected = marginal("specinfer", [1, 0], [1, 0], 1, proposal=[0, 1])  # and (R - q)_+ has no mass
    assert (rejected.law, rejected.acceptance) == (f(1, 0), (0,))
    kept = marginal("resispec", [1, 0], [1, 0], 2, proposal=[0, 1])
    assert (kept.law, kept.acceptance) == (f(1, 0), (0, 0))


def test_forced_rejection_where_target_and_draft_agree_falls_back_to_the_target():
    forced = Transcription(accept=lambda state, token: F(0), reject=specinfer().reject)
    assert enumerate_rule(forced, [0, 1], [0, 1], 1).law == (0, 1)


def test_bad_inputs_are_refused_with_the_argument_named():
    for arguments, message in [
        ((["1/2", "1/3"], Q, 1), "target must sum to exactly 1, got 5/6"),
        (([2, -1], Q, 1), "target must be non-negative, got -1 at token 1"),
        ((P, [], 1), "draft must have at least one token"),
        (([1, 0], Q, 1), "same length, got 2 and 3"),
        ((P, Q, -1), "at least 0, got -1"),
    ]:
        with pytest.raises(ValueError, match=message):
            marginal("specinfer", *arguments)
    with pytest.raises(ValueError, match="rule must be one of"):
        marginal("typical", P, Q, 1)
    with pytest.raises(ValueError, match="hole must be one of excluded, literal, got 'none'"):
        marginal("resispec", P, Q, 1, hole="none")
    with pytest.raises(TypeError):
        marginal("specinfer", P, Q, 1, hole="literal")
    with pytest.raises(ValueError, match="token below them"):
        get_proxy(P, Q, 3)
    with pytest.raises(ValueError, match="draft's 3 tokens, got 2"):
        marginal("specinfer", P, Q, 1, proposal=[1, 0])
    with pytest.raises(ValueError, match="tuples of at most 1 tokens"):
        marginal("specinfer", P, Q, 1, proposal={(0, 1): 1})
    with pytest.raises(ValueError, match="acceptance must lie in"):
        enumerate_rule(Transcription(lambda s, x: F(2), lambda s, x: s), P, Q, 1)
    with pytest.raises(ValueError, match="carry some mass"):
        normalise([F(0), F(0)])


def test_floats_are_taken_exactly():
    assert as_law([0.5, 0.25, 0.25]) == f("1/2", "1/4", "1/4")
    with pytest.raises(ValueError, match="sum to exactly 1"):
        as_law([0.1] * 10)


def test_tuple_laws():
    assert independent(f(0, 1), 2) == {(1, 1): 1}
    assert independent(Q, 0) == {(): 1}
    pair = without_replacement(Q, 2)
    assert pair[0, 1] == F(6, 10) * F(3, 10) / F(4, 10)
    assert sum(pair.values()) == 1
    assert without_replacement(f(1, 0), 2) == {(0,): 1}


def test_the_oracle_stands_on_its_own_feet():
    """Standard library and its own files; NumPy and SciPy where there are linear programs only."""
    home = Path(oracle.__file__).parent
    for path in home.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        }
        froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert all(node.level <= len(path.relative_to(home).parts) for node in froms)
        names |= {node.module for node in froms if node.level == 0}
        outside = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
        programs = {"programs.py", "exact_programs.py", "distinct.py", "different_drafts.py"}
        assert outside <= ({"numpy", "scipy"} if path.name in programs else set()), path.name


# ---- properties -------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(pairs(), st.integers(0, 3))
def test_specinfer_is_exact(laws, n):
    result = marginal("specinfer", *laws, n)
    assert result.law == laws[0]
    overlap = sum(map(min, *laws))
    assert result.acceptance[:1] == (overlap,)[:n]


@settings(max_examples=60, deadline=None)
@given(
    pairs(laws=3), st.integers(0, 2), st.sampled_from(["specinfer", "resispec"]), st.sampled_from(READINGS)
)
def test_total_mass_is_one(laws, n, rule, options):
    target, draft, proposal = laws
    for drawn in (None, proposal):
        result = marginal(rule, target, draft, n, proposal=drawn, **(options if rule == "resispec" else {}))
        assert sum(result.law) == 1
        assert min(result.law) >= 0
        assert sum(result.acceptance) <= 1


@settings(max_examples=100, deadline=None)
@given(pairs(), st.sampled_from(READINGS), st.integers(0, 3))
def test_getproxy_keeps_the_promises_of_algorithm_1(laws, options, token):
    target, draft = laws
    rejected = token % len(target)
    proxy = get_proxy(target, draft, rejected, **options)
    assert sum(proxy.r) == proxy.Z
    assert all(0 <= r <= R for r, R in zip(proxy.r, target, strict=True))
    assert all(s == 0 for x, s in enumerate(proxy.s) if x != rejected)
    assert proxy.k == tuple(R - r + s for R, r, s in zip(target, proxy.r, proxy.s, strict=True))
    assert proxy.k[rejected] == draft[rejected]
    assert proxy.excess == sum(proxy.k) - 1
    assert sum(proxy.residual) == 1
    off = [0 if x == rejected else r for x, r in enumerate(proxy.r)]
    if sum(off) and draft[rejected] >= target[rejected]:
        assert proxy.residual == normalise([F(mass) for mass in off])
    if options["hole"] == "excluded":
        assert proxy.r[rejected] == 0
        assert proxy.excess == draft[rejected] - target[rejected] - proxy.Z
    if options["budget"] == "local" and draft[rejected] >= target[rejected]:
        assert not proxy.capped  # q(x0) - R(x0) <= 1 - R(x0)


@settings(max_examples=100, deadline=None)
@given(pairs(max_size=5), st.integers(0, 4))
def test_water_filling_is_one_level(laws, token):
    """r = min(level q, R) on covered tokens; uncovered ones get mass only when these are full."""
    target, draft = laws
    rejected = token % len(target)
    proxy = get_proxy(target, draft, rejected, redistribution="water-filling")
    off = [x for x in range(len(target)) if x != rejected]
    covered = [x for x in off if draft[x] > 0]
    open_ = [x for x in covered if proxy.r[x] < target[x]]
    levels = {proxy.r[x] / draft[x] for x in open_}
    assert len(levels) <= 1
    if open_:
        assert all(proxy.r[x] == 0 for x in off if draft[x] == 0)
        assert all(proxy.r[x] / draft[x] <= max(levels) for x in covered)
        assert max(levels) >= proxy.Z
    else:
        ratios = {proxy.r[x] / target[x] for x in off if draft[x] == 0 and target[x] > 0}
        assert len(ratios) <= 1


@settings(max_examples=40, deadline=None)
@given(pairs(), st.sampled_from(READINGS))
def test_one_round_characterisation(laws, options):
    """Emitted - p = sum_x (q - p)_+(x) R^x - (p - q)_+."""
    p, q = laws
    law = marginal("resispec", p, q, 1, **options).law
    for y in range(len(p)):
        moved = sum(
            (q[x] - p[x]) * get_proxy(p, q, x, **options).residual[y] for x in range(len(p)) if q[x] > p[x]
        )
        assert law[y] - p[y] == moved - max(p[y] - q[y], 0)


@settings(max_examples=40, deadline=None)
@given(pairs(max_size=2), st.integers(0, 3))
def test_two_tokens_admit_no_counterexample(laws, n):
    assert marginal("resispec", *laws, n).law == laws[0]


def test_total_variation():
    assert total_variation(P, Q) == F(3, 10)
