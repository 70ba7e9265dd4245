"""What a rule emits on a pair of laws, in fractions: the oracle's transcriptions, with shared prefixes.

`resispec_verify.oracle.marginal` walks every tuple of candidates on its own. Here tuples that begin alike
share their states, and candidates that leave the same state are walked once, so that sixty tokens are within
reach. `test_extremes` holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction as F
from typing import Any

from resispec_verify.oracle import MARGINALS, Result, marginal
from resispec_verify.oracle.engine import State, Transcription

__all__ = ["law_of"]

Law = tuple[F, ...]


def law_of(name: str, target: Law, draft: Law, n: int, proposal: Law | None = None, **options: Any) -> Result:
    """The oracle's result for the rule called ``name``, candidates drawn in its own way.

    From ``proposal``, where the draft is only what is declared.
    """
    entry = MARGINALS[name]
    made = entry.make(n, **options) if entry.counted else entry.make(**options)
    if not isinstance(made, Transcription):
        return marginal(name, target, draft, n, proposal=proposal, **options)
    law, acceptance = [F(0)] * len(target), [F(0)] * n
    # By state, with the tokens drawn where the next candidate's law depends on them.
    level: dict[Any, tuple[Any, tuple[int, ...], F]] = {None: (made.start(target, draft), (), F(1))}
    for k in range(n):
        after: dict[Any, tuple[Any, tuple[int, ...], F]] = {}
        for state, drawn, weight in level.values():
            missing = F(1)
            for token, chance in _next(entry.proposal, draft if proposal is None else proposal, drawn):
                missing -= chance
                accept = made.accept(state, token)
                law[token] += weight * chance * accept
                acceptance[k] += weight * chance * accept
                left = weight * chance * (1 - accept)
                if left:
                    child = made.reject(state, token)
                    seen = drawn if entry.proposal == "iid" else (*drawn, token)
                    key = _key(name, child, seen)
                    old = after[key][2] if key in after else F(0)
                    after[key] = (child, seen, old + left)
            if missing:
                _emit(law, weight * missing, made.final(state))
        level = after
    for state, _, weight in level.values():
        _emit(law, weight, made.final(state))
    return Result(tuple(law), tuple(acceptance))


def _emit(law: list[F], weight: F, final: Any) -> None:
    for token, mass in enumerate(final):
        law[token] += weight * mass


def _next(proposal: str, draft: Law, drawn: tuple[int, ...]) -> Iterator[tuple[int, F]]:
    """Tokens and probabilities of the next candidate; fewer than one in all where there may be none."""
    if proposal == "fixed":
        order = sorted(range(len(draft)), key=lambda x: (-draft[x], x))
        yield from ((x, F(1)) for x in order[len(drawn) : len(drawn) + 1])
        return
    left = sum((draft[x] for x in range(len(draft)) if x not in drawn), F(0))
    for x, mass in enumerate(draft):
        if mass and x not in drawn:
            yield x, mass / left


def _key(name: str, state: Any, seen: tuple[int, ...]) -> Any:
    """Equal for states that go on alike: all but one of the rules forget the order of what was rejected."""
    if isinstance(state, State) and name != "specinfer-skip-duplicates":
        state = replace(state, rejected=())
    return (state, frozenset(seen)) if seen else state
