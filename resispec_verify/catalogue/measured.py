"""Claimed against measured exactness, by the rational oracle on a fixed family of pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import (
    MARGINALS,
    PATH_RULES,
    TREE_RULES,
    block_law,
    complete,
    fork,
    marginal,
    memoryless,
    rotating,
    sequence_law,
    total_variation,
    tree_law,
)
from resispec_verify.rules.interface import Described, Rule
from resispec_verify.rules.registry import SHIPPED
from resispec_verify.rules.tree_rule import TreeRule

__all__ = [
    "CATALOGUE",
    "CHAINS",
    "FAMILY",
    "TREES",
    "Case",
    "Law",
    "emits_another_law",
    "measure",
    "rules_table",
]

Law = tuple[Fraction, ...]


def _law(*weights: int) -> Law:
    return tuple(Fraction(w, sum(weights)) for w in weights)


# V >= 4: with three tokens some wrong rules pass. Crossing, tied, sparse, one-hot, equal, disjoint, nearly
# certain, and a pair of five tokens.
FAMILY: tuple[tuple[Law, Law], ...] = (
    (_law(1, 2, 3, 4), _law(4, 3, 2, 1)),
    (_law(3, 4, 2, 1), _law(5, 3, 1, 1)),
    (_law(1, 1, 1, 1), _law(1, 2, 3, 4)),
    (_law(1, 1, 1, 1), _law(3, 3, 1, 1)),
    (_law(0, 3, 3, 4), _law(5, 3, 2, 0)),
    (_law(5, 0, 3, 2), _law(2, 3, 3, 2)),
    (_law(1, 0, 0, 0), _law(1, 1, 1, 1)),
    (_law(1, 1, 1, 1), _law(1, 0, 0, 0)),
    (_law(4, 3, 2, 1), _law(4, 3, 2, 1)),
    (_law(1, 1, 0, 0), _law(0, 0, 1, 1)),
    (_law(9995, 2, 2, 1), _law(4, 3, 2, 1)),
    (_law(2, 1, 3, 1, 3), _law(4, 2, 2, 1, 1)),
)
CANDIDATES = (1, 2, 3)
CHAINS = {"memoryless": memoryless, "rotating": rotating}
#: Shapes of trees: how deep, and nested as the oracle has them. Those after the first three are no paths.
TREES: dict[str, tuple[int, Any]] = {
    "2 siblings": (1, fork(2, 1)),
    "3 siblings": (1, fork(3, 1)),
    "2 paths of 2": (2, fork(2, 2)),
    "1 of 2 siblings with 2 children": (2, (((), ()), ())),
    "2 siblings after 1 token": (2, fork(2, 2, trunk=1)),
}
PATHS = tuple(TREES)[:3]


#: Every rule that is known.
CATALOGUE: dict[str, type[Described]] = {rule.name: rule for rule in SHIPPED}


@dataclass(frozen=True)
class Case:
    """One input: a pair, the number of candidates, and for path and tree rules how the laws make a chain.

    For a tree rule the number of candidates is the depth, and ``tree`` the name of the shape.
    """

    target: Law
    draft: Law
    candidates: int
    chain: str | None = None
    tree: str | None = None


def measure(name: str, case: Case, **options: Any) -> tuple[Fraction, Law]:
    """Total variation from what should be emitted, and the law of the (first) token emitted.

    For a path or tree rule the distance is that of the joint law of ``candidates + 1`` tokens.
    """
    if case.chain is None:
        law = marginal(name, case.target, case.draft, case.candidates, **options).law
        return total_variation(law, case.target), law
    make = CHAINS[case.chain]
    target, draft = make(case.target), make(case.draft)
    length = case.candidates + 1
    if case.tree is not None:
        blocks = tree_law(name, target, draft, TREES[case.tree][1], **options)
    else:
        blocks = block_law(name, target, draft, case.candidates, **options)
    emitted = complete(blocks, target, length)
    wanted = sequence_law(target, length)
    keys = sorted(emitted.keys() | wanted.keys())
    distance = total_variation(
        [emitted.get(key, Fraction(0)) for key in keys], [wanted.get(key, Fraction(0)) for key in keys]
    )
    first = [Fraction(0)] * len(case.target)
    for key, weight in emitted.items():
        first[key[0]] += weight
    return distance, tuple(first)


def rules_table() -> list[dict[str, Any]]:
    """One dictionary a rule; see the JSON of ``rules``. Rules without an oracle are not skipped."""
    return [_row(rule) for rule in CATALOGUE.values()]


def emits_another_law(name: str, candidates: int) -> bool:
    """Whether a rule, with the options that it is measured with, is wrong on a case of so many candidates.

    Cases of one and two candidates are looked at: those of three take most of the time of the table.
    """
    if not any(name in known for known in (MARGINALS, PATH_RULES, TREE_RULES)):
        return False
    few = (case for case in cases(name) if case.candidates <= min(candidates, 2))
    return any(measure(name, case, **CATALOGUE[name].measured_with)[0] for case in few)


def _on_paths(name: str) -> bool:
    return name in PATH_RULES and name not in MARGINALS


def cases(name: str) -> Iterator[Case]:
    """Every input of the table for a rule."""
    if name in TREE_RULES:
        yield from _trees(CATALOGUE[name])
        return
    if _on_paths(name):
        kinds, counts = list(CHAINS), range(1, max(CANDIDATES))
    else:
        kinds, counts = [None], MARGINALS[name].counts(max(CANDIDATES))
    for n in counts:
        for kind in kinds:
            for target, draft in FAMILY:
                yield Case(target, draft, n, kind)


def _trees(rule: Any) -> Iterator[Case]:
    for tree in PATHS if rule.paths_only else TREES:
        for chain in CHAINS:
            for target, draft in FAMILY:
                yield Case(target, draft, TREES[tree][0], chain, tree)


def _worst(name: str, options: Mapping[str, Any]) -> tuple[Fraction, dict[str, Any] | None]:
    worst, witness = Fraction(0), None
    for case in cases(name):
        tv, law = measure(name, case, **options)
        if tv > worst:
            worst, witness = tv, witness_of(case, law, options)
    return worst, witness


def witness_of(case: Case, law: Law, options: Mapping[str, Any]) -> dict[str, Any]:
    """A witness as in the JSON, fractions as strings."""
    found: dict[str, Any] = {
        "target": [str(v) for v in case.target],
        "draft": [str(v) for v in case.draft],
        "candidates": case.candidates,
        "marginal": [str(v) for v in law],
    }
    if case.chain is not None:
        found["chain"] = case.chain
    if case.tree is not None:
        found["tree"] = case.tree
    if options:
        found["options"] = {key: str(value) for key, value in options.items()}
    return found


def _row(rule: type[Described]) -> dict[str, Any]:
    row = {
        "rule": rule.name,
        "source": rule.source,
        "proposal": _proposal(rule),
        "claims_exact": rule.claims_exact,
    }
    if not any(rule.name in known for known in (MARGINALS, PATH_RULES, TREE_RULES)):
        reason = rule.untranscribed or "the oracle has no transcription of it"
        empty = {"condition": reason, "tier": None, "tv_max": None, "witness": None}
        return {**row, "measured": "not measured", **empty}
    worst, witness = _worst(rule.name, rule.measured_with)
    verdict, condition = ("inexact" if worst else "exact"), None
    if not worst and rule.inexact_with is not None:
        worst, witness = _worst(rule.name, rule.inexact_with)
        verdict, condition = ("exact-if" if worst else "exact"), (rule.exact_if if worst else None)
    return {
        **row,
        "measured": verdict,
        "condition": condition,
        "tier": "rational",
        "tv_max": float(worst),
        "witness": witness,
    }


def _proposal(rule: type[Described]) -> str:
    if issubclass(rule, Rule):
        return rule.proposal.name
    return f"trees, {rule.siblings}" if issubclass(rule, TreeRule) else "paths"
