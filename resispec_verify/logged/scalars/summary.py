"""A replayed scalar log as one object of ``"results"``, and the lines of its CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from resispec_verify.evidence.acceptance_bets import Evidence
from resispec_verify.logged.scalars.replay import TESTS, Depth, ScalarReplay
from resispec_verify.schema import envelope, plain

__all__ = ["differing_records", "scalar_report", "summarize_scalars"]


def summarize_scalars(result: ScalarReplay) -> dict[str, Any]:
    """One object of ``"results"``."""
    share = result.alpha / TESTS
    rates = [_rate(None, result.all_depths), *(_rate(d, found) for d, found in sorted(result.depths.items()))]
    uniforms = _law("uniforms", result.coins.evidence, share)
    after = [_law(kind, law.evidence, share) for kind, law in result.next_laws.items() if law.evidence.count]
    chance = result.repeats.chance() if result.uniforms else None
    verdicts = {test["verdict"] for test in (*rates, *after, *([uniforms] if uniforms["draws"] else []))}
    if (chance is not None and chance <= share) or result.impossible_next:
        verdicts.add("rejected")
    first = next(iter(result.differing), None)
    return plain({
        "form": "scalars",
        "rule": result.rule,
        "path": result.path,
        "precision": {key: kind.name for key, kind in result.precision.items() if kind.name != "exact"},
        "decisions": result.decisions,
        "with_uniforms": result.with_u,
        "agree": result.agree,
        "near_ties": result.near_ties,
        "near_ties_differing": result.near_ties_differing,
        "divergences": result.divergences,
        "first_divergence": None if first is None else asdict(first),
        "undraftable_tokens": result.undraftable,
        "acceptance": rates[0],
        "acceptance_by_depth": rates[1:],
        "uniforms_test": uniforms if uniforms["draws"] else None,
        "repeated_uniforms": result.repeats.near,
        "repeated_stretches": result.repeats.stretches,
        "repeated_uniforms_p_value": chance,
        "next_tokens": result.next_tokens,
        "next_tokens_impossible": result.impossible_next,
        "next_token_tests": after,
        "reported_logprobs": result.reported.summary(),
        "statistics": {"alpha": result.alpha, "tests": TESTS,
                       "verdict": "rejected" if "rejected" in verdicts else "not-rejected"},
        "notes": _notes(result),
    })  # fmt: skip


def _rate(depth: int | None, found: Depth) -> dict[str, Any]:
    evidence = found.evidence
    after = evidence.found_after(found.alpha)
    return {
        "depth": depth,
        "decisions": found.decisions,
        "accepted": found.accepted,
        "expected": found.expected,
        "rate": found.accepted / found.decisions,
        "expected_rate": found.expected / found.decisions,
        "impossible": evidence.impossible,
        "alpha": found.alpha,
        **_verdict(evidence, after),
    }


def _law(kind: str, evidence: Evidence, alpha: float) -> dict[str, Any]:
    return {"kind": kind, "draws": evidence.count, **_verdict(evidence, evidence.found_after(alpha))}


def _verdict(evidence: Evidence, after: int | None) -> dict[str, Any]:
    return {
        "log10_evidence": evidence.log_evidence / math.log(10),
        "p_value": evidence.p_value,
        "verdict": "not-rejected" if after is None else "rejected",
        "found_after": after,
        "looks_like": None if after is None or evidence.impossible else evidence.leading,
    }


def _notes(result: ScalarReplay) -> list[str]:
    notes = []
    if result.others:
        names = sorted(result.others)
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        notes.append(f"keys that are not read: {', '.join(names[:8])}{more}")
    if result.undraftable:
        notes.append(f"q = 0 at {result.undraftable} decisions: the draft cannot have given these tokens")
    untested = result.next_tokens - sum(law.evidence.count for law in result.next_laws.values())
    if untested:
        notes.append(
            f"{untested} next tokens have no next_cdf: whether they are possible is all that is checked"
        )
    if not result.with_u:
        notes.append("no uniforms: single decisions are not recomputed, only rates are tested")
    return notes


def scalar_report(results: Sequence[ScalarReplay]) -> dict[str, Any]:
    """The whole report of ``replay`` on scalar logs, JSON-ready."""
    return envelope("replay", [summarize_scalars(result) for result in results])


def differing_records(results: Sequence[ScalarReplay]) -> Iterator[dict[str, Any]]:
    """One record a decision that differs, of those that are kept: what ``--csv`` writes."""
    for result in results:
        for decision in result.differing:
            yield {"rule": result.rule, "path": result.path, **asdict(decision)}
