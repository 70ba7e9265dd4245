"""Residual drift against exact enumeration, its identities and bounds, and the command."""

import csv
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.cli import main
from resispec_verify.distributions import Pair
from resispec_verify.evidence.enumeration import Budget, operational_marginals
from resispec_verify.oracle import MARGINALS, limit_by_subsets
from resispec_verify.report.plots.drift import plot_drift
from resispec_verify.rules import RULES, OptimalSequential, ResiSpec, SpecHub, SpecInfer, make_rule
from resispec_verify.tables import drift
from resispec_verify.tables.drift import add_drift
from resispec_verify.tables.drift_summary import DriftRow, drift_records
from resispec_verify.tables.reading import by_hand

EXAMPLE = "examples/smollm2-skip6-N8-fp16.pt"
N, K = 3, 2
RULES_CHECKED = ("specinfer", "resispec", "sequoia", "specinfer-skip-duplicates", "eagle")
ALL = Budget(gap=0.0, most_paths=0, most_states=1e9, until_decided=False)
# A few hundred roundings of numbers up to 2; KL multiplies them by logarithms of at most log(1e4).
TOLERANCE = 1e-12


@st.composite
def laws(draw, vocab=4):
    weights = st.lists(st.integers(0, 9), min_size=vocab, max_size=vocab)
    p = draw(weights.filter(any))
    q = p if draw(st.integers(0, 7)) == 0 else draw(weights.filter(lambda w: sum(map(bool, w)) >= N))
    q = q if sum(map(bool, q)) >= N else [1] * vocab
    return tuple(Fraction(k, sum(p)) for k in p), tuple(Fraction(k, sum(q)) for k in q)


def floats(law):
    return np.array(law, np.float64)


def next_law(kind, draft, rejected):
    """The law of the next candidate, from the definition of each proposal."""
    if kind == "iid":
        return draft
    left = [Fraction(0) if x in rejected else mass for x, mass in enumerate(draft)]
    if kind == "without-replacement":
        return tuple(mass / sum(left) for mass in left)
    best = max((x for x in range(len(draft)) if x not in rejected), key=lambda x: (draft[x], -x))
    return tuple(Fraction(int(x == best)) for x in range(len(draft)))


def enumerated(name, target, draft, n=N, k=K):
    """(acceptance, L1, KL, blind spot) before each candidate, over every rejection path, in fractions."""
    entry = MARGINALS[name]
    rule = entry.make()
    states = [(Fraction(1), rule.start(target, draft), ())]
    found = []
    for _ in range(n):
        reached = sum(weight for weight, _, _ in states)
        sums = [Fraction(0), Fraction(0), 0.0, Fraction(0)]
        following = []
        for weight, state, rejected in states:
            R, D = state.residual, state.draft
            order = sorted(range(len(D)), key=lambda x: (-D[x], x))
            sums[1] += weight * sum(abs(a - b) for a, b in zip(R, D, strict=True))
            sums[3] += weight * sum(R[x] for x in order[k:])
            sums[2] += float(weight) * sum(
                (float(a) * math.log(a / b) if b else math.inf) for a, b in zip(R, D, strict=True) if a
            )
            for x, mass in enumerate(next_law(entry.proposal, draft, rejected)):
                if mass:
                    accept = rule.accept(state, x)
                    sums[0] += weight * mass * accept
                    if accept < 1:
                        following.append(
                            (weight * mass * (1 - accept), rule.reject(state, x), (*rejected, x))
                        )
        found.append([float(s) / float(reached) for s in sums] if reached else None)
        states = following
    return found


def row_of(rule, target, draft, n=N, budget=ALL, top_k=K):
    rows = {}
    pair = Pair(np.atleast_2d(target), np.atleast_2d(draft))
    add_drift(rows, [rule], by_hand(pair), n, top_k=top_k, budget=budget)
    (row,) = rows.values()
    return row


def agree(name, pair):
    p, q = map(floats, pair)
    results = row_of(make_rule(name), p, q).results()
    for result, right in zip(results, enumerated(name, *pair), strict=True):
        if right is None:
            assert result["positions"] == 0
            assert result["l1"] is None
            continue
        found = [result[m] for m in ("acceptance_conditional", "l1", "kl", "blind_spot")]
        assert [math.inf if v == "inf" else v for v in found] == pytest.approx(right, abs=TOLERANCE, rel=1e-9)
        assert result["gap"] <= TOLERANCE


@settings(max_examples=25)
@given(laws())
@pytest.mark.parametrize("name", RULES_CHECKED)
def test_all_paths_against_fractions(name, pair):
    agree(name, pair)


def test_states_counted_without_their_weight_are_noticed(monkeypatch):
    """The twin that must fail."""
    right = drift._Looks.add
    monkeypatch.setattr(drift._Looks, "add", lambda self, i, R, D, w: right(self, i, R, D, np.ones_like(w)))
    pair = tuple(Fraction(k, 10) for k in (4, 3, 2, 1)), tuple(Fraction(k, 10) for k in (1, 5, 2, 2))
    with pytest.raises(AssertionError):
        agree("resispec", pair)


