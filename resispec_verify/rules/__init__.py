"""Verification rules, one a file. A new rule is a file and a line in `RULES`."""

from __future__ import annotations

import difflib
from typing import Any

from resispec_verify.errors import InputError
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.proposals import Greedy, Iid, Proposal, WithoutReplacement
from resispec_verify.rules.resispec import ResiSpec, get_proxy
from resispec_verify.rules.specinfer import SpecInfer
from resispec_verify.rules.speculative import Speculative

__all__ = [
    "RULES",
    "Greedy",
    "Iid",
    "Proposal",
    "ResiSpec",
    "Rule",
    "SpecInfer",
    "Speculative",
    "State",
    "WithoutReplacement",
    "get_proxy",
    "make_rule",
]

RULES: dict[str, type[Rule]] = {rule.name: rule for rule in (Speculative, SpecInfer, ResiSpec)}


def make_rule(name: str, **options: Any) -> Rule:
    """The rule of that name; ``options`` of other rules are left out.

    Raises
    ------
    InputError
        Unknown name, with the nearest one, or an option that no rule has.
    """
    if name not in RULES:
        near = difflib.get_close_matches(name, RULES, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(f"unknown rule {name!r}{hint} (known: {', '.join(RULES)})")
    known = {key for rule in RULES.values() for key in _fields(rule)}
    if unknown := set(options) - known:
        raise InputError(f"no rule has the option {sorted(unknown)[0]!r} (known: {', '.join(sorted(known))})")
    rule = RULES[name]
    return rule(**{key: value for key, value in options.items() if key in _fields(rule)})


def _fields(rule: type[Rule]) -> tuple[str, ...]:
    return tuple(getattr(rule, "__dataclass_fields__", {}))
