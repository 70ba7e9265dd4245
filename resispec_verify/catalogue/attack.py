"""Adversarial search: the pair of laws on which a rule does worst, shrunk to small fractions.

The search is a heuristic with random restarts, so finding nothing is no proof of anything; what it finds is
confirmed in exact fractions by the rational oracle and can be checked by hand.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from resispec_verify.catalogue.measured import CATALOGUE, CHAINS, Case, Law, measure, witness_of
from resispec_verify.errors import InputError, did_you_mean
from resispec_verify.oracle import (
    MARGINALS,
    PATH_RULES,
    TREE_RULES,
    fixed,
    limit_by_prefixes,
    limit_fixed,
    limit_pairs,
    limit_without_replacement,
    marginal,
)

__all__ = ["Search", "Witness", "attack", "counts_of", "limit_of", "shrink"]

# Laws are searched in multiples of 1 / GRID: fine enough for faults near certainty, cheap in fractions.
GRID = 100_000
FLOOR = -14.0  # logits below this round to probability 0
STARTS = 12  # random pairs tried for each one that is improved
SMALL = range(2, 31)
LARGE = (36, 40, 48, 50, 60, 80, 100, 120, 150, 200, 300, 500, 1010, 2000, 5000, 10_000)
# What share of the best value a small witness must keep, and the denominators tried for it, in turn.
STEPS = (
    (Fraction(9, 10), SMALL),
    (Fraction(7, 10), SMALL),
    (Fraction(1, 2), SMALL),
    (Fraction(9, 10), LARGE),
)


@dataclass(frozen=True)
class Witness:
    """A pair and what a goal is worth there.

    Attributes
    ----------
    value : Fraction
        The goal, exactly.
    case : Case
        The input.
    """

    value: Fraction
    case: Case


@dataclass
class Search:
    """What a search found.

    Attributes
    ----------
    rule : str
    options : mapping
        Parameters of the rule.
    vocab : int
        Number of tokens searched over.
    trials : int
        Pairs evaluated, those of shrinking included.
    seconds : float
    best : Witness or None
        Largest total variation found, if any.
    witness : dict or None
        The small witness: as in the table of ``rules``, with "tv".
    shortfall : Witness or None
        For a rule without a witness: the largest distance to the acceptance limit found.
    shortfall_witness : dict or None
        The small one: target, draft, candidates, acceptance, limit, as strings.
    compared : int
        Pairs whose acceptance was compared with the limit.
    """

    rule: str
    options: Mapping[str, Any]
    vocab: int
    trials: int = 0
    seconds: float = 0.0
    best: Witness | None = None
    witness: dict[str, Any] | None = None
    shortfall: Witness | None = None
    shortfall_witness: dict[str, Any] | None = None
    compared: int = 0


class _Spent(Exception):
    """The budget is used up."""


@dataclass
class _Goal:
    """A function of a case to maximise, with the budget it may use."""

    value: Callable[[Case], Fraction]
    until: float
    most_trials: float
    trials: int = 0
    best: Witness | None = None

    def __call__(self, case: Case) -> float:
        if self.trials >= self.most_trials or time.perf_counter() >= self.until:
            raise _Spent
        self.trials += 1
        value = self.value(case)
        if self.best is None or value > self.best.value:
            self.best = Witness(value, case)
        return float(value)


def counts_of(name: str) -> Sequence[int]:
    """Numbers of candidates worth trying: one to three, or what the rule takes; path lengths one and two."""
    return range(1, 3) if name not in MARGINALS else MARGINALS[name].counts(3)


def limit_of(name: str, case: Case) -> Fraction:
    """The acceptance that no exact rule can exceed with the rule's own candidates."""
    p, q, n = case.target, case.draft, case.candidates
    proposal = MARGINALS[name].proposal
    if proposal == "fixed":
        return limit_fixed(p, next(iter(fixed(q, n))))
    if proposal == "pairs":
        return limit_pairs(p, q)
    return (limit_by_prefixes if proposal == "iid" else limit_without_replacement)(p, q, n)