@settings(max_examples=25)
@given(laws(6), st.integers(1, 6))
@pytest.mark.parametrize("name", ["resispec", "sequoia", "eagle"])
def test_the_truth_is_inside_the_bounds(name, pair, states):
    p, q = map(floats, pair)
    budget = Budget(gap=1e-3, most_paths=20, most_states=states, until_decided=False)
    row = row_of(make_rule(name), p, q, budget=budget)
    for result, right in zip(row.results(), enumerated(name, *pair), strict=True):
        if right is None:
            continue
        for measure, value in (
            ("acceptance_conditional", right[0]),
            ("l1", right[1]),
            ("blind_spot", right[3]),
        ):
            low, high = result[f"{measure}_bounds"]
            assert low - TOLERANCE <= value <= high + TOLERANCE
    # The paths seen, those that may get there unseen, and those accepted before are all there are.
    accepted = row.stacked("accepted")[0]
    before = np.concatenate([[0.0], accepted.cumsum()[:-1]])
    whole = (row.stacked("known") + row.stacked("unknown"))[0] + before
    assert whole == pytest.approx(np.ones(N), abs=1e-9)


@given(laws(5))
@pytest.mark.parametrize("name", ["specinfer", "resispec", "sequoia"])
def test_half_of_l1_is_the_conditional_rejection(name, pair):
    """Where acceptance is min(1, R/D) and candidates come from D."""
    row = row_of(make_rule(name), *map(floats, pair))
    acceptance, l1 = row.measures()["acceptance_conditional"], row.stacked("l1")
    seen = ~np.isnan(l1)
    assert 1.0 - 0.5 * l1[seen] == pytest.approx(acceptance[seen], abs=TOLERANCE)


def test_and_is_not_where_acceptance_is_something_else():
    """The twin that must fail: EAGLE's candidates are certain."""
    row = row_of(make_rule("eagle"), [0.3, 0.4, 0.2, 0.1], [0.1, 0.6, 0.2, 0.1])
    acceptance, l1 = row.measures()["acceptance_conditional"], row.stacked("l1")
    assert abs(1.0 - 0.5 * l1 - acceptance).max() > 0.01


def test_acceptance_of_resispec_comes_from_its_own_sum():
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.ones(400), 2)
    few = Budget(gap=1e-3, most_paths=1e6, most_states=10, until_decided=False)
    row = row_of(ResiSpec(), p, q, budget=few)
    gaps = row.gaps()
    assert gaps["acceptance_conditional"][0, 1] < 0.02 < 0.5 < gaps["kl"][0, 1]
    assert gaps["l1"][0, 1] == gaps["acceptance_conditional"][0, 1]
    right = operational_marginals(ResiSpec(), p[None], q[None], N, budget=Budget(gap=1e-6)).acceptance[0]
    for i, result in enumerate(row.results()):
        low, high = result["acceptance_conditional_bounds"]
        assert low - 1e-6 <= right[i] / (1.0 - right[:i].sum()) <= high + 1e-6


@given(laws(5))
def test_the_limit_and_the_gain(pair):
    p, q = map(floats, pair)
    results = row_of(SpecInfer(), p, q, n=4).results()
    total = np.cumsum(operational_marginals(SpecInfer(), p[None], q[None], 4).acceptance[0])
    right = [float(limit_by_subsets(*pair, i + 1)) for i in range(4)]
    assert [r["limit"] for r in results] == pytest.approx(right, abs=TOLERANCE)
    assert [r["eal"] - 1.0 for r in results] == pytest.approx(total, abs=TOLERANCE)
    assert [r["gain"] for r in results] == pytest.approx(np.diff(total, prepend=0.0), abs=TOLERANCE)
    # Table 5: the gain over half as many, for each candidate that was added.
    halves = [None, total[1] - total[0], None, (total[3] - total[1]) / 2]
    assert [r["efficiency"] for r in results] == pytest.approx(halves, abs=TOLERANCE)
    assert all(r["eal"] <= 1.0 + r["limit"] + TOLERANCE for r in results)


def test_more_candidates_are_another_run_where_the_number_matters():
    p, q = np.random.default_rng(3).dirichlet(np.ones(6), 2)
    rule = OptimalSequential()
    results = row_of(rule, p, q, n=4).results()
    for i, result in enumerate(results):
        right = float(operational_marginals(rule, p[None], q[None], i + 1).acceptance.sum())
        assert result["eal"] - 1.0 == pytest.approx(right, abs=TOLERANCE)
    # With four candidates the first is not accepted as often as it could be.
    assert results[0]["acceptance_conditional"] < results[0]["eal"] - 1.0 - 0.01


