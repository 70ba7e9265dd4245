"""The experiment on rollouts: its draws follow the rules, and its tables are those of its results."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parents[2] / "experiments"
sys.path.insert(0, str(HERE))

import rl_weights  # noqa: E402

from resispec_verify import Budget  # noqa: E402
from resispec_verify.logged.node_rules import laws_of  # noqa: E402


@pytest.mark.parametrize("name", rl_weights.RULES)
def test_draws_follow_the_law_of_the_rule(name):
    rule, n = rl_weights.RULES[name]
    p, q = np.array([0.3, 0.35, 0.25, 0.08, 0.02]), np.array([0.5, 0.1, 0.2, 0.1, 0.1])
    law = laws_of(rule, p[None], q[None], n, None, Budget(0.0, until_decided=False), sampled=True).placed[0]
    count = 20_000
    tokens = rl_weights.run(rule, rule.start(p, q, n), q, n, count, np.random.default_rng(5))
    seen = np.bincount(tokens, minlength=5) / count
    assert not seen[law < 1e-12].any()
    # Five standard errors, at four rules and five tokens: less than 1e-4 by chance.
    assert (np.abs(seen - law) <= 5 * np.sqrt(law * (1 - law) / count) + 1e-12).all()


@pytest.mark.parametrize("path", sorted((HERE / "results").glob("rl_weights-*.json")), ids=lambda p: p.stem)
def test_committed_tables_and_what_they_show(path):
    results = json.loads(path.read_text("utf-8"))
    assert rl_weights.table(results, 2.0) == path.with_suffix(".md").read_text("utf-8")
    for row in results:
        assert abs(row["weighted_z"]) < 4  # unbiased, over what is emitted
        assert abs(row["truncated_z"]) < 4  # within the bound of its bias
    plain = {(row["rule"], row["reward"]): abs(row["plain_z"]) for row in results}
    assert max(plain["specinfer", reward] for reward in ("random", "log q")) < 4
    for rule in ("resispec", "relaxed", "medusa:correction=target"):
        assert plain[rule, "log q"] > 5


def test_the_page_has_the_committed_table():
    page = (HERE.parent / "docs" / "howto" / "weigh-rollouts.md").read_text("utf-8")
    assert (HERE / "results" / "rl_weights-example.md").read_text("utf-8") in page
