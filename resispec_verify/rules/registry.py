"""The rules that come with the package: those that the files of `rules.shipped` define, with no list of them.

A rule is found by its file. Lists show rules by their `place`, and after those by name.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import GenericAlias
from typing import Any

from resispec_verify.errors import InputError, did_you_mean
from resispec_verify.inputs import shown
from resispec_verify.rules import shipped
from resispec_verify.rules.interface import Described, Rule
from resispec_verify.rules.path_rule import PathRule
from resispec_verify.rules.tree_rule import TreeRule

__all__ = [
    "NEED_PARAMETERS",
    "PATH_RULES",
    "RULES",
    "SHIPPED",
    "TREE_RULES",
    "make_path_rule",
    "make_rule",
    "make_tree_rule",
]


def _shipped() -> list[type[Described]]:
    """Classes with a name of their own; what has none is a part that several rules share."""
    found: list[type[Described]] = []
    for file in pkgutil.iter_modules(shipped.__path__, f"{shipped.__name__}."):
        for value in vars(importlib.import_module(file.name)).values():
            # Python 3.10 takes an alias such as dict[str, int] for a type.
            is_class = isinstance(value, type) and not isinstance(value, GenericAlias)
            if is_class and issubclass(value, Described) and value.__module__ == file.name:
                found += [value] if "name" in vars(value) else []
    return sorted(found, key=lambda rule: (rule.place, rule.name))


#: All of them, in the order of lists.
SHIPPED: tuple[type[Described], ...] = tuple(_shipped())

_RULES = {rule.name: rule for rule in SHIPPED if issubclass(rule, Rule)}

#: Rules that verify the candidates of one position, by name.
RULES: dict[str, type[Rule]] = {name: rule for name, rule in _RULES.items() if not rule.open_parameters}

#: The same, of which parameters are open: they cannot be made from a name alone.
NEED_PARAMETERS: dict[str, type[Rule]] = {n: rule for n, rule in _RULES.items() if rule.open_parameters}

#: Rules that verify a path of several tokens.
PATH_RULES: dict[str, type[PathRule]] = {rule.name: rule for rule in SHIPPED if issubclass(rule, PathRule)}

#: Rules that decide about a whole tree.
TREE_RULES: dict[str, type[TreeRule]] = {rule.name: rule for rule in SHIPPED if issubclass(rule, TreeRule)}


def make_rule(name: str, **options: Any) -> Rule:
    """The rule of that name; ``options`` of other rules are left out.

    Raises
    ------
    InputError
        Unknown name, with the nearest one; a rule that verifies paths; an option that no rule has; or a
        parameter that the rule needs and was not given.
    """
    if not isinstance(name, str):
        raise InputError(f"a rule is made from its name, a text such as 'specinfer'; got {shown(name)}")
    if name in PATH_RULES:
        raise InputError(
            f"rule {name!r} verifies paths of several tokens and needs a rounds dump; a flat dump has one "
            "position at a time"
        )
    if name in TREE_RULES:
        raise InputError(
            f"rule {name!r} decides about whole trees and needs laws after every node of one; "
            "evidence.tree_rules.tree_marginal enumerates it"
        )
    if name not in _RULES:
        raise _unknown(name, [*RULES, *NEED_PARAMETERS, *PATH_RULES, *TREE_RULES])
    known = {key for rule in _RULES.values() for key in _fields(rule)}
    if unknown := set(options) - known:
        raise InputError(f"no rule has the option {sorted(unknown)[0]!r} (known: {', '.join(sorted(known))})")
    rule = _RULES[name]
    return rule(**{key: value for key, value in options.items() if key in _fields(rule)})


def make_path_rule(name: str, **options: Any) -> PathRule:
    """The path rule of that name; raises `InputError` on an unknown name."""
    if name not in PATH_RULES:
        raise _unknown(name, list(PATH_RULES))
    return PATH_RULES[name](**options)


def make_tree_rule(name: str, **options: Any) -> TreeRule:
    """The tree rule of that name; raises `InputError` on an unknown name."""
    if name not in TREE_RULES:
        raise _unknown(name, list(TREE_RULES))
    return TREE_RULES[name](**options)


def _unknown(name: str, known: list[str]) -> InputError:
    near = did_you_mean(name, known) or ";"
    return InputError(f"unknown rule {name!r}{near} 'resispec-verify rules' lists all of them")


def _fields(rule: type[Rule]) -> tuple[str, ...]:
    return tuple(getattr(rule, "__dataclass_fields__", {}))