def test_infinite_where_the_draft_cannot_go_and_nothing_where_nobody_gets(tmp_path):
    first = row_of(SpecInfer(), [[0.5, 0.5, 0.0], [0.2, 0.2, 0.6]], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    one, two, _ = first.results()
    assert (one["kl"], one["kl_infinite"], one["positions"]) == ("inf", 1, 2)
    assert two["positions"] == 1
    assert one["quantiles"]["kl"][-1] == "inf"
    never = row_of(SpecInfer(), [0.5, 0.5], [0.5, 0.5], top_k=1)
    assert [r["l1"] for r in never.results()] == [0.0, None, None]
    assert [r["gain"] for r in never.results()] == [1.0, 0.0, 0.0]
    figure = plot_drift([first, never])
    figure.savefig(tmp_path / "a.svg")
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"infinite", "0, or below the axis"} <= set(texts)
    json.dumps(drift_records([first, never]), allow_nan=False)
    assert len(plot_drift([]).axes) == 6


def test_ties_in_the_draft_go_to_the_lowest_index():
    result = row_of(SpecInfer(), [0.1, 0.2, 0.3, 0.4], [0.25] * 4, n=1).results()[0]
    assert result["blind_spot"] == pytest.approx(0.7)


def test_rows_of_two_dumps_are_one():
    a, b = (row_of(SpecInfer(), p, [0.6, 0.3, 0.1]) for p in ([0.3, 0.4, 0.3], [0.1, 0.2, 0.7]))
    whole = row_of(SpecInfer(), [[0.3, 0.4, 0.3], [0.1, 0.2, 0.7]], [[0.6, 0.3, 0.1]] * 2)
    joined = DriftRow(a.rule, a.temperature, a.candidates, a.top_k)
    joined.extend(a)
    joined.extend(b)
    assert joined.results() == whole.results()


@pytest.mark.parametrize(
    "name", [n for n, r in RULES.items() if r.depends_on != "tuple" and r.least_candidates <= 2]
)
def test_every_rule_that_looks_at_candidates_in_turn(name):
    rng = np.random.default_rng(8)
    row = row_of(make_rule(name), rng.dirichlet(np.ones(6), 3), rng.dirichlet(np.ones(6), 3), n=2)
    right = operational_marginals(row.rule, *rng_pairs(), row.candidates, budget=Budget(gap=0.0))
    accepted = row.stacked("accepted")
    assert accepted == pytest.approx(np.asarray(right.acceptance), abs=1e-9)


def rng_pairs():
    rng = np.random.default_rng(8)
    return rng.dirichlet(np.ones(6), 3), rng.dirichlet(np.ones(6), 3)


def test_the_command(capsys, tmp_path):
    names = [tmp_path / name for name in ("a.json", "a.csv", "a.svg")]
    arguments = [f"--{kind}={name}" for kind, name in zip(("json", "csv", "plot"), names, strict=True)]
    assert main(["drift", "--logits", EXAMPLE, "--rule", "specinfer", "--positions", "0:2", *arguments]) == 0
    out = capsys.readouterr().out
    assert "looked at" in out
    assert "efficiency" in out
    results = json.loads(names[0].read_text())["results"]
    assert [r["index"] for r in results] == [1, 2, 3, 4]
    keys = {"rule", "temperature", "candidates", "index", "acceptance_conditional", "l1", "kl", "blind_spot"}
    keys |= {"gap", "quantiles", "limit", "gain", "efficiency"}
    assert all(keys <= set(r) for r in results)
    with open(names[1], newline="") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["l1"]) for line in lines] == [r["l1"] for r in results]
    assert b"<svg" in names[2].read_bytes()


def test_by_hand(capsys):
    assert main(["drift", "--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1", "--rule", "resispec"]) == 0
    assert "0.7000" in capsys.readouterr().out  # sum min(p, q)


HAND = ["--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*HAND, "--candidates", "17"], "--candidates must be in 1..16"),
        ([*HAND, "--candidates", "0"], "--candidates must be in 1..16"),
        ([*HAND, "--blind-top-k", "0"], "--blind-top-k must be"),
        ([*HAND, "--gap", "nan"], "--gap must be"),
        ([*HAND, "--max-states", "0"], "--max-states must be"),
        ([*HAND, "--rule", "nothing"], "unknown rule 'nothing'"),
        ([*HAND, "--rule", SpecHub.name, "--candidates", "2"], "decides about all its candidates at once"),
        ([*HAND, "--rule", "sequoia", "--candidates", "4"], "more than the 3 tokens"),
        (
            ["--target", "0.5,0.5,0", "--draft", "0.5,0.5,0", "--rule", "sequoia", "--candidates", "3"],
            "only 2",
        ),
        ([*HAND, "--positions", "0:1"], "needs a dump"),
        ([*HAND, "--plot", "a.gif"], "must end in"),
        ([], "nothing to measure"),
        (["--logits", EXAMPLE, *HAND], "not both"),
        (["--logits", EXAMPLE, "--positions", "8:9"], "outside the dump"),
        (["--logits", EXAMPLE, EXAMPLE, "--rule", "specinfer", "--candidates", "1"], "given twice"),
        (["--logits", "nowhere.pt"], "nowhere.pt"),
    ],
)
def test_bad_input_is_one_line_and_two(arguments, words, capsys):
    assert main(["drift", *arguments]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert words in shown
