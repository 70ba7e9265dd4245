"""The comparison of docs/explanation/trees.md is that of its log, and the log is what the rules do."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "trees"))

import cost
import measuring
import optimum

from resispec_verify.catalogue.random_trees import SHAPES


@pytest.fixture(scope="module")
def lines():
    return optimum.lines_of(optimum.LOG)


@pytest.fixture(scope="module")
def costs():
    return json.loads(optimum.COST.read_text(encoding="utf-8"))


def test_the_page_is_that_of_the_log(lines, costs):
    text = optimum.page_of().read_text(encoding="utf-8")
    assert optimum.written(text, lines, costs) == text
    lines = [
        {**line, "rules": {**line["rules"], "specinfer": {"exact": False, "accepted": 0.0}}} for line in lines
    ]
    changed = optimum.written(text, lines, costs)
    assert "| `specinfer` | independent | exact | 0 of 192 | 0.0000 |" in changed
    assert changed != text


@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_line_of_the_log_is_measured_again(shape, lines):
    (line,) = [line for line in lines if line["shape"] == shape and line["number"] == 3]
    found = measuring.measure(shape, 3)
    assert {key: found[key] for key in ("shape", "vocab", "optima")} == {
        key: line[key] for key in ("shape", "vocab", "optima")
    }
    assert found["rules"].keys() == line["rules"].keys()
    for name, outcome in found["rules"].items():
        assert outcome["exact"] == line["rules"][name]["exact"]
        assert outcome["accepted"] == pytest.approx(line["rules"][name]["accepted"], abs=1e-12)


def test_no_exact_rule_is_longer_than_the_longest(lines):
    for line in lines:
        for optima in line["optima"].values():
            lengths = [
                Fraction(optima[key])
                for key in ("by node", "no lookahead", "whole tree", "sum of min(P, pi)")
            ]
            assert lengths == sorted(lengths)
        for row in optimum.ROWS:
            outcome = line["rules"].get(row.name)
            best = float(Fraction(line["optima"][row.siblings]["whole tree"]))
            if outcome and outcome["exact"]:
                assert outcome["accepted"] <= best + optimum.SAME


def test_every_rule_of_the_table_is_timed_or_says_nothing(costs):
    assert {row.name for row in optimum.ROWS} - costs["rules"].keys() == {"gls"}
    assert costs["rules"].keys() == cost.ORDER.keys() == cost.work().keys()
