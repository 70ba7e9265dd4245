"""Limits beside acceptances: the array functions against the rational oracle, and the command."""

import json
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resispec_verify.cli import main
from resispec_verify.cli.output import table_console
from resispec_verify.distributions import Pair
from resispec_verify.evidence.enumeration import Budget, operational_marginals
from resispec_verify.kernels.optimal.candidate_limits import pairs_limit, without_replacement_limit
from resispec_verify.kernels.optimal.sequential import levels, overlap
from resispec_verify.oracle import limit_pairs, limit_without_replacement, marginal, sequential_limit
from resispec_verify.report.answers import print_limits
from resispec_verify.rules import RULES, Iid, Rule, State, make_rule
from resispec_verify.tables.limits import add_limits, summarize_limits
from resispec_verify.tables.reading import by_hand

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
    tokens = sum(mass > 0 for mass in pair[1])
    rules = tuple(
        make_rule(name)
        for name in exact
        if RULES[name].least_candidates <= n
        and (isinstance(RULES[name].proposal, Iid) or tokens >= (RULES[name].most_candidates or n))
    )
    add_limits(found, rules, by_hand(Pair(*map(rows, pair))), n)
    assert [row.rule.name for row in found.values() if row.above_limit()] == []


@dataclass
class Bounded:
    """Independent draws with a limit of one's own; not hashable, and named like every other."""

    bound: float
    name: str = "mine"

    def limit(self, target, draft, candidates):
        return np.full(len(target), self.bound)

    def next(self, draft, drawn):
        return draft


class Rejecting(Rule):
    claims_exact, source, depends_on = True, "a test", "nothing"

    def __init__(self, name, bound):
        self.name, self.proposal = name, Bounded(bound)

    def accept(self, state):
        return 0.0 * state.residual

    def reject(self, state, tokens):
        return State(state.residual, state.draft, state.round + 1)


def test_proposals_of_one_name_have_limits_of_their_own():
    found = {}
    rules = (Rejecting("a", 0.25), Rejecting("b", 0.75), Rejecting("c", 0.25))
    add_limits(found, rules, by_hand(Pair(*map(rows, [(0.5, 0.5)] * 2))), 2)
    assert [row.limit for row in found.values()] == [[0.25], [0.75], [0.25]]


def test_a_limit_is_computed_once_for_equal_proposals(monkeypatch):
    calls = []
    limit = Iid.limit
    monkeypatch.setattr(Iid, "limit", lambda *arguments: calls.append(1) or limit(*arguments))
    add_limits(
        {}, (make_rule("specinfer"), make_rule("k-seq")), by_hand(Pair(*map(rows, [(0.5, 0.5)] * 2))), 2
    )
    assert len(calls) == 1


def test_rounding_takes_no_acceptance_above_1():
    """Sums of float32 terms can read 1.0000001: an acceptance is a probability."""
    law = np.random.default_rng(0).dirichlet(np.ones(50), size=200).astype(np.float32)
    found = operational_marginals(make_rule("specinfer"), law, law, 2).acceptance
    assert found.astype(np.float64).sum(axis=-1).max() > 1.0
    add_limits(table := {}, (make_rule("specinfer"),), by_hand(Pair(law, law)), 2)
    (row,) = table.values()
    assert max(row.accepted_low) == 1.0
    assert row.above_limit() == []


def test_an_acceptance_that_was_not_expanded_is_a_lower_bound(capsys):
    laws = [tuple(Fraction(w, 10) for w in law) for law in ((4, 3, 2, 1), (1, 2, 3, 4))]
    right = float(sum(marginal("token-match", *laws, 4).acceptance))
    target, draft = map(rows, laws)
    # With a proposal of its own, if the same, paths are expanded one by one.
    pair = Pair(target, draft, draft.copy())
    results = []
    for gap in (0.1, 0.0):
        found = {}
        budget = Budget(gap=gap, until_decided=False)
        add_limits(found, (make_rule("token-match"),), by_hand(pair), 4, budget=budget)
        results += [summarize_limits(row) for row in found.values()]
    part, whole = results
    low, high = part["acceptance_mean_bounds"]
    assert low == part["acceptance_mean"] < right
    assert right <= high == min(low + part["acceptance_gap_max"], 1.0)
    assert whole["acceptance_mean_bounds"] == [whole["acceptance_mean"]] * 2
    assert whole["acceptance_mean"] == pytest.approx(right, abs=64 * EPS)
    print_limits(results, table_console())
    shown = capsys.readouterr().out
    assert f">= {low:.4f}" in shown
    assert shown.count(">=") == 1


def test_the_default_rules_run_on_any_pair(cli_limits):
    """A draft of one token has no second candidate that differs; rules nobody named must not end the run."""
    report = cli_limits("--target", "0.5,0.5", "--draft", "1,0")
    assert {"specinfer", "resispec"} <= {r["rule"] for r in report["results"]}
    assert all(r["limit_kind"] == "iid" for r in report["results"])


@pytest.fixture
def cli_limits(capsys):
    def run(*arguments):
        assert main(["limits", *arguments, "--json", "-"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_worked_values(capsys):
    # docs/explanation/exactness.md: SpecInfer 41/50; the optimal sequential rule 61/70, the sequential limit.
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
        ["--target", "0.5,0.5", "--draft", "0.5,0.5", "--rule", "eagle"],
        ["--target", "0.5,0.3,0.2", "--draft", "0.5,0,0.5", "--rule", "eagle"],
        ["--target", "1", "--draft", "1", "--rule", "spechub", "--candidates", "2"],
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
    add_limits(found, (make_rule("sequoia"),), by_hand(Pair(*map(rows, pair))), n)
    assert not next(iter(found.values())).above_limit()