def _rounded(weights: np.ndarray, denominator: int, keep_support: bool = False) -> Law:
    """A nearby law in multiples of ``1 / denominator``, by largest remainders.

    With `keep_support` every token of positive weight gets at least one part, where they are enough.
    """
    least = (weights > 0).astype(int) if keep_support else np.zeros(len(weights), dtype=int)
    scaled = weights / weights.sum() * (denominator - int(least.sum()))
    whole = np.floor(scaled).astype(int)
    order = np.argsort(whole - scaled, kind="stable")
    whole[order[: denominator - int(least.sum()) - int(whole.sum())]] += 1
    return tuple(Fraction(int(w), denominator) for w in whole + least)


def _case(point: np.ndarray, template: Case) -> Case:
    """Softmax of the two halves of a point, on the grid."""
    laws = []
    for half in np.split(point, 2):
        logits = np.maximum(half - half.max(), FLOOR)
        laws.append(_rounded(np.where(logits > FLOOR, np.exp(logits), 0.0), GRID))
    return replace(template, target=laws[0], draft=laws[1])


def _start(rng: np.random.Generator, vocab: int) -> np.ndarray:
    """Logits of a random pair: anything from flat to sparse, or one token that is nearly certain."""
    halves = []
    for _ in range(2):
        if rng.random() < 0.2:
            rest = rng.dirichlet(np.ones(vocab)) * 10 ** -rng.uniform(0.0, 4.5)
            rest[rng.integers(vocab)] += 1.0 - rest.sum()
            halves.append(rest)
        else:
            halves.append(rng.dirichlet(np.full(vocab, rng.choice([0.1, 0.3, 1.0, 3.0]))))
    return np.log(np.maximum(np.concatenate(halves), 1e-9))


@dataclass(frozen=True)
class _Hunt:
    """Random starts, the best of each batch improved by Nelder-Mead, until a goal's budget is spent."""

    templates: Sequence[Case]
    vocab: int
    rng: np.random.Generator

    def maximise(self, goal: _Goal) -> Witness | None:
        """The best case met, or None where nothing was above 0."""
        rounds = 0
        with contextlib.suppress(_Spent):
            while True:
                self._improve(goal, self.templates[rounds % len(self.templates)])
                rounds += 1
        return goal.best if goal.best is not None and goal.best.value > 0 else None

    def _improve(self, goal: _Goal, template: Case) -> None:
        from scipy.optimize import minimize

        starts = [_start(self.rng, self.vocab) for _ in range(STARTS)]
        values = [goal(_case(point, template)) for point in starts]
        if max(values) > 0:
            minimize(
                lambda point: -goal(_case(point, template)),
                starts[int(np.argmax(values))],
                method="Nelder-Mead",
                options={"maxfev": 40 * self.vocab, "adaptive": True, "xatol": 1e-3, "fatol": 1e-7},
            )


def shrink(value: Callable[[Case], Fraction], found: Witness) -> tuple[Witness, int]:
    """The smallest common denominator that keeps nine tenths of the value, or less if that needs above 30.

    Tokens that neither law has are dropped. Each denominator is tried by nearest fractions, and with no
    positive probability rounded to 0.

    Parameters
    ----------
    value : callable (Case) -> Fraction
        What was maximised.
    found : Witness
        The best input.

    Returns
    -------
    Witness, int
        The small witness with its exact value, and the number of evaluations.
    """
    case, trials = found.case, 0
    tokens = [x for x in range(len(case.target)) if case.target[x] + case.draft[x] > 0]
    laws = [np.array([float(law[x]) for x in tokens]) for law in (case.target, case.draft)]
    for kept, denominators in STEPS:
        for denominator in denominators:
            for keep_support in (False, True):
                if keep_support and denominator < len(tokens):
                    continue
                target, draft = (_rounded(law, denominator, keep_support) for law in laws)
                small = replace(case, target=target, draft=draft)
                trials += 1
                if (worth := value(small)) >= kept * found.value:
                    return Witness(worth, small), trials
    return found, trials


