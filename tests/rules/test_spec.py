"""Rules as text: what is written is read back, as a label too, and nothing is read as something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from shipped_rules import KNOWN, Known

from resispec_verify.errors import InputError
from resispec_verify.rules import (
    NEED_PARAMETERS,
    PATH_RULES,
    RULES,
    PathRule,
    ResiSpec,
    Rule,
    SGLang,
    SpecInfer,
    make_rule,
)
from resispec_verify.rules.spec import options_in, parse_any_rule, parse_rule, rule_text
from resispec_verify.tables.row import label

EASD = "easd:target_entropy=1.5,draft_entropy=0.1,top_n=3,overlap=0.5,rejects=overlap"
# Of options that are numbers or words, a value that is not the default.
OTHERS = {float: 0.1234567890123456, int: 7, str: "target"}


KINDS = (RULES | NEED_PARAMETERS | PATH_RULES).values()


def known_values(kind: type) -> list[Rule | PathRule]:
    """The values of a rule that its row among the tests gives; `test_shipped` misses a row."""
    return [*KNOWN[kind.name].values] if kind.name in KNOWN else []


def options_of(kind: type) -> list[str]:
    """The options of a rule that a text can say, which a function is not."""
    own = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    return [name for name in own if get_origin(get_type_hints(kind)[name]) is not Callable]


def others(kind: type, option: str) -> list[Rule | PathRule]:
    """The rule with this option at another value: any, or where the rule refuses that, one that is known."""
    hint = get_type_hints(kind)[option]
    values = get_args(hint) if get_origin(hint) is Literal else [OTHERS[hint]] if hint in OTHERS else []
    try:
        found = [kind(**{option: value}) for value in values]
    except InputError:
        found = []
    default = getattr(kind(), option)
    return found or [rule for rule in known_values(kind) if getattr(rule, option) != default]


def variants(kind: type) -> list[Rule | PathRule]:
    """The rule made from its name, and with each option in turn at another value; else the values known."""
    if kind.open_parameters:
        return known_values(kind)
    return [
        parse_any_rule(kind.name),
        *(rule for option in options_of(kind) for rule in others(kind, option)),
    ]


def untried(kind: type) -> list[str]:
    """Options without another value to try, and the remedy; `test_shipped` says it of open parameters."""
    options = [] if kind.open_parameters else options_of(kind)
    return [
        f"{kind.name}: no other value of {option} to try: give one, values=({kind.__name__}({option}=...),), "
        "to its Known in tests/helpers/shipped_rules.py"
        for option in options
        if not others(kind, option)
    ]


EVERY = [rule for kind in KINDS for rule in variants(kind)]
EVERY.append(parse_rule("optimal-siblings:values=1,0.3333333333333333"))


@pytest.mark.parametrize("rule", EVERY, ids=rule_text)
def test_a_rule_is_read_back(rule):
    assert parse_any_rule(rule_text(rule)) == rule
    if isinstance(rule, Rule):
        assert parse_rule(rule_text(rule)) == rule
        # A label has six digits of a number, so that reading it changes the rule and not the label.
        assert label(parse_rule(label(rule))) == label(rule)


def test_every_option_has_another_value():
    lacks = [line for kind in KINDS for line in untried(kind)]
    assert not lacks, "; ".join(lacks)


def test_an_option_that_refuses_the_usual_value_is_tried_at_one_that_is_known(monkeypatch):
    @dataclass(frozen=True)
    class Lenient(SpecInfer):
        lenience: float = 1.0

        name = "lenient"

        def __post_init__(self):
            if self.lenience < 1:
                raise InputError(f"lenience must be at least 1, got {self.lenience}")

    assert others(Lenient, "lenience") == []
    (said,) = untried(Lenient)
    assert "give one, values=(Lenient(lenience=...),), to its Known in tests/helpers/shipped_rules.py" in said
    monkeypatch.setitem(KNOWN, "lenient", Known("inexact", "1/2", (Lenient(2.0),)))
    assert others(Lenient, "lenience") == [Lenient(2.0)]
    assert untried(Lenient) == []


def test_values_have_the_declared_types():
    assert parse_rule("sglang:threshold_acc=1") == SGLang(threshold_acc=1.0)
    assert isinstance(vars(parse_rule("sglang:threshold_acc=1"))["threshold_acc"], float)
    easd = vars(parse_rule(EASD))
    assert (easd["top_n"], easd["rejects"]) == (3, "overlap")
    assert vars(parse_rule("optimal-siblings:values=2,1"))["values"] == (2.0, 1.0)
    assert vars(parse_rule("csd:ratio=1,memory=5:17,3:8"))["memory"] == {(5, 17), (3, 8)}


def test_others_give_way_to_the_text_and_to_the_default_of_other_rules():
    assert parse_rule("resispec:budget=local", budget="floor", hole="literal") == ResiSpec(hole="literal")
    assert parse_rule("specinfer", budget="floor") == parse_rule("specinfer")
    assert options_in("resispec[budget=floor,hole=literal]") == {"budget", "hole"}
    assert options_in("resispec") == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("resispec:budget=low", "rule 'resispec': budget must be one of local, floor, got 'low'"),
        ("resispec:size=2", "rule 'resispec' has no option 'size'; it has redistribution, budget, hole"),
        ("specinfer:size=2", "rule 'specinfer' has no option 'size'; it has none"),
        ("resispec:floor", "'floor' is no option; write resispec:option=value"),
        ("resispec:", "'' is no option"),
        ("resispec:budget=floor,budget=local", "says budget twice"),
        ("resispec:budget=", "budget must be one of local, floor, got ''"),
        ("sglang:threshold_acc=high", "threshold_acc must be a number, got 'high'"),
        ("easd:top_n=1.5", "top_n must be a whole number, got '1.5'"),
        ("csd:ratio=0.5,memory=5", "memory must be pairs of tokens such as 5:17 3:8, got '5'"),
        ("csd[ratio=0.5,memory=12 pairs]", "memory must be pairs of tokens"),
        ("csd:ratio=0.5", "memory"),
        ("optimal-siblings", "needs values"),
        ("resispecc:budget=floor", "did you mean 'resispec'?"),
        ("block:size=2", "rule 'block' has no option 'size'"),
        ("medusa", "verifies paths"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(text, said):
    with pytest.raises(InputError) as error:
        parse_rule(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_rule_of_ones_own_is_labelled_by_its_fields():
    @dataclass(frozen=True)
    class Own(SpecInfer):
        share: float = 0.5
        table: object = None

        name = "own"

    assert label(Own()) == "own"
    assert label(Own(1 / 3)) == "own[share=0.3333333333333333]"
    assert label(Own(0.25, np.ones(3))) == "own[share=0.25]"
    memory = frozenset((i, i + 1) for i in range(40))
    other = memory - {(0, 1)} | {(0, 2)}
    first, second = (label(make_rule("csd", ratio=0.5, memory=pairs)) for pairs in (memory, other))
    assert first != second
    assert len(first) < 90
