"""Claimed against measured exactness, by the rational oracle on a fixed family of pairs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from resispec_verify.oracle import marginal, total_variation
from resispec_verify.rules import RULES

__all__ = ["FAMILY", "rules_table"]


def _law(*weights: int) -> tuple[Fraction, ...]:
    return tuple(Fraction(w, sum(weights)) for w in weights)


# V = 4: with three tokens some wrong rules pass. Crossing, tied, sparse, one-hot, equal and disjoint pairs.
FAMILY: tuple[tuple[tuple[Fraction, ...], tuple[Fraction, ...]], ...] = (
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
)
CANDIDATES = (1, 2, 3)


def rules_table() -> list[dict[str, Any]]:
    """One dictionary a rule, in the order of the registry; see the JSON of ``rules``."""
    return [_measure(name) for name in RULES]


def _measure(name: str) -> dict[str, Any]:
    rule = RULES[name]
    counts = [n for n in CANDIDATES if rule.most_candidates is None or n <= rule.most_candidates]
    worst, witness = Fraction(0), None
    for n in counts:
        for target, draft in FAMILY:
            law = marginal(name, target, draft, n).law
            tv = total_variation(law, target)
            if tv > worst:
                worst, witness = tv, (target, draft, n, law)
    return {
        "rule": name,
        "source": rule.source,
        "proposal": rule.proposal.name,
        "claims_exact": rule.claims_exact,
        "measured": "inexact" if worst else "exact",
        "condition": None,
        "tier": "rational",
        "tv_max": float(worst),
        "witness": None
        if witness is None
        else {
            "target": [str(v) for v in witness[0]],
            "draft": [str(v) for v in witness[1]],
            "candidates": witness[2],
            "marginal": [str(v) for v in witness[3]],
        },
    }
