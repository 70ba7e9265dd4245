"""Any sequential rule, transcribed in a few lines and enumerated over every tuple of candidates.

Nothing here is clever: each tuple of candidates is walked on its own, from the first candidate to the
last, with exact rationals. The cost is V**n walks, so this is for a handful of tokens and candidates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from .laws import Law, as_law, read_pair

__all__ = [
    "Joint",
    "Result",
    "State",
    "Transcription",
    "enumerate_joint",
    "enumerate_rule",
    "independent",
    "without_replacement",
]

TupleLaw = Mapping[tuple[int, ...], Fraction]
# (target, draft, candidates) -> what may be emitted: (token, place of the candidate or None, probability).
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
    capped : bool
        Whether a budget was capped on the way here (ResiSpec only).
    """

    residual: Law
    draft: Law
    rejected: tuple[int, ...] = ()
    capped: bool = False


def _current_residual(state: Any) -> Law:
    return state.residual


def _never(state: Any) -> bool:
    return False


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
    flag : callable (state) -> bool
        Marks final states whose total probability is wanted (see `Result.capped`); by default none.
    """

    accept: Callable[[Any, int], Fraction]
    reject: Callable[[Any, int], Any]
    final: Callable[[Any], Sequence[Fraction]] = _current_residual
    start: Callable[[Law, Law], Any] = State
    flag: Callable[[Any], bool] = _never


@dataclass(frozen=True)
class Result:
    """What a rule does at one position, exactly.

    Attributes
    ----------
    law : tuple of Fraction, length V
        The operational marginal: the law of the emitted token.
    acceptance : tuple of Fraction, length n
        Entry i is the unconditional probability that candidate i + 1 is the one emitted.
    capped : Fraction
        Probability that at least one ResiSpec budget was capped before the token was emitted (more
        generally, that the state at emission is flagged by the transcription).
    """

    law: Law
    acceptance: tuple[Fraction, ...]
    capped: Fraction = Fraction(0)


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


def _tuple_law(
    draft: Law, candidates: int, proposal: Sequence[Any] | TupleLaw | None
) -> dict[tuple[int, ...], Fraction]:
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


def enumerate_rule(
    transcription: Transcription,
    target: Sequence[Any],
    draft: Sequence[Any],
    n: int,
    proposal: Sequence[Any] | TupleLaw | None = None,
) -> Result:
    """Enumerate what a rule emits, over every tuple of candidates.

    ``law(y) = sum over tuples of P(tuple) [ sum_i prod_{j<i} (1 - a_j) a_i 1{x_i = y}
    + prod_j (1 - a_j) final(y) ]``, with ``a_i`` the acceptance of candidate i after the rejections
    before it.

    Parameters
    ----------
    transcription : Transcription
        The rule.
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
    target_law, draft_law = read_pair(target, draft, n)
    law = [Fraction(0)] * len(target_law)
    acceptance = [Fraction(0)] * n
    capped = Fraction(0)
    for tokens, weight in _tuple_law(draft_law, n, proposal).items():
        state, reach = transcription.start(target_law, draft_law), weight
        for position, token in enumerate(tokens):
            accept = Fraction(transcription.accept(state, token))
            if not 0 <= accept <= 1:
                raise ValueError(f"acceptance must lie in [0, 1], got {accept} for token {token}")
            law[token] += reach * accept
            acceptance[position] += reach * accept
            capped += reach * accept * transcription.flag(state)
            reach *= 1 - accept
            if reach == 0:
                break
            state = transcription.reject(state, token)
        if reach > 0:
            for token, mass in enumerate(as_law(transcription.final(state), name="final law")):
                law[token] += reach * mass
            capped += reach * transcription.flag(state)
    return Result(tuple(law), tuple(acceptance), capped)


def enumerate_joint(
    rule: Joint,
    target: Sequence[Any],
    draft: Sequence[Any],
    n: int,
    proposal: Sequence[Any] | TupleLaw | None = None,
) -> Result:
    """Enumerate what a rule emits that looks at the whole tuple of candidates at once.

    Parameters
    ----------
    rule : callable (target, draft, candidates) -> iterable of (token, place, probability)
        All that may be emitted for one tuple of candidates; `place` is the 0-based candidate that was
        accepted, or None. The probabilities must sum to one.
    target, draft, n, proposal
        As for `enumerate_rule`.

    Returns
    -------
    Result
        The exact marginal and acceptance.

    Raises
    ------
    ValueError
        If an input is not a law, or the outcomes of a tuple are not.
    """
    target_law, draft_law = read_pair(target, draft, n)
    law = [Fraction(0)] * len(target_law)
    acceptance = [Fraction(0)] * n
    for tokens, weight in _tuple_law(draft_law, n, proposal).items():
        outcomes = list(rule(target_law, draft_law, tokens))
        as_law((chance for _, _, chance in outcomes), name=f"law of the outcomes of {tokens}")
        for token, place, chance in outcomes:
            law[token] += weight * chance
            if place is not None:
                acceptance[place] += weight * chance
    return Result(tuple(law), tuple(acceptance))
