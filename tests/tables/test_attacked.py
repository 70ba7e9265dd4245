"""Faults that were found by attack, each held by its right value."""

from __future__ import annotations

from fractions import Fraction as F
from pathlib import Path

import numpy as np
import pytest

from resispec_verify.cli import main
from resispec_verify.distributions import Pair
from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.kernels.optimal.candidate_limits import without_replacement_limit
from resispec_verify.oracle import limit_without_replacement, marginal
from resispec_verify.rules import OptimalSiblings, Rule, make_rule
from resispec_verify.tables.marginals import Evaluation, evaluate
from resispec_verify.tables.reading import Clock, by_hand
from resispec_verify.tables.row import Row
from resispec_verify.tables.summary import summarize


def evaluated(rule: Rule, target: list[F], draft: list[F], n: int, budget: Budget) -> Row:
    p, q = (np.array([[float(mass) for mass in law]]) for law in (target, draft))
    rows: dict[tuple[str, str], Row] = {}
    evaluation = Evaluation((rule,), n, identity=False, budget=budget)
    evaluate(by_hand(Pair(p, q)), evaluation, rows, clock=Clock())
    (row,) = rows.values()
    return row


# A one-hot target: sequoia accepts exactly when its token is drawn, which is the limit.
TARGET = [F(k) for k in (0, 0, 1, 0, 0, 0, 0, 0)]
DRAFT = [F(k, 64) for k in (1, 3, 5, 8, 9, 12, 13, 13)]


@pytest.mark.parametrize(("n", "evaluations"), [(2, 12), (3, 60)])
def test_an_acceptance_known_to_an_error_proves_nothing_within_it(n, evaluations):
    # Few evaluations: tokens of unequal q are taken together, and the acceptance errs by more than rounding.
    budget = Budget(gap=0.5, most_paths=evaluations, until_decided=False)
    row = evaluated(make_rule("sequoia"), TARGET, DRAFT, n, budget)
    right = float(sum(marginal("sequoia", TARGET, DRAFT, n).acceptance))
    low, high = summarize(row)["acceptance_total_bounds"]
    assert sum(row.acceptance[0]) - right > 1e-6  # or this test tests nothing
    assert low <= right <= high
    assert row.verdict[0].value == "exact"
    assert row.above_limit() == []


def test_a_small_budget_does_not_cancel_what_it_reserves():
    # The second candidate has draft 2**-20 and is rejected for certain: so small is ResiSpec's budget then.
    target = [F(0), F(1, 4), F(0), F(3, 4)]
    draft = [1 - F(1, 2**40) - F(1, 2**20) - F(1, 2**52), F(1, 2**40), F(1, 2**20), F(1, 2**52)]
    p, q = (np.array([[float(mass) for mass in law]]) for law in (target, draft))
    found = operational_marginals(make_rule("eagle+resispec"), p, q, 2)
    right = marginal("eagle+resispec", target, draft, 2).law
    off = sum(abs(F(float(a)) - b) for a, b in zip(found.placed[0], right, strict=True)) / 2
    assert off <= float(found.rounding[0])


@pytest.mark.parametrize("exponents", [(52, 20, 40, 45), (75, 20, 60, 70), (52, 20, 52, 20)])
def test_the_limit_of_distinct_candidates_of_a_peaked_draft(exponents):
    # The set of tokens that decides leaves out less than 1e-9 of the draft.
    others = [F(1, 2**k) for k in exponents]
    draft = [others[0], others[1], others[2], 1 - sum(others), others[3]]
    target = [F(k, 1024) for k in (7, 67, 159, 78, 713)]
    p, q = (np.array([[float(mass) for mass in law]]) for law in (target, draft))
    right = float(limit_without_replacement(target, draft, 3))
    assert right < 0.999
    assert 0 <= without_replacement_limit(p, q, 3)[0] - right <= 2e-12


@pytest.mark.parametrize("candidates", ["1", "1001", "1000000000"])
def test_explore_refuses_candidates_that_nobody_has(candidates, capsys):
    # A billion levels take hours; `kl` and `limits` end at 1000 too.
    assert main(["explore", "--random", "5", "--candidates", candidates]) == 2
    assert f"at least 2 for a next candidate to exist, and at most 1000; got {candidates}" in (
        capsys.readouterr().err
    )


def test_explore_counts_no_dump_twice(capsys):
    path = str(Path(__file__).parents[2] / "examples" / "smollm2-skip6-N8-fp16.pt")
    assert main(["explore", "--check", "--logits", path, path]) == 2
    assert "given twice" in capsys.readouterr().err


@pytest.mark.parametrize("unit", [1e-300, 1e-6, 1e6, 1e300])
def test_the_unit_of_the_siblings_values_does_not_matter(unit):
    # 0.2 a + phi(2 - a) with phi(t) = 0.3 + min(0.4, 0.3 t) + 0.1 t is largest at a = 2/3: then 1/6 second.
    p, q = np.array([[0.3, 0.4, 0.3]]), np.array([[0.6, 0.3, 0.1]])
    found = operational_marginals(OptimalSiblings((1.2 * unit, unit)), p, q, 2)
    assert np.allclose(found.acceptance[0], [2 / 3, 1 / 6], rtol=0, atol=1e-8)
