"""The experiment on three distinct candidates: its rule is exact, and its page is that of its results."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parents[2] / "experiments"
sys.path.insert(0, str(HERE))

import distinct  # noqa: E402

from resispec_verify.oracle import marginal  # noqa: E402
from resispec_verify.oracle.distinct import policy_masses  # noqa: E402

ROUNDING = 1e-12
LAWS = {
    "flat": [0.25, 0.25, 0.25, 0.25],
    "heavy": [0.6, 0.2, 0.1, 0.06, 0.04],
    "light": list(np.full(20, 1 / 20)),
    "mixed": [0.3, 0.25, 0.1, *np.full(14, 0.025)],
    "zeros": [0.5, 0.0, 0.2, 0.2, 0.1, 0.0],
}


@pytest.mark.parametrize("name", LAWS)
def test_what_is_offered_is_what_enumeration_gives(name):
    q = np.array(LAWS[name])
    rng = np.random.default_rng(1)
    for _ in range(5):
        rejects = [rng.random(len(q)) for _ in range(3)]
        for fast, slow in zip(
            distinct.three_offered(q)(rejects), distinct.enumerated(q, 3)(rejects), strict=True
        ):
            np.testing.assert_allclose(fast, slow, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("steps", [1, 2, 200])
def test_its_tests_are_those_of_an_exact_rule(name, steps):
    """What they accept in all, in fractions, is no more than p at any token: also before it has converged."""
    q = np.array(LAWS[name])
    p = np.random.default_rng(2).dirichlet(np.ones(len(q)))
    accepted, tests = distinct.by_places(p, distinct.three_offered(q), 3, most_steps=steps)
    exact = [Fraction(float(mass)) for mass in q]
    masses = policy_masses(
        [mass / sum(exact) for mass in exact], 3, lambda rejected, x: Fraction(float(tests[len(rejected)][x]))
    )
    assert all(float(mass) <= most + ROUNDING for mass, most in zip(masses, p, strict=True))
    assert float(sum(masses)) == pytest.approx(accepted, abs=ROUNDING)


def test_two_candidates_are_the_closed_form():
    p, q = ([Fraction(k, 10) for k in law] for law in ((3, 4, 3), (6, 3, 1)))
    right = float(sum(marginal("optimal-without-replacement", p, q, 2).acceptance))
    target, draft = (np.array([float(mass) for mass in law]) for law in (p, q))
    found = distinct.by_places(target, distinct.enumerated(draft, 2), 2)[0]
    assert found == pytest.approx(right, abs=1e-8)


def test_sequoia_is_the_rule_of_that_name():
    p, q = ([Fraction(k, 20) for k in law] for law in ((2, 3, 7, 8), (9, 6, 4, 1)))
    right = float(sum(marginal("sequoia", p, q, 3).acceptance))
    floats = (np.array([float(mass) for mass in law]) for law in (p, q))
    assert distinct.recursive(*floats, 3, 1) == pytest.approx(right, abs=ROUNDING)


def test_committed_results():
    results = json.loads((HERE / "results" / "distinct.json").read_text("utf-8"))
    text = (HERE / "results" / "distinct.md").read_text("utf-8")
    assert distinct.page(results) == text
    page = (HERE.parent / "docs" / "explanation" / "optimal-rules.md").read_text("utf-8")
    for part in text.strip().split("\n\n"):
        assert part in page
    for row in results["small"]:
        assert row["sequoia"] <= row["closed form last"] + ROUNDING
        assert row["priority to the last"] <= (row["of places"] or row["optimum"]) + 1e-6
        assert (row["of places"] or 0) <= row["optimum"] + 1e-6
        assert row["optimum"] <= row["limit"] + 1e-6
    some = [row for row in results["small"] if row["V"] == 4 and row["n"] == 3 and row["number"] == 0]
    assert len(some) == len(distinct.FAMILIES)
    for row in some:
        again = distinct.measured(row["n"], row["V"], row["family"], row["number"])
        for name in (*distinct.RULES, "optimum", "limit"):
            assert again[name] == pytest.approx(row[name], abs=1e-6)
