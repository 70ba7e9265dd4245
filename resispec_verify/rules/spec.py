"""A rule and its options as text: ``resispec:budget=floor``, or ``resispec[budget=floor]`` as labels show it.

An option's value ends where the next one begins, so that lists need no quotes: in
``optimal-siblings:values=1,0.5`` there is one option. What a text means is what the rule declares its field
to be: a number, a list of numbers, a word, or pairs of tokens, ``csd:ratio=0.5,memory=5:17 3:8``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from resispec_verify.errors import InputError, did_you_mean
from resispec_verify.rules.interface import Rule, in_words
from resispec_verify.rules.path_rule import PathRule

__all__ = ["options_in", "parse_any_rule", "parse_rule", "rule_text"]

_LABEL = re.compile(r"([^:\[\]]+)\[(.*)\]")


def parse_rule(text: str, **others: Any) -> Rule:
    """The rule for candidates of one position that a text says.

    Parameters
    ----------
    text : str
        A name, perhaps with options of the rule: ``NAME:option=value,option=value``, or the label of a rule.
    **others : object
        Values of options that the text does not say, for rules that have them.

    Raises
    ------
    InputError
        Unknown name, option or value, with those that the rule has; or a rule that verifies paths.
    """
    from resispec_verify.rules import make_rule

    rule = parse_any_rule(text, **others)
    return rule if isinstance(rule, Rule) else make_rule(rule.name)  # which refuses it


def parse_any_rule(text: str, **others: Any) -> Rule | PathRule:
    """The same, or a rule that verifies paths."""
    from resispec_verify.rules import NEED_PARAMETERS, PATH_RULES, RULES, make_rule

    name, given = _parted(text)
    kinds: dict[str, Any] = {**RULES, **NEED_PARAMETERS, **PATH_RULES}
    if name not in kinds:
        return make_rule(name)  # which says what is known
    types = _types(kinds[name])
    values = {option: _value(name, option, word, types) for option, word in given.items()}
    rest = {option: value for option, value in others.items() if option in types and option not in values}
    return kinds[name](**values, **rest)


def options_in(text: str) -> set[str]:
    """The options that a text of a rule gives values to."""
    return set(_parted(text)[1])


def rule_text(rule: Rule | PathRule) -> str:
    """The text that `parse_rule` makes an equal rule of; options that are the default are left out."""
    changed = [
        f"{field.name}={in_words(getattr(rule, field.name))}"
        for field in fields(rule)  # type: ignore[arg-type]
        if getattr(rule, field.name) != field.default
    ]
    return f"{rule.name}:{','.join(changed)}" if changed else rule.name


def _parted(text: str) -> tuple[str, dict[str, str]]:
    """Name, and options by name, as they are written."""
    label = _LABEL.fullmatch(text)
    name, colon, rest = text.partition(":") if label is None else (label[1], ":", label[2])
    options: dict[str, str] = {}
    last = None
    for piece in rest.split(",") if colon else ():
        option, is_one, value = piece.partition("=")
        if is_one:
            last = option.strip()
            if last in options:
                raise InputError(f"rule {text!r} says {last} twice; say it once")
            options[last] = value.strip()
        elif last is None:
            raise InputError(f"rule {text!r}: {piece!r} is no option; write {name}:option=value")
        else:
            options[last] += f",{piece.strip()}"
    return name, options


def _types(kind: type) -> dict[str, Any]:
    """The options of a rule, with the types that it declares; a function is none that a text can say."""
    hints = get_type_hints(kind)
    own = fields(kind) if is_dataclass(kind) else ()
    types = {field.name: _declared(hints[field.name]) for field in own}
    return {name: declared for name, declared in types.items() if get_origin(declared) is not Callable}


def _declared(hint: Any) -> Any:
    """The type without None, which stands for not given."""
    if get_origin(hint) is Literal:
        return hint
    given = [part for part in get_args(hint) if part is not type(None)]
    return given[0] if type(None) in get_args(hint) and len(given) == 1 else hint


def _value(name: str, option: str, word: str, types: dict[str, Any]) -> Any:
    """The word as a value of the option's type."""
    if option not in types:
        have = f"it has {', '.join(types)}" if types else "it has none"
        raise InputError(f"rule {name!r} has no option {option!r}{did_you_mean(option, types) or ';'} {have}")
    declared = types[option]
    choices = get_args(declared) if get_origin(declared) is Literal else ()
    try:
        if choices:
            return {str(choice): choice for choice in choices}[word]
        return _converted(declared, word)
    except (KeyError, ValueError):
        wanted = f"one of {', '.join(map(str, choices))}" if choices else _WORDS[_shape(declared)]
        raise InputError(
            f"rule {name!r}: {option} must be {wanted}, got {word!r} (its options: {', '.join(types)})"
        ) from None


#: What a value must look like, by the shape of its type.
_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "a word",
    "floats": "numbers such as 1,0.5",
    "pairs": "pairs of tokens such as 5:17 3:8",
}


def _shape(declared: Any) -> str:
    if declared in (float, int, str):
        return declared.__name__
    of = get_args(declared)
    if get_origin(declared) is tuple and of == (float, ...):
        return "floats"
    if get_origin(declared) is Iterable and of == (tuple[int, int],):
        return "pairs"
    raise TypeError(f"an option of type {declared} cannot be read from text; say in rules/spec.py how")


def _converted(declared: Any, word: str) -> Any:
    shape = _shape(declared)
    if shape == "floats":
        return tuple(float(part) for part in word.split(","))
    if shape == "pairs":
        pairs = (pair.split(":") for pair in word.replace(",", " ").split())
        return tuple((int(x), int(y)) for x, y in pairs)
    return declared(word)
