"""Any rule of one position, transcribed in a few lines and enumerated over every tuple of candidates.

Nothing here is clever: each tuple of candidates is walked on its own, from the first candidate to the
last, with exact rationals. The cost is V**n walks, so this is for a handful of tokens and candidates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any

from .laws import Law, as_law, read_pair

__all__ = [
    "Joint",
    "Outcomes",
    "Result",
    "State",
    "Transcription",
    "TupleLaw",
    "enumerate_rule",
    "independent",
    "outcomes_of",
    "planned",
    "without_replacement",
]

TupleLaw = Mapping[tuple[int, ...], Fraction]
#: What may be emitted for one tuple of candidates: (token, place of the candidate or None, probability).
Outcomes = list[tuple[int, int | None, Fraction]]
#: A rule that looks at the whole tuple: (target, draft, candidates) -> outcomes, which sum to one.
Joint = Callable[[Law, Law, tuple[int, ...]], Iterable[tuple[int, int | None, Fraction]]]


@dataclass(frozen=True)
class State:
    """What a sequential rule remembers between two candidates.

    Attributes
    ----------
    residual : tuple of Fraction, length V
        The current target R; the target itself at first.
    draft : tuple of Fraction, length V
        The current declared draft; it need not stay normalised.
    rejected : tuple of int
        The tokens rejected so far, in order.
    """

    residual: Law
    draft: Law
    rejected: tuple[int, ...] = ()


def _current_residual(state: Any) -> Law:
    return state.residual


@dataclass(frozen=True)
class Transcription:
    """A sequential rule as four small functions.

    Attributes
    ----------
    accept : callable (state, token) -> Fraction
        Probability of accepting the candidate, in [0, 1].
    reject : callable (state, token) -> state
        What the rule remembers after rejecting the candidate.
    final : callable (state) -> sequence of Fraction
        Law of the token drawn when every candidate was rejected; by default the current residual.
    start : callable (target, draft) -> state
        State before the first candidate; by default ``State(target, draft)``. States are opaque to the
        engine, so any other object will do.
    """

    accept: Callable[[Any, int], Fraction]
    reject: Callable[[Any, int], Any]
    final: Callable[[Any], Sequence[Fraction]] = _current_residual
    start: Callable[[Law, Law], Any] = State


@dataclass(frozen=True)
class _Plan:
    """Acceptance by round and token, the law drawn from by number of rejections, and that number."""

    accept: tuple[Law, ...]
    final: tuple[Law, ...]
    round: int = 0


def planned(plan: Callable[[Law, Law], tuple[Sequence[Law], Sequence[Law]]]) -> Transcription:
    """A rule that does not look at which tokens were rejected.

    Parameters
    ----------
    plan : callable (target, draft) -> (n laws, n + 1 laws)
        Acceptance of each token in each round, and what is drawn from after 0, ..., n rejections.
    """

    @cache
    def start(p: Law, q: Law) -> _Plan:
        accept, final = plan(p, q)
        return _Plan(tuple(accept), tuple(final))

    return Transcription(
        start=start,
        accept=lambda state, token: state.accept[state.round][token],
        reject=lambda state, token: replace(state, round=state.round + 1),
        final=lambda state: state.final[state.round],
    )


@dataclass(frozen=True)
class Result:
    """What a rule does at one position, exactly.

    Attributes
    ----------
    law : tuple of Fraction, length V
        The operational marginal: the law of the emitted token.
    acceptance : tuple of Fraction, length n
        Entry i is the unconditional probability that candidate i + 1 is the one emitted.
    """

    law: Law
    acceptance: tuple[Fraction, ...]


def independent(proposal: Sequence[Fraction], candidates: int) -> dict[tuple[int, ...], Fraction]:
    """Law of a tuple of `candidates` i.i.d. draws from `proposal`; tuples without mass are left out."""
    support = [token for token, mass in enumerate(proposal) if mass > 0]
    return {
        tokens: prod((proposal[token] for token in tokens), start=Fraction(1))
        for tokens in itertools.product(support, repeat=candidates)
    }


def without_replacement(proposal: Sequence[Fraction], candidates: int) -> dict[tuple[int, ...], Fraction]:
    """Law of an ordered tuple drawn without replacement; it is shorter where the support runs out."""
    support = [token for token, mass in enumerate(proposal) if mass > 0]
    law: dict[tuple[int, ...], Fraction] = {}
    for tokens in itertools.permutations(support, min(candidates, len(support))):
        weight, left = Fraction(1), Fraction(sum(proposal))
        for token in tokens:
            weight *= proposal[token] / left
            left -= proposal[token]
        law[tokens] = weight
    return law


def outcomes_of(rule: Transcription | Joint, target: Law, draft: Law, tokens: tuple[int, ...]) -> Outcomes:
    """What a rule may emit, given its candidates; without any it is a draw from the target.

    For a sequential rule candidate i is emitted with ``prod_{j<i} (1 - a_j) a_i``, ``a_i`` being its
    acceptance after the rejections before it, and a token of the final law with ``prod_j (1 - a_j)`` times
    its mass.

    Raises
    ------
    ValueError
        If the rule returns an acceptance outside [0, 1] or an improper law.
    """
    if not isinstance(rule, Transcription):
        found = list(rule(target, draft, tokens)) if tokens else [(x, None, p) for x, p in enumerate(target)]
        as_law((chance for _, _, chance in found), name=f"law of the outcomes of {tokens}")
        return found
    found: Outcomes = []
    state, reach = rule.start(target, draft), Fraction(1)
    for place, token in enumerate(tokens):
        accept = Fraction(rule.accept(state, token))
        if not 0 <= accept <= 1:
            raise ValueError(f"acceptance must lie in [0, 1], got {accept} for token {token}")
        found.append((token, place, reach * accept))
        reach *= 1 - accept
        if reach == 0:
            return found
        state = rule.reject(state, token)
    law = as_law(rule.final(state), name="final law")
    return found + [(token, None, reach * mass) for token, mass in enumerate(law)]


def enumerate_rule(
    rule: Transcription | Joint,
    target: Sequence[Any],
    draft: Sequence[Any],
    n: int,
    proposal: Sequence[Any] | TupleLaw | None = None,
) -> Result:
    """Enumerate what a rule emits, over every tuple of candidates.

    Parameters
    ----------
    rule : Transcription or joint rule
    target, draft : sequence of rationals, length V
        The target and the *declared* draft, which the rule uses in its tests.
    n : int
        Number of candidates, at least 0.
    proposal : sequence of rationals, or mapping from tuples to rationals, optional
        What the candidates are really drawn from: one law for i.i.d. draws, or a law over tuples of at
        most n tokens. By default i.i.d. draws from `draft`.

    Returns
    -------
    Result
        The exact marginal and acceptance.

    Raises
    ------
    ValueError
        If an input is not a law, or the rule returns an acceptance outside [0, 1] or an improper law.
    """
    p, q = read_pair(target, draft, n)
    law, acceptance = [Fraction(0)] * len(p), [Fraction(0)] * n
    for tokens, weight in _tuple_law(q, n, proposal).items():
        for token, place, chance in outcomes_of(rule, p, q, tokens):
            law[token] += weight * chance
            if place is not None:
                acceptance[place] += weight * chance
    return Result(tuple(law), tuple(acceptance))


def _tuple_law(draft: Law, candidates: int, proposal: Sequence[Any] | TupleLaw | None) -> TupleLaw:
    if proposal is None:
        return independent(draft, candidates)
    if not isinstance(proposal, Mapping):
        law = as_law(proposal, name="proposal")
        if len(law) != len(draft):
            raise ValueError(f"proposal must have the draft's {len(draft)} tokens, got {len(law)}")
        return independent(law, candidates)
    as_law(proposal.values(), name="proposal over tuples")
    for tokens in proposal:
        if len(tokens) > candidates or not all(0 <= token < len(draft) for token in tokens):
            raise ValueError(
                f"proposal must map tuples of at most {candidates} tokens below {len(draft)}, got {tokens}"
            )
    return {tokens: Fraction(weight) for tokens, weight in proposal.items()}
