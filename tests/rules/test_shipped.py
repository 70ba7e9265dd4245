"""A shipped rule is its file, its second transcription, its row among the tests, its section in the docs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from shipped_rules import KNOWN

from resispec_verify import rules
from resispec_verify.oracle import MARGINALS, PATH_RULES, TREE_RULES
from resispec_verify.rules import Rule, SpecInfer, make_rule
from resispec_verify.rules.registry import SHIPPED

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rules.md"
SECTIONS = set(re.findall(r"^##+ (\S+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def missing(rule, sections=SECTIONS):
    """What a rule lacks to be a shipped one, in words."""
    name, home = rule.name, f"resispec_verify/oracle/shipped/{rule.__module__.rpartition('.')[2]}.py"
    transcribed = set(MARGINALS) | set(PATH_RULES) | set(TREE_RULES)
    if name not in transcribed and rule.untranscribed is None:
        yield f"a transcription: write {home} and decorate it with @transcribes({name!r})"
    if "Guarantee" not in (sys.modules[rule.__module__].__doc__ or "") or not rule.source:
        yield f"a source, and what it guarantees in the docstring of {rule.__module__}: Guarantee: ..."
    if name not in KNOWN:
        yield f"a row in tests/helpers/shipped_rules.py: {name!r}: Known('exact'), or what holds of it"
    elif rule.open_parameters and not KNOWN[name].values:
        yield f"a value for {', '.join(rule.open_parameters)} in tests/helpers/shipped_rules.py"
    if name not in sections:
        yield f"a section '## {name}' in docs/reference/rules.md"


@pytest.mark.parametrize("rule", SHIPPED, ids=lambda rule: rule.name)
def test_a_shipped_rule_is_complete(rule):
    lacks = list(missing(rule))
    assert not lacks, "; ".join(lacks)


def test_what_is_missing_is_said():
    class New(Rule):
        name, open_parameters, source = "new", ("ratio",), "nowhere"

    said = list(missing(New, set()))
    assert [text.split(":")[0].split(" in ")[0] for text in said] == [
        "a transcription", "a source, and what it guarantees", "a row", "a section '## new'"
    ]  # fmt: skip


def test_the_page_says_which_rules_have_no_transcription():
    text = PAGE.read_text(encoding="utf-8").partition("second transcription")[0].rpartition("Every rule")[2]
    without = {rule.name for rule in SHIPPED if rule.untranscribed is not None}
    assert set(re.findall(r"`([^`]+)`", text)) == without


def test_every_row_is_of_a_rule():
    assert set(KNOWN) == {rule.name for rule in SHIPPED}
    assert set(MARGINALS) | set(PATH_RULES) | set(TREE_RULES) <= set(KNOWN)


def test_names_are_unique_and_every_class_is_exported():
    assert len({rule.name for rule in SHIPPED}) == len({rule.__name__ for rule in SHIPPED}) == len(SHIPPED)
    assert all(getattr(rules, rule.__name__) is rule for rule in SHIPPED)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        rules.Nothing  # noqa: B018


def test_a_sum_over_paths_is_not_inherited():
    """A subclass may do something else."""
    for name in ("sequoia", "token-match", "resispec", "specinfer-skip-duplicates"):
        kind = type(make_rule(name))
        other = type("Other", (kind,), {})
        assert kind.sum_paths is not Rule.sum_paths
        assert other.sum_paths is Rule.sum_paths
        assert other.sum_paths_on_device is Rule.sum_paths_on_device
    other = type("Other", (SpecInfer,), {})
    assert (other.sum_rounds, other.sum_identity) == (Rule.sum_rounds, Rule.sum_identity)


def test_verifiable():
    assert [make_rule(name).verifiable(3) for name in ("speculative", "spechub", "specinfer")] == [1, 2, 3]
    assert SpecInfer().verifiable(0) == 0
