"""Theorem 2 against its definition, its hypotheses, and the command."""

import csv
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.cli import main
from resispec_verify.evidence import operational_marginals
from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.optimal.l1_curve import breakpoints, exact_acceptance, l1_at, l1_with_hole
from resispec_verify.oracle import least_distance
from resispec_verify.report.plots.shaping import plot_exploration
from resispec_verify.rules import OptimalSequential, SpecInfer
from resispec_verify.tables.shaping import check_monotonicity, explore_pair

HIGHS = 1e-6  # feasibility of HiGHS is 1e-7 a row; a distance adds up a few rows
EPS = float(np.finfo(np.float64).eps)
FLAT = "0.5,0.5,0", "0.4,0.4,0.2"  # Theorem 2 is not strict here: the curve is 2/5 everywhere


@st.composite
def laws(draw, most=5):
    vocab = draw(st.integers(1, most))
    weights = st.lists(st.integers(0, 9), min_size=vocab, max_size=vocab).filter(any)
    p = draw(weights)
    q = p if draw(st.integers(0, 5)) == 0 else draw(weights)
    return tuple(Fraction(k, sum(p)) for k in p), tuple(Fraction(k, sum(q)) for k in q)


def floats(pair):
    return tuple(np.array(law, np.float64) for law in pair)


Z_VALUES = st.integers(1, 40).map(lambda k: k / 40)


@settings(max_examples=60)
@given(laws(), Z_VALUES)
def test_the_closed_forms_are_the_least_distances(pair, Z):
    p, q = floats(pair)
    order, at = ratio_order(p, q), np.array([Z])
    assert l1_at(order, at)[0] == pytest.approx(least_distance(*pair, Z), abs=HIGHS)
    right = least_distance(*pair, Z, exact=True)
    found = exact_acceptance(order, at)[0]
    # At the very least that an exact round leaves, HiGHS and rounding may disagree.
    if abs(np.clip(p - q, 0, None).sum() - Z) > HIGHS:
        assert np.isnan(found) == (right is None)
    if right is not None and np.isfinite(found):
        assert found == pytest.approx(1 - right / 2, abs=HIGHS)


@settings(max_examples=60)
@given(laws(), Z_VALUES)
def test_the_hole(pair, Z):
    p, q = floats(pair)
    order = ratio_order(p, q)
    for token in np.flatnonzero(q > p):
        if abs(1 - p[token] - Z) <= HIGHS:
            continue
        rank = int(np.flatnonzero(order.order == token)[0])
        found = l1_with_hole(order, rank, np.array([Z]))[0]
        right = least_distance(*pair, Z, hole=int(token))
        assert np.isnan(found) == (right is None)
        if right is not None:
            assert found == pytest.approx(right, abs=HIGHS)


@given(laws(8))
def test_monotone_always_strict_unless_flat(pair):
    """Theorem 2, repaired: non-decreasing always; strict on (Z*, 1] iff no draft token has p = 0."""
    p, q = floats(pair)
    row = check_monotonicity(p, q)
    assert row["monotone"]
    assert row["strictly_increasing"] == row["hypotheses_hold"]
    found = breakpoints(ratio_order(p, q))
    beyond = max(found.z_star, found.flat_until) < found.Z
    start = np.array([l1_at(ratio_order(p, q), np.array([max(found.z_star, found.flat_until, 1e-9)]))[0]])
    assert (np.diff(np.concatenate([start, found.l1[beyond]])) > 0).all()


def test_the_counterexample_to_strictness():
    """p = (1/2, 1/2, 0), q = (2/5, 2/5, 1/5): 2/5 on all of (0, 1]."""
    order = ratio_order(np.array([0.5, 0.5, 0.0]), np.array([0.4, 0.4, 0.2]))
    np.testing.assert_allclose(l1_at(order, np.linspace(0.01, 1, 50)), 0.4, rtol=0, atol=8 * EPS)
    found = breakpoints(order)
    assert (found.z_star, found.flat_until) == (0.0, 1.0)


def test_a_curve_that_falls_would_be_seen(monkeypatch):
    """The twin that must fail: the sign turned round."""
    right, module = l1_at, "resispec_verify.kernels.optimal.l1_curve.l1_at"
    monkeypatch.setattr(module, lambda order, Z: -right(order, Z))
    assert not check_monotonicity(np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1]))["monotone"]


@given(laws(6))
def test_two_rounds_are_what_the_rules_accept(pair):
    p, q = floats(pair)
    found = explore_pair(p, q)
    for name, rule in (("specinfer", SpecInfer()), ("optimal-sequential", OptimalSequential())):
        z = found.budgets[name]
        if z > 0:
            both = found.table(np.array([z]))["accepted_by_two"][0]
            right = operational_marginals(rule, p[None], q[None], 2).acceptance.sum()
            assert both == pytest.approx(float(right), abs=1e-12)
    Z = np.linspace(0.01, 1, 100)
    best = np.nanmax(np.append(found.table(Z)["accepted_by_two"], 0.0))
    z = found.budgets["optimal-sequential"]
    if z > 0:
        assert found.table(np.array([z]))["accepted_by_two"][0] >= best - 1e-12