def attack(
    name: str,
    *,
    vocab: int = 5,
    candidates: int | None = None,
    seed: int = 0,
    seconds: float = 20.0,
    most_trials: float = float("inf"),
    options: Mapping[str, Any] | None = None,
) -> Search:
    """Search for the pair on which a rule emits the most wrong law.

    Where every total variation met is 0, the second half of the budget looks for the largest shortfall from
    the acceptance limit instead (not for path rules).

    Parameters
    ----------
    name : str
        A rule that the oracle has.
    vocab : int
        Number of tokens.
    candidates : int, optional
        Number of candidates, or the length of a path; several are tried by default.
    seed : int
        For the random starts.
    seconds, most_trials : float
        Budget of time and of evaluations; with the second alone a run can be repeated.
    options : mapping, optional
        Parameters of the rule; those of the table by default.

    Returns
    -------
    Search
        What was found.

    Raises
    ------
    InputError
        A rule without an oracle, or a number out of range.
    """
    _check(name, vocab, candidates, seconds)
    options = dict(CATALOGUE[name].measured_with if options is None else options)
    started = time.perf_counter()
    search = Search(name, options, vocab)
    nowhere = (Fraction(1),)
    kinds = [None] if name in MARGINALS else list(CHAINS)
    counts = counts_of(name) if candidates is None else (candidates,)
    hunt = _Hunt(
        [Case(nowhere, nowhere, n, kind) for n in reversed(counts) for kind in kinds],
        vocab,
        np.random.default_rng(seed),
    )
    _find_wrong(search, hunt, started + seconds, most_trials)
    if search.best is None and name in MARGINALS:
        _find_short(search, hunt, started + seconds, most_trials)
    search.seconds = time.perf_counter() - started
    return search


def _find_wrong(search: Search, hunt: _Hunt, until: float, most_trials: float) -> None:
    """The largest total variation; half of the budget where another search may follow."""

    def tv(case: Case) -> Fraction:
        return measure(search.rule, case, **search.options)[0]

    now = time.perf_counter()
    share = 0.5 if search.rule in MARGINALS else 1.0
    goal = _Goal(tv, now + share * (until - now), share * most_trials)
    search.best = hunt.maximise(goal)
    if search.best is not None:
        goal.until, goal.most_trials = until, most_trials
        search.best = hunt.maximise(goal) or search.best
        small, more = shrink(tv, search.best)
        goal.trials += more
        law = measure(search.rule, small.case, **search.options)[1]
        search.witness = {**witness_of(small.case, law, search.options), "tv": str(small.value)}
    search.trials += goal.trials


def _find_short(search: Search, hunt: _Hunt, until: float, most_trials: float) -> None:
    """The largest distance to the acceptance limit."""

    def missed(case: Case) -> Fraction:
        return limit_of(search.rule, case) - _acceptance(search.rule, case, search.options)

    goal = _Goal(missed, until, most_trials - search.trials)
    search.shortfall = hunt.maximise(goal)
    search.compared = goal.trials
    if search.shortfall is not None:
        small, more = shrink(missed, search.shortfall)
        goal.trials += more
        search.shortfall_witness = _shortfall(search.rule, small.case, search.options)
    search.trials += goal.trials


def _acceptance(name: str, case: Case, options: Mapping[str, Any]) -> Fraction:
    found = marginal(name, case.target, case.draft, case.candidates, **options)
    return sum(found.acceptance, Fraction(0))


def _shortfall(name: str, case: Case, options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "target": [str(v) for v in case.target],
        "draft": [str(v) for v in case.draft],
        "candidates": case.candidates,
        "acceptance": _text(_acceptance(name, case, options)),
        "limit": _text(limit_of(name, case)),
    }


def _text(value: Fraction) -> str:
    """A fraction; a decimal where it would fill a line (K-SEQ's rho is irrational)."""
    exact = str(value)
    return exact if len(exact) <= 40 else f"{float(value):.15g}"


def _check(name: str, vocab: int, candidates: int | None, seconds: float) -> None:
    if name not in MARGINALS and name not in PATH_RULES:
        known = [rule for rule in CATALOGUE if rule in MARGINALS or rule in PATH_RULES]
        hint = did_you_mean(name, known) or f" (those it can attack: {', '.join(known)})"
        why = "the oracle has no transcription of" if name in CATALOGUE else "unknown rule"
        why = "trees are not searched, and this rule decides about them:" if name in TREE_RULES else why
        raise InputError(f"--attack: {why} {name!r}{hint}")
    if not 2 <= vocab <= 8:
        raise InputError(f"--vocab must be 2 to 8 for enumeration in fractions, got {vocab}")
    if candidates is not None and candidates not in (allowed := counts_of(name)):
        raise InputError(
            f"--candidates must be one of {', '.join(map(str, allowed))} for {name}, got {candidates}"
        )
    if not 0 < seconds < float("inf"):
        raise InputError(f"--budget must be a positive number of seconds, got {seconds:g}")
