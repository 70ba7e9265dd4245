"""The table of rules: verdicts, witnesses that hold up, nothing skipped, the page current."""

from __future__ import annotations

import importlib.util
from fractions import Fraction as F
from pathlib import Path

import pytest
from rich.console import Console
from shipped_rules import KNOWN, measured, remedy

from resispec_verify import rules as registry
from resispec_verify.catalogue import measured as module
from resispec_verify.catalogue.measured import CATALOGUE, FAMILY, Case, measure, rules_table
from resispec_verify.cli import main
from resispec_verify.oracle import MARGINALS, PATH_RULES, TREE_RULES, total_variation

DOCS = Path(__file__).parents[2] / "docs"
INEXACT, CONDITIONAL = set(measured("inexact")), set(measured("exact-if"))


@pytest.fixture(scope="module")
def table():
    return {row["rule"]: row for row in rules_table()}


@pytest.mark.parametrize("name", KNOWN)
def test_verdicts(name, table):
    verdict = table[name]["measured"]
    assert verdict == KNOWN[name].measured, remedy(name, measured=verdict)


def test_no_rule_is_skipped(table):
    assert list(table) == [rule.name for rule in registry.SHIPPED]
    assert set(MARGINALS) <= set(table)
    for name, row in table.items():
        transcribed = any(name in known for known in (MARGINALS, PATH_RULES, TREE_RULES))
        assert (row["measured"] == "not measured") is not transcribed
        assert (row["tv_max"] is None) is not transcribed
        assert row["source"]


def test_a_rule_without_an_oracle_is_listed(monkeypatch):
    class Unknown(registry.SpecInfer):
        name, source = "unknown", "nowhere"

    monkeypatch.setattr(module, "CATALOGUE", {"unknown": Unknown})
    (row,) = rules_table()
    assert (row["rule"], row["measured"], row["witness"]) == ("unknown", "not measured", None)
    assert "no transcription" in row["condition"]


def test_the_oracle_draws_candidates_as_the_registry_says():
    for name, rule in registry.RULES.items():
        if name in MARGINALS:
            assert rule.proposal.name == MARGINALS[name].proposal, name


def test_witnesses_hold_up(table):
    for name, row in table.items():
        witness = row["witness"]
        assert (witness is not None) == (name in INEXACT | CONDITIONAL)
        if witness is None:
            continue
        target, draft, emitted = (tuple(map(F, witness[key])) for key in ("target", "draft", "marginal"))
        assert (target, draft) in FAMILY
        assert sum(emitted) == 1
        options = CATALOGUE[name].inexact_with or CATALOGUE[name].measured_with
        assert witness.get("options", {}) == {key: str(value) for key, value in options.items()}
        case = Case(target, draft, witness["candidates"], witness.get("chain"), witness.get("tree"))
        tv, law = measure(name, case, **options)
        assert law == emitted
        assert float(tv) == row["tv_max"] > 0
        if case.chain is None:
            assert tv == total_variation(emitted, target)


def test_the_page_is_current(monkeypatch):
    spec = importlib.util.spec_from_file_location("make_rules_table", DOCS / "make_rules_table.py")
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    monkeypatch.setattr("sys.argv", ["make_rules_table.py", "--check"])
    assert maker.main() == 0, "run python docs/make_rules_table.py"


@pytest.mark.parametrize("columns", [80, 50])
def test_a_narrow_terminal_shows_every_rule(columns, table, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(Console, "is_terminal", property(lambda self: True))
    monkeypatch.setattr("resispec_verify.catalogue.measured.rules_table", lambda: list(table.values()))
    assert main(["rules"]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    head = shown[: shown.index("exact: on this family")]
    assert max(len(line.rstrip()) for line in head.splitlines()) <= 80
    for name, row in table.items():
        assert name in shown
        assert row["measured"] in shown
    if columns == 80:
        assert "not shown at this width: source" in shown