@given(laws(6))
def test_the_curve_of_n_is_highest_at_the_optimal_rule_and_begins_at_specinfers_round(pair):
    p, q = floats(pair)
    for n in (2, 3, 5):
        found = explore_pair(p, q, n)
        Z, accepted = found.accepted_by_all()
        if not 0 < found.budgets["specinfer"] < 1:
            assert Z.size == 0
            continue
        best = operational_marginals(OptimalSequential(), p[None], q[None], n).acceptance.sum()
        assert accepted.max() == pytest.approx(float(best), abs=1e-9)
        assert np.interp(found.budgets["optimal-sequential"], Z, accepted) == pytest.approx(best, abs=1e-9)
        assert Z[0] == pytest.approx(found.budgets["specinfer"], abs=1e-12)
        with_two = found.table(Z)["accepted_by_two"]
        if n == 2:  # an exact round of the same mass that is nearer is no worse
            assert (accepted <= np.where(np.isnan(with_two), np.inf, with_two) + 1e-9).all()


def test_in_the_picture_of_three_candidates_the_marker_is_on_the_curve_of_three():
    p, q = np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1])
    for n, curve in (
        (2, "both candidates, after an exact round"),
        (3, "all 3 candidates, after an exact round"),
    ):
        right = plot_exploration(explore_pair(p, q, n)).axes[1]
        lines = {line.get_label(): line for line in right.get_lines()}
        (mark,) = (line for name, line in lines.items() if name.startswith(f"optimal-sequential, n = {n}"))
        x, y = mark.get_xydata()[0]
        best = operational_marginals(OptimalSequential(), p[None], q[None], n).acceptance.sum()
        assert y == pytest.approx(best, abs=1e-9)
        drawn = lines[curve].get_xydata()
        assert np.interp(x, *drawn[np.isfinite(drawn).all(axis=1)].T) == pytest.approx(y, abs=1e-9)


def test_the_command(capsys, tmp_path):
    names = [tmp_path / name for name in ("a.json", "a.csv", "a.svg")]
    arguments = [f"--{kind}={name}" for kind, name in zip(("json", "csv", "plot"), names, strict=True)]
    assert main(["explore", "--target", FLAT[0], "--draft", FLAT[1], *arguments]) == 0
    assert "Flat on (0, 1] at 0.4: p = 0 on 1 token" in capsys.readouterr().out
    (row,) = json.loads(names[0].read_text())["results"]
    assert row["curve"] == [[1.0, pytest.approx(0.4)]]
    assert (row["flat"], row["z_star"]) == ([[0.0, 1.0]], 0.0)
    assert (row["hypotheses_hold"], row["strictly_increasing"]) == (False, False)
    assert row["budgets"]["resispec, local gap"] == pytest.approx(0.2)
    with open(names[1], newline="") as file:
        lines = list(csv.DictReader(file))
    np.testing.assert_allclose([float(line["l1"]) for line in lines], 0.4, rtol=0, atol=8 * EPS)
    assert lines[0]["acceptance_exact"] == ""
    assert b"<svg" in names[2].read_bytes()


def test_the_check_command(capsys):
    assert main(["explore", "--check", "--logits", "examples/smollm2-skip6-N8-fp16.pt", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [row["position"] for row in rows] == list(range(8))
    assert all(row["monotone"] and row["strictly_increasing"] and row["hypotheses_hold"] for row in rows)


def test_random_pairs_and_edges(capsys):
    assert main(["explore", "--random", "1"]) == 0
    assert "No token can be rejected" in capsys.readouterr().out
    assert main(["explore", "--random", "1000", "--at", "0.25", "--at", "1"]) == 0
    assert main(["explore", "--target", "1,0", "--draft", "0,1"]) == 0  # disjoint
    for pair in ((np.ones(1), np.ones(1)), (np.array([1.0, 0.0]), np.array([0.0, 1.0]))):
        plot_exploration(explore_pair(*pair))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "0.5,0.5", "--draft", "0.5,0.5", "--at", "0"], "--at must be in (0, 1]"),
        (["--target", "0.5,0.5", "--draft", "0.5,0.5", "--at", "1.5"], "--at must be in (0, 1]"),
        (["--target", "0.5,0.5", "--draft", "0.5,0.5", "--at", "nan"], "--at must be in (0, 1]"),
        (["--target", "-0.5,1.5", "--draft", "0.5,0.5"], "negative"),
        (["--target", "0.5,0.6", "--draft", "0.5,0.5"], "sum"),
        (["--target", "0.5,0.5", "--draft", "0.5,0.25,0.25"], "must match"),
        (["--target", "0.3,0.7", "--draft", "0.6,0.4", "--rejected", "1"], "never rejected"),
        (["--target", "0.3,0.7", "--draft", "0.6,0.4", "--rejected", "2"], "outside the vocabulary"),
        (["--target", "0.3,0.7", "--draft", "0.6,0.4", "--candidates", "1"], "at least 2"),
        (["--target", "0.3,0.7", "--draft", "0.6,0.4", "--check"], "needs a dump"),
        (["--random", "4", "--position", "0"], "--position needs a dump"),
        (["--random", "4", "--check"], "--check needs a dump"),
        (["--target", "0.3,0.7", "--draft", "0.6,0.4", "--seed", "0"], "--seed needs --random"),
        (["--random", "0"], "--random must be"),
        (["--random", "4", "--concentration", "0"], "--concentration must be"),
        (["--random", "4", "--target", "1", "--draft", "1"], "give one of"),
        ([], "give one of"),
        (["--logits", "examples/smollm2-skip6-N8-fp16.pt", "--position", "8"], "outside 0..7"),
        (["--logits", "examples/smollm2-skip6-N8-fp16.pt", "--position", "-1"], "outside 0..7"),
        (["--logits", "nowhere.pt"], "nowhere.pt"),
    ],
)
def test_bad_input_is_one_line_and_two(arguments, words, capsys):
    assert main(["explore", *arguments]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert words in shown
