"""Limits beside acceptances: the array functions against the rational oracle, and the command."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resispec_verify.analysis.limits import add_limits
from resispec_verify.cli import main
from resispec_verify.distributions import Pair
from resispec_verify.kernels.candidate_limits import pairs_limit, without_replacement_limit
from resispec_verify.kernels.sequential import levels, overlap
from resispec_verify.oracle import limit_pairs, limit_without_replacement, sequential_limit
from resispec_verify.rules import RULES, make_rule

EPS = np.finfo(np.float64).eps
# The quadrature for three and more candidates is good to 1e-14 a value of f; the oracle is exact.
QUADRATURE = 1e-12 + 1e-13  # what the limit is rounded up by, and the sums
WORKED = ("0.3,0.4,0.3", "0.6,0.3,0.1")


@st.composite
def pairs(draw, least=1):
    vocab = draw(st.integers(least, 5))
    weights = st.lists(st.integers(0, 9), min_size=vocab, max_size=vocab).filter(any)
    laws = [draw(weights) for _ in range(2)]
    return [[Fraction(w, sum(law)) for w in law] for law in laws]


def rows(law):
    return np.array([[float(v) for v in law]])


@given(pairs(), st.integers(0, 4))
def test_without_replacement(pair, n):
    right = float(limit_without_replacement(*pair, n))
    assert abs(without_replacement_limit(*map(rows, pair), n)[0] - right) <= QUADRATURE


@given(pairs(least=2))
def test_pairs(pair):
    right = float(limit_pairs(*pair))
    assert abs(pairs_limit(*map(rows, pair))[0] - right) <= 16 * EPS


@given(pairs(), st.integers(1, 4))
def test_the_sequential_limit(pair, n):
    p, q = map(rows, pair)
    # The levels keep a margin of V eps a step, and the recursion's slope is at most n.
    tolerance = 4 * n * n * p.shape[-1] * EPS + 16 * EPS
    assert abs(overlap(p, q, levels(p, q, n)[:, 0])[0] - float(sequential_limit(*pair, n))) <= tolerance


@given(pairs(least=2), st.integers(2, 3))
def test_no_exact_rule_is_flagged(pair, n):
    exact = ("specinfer", "sequoia", "eagle", "token-match", "k-seq", "optimal-sequential", "spechub")
    found = {}
    rules = tuple(make_rule(name) for name in exact if RULES[name].least_candidates <= n)
    add_limits(found, rules, Pair(*map(rows, pair)), n, positions=np.array([0]))
    assert [row.rule.name for row in found.values() if row.above()] == []


def test_worked_values(capsys):
    # docs/exactness.md: SpecInfer 41/50; the optimal sequential rule 61/70, which is the sequential limit.
    arguments = ["limits", "--target", WORKED[0], "--draft", WORKED[1], "--candidates", "2", "--json", "-"]
    assert (
        main([*arguments, "--rule", "specinfer", "--rule", "optimal-sequential", "--rule", "resispec"]) == 0
    )
    report = json.loads(capsys.readouterr().out)
    by_rule = {r["rule"]: r for r in report["results"]}
    assert by_rule["specinfer"]["acceptance_mean"] == pytest.approx(41 / 50, abs=64 * EPS)
    assert by_rule["optimal-sequential"]["acceptance_mean"] == pytest.approx(61 / 70, abs=64 * EPS)
    for r in report["results"]:
        assert r["sequential_limit_mean"] == pytest.approx(61 / 70, abs=64 * EPS)
        # min over prefixes {}, {0}, {0, 1}: 1, 1 + .3 - .36, 1 + .7 - .81; the second is 0.94, the third 0.89
        assert r["limit_mean"] == pytest.approx(0.89, abs=16 * EPS)
        assert r["above_limit"] == 0


def test_a_rule_above_the_limit_is_named_with_its_position(capsys, tmp_path):
    # p = (3, 1, 1)/5, q = (0, 2, 3)/5, n = 3: ResiSpec accepts 103/125 of the time, the limit is 2/5.
    arguments = [
        "limits",
        "--target",
        "0.6,0.2,0.2",
        "--draft",
        "0,0.4,0.6",
        "--rule",
        "resispec",
        "--json",
        "-",
    ]
    assert main(arguments) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert row["acceptance_mean"] == pytest.approx(103 / 125, abs=64 * EPS)
    assert row["limit_mean"] == pytest.approx(2 / 5, abs=16 * EPS)
    assert (row["cannot_be_exact"], row["witness_position"]) == (True, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--target", "0.5,0.5"],
        ["--target", "0.5,0.5", "--draft", "0.5,0.4"],
        ["--target", "0.5,0.5", "--draft", "0.5,0.5", "--candidates", "0"],
        ["--target", "0.5,0.5", "--draft", "0.5,0.5", "--rule", "specinfr"],
        ["--logits", "missing.pt"],
    ],
)
def test_bad_input_is_one_line_and_two(arguments, capsys):
    assert main(["limits", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("resispec-verify: error: ")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("target", "draft", "n"),
    [
        (("1/4", "1/4", "1/2"), ("1/10000000000000", "1/10000000000000", "4999999999999/5000000000000"), 3),
        (("9999999999/10000000000", "1/10000000000"), ("1/10000000000", "9999999999/10000000000"), 2),
    ],
)
def test_a_peaked_draft_gives_no_false_proof(target, draft, n):
    """All tokens are drawn, so the limit is 1: a limit below it would call an exact rule impossible."""
    pair = [[Fraction(v) for v in law] for law in (target, draft)]
    assert limit_without_replacement(*pair, n) == 1
    assert without_replacement_limit(*map(rows, pair), n)[0] == 1.0
    found = {}
    add_limits(found, (make_rule("sequoia"),), Pair(*map(rows, pair)), n, positions=np.array([0]))
    assert not next(iter(found.values())).above()
