"""Replayed rounds to numbers: how many decisions agree, and whether the acceptance rates can be so.

Without the coins, acceptances at one place in the round are independent indicators of known probabilities,
and their number has a Poisson-binomial law. Draft, residual and bonus tokens are draws from known laws;
evidence on them is anytime-valid. All tests share one error rate, evenly. Not being rejected is no proof of
exactness.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from resispec_verify.evidence.changing_laws import ChangingLaws
from resispec_verify.logged.replay import Replay, tests_of
from resispec_verify.schema import envelope, plain
from resispec_verify.tables.row import label

__all__ = ["ALPHA", "POWER", "check_records", "poisson_binomial_tails", "replay_report", "summarize_replay"]

#: Default level of the statistical test, for all positions together.
ALPHA = 1e-6
#: Power at which the total variation that would have been found is stated.
POWER = 0.99
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


def _draws(kind: str, test: ChangingLaws, alpha: float) -> dict[str, Any]:
    """The test of one kind of draw, at level ``alpha``; impossible draws have infinite evidence."""
    evidence, found = test.log_evidence, test.found_at(alpha)
    return {
        "kind": kind,
        "draws": test.draws,
        "impossible": test.impossible,
        "log10_evidence": evidence / math.log(10),
        "p_value": math.exp(-evidence),
        "verdict": "not-rejected" if found is None else "rejected",
        "found_after": found,
        "looks_like": None if found is None or test.impossible else test.leading,
        "detectable_tv": test.detectable(alpha, POWER),
    }


def _by_position(result: Replay) -> list[dict[str, Any]]:
    """Tests of acceptances at each place in the round, given the drafted tokens and given only the rows."""
    positions = []
    for i, tally in sorted(result.tallies["tokens"].items()):
        given_rows = result.tallies["rows"].get(i)
        rows = (
            _test(given_rows) if given_rows else dict.fromkeys(("expected", "p_value", "p_value_sequential"))
        )
        positions.append(
            {"position": i, "reached": len(tally), "accepted": sum(t[0] for t in tally), **_test(tally)}
            | {f"{key}_over_drafts": value for key, value in rows.items()}
        )
    return positions


def summarize_replay(result: Replay, alpha: float = ALPHA) -> dict[str, Any]:
    """One object of ``"results"``."""
    decisions = [c for c in result.checks if c.kind == "acceptance" and c.u is not None]
    after = [c for c in result.checks if c.kind != "acceptance"]
    first = next(iter(result.diverges()), None)
    logged = any(entry["next_token"] is not None for entry in result.rounds.rounds)
    coins = result.repeated_chance is not None
    places = result.rounds.longest
    # Fixed by what is logged, not by what was drawn: places in the longest round, drafts, two kinds of next
    # tokens, coins.
    tests = max(1, tests_of(result.rule) * places + (places > 0) + 2 * logged + coins)
    positions = _by_position(result)
    # The exact test takes the probabilities as fixed, which in one continued text they are not.
    valid = ("p_value_sequential", "p_value_sequential_over_drafts")
    smallest = [entry[key] for entry in positions for key in valid if entry[key] is not None]
    rates = "rejected" if any(value <= alpha / tests for value in smallest) else "not-rejected"
    draws = {
        kind: _draws(kind, result.draws[kind], alpha / tests)
        for kind in ("draft", "residual", "bonus")
        if kind in result.draws
    }
    drafts = draws.pop("draft", None)
    verdicts = {rates, *(test["verdict"] for test in (drafts, *draws.values()) if test)}
    if result.repeated_chance is not None and result.repeated_chance <= alpha / tests:
        verdicts.add("rejected")
    text = result.rounds.emitted
    return plain({
        "rule": result.rule.name,
        "label": label(result.rule),
        "temperature": result.temperatures[0] if len(result.temperatures) == 1 else None,
        "candidates": result.rounds.candidates,
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
        "undraftable_tokens": drafts["impossible"] if drafts else 0,
        "repeated_uniforms": result.repeated,
        "repeated_uniforms_p_value": result.repeated_chance,
        "acceptance_by_position": positions,
        "acceptance_verdict": rates,
        "draft_token_test": drafts,
        "next_token_tests": list(draws.values()),
        "reported_logprobs": result.reported.summary(),
        "statistics": {"alpha": alpha, "tests": tests,
                       "verdict": "rejected" if "rejected" in verdicts else "not-rejected"},
        "tokens_emitted": sum(text.counts),
        "tokens_per_round": sum(text.counts) / len(text.counts),
        "rounds_cut": text.cut,
        "output_differs_at": text.differs,
        "notes": result.notes,
    })  # fmt: skip


def replay_report(results: Sequence[Replay], alpha: float = ALPHA) -> dict[str, Any]:
    """The whole report of ``replay``, JSON-ready."""
    return envelope("replay", [summarize_replay(result, alpha) for result in results])


def check_records(results: Sequence[Replay]) -> Iterator[dict[str, Any]]:
    """One record a check: what ``--csv`` writes."""
    for result in results:
        for check in result.checks:
            yield {"rule": label(result.rule), **asdict(check)}
