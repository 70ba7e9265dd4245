"""Claimed against measured exactness, by the rational oracle on a fixed family of pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import resispec_verify.rules as registry
from resispec_verify.oracle import (
    MARGINALS,
    PATH_RULES,
    block_law,
    complete,
    marginal,
    memoryless,
    rotating,
    sequence_law,
    total_variation,
)

__all__ = ["CATALOGUE", "CHAINS", "FAMILY", "About", "Case", "Law", "measure", "rules_table"]

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


@dataclass(frozen=True)
class About:
    """What is said of a rule, and the parameters it is measured with.

    Attributes
    ----------
    source : str
        Where it comes from, for rules that the registry does not have.
    claims_exact : bool
        What its authors claim, for the same.
    options : mapping
        Parameters to measure with, where the rule has no defaults.
    breaking : mapping or None
        Parameters that make a rule inexact which is exact with the others.
    condition : str or None
        When the rule is exact, if its parameters decide.
    unmeasured : str
        Why there is no measurement, if there is none.
    """

    source: str = ""
    claims_exact: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    breaking: Mapping[str, Any] | None = None
    condition: str | None = None
    unmeasured: str = ""


_HALF = Fraction(1, 2)
_GATE = {"target_entropy": 1.0, "draft_entropy": 1.0, "top_n": 2, "overlap": _HALF}

#: Every rule that is known, in the order of the documentation.
CATALOGUE: dict[str, About] = {
    "speculative": About(),
    "specinfer": About(),
    "specinfer-skip-duplicates": About(),
    "sequoia": About(),
    "eagle": About(),
    "token-match": About(),
    "k-seq": About(),
    "spechub": About(),
    "spechub-force": About(),
    "sglang": About(
        breaking={"threshold_single": _HALF, "threshold_acc": _HALF},
        condition="threshold_single = threshold_acc = 1, the defaults",
    ),
    "medusa": About("Medusa (Cai et al. 2024), typical acceptance", claims_exact=False),
    "llama-cpp": About(),
    "block": About("Block verification (Sun et al. 2024), Algorithm 2"),
    "resispec": About(),
    "optimal-sequential": About("Optimal sequential verification (this project)"),
    "optimal-joint": About(),
    "optimal-siblings": About(options={"values": (3, 2, 1)}),
    "optimal-without-replacement": About(),
    "csd": About(
        "CSD (arXiv 2604.13634)", claims_exact=False, unmeasured="the formula of its gate is in no source"
    ),
    "easd": About(
        "EASD (arXiv 2512.23765)",
        claims_exact=False,
        options={"rejects": "position", **_GATE},
        breaking={"rejects": "overlap", **_GATE},
        condition="its gate looks at the two laws and not at the candidate",
    ),
    "sequoia+resispec": About(),
    "eagle+resispec": About(),
}


@dataclass(frozen=True)
class Case:
    """One input: a pair, the number of candidates, and for path rules how the laws make a chain."""

    target: Law
    draft: Law
    candidates: int
    chain: str | None = None


def measure(name: str, case: Case, **options: Any) -> tuple[Fraction, Law]:
    """Total variation from what should be emitted, and the law of the (first) token emitted.

    For a path rule the distance is that of the joint law of ``candidates + 1`` tokens.
    """
    if case.chain is None:
        law = marginal(name, case.target, case.draft, case.candidates, **options).law
        return total_variation(law, case.target), law
    make = CHAINS[case.chain]
    target, draft = make(case.target), make(case.draft)
    length = case.candidates + 1
    emitted = complete(block_law(name, target, draft, case.candidates, **options), target, length)
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
    known = _registry()
    return [
        _row(name, CATALOGUE.get(name, About()), known.get(name))
        for name in [*CATALOGUE, *(name for name in known if name not in CATALOGUE)]
    ]


def _registry() -> dict[str, Any]:
    known: dict[str, Any] = {}
    for table in ("RULES", "PATH_RULES", "NEED_PARAMETERS"):
        known |= getattr(registry, table, {})
    return known


def _on_paths(name: str) -> bool:
    return name in PATH_RULES and name not in MARGINALS


def cases(name: str) -> Iterator[Case]:
    """Every input of the table for a rule."""
    if _on_paths(name):
        kinds, counts = list(CHAINS), range(1, max(CANDIDATES))
    else:
        kinds, counts = [None], MARGINALS[name].counts(max(CANDIDATES))
    for n in counts:
        for kind in kinds:
            for target, draft in FAMILY:
                yield Case(target, draft, n, kind)


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
    if options:
        found["options"] = {key: str(value) for key, value in options.items()}
    return found


def _row(name: str, about: About, rule: Any) -> dict[str, Any]:
    measurable = name in MARGINALS or name in PATH_RULES
    if _on_paths(name):
        proposal = "paths"
    else:
        own = MARGINALS[name].proposal if measurable else None
        proposal = getattr(getattr(rule, "proposal", None), "name", own)
    row = {
        "rule": name,
        "source": getattr(rule, "source", None) or about.source,
        "proposal": proposal,
        "claims_exact": bool(getattr(rule, "claims_exact", about.claims_exact)),
    }
    if not measurable:
        reason = about.unmeasured or "the oracle has no transcription of it"
        empty = {"condition": reason, "tier": None, "tv_max": None, "witness": None}
        return {**row, "measured": "not measured", **empty}
    worst, witness = _worst(name, about.options)
    verdict, condition = ("inexact" if worst else "exact"), None
    if not worst and about.breaking is not None:
        worst, witness = _worst(name, about.breaking)
        verdict, condition = ("exact-if" if worst else "exact"), (about.condition if worst else None)
    return {
        **row,
        "measured": verdict,
        "condition": condition,
        "tier": "rational",
        "tv_max": float(worst),
        "witness": witness,
    }
