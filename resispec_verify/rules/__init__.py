"""Verification rules, one a file. A new rule is a file and a line in `RULES`."""

from __future__ import annotations

import difflib
from typing import Any

from resispec_verify.errors import InputError
from resispec_verify.inputs import shown
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.path_rule import PathRule
from resispec_verify.rules.proposals import Greedy, Iid, Pairs, Proposal, WithoutReplacement
from resispec_verify.rules.shipped.block import Block
from resispec_verify.rules.shipped.csd import CSD
from resispec_verify.rules.shipped.eagle import Eagle
from resispec_verify.rules.shipped.eagle_resispec import EagleResiSpec
from resispec_verify.rules.shipped.easd import EASD
from resispec_verify.rules.shipped.k_seq import KSeq
from resispec_verify.rules.shipped.llama_cpp import LlamaCpp
from resispec_verify.rules.shipped.medusa import Medusa
from resispec_verify.rules.shipped.optimal_joint import OptimalJoint
from resispec_verify.rules.shipped.optimal_sequential import OptimalSequential
from resispec_verify.rules.shipped.optimal_siblings import OptimalSiblings
from resispec_verify.rules.shipped.optimal_without_replacement import OptimalWithoutReplacement
from resispec_verify.rules.shipped.resispec import ResiSpec, get_proxy
from resispec_verify.rules.shipped.sequoia import Sequoia
from resispec_verify.rules.shipped.sequoia_resispec import SequoiaResiSpec
from resispec_verify.rules.shipped.sglang import SGLang
from resispec_verify.rules.shipped.spechub import SpecHub, SpecHubForce
from resispec_verify.rules.shipped.specinfer import SpecInfer
from resispec_verify.rules.shipped.specinfer_skip_duplicates import SpecInferSkipDuplicates
from resispec_verify.rules.shipped.speculative import Speculative
from resispec_verify.rules.shipped.token_match import TokenMatch
from resispec_verify.rules.tuple_rule import TupleRule

__all__ = [
    "CSD",
    "EASD",
    "NEED_PARAMETERS",
    "PATH_RULES",
    "RULES",
    "Block",
    "Eagle",
    "EagleResiSpec",
    "Greedy",
    "Iid",
    "KSeq",
    "LlamaCpp",
    "Medusa",
    "OptimalJoint",
    "OptimalSequential",
    "OptimalSiblings",
    "OptimalWithoutReplacement",
    "Pairs",
    "PathRule",
    "Proposal",
    "ResiSpec",
    "Rule",
    "SGLang",
    "Sequoia",
    "SequoiaResiSpec",
    "SpecHub",
    "SpecHubForce",
    "SpecInfer",
    "SpecInferSkipDuplicates",
    "Speculative",
    "State",
    "TokenMatch",
    "TupleRule",
    "WithoutReplacement",
    "get_proxy",
    "make_path_rule",
    "make_rule",
]

#: Rules that verify the candidates of one position, by name.
RULES: dict[str, type[Rule]] = {
    rule.name: rule
    for rule in (
        Speculative,
        SpecInfer,
        SpecInferSkipDuplicates,
        Sequoia,
        Eagle,
        TokenMatch,
        KSeq,
        SpecHub,
        SpecHubForce,
        SGLang,
        LlamaCpp,
        OptimalSequential,
        OptimalJoint,
        OptimalWithoutReplacement,
        ResiSpec,
        SequoiaResiSpec,
        EagleResiSpec,
    )
}

#: The same, of which parameters are open: they cannot be made from a name alone.
NEED_PARAMETERS: dict[str, type[Rule]] = {rule.name: rule for rule in (CSD, EASD, OptimalSiblings)}

#: Rules that verify a path of several tokens.
PATH_RULES: dict[str, type[PathRule]] = {rule.name: rule for rule in (Block, Medusa)}


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
    rules = RULES | NEED_PARAMETERS
    if name not in rules:
        raise _unknown(name, [*rules, *PATH_RULES])
    known = {key for rule in rules.values() for key in _fields(rule)}
    if unknown := set(options) - known:
        raise InputError(f"no rule has the option {sorted(unknown)[0]!r} (known: {', '.join(sorted(known))})")
    rule = rules[name]
    return rule(**{key: value for key, value in options.items() if key in _fields(rule)})


def make_path_rule(name: str, **options: Any) -> PathRule:
    """The path rule of that name; raises `InputError` on an unknown name."""
    if name not in PATH_RULES:
        raise _unknown(name, list(PATH_RULES))
    return PATH_RULES[name](**options)


def _unknown(name: str, known: list[str]) -> InputError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return InputError(f"unknown rule {name!r}{hint} (known: {', '.join(known)})")


def _fields(rule: type[Rule]) -> tuple[str, ...]:
    return tuple(getattr(rule, "__dataclass_fields__", {}))
