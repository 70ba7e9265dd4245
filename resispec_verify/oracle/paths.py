"""Rules that verify a whole path of tokens, enumerated on chains of a few tokens.

A chain gives, for every prefix, the law of the next token. A path rule emits a block: an accepted prefix of
the drafted path and one token of its own. Followed by draws from the target up to a common length, the
blocks give a law of sequences; the rule is exact over the path when that is the target's law.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from .laws import as_law
from .registry import PATH_RULES, Blocks, Chain, Path

__all__ = ["block_law", "complete", "drawn", "memoryless", "rotating", "sequence_law", "stopped_law"]


def memoryless(law: Sequence[Any]) -> Chain:
    """The chain whose next token has the same law after every prefix."""
    exact = as_law(law)
    return lambda prefix: exact


def rotating(law: Sequence[Any]) -> Chain:
    """A chain with memory: after a prefix the law is rotated by the sum of the prefix's tokens."""
    exact = as_law(law)
    return lambda prefix: tuple(exact[(x + sum(prefix)) % len(exact)] for x in range(len(exact)))


def sequence_law(chain: Chain, length: int) -> Blocks:
    """The law of the first `length` tokens of a chain; sequences without mass are left out."""
    law: Blocks = {(): Fraction(1)}
    for _ in range(length):
        law = {
            (*prefix, token): weight * mass
            for prefix, weight in law.items()
            for token, mass in enumerate(chain(prefix))
            if mass > 0
        }
    return law


def complete(blocks: Mapping[Path, Fraction], target: Chain, length: int) -> Blocks:
    """The law of `length` tokens: each block, followed by draws from the target."""
    law: Blocks = {}
    for emitted, weight in blocks.items():
        tails = sequence_law(lambda tail, head=emitted: target((*head, *tail)), length - len(emitted))
        for tail, chance in tails.items():
            law[(*emitted, *tail)] = law.get((*emitted, *tail), Fraction(0)) + weight * chance
    return law


def drawn(draft: Chain, length: int) -> list[tuple[Sequence[Path], Fraction]]:
    """One path of `length` tokens, drawn from the draft."""
    return [((path,), weight) for path, weight in sequence_law(draft, length).items()]


def block_law(rule: str, target: Chain, draft: Chain, length: int, **options: Any) -> Blocks:
    """The exact joint law of the emitted block.

    Parameters
    ----------
    rule : str
        A key of `PATH_RULES`; "speculative" goes token by token.
    target, draft : callable (prefix) -> law
        The two chains; see `memoryless` and `rotating`.
    length : int
        Number L of drafted tokens on a path.
    **options
        Those of the rule's transcription in `oracle.shipped`; for "medusa" also `top`, the number of tokens a
        head proposes.

    Returns
    -------
    dict from tuples of 1 to L + 1 tokens to Fraction
        The block's law.
    """
    if rule not in PATH_RULES:
        raise ValueError(f"rule must be one of {', '.join(PATH_RULES)}, got {rule!r}")
    verify, draw = PATH_RULES[rule]
    drawing = {key: value for key, value in options.items() if key == "top"}
    testing = {key: value for key, value in options.items() if key != "top"}
    law: Blocks = {}
    for paths, weight in draw(draft, length, **drawing):
        for emitted, chance in verify(target, draft, paths, **testing).items():
            if chance > 0:
                law[emitted] = law.get(emitted, Fraction(0)) + weight * chance
    return law


def stopped_law(
    rule: str,
    target: Chain,
    draft: Chain,
    length: int,
    kept: Callable[[Path], Mapping[int, Fraction]],
    *,
    after: str | None = None,
) -> Blocks:
    """The joint law of the block where a policy keeps a part of the drafted path.

    Parameters
    ----------
    rule : str
        "block" or "speculative"; others propose paths in a way of their own.
    target, draft, length
        As in `block_law`.
    kept : callable (path) -> mapping from numbers of tokens to chances
        How many tokens of a whole path of `length` tokens are kept.
    after : {None, "target", "correction"}
        None: what is kept is verified. Else the whole path is, and what was accepted is cut: where as many
        were accepted as are kept, or more, the target goes on; with "correction" only where more were.
    """
    if rule not in PATH_RULES or PATH_RULES[rule][1] is not drawn:
        raise ValueError(f"rule must verify one path that is drawn from the draft, got {rule!r}")
    if after not in (None, "target", "correction"):
        raise ValueError(f"after must be None, target or correction, got {after!r}")
    verify = PATH_RULES[rule][0]
    law: Blocks = {}
    for path, weight in sequence_law(draft, length).items():
        for count, share in kept(path).items():
            for emitted, chance in verify(target, draft, [path if after else path[:count]]).items():
                accepted = len(emitted) - 1
                cut = after is not None and accepted >= count and (accepted > count or after == "target")
                block = path[:count] if cut else emitted
                law[block] = law.get(block, Fraction(0)) + weight * share * chance
    return law
