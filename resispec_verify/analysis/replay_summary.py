"""Replayed rounds to numbers: how many decisions agree, and whether the acceptance rates can be so.

Without the coins, acceptances at one place in the round are independent indicators of known probabilities,
and their number has a Poisson-binomial law. Not being rejected is no proof of exactness.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from resispec_verify.analysis.replay import Replay
from resispec_verify.analysis.summary import plain

__all__ = ["ALPHA", "check_records", "poisson_binomial_tails", "summarize_replay"]

#: Default level of the statistical test, for all positions together.
ALPHA = 1e-6
# Log odds by which a wrong sampler may favour acceptance; the sequential test averages over both signs.
_TILTS = np.concatenate([s * 2.0 ** np.arange(-4, 3) for s in (1.0, -1.0)])


def poisson_binomial_tails(probabilities: np.ndarray, successes: int) -> tuple[float, float]:
    """``(P(S <= s), P(S >= s))`` of a sum S of independent indicators, by exact convolution.

    Every term is a product of non-negative numbers, so the relative error is below ``3 n`` roundoffs.
    """
    law = np.ones(1)
    for a in probabilities:
        law = np.append(law, 0.0) * (1 - a) + np.append(0.0, law) * a
    return min(1.0, float(law[: successes + 1].sum())), min(1.0, float(law[successes:].sum()))


def _test(tally: Sequence[tuple[bool, float, float, float]]) -> dict[str, Any]:
    """Expected acceptances, the exact two-sided p-value, and one that holds for any order of events.

    Both are conservative about rounding: many acceptances are held against the highest probabilities, few
    against the lowest. The exact one takes the probabilities as given; in one continued text later ones
    depend on earlier decisions, and then `p_value_sequential` holds: the reciprocal of the average over
    tilts t of ``prod e^(t d) / (1 - a + a e^t)``, whose mean is at most 1 (Markov).
    """
    outcome, value, low, high = (np.asarray(column, np.float64) for column in zip(*tally, strict=True))
    count = int(outcome.sum())
    few, many = poisson_binomial_tails(low, count)[0], poisson_binomial_tails(high, count)[1]
    bound = np.where(_TILTS[:, None] > 0, high, low)
    gain = _TILTS[:, None] * outcome - np.log1p(bound * np.expm1(_TILTS[:, None]))
    # One event of probability 0 refutes at any level; no tilt shows more than its own share of that.
    impossible = bool(np.any((outcome > 0) & (high <= 0)) or np.any((outcome == 0) & (low >= 1)))
    evidence = np.logaddexp.reduce(gain.sum(axis=-1)) - math.log(len(_TILTS))
    return {
        "expected": math.fsum(value),
        "p_value": min(1.0, 2 * min(few, many)),
        "p_value_sequential": 0.0 if impossible else float(np.exp(-max(0.0, evidence))),
    }


def summarize_replay(result: Replay, alpha: float = ALPHA) -> dict[str, Any]:
    """One object of ``"results"``."""
    decisions = [c for c in result.checks if c.kind == "acceptance" and c.u is not None]
    after = [c for c in result.checks if c.kind != "acceptance"]
    first = next(iter(result.diverges()), None)
    tests = max(1, sum(map(len, result.tallies.values())))
    positions = []
    for i, tally in sorted(result.tallies["tokens"].items()):
        entry = {"position": i, "reached": len(tally), "accepted": sum(t[0] for t in tally)}
        given_rows = result.tallies["rows"].get(i)
        rows = (
            _test(given_rows) if given_rows else dict.fromkeys(("expected", "p_value", "p_value_sequential"))
        )
        entry |= _test(tally) | {f"{key}_over_drafts": value for key, value in rows.items()}
        positions.append(entry)
    # The exact test takes the probabilities as fixed, which in one continued text they are not.
    valid = ("p_value_sequential", "p_value_sequential_over_drafts")
    smallest = [entry[key] for entry in positions for key in valid if entry[key] is not None]
    rejected = any(value <= alpha / tests for value in smallest)
    return plain({
        "rule": result.rule.name,
        "temperature": result.temperatures[0] if len(result.temperatures) == 1 else None,
        "candidates": 1,
        "path": result.rounds.path,
        "dtype": result.rounds.dtype,
        "rounds": len(result.rounds.rounds),
        "decisions": len(decisions),
        "agree": sum(c.logged == c.recomputed for c in decisions),
        "near_ties": sum(c.status == "near-tie" for c in decisions),
        "near_ties_differing": sum(c.status == "near-tie" and c.logged != c.recomputed for c in decisions),
        "divergences": len(result.diverges()),
        "first_divergence": None if first is None else asdict(first),
        "next_tokens": len(after),
        "next_tokens_possible": sum(c.status != "divergence" for c in after),
        "next_tokens_redrawn": sum(c.u is not None and c.status != "divergence" for c in after),
        "undraftable_tokens": result.undraftable,
        "repeated_uniforms": result.repeated,
        "acceptance_by_position": positions,
        "statistics": {"alpha": alpha, "tests": tests, "verdict": "rejected" if rejected else "not-rejected"},
        "notes": result.notes,
    })  # fmt: skip


def check_records(results: Sequence[Replay]) -> Iterator[dict[str, Any]]:
    """One record a check: what ``--csv`` writes."""
    for result in results:
        for check in result.checks:
            yield {"rule": result.rule.name, **asdict(check)}
