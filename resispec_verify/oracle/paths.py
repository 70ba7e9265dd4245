"""Rules that verify a whole path of tokens, enumerated on chains of a few tokens.

A chain gives, for every prefix, the law of the next token. A path rule emits a block: an accepted prefix of
the drafted path and one token of its own. Followed by draws from the target up to a common length, the
blocks give a law of sequences; the rule is exact over the path when that is the target's law.

References
----------
Sun et al. (2024), Block Verification Accelerates Speculative Decoding: Algorithm 2.
Cai et al. (2024), Medusa: typical acceptance.
Leviathan et al. (2023): speculative sampling, token by token, for comparison.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from .laws import Law, as_law, normalise

__all__ = [
    "PATH_RULES",
    "Chain",
    "Path",
    "block_law",
    "complete",
    "memoryless",
    "rotating",
    "sequence_law",
]

Path = tuple[int, ...]
Chain = Callable[[Path], Law]
Blocks = dict[Path, Fraction]


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


def _accept_block(target: Chain, draft: Chain, path: Path) -> list[tuple[Fraction, Law]]:
    """Block verification: for i = 0..L, the acceptance h_i and the law of the token after i tokens.

    ``w_i = min(1, w_{i-1} p/q)``, ``S_i = sum (w_i p - q)_+``, ``h_i = S_i / (S_i + 1 - w_i)``,
    ``h_L = w_L``. Where S_i = 1 - w_i = 0 the two laws agree and all that follows is accepted, so the
    value does not matter.
    """
    weight, steps = Fraction(1), []
    for i in range(len(path) + 1):
        p = target(path[:i])
        if i > 0:
            p_x, q_x = target(path[: i - 1])[path[i - 1]], draft(path[: i - 1])[path[i - 1]]
            weight = min(Fraction(1), weight * p_x / q_x)
        if i == len(path):
            steps.append((weight, p))
            continue
        left = [max(weight * a - b, Fraction(0)) for a, b in zip(p, draft(path[:i]), strict=True)]
        total = sum(left, Fraction(0))
        accept = total / (total + 1 - weight) if total + 1 > weight else Fraction(1)
        steps.append((accept, normalise(left, fallback=p)))
    return steps


def _block(target: Chain, draft: Chain, paths: Sequence[Path]) -> Blocks:
    """The longest prefix whose own test passes is kept; the empty prefix always passes."""
    blocks: Blocks = {}
    for path in paths:
        steps = _accept_block(target, draft, path)
        beyond = Fraction(1)  # no longer prefix passed
        for i in reversed(range(len(steps))):
            accept, correction = steps[i]
            kept = beyond * (accept if i > 0 else 1)
            beyond -= kept
            for token, mass in enumerate(correction):
                key = (*path[:i], token)
                blocks[key] = blocks.get(key, Fraction(0)) + kept * mass
    return blocks


def _by_token(target: Chain, draft: Chain, paths: Sequence[Path]) -> Blocks:
    """Speculative sampling token by token, stopping at the first rejection."""
    blocks: Blocks = {}
    for path in paths:
        reach = Fraction(1)
        for i in range(len(path) + 1):
            p = target(path[:i])
            stop, correction = reach, p
            if i < len(path):
                q = draft(path[:i])
                stop = reach * (1 - min(Fraction(1), p[path[i]] / q[path[i]]))
                correction = normalise(
                    [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)], fallback=p
                )
            for token, mass in enumerate(correction):
                key = (*path[:i], token)
                blocks[key] = blocks.get(key, Fraction(0)) + stop * mass
            reach -= stop
    return blocks


def typical(law: Law, token: int, delta: Fraction, alpha: Fraction) -> bool:
    """Medusa's test ``p > min(delta, alpha exp(-H(p)))``, the entropy in nats to 40 digits."""
    if law[token] > delta:
        return True
    with localcontext() as context:
        context.prec = 40
        masses = [Decimal(mass.numerator) / Decimal(mass.denominator) for mass in law if mass > 0]
        entropy = -sum((mass * mass.ln() for mass in masses), Decimal(0))
        bound = Decimal(alpha.numerator) / Decimal(alpha.denominator) * (-entropy).exp()
        return Decimal(law[token].numerator) / Decimal(law[token].denominator) > bound


def _medusa(
    target: Chain,
    draft: Chain,
    paths: Sequence[Path],
    *,
    delta: Any = "9/100",
    alpha: Any = "3/10",
    correction: str = "greedy",
) -> Blocks:
    """Typical acceptance: the longest accepted path wins, the first of equals; then a token of the target.

    By default that token is the target's argmax, ties to the lowest index: in the paper the first token of
    the next step is greedy and accepted unconditionally, and the code does so in its default mode (`fast`).
    """
    if correction not in ("greedy", "target"):
        raise ValueError(f"correction must be greedy or target, got {correction!r}")

    def accepted(path: Path) -> int:
        passes = (
            typical(target(path[:i]), path[i], Fraction(delta), Fraction(alpha)) for i in range(len(path))
        )
        return sum(1 for _ in itertools.takewhile(bool, passes))

    best = max(paths, key=accepted)
    kept = best[: accepted(best)]
    law = target(kept)
    if correction == "greedy":
        return {(*kept, max(range(len(law)), key=lambda x: (law[x], -x))): Fraction(1)}
    return {(*kept, token): mass for token, mass in enumerate(law) if mass > 0}


def _drawn(draft: Chain, length: int) -> Iterable[tuple[Sequence[Path], Fraction]]:
    """One path of `length` tokens, drawn from the draft."""
    return [((path,), weight) for path, weight in sequence_law(draft, length).items()]


def _heads(draft: Chain, length: int, top: int = 2) -> Iterable[tuple[Sequence[Path], Fraction]]:
    """All paths over the `top` best tokens; every head has the draft's law at the root."""
    law = draft(())
    best = sorted(range(len(law)), key=lambda x: (-law[x], x))[:top]
    return [(list(itertools.product(best, repeat=length)), Fraction(1))]


PATH_RULES: dict[str, tuple[Callable[..., Blocks], Callable[..., Any]]] = {
    "speculative": (_by_token, _drawn),
    "block": (_block, _drawn),
    "medusa": (_medusa, _heads),
}


def block_law(rule: str, target: Chain, draft: Chain, length: int, **options: Any) -> Blocks:
    """The exact joint law of the emitted block.

    Parameters
    ----------
    rule : {"speculative", "block", "medusa"}
        The rule: token by token, block verification, or Medusa's typical acceptance.
    target, draft : callable (prefix) -> law
        The two chains; see `memoryless` and `rotating`.
    length : int
        Number L of drafted tokens on a path.
    **options
        For "medusa": `delta` and `alpha`, rationals; `correction`, "greedy" or "target": the token after the
        accepted ones is the target's argmax, or a draw from it; `top`, the number of tokens a head proposes.

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
