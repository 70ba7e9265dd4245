"""Which policies keep a verifier exact, in fractions: random ones, and fair ones."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction as F

import pytest

from resispec_verify.oracle import complete, normalise, sequence_law, stopped_law

LENGTH = 2
PREFIXES = [prefix for k in range(LENGTH + 1) for prefix in itertools.product(range(2), repeat=k)]


def chain(draw):
    """A chain of two tokens with memory, positive everywhere."""
    return {prefix: normalise([F(draw.randint(1, 4)) for _ in range(2)]) for prefix in PREFIXES}.__getitem__


def random_policy(draw):
    """Any chances of keeping 0, 1 or 2 tokens, given the whole path: later tokens are looked at too."""
    chances = {path: normalise([F(draw.randint(k // 2, 3)) for k in range(3)]) for path in PREFIXES[3:]}
    return lambda path: dict(enumerate(chances[path]))


def predictable_policy(draw):
    """Goes on from a prefix with a chance of the prefix's own."""
    goes_on = {prefix: F(draw.randint(0, 3), 3) for prefix in PREFIXES}

    def kept(path):
        first, second = goes_on[()], goes_on[path[:1]]
        return {0: 1 - first, 1: first * (1 - second), 2: first * second}

    return kept


def fair(kept, draft):
    """Whether, given the tokens before it, a kept token has the draft's law."""
    drawn = sequence_law(draft, LENGTH)

    def mass(prefix):  # of paths that begin so and of which at least so many are kept
        return sum(
            weight * sum(share for count, share in kept(path).items() if count >= len(prefix))
            for path, weight in drawn.items()
            if path[: len(prefix)] == prefix
        )

    return all(
        mass((*prefix, token)) == draft(prefix)[token] * sum(mass((*prefix, other)) for other in range(2))
        for prefix in PREFIXES
        if len(prefix) < LENGTH
        for token in range(2)
    )


def exact(rule, target, draft, kept, after=None):
    blocks = stopped_law(rule, target, draft, LENGTH, kept, after=after)
    return complete(blocks, target, LENGTH + 1) == sequence_law(target, LENGTH + 1)


@pytest.mark.parametrize("rule", ["block", "speculative"])
@pytest.mark.parametrize("after", [None, "target"])
@pytest.mark.parametrize("make", [random_policy, predictable_policy])
def test_exact_for_the_draft_as_target_if_and_only_if_fair(rule, after, make):
    draw, seen = random.Random(7), set()
    for _ in range(25):
        target, draft = chain(draw), chain(draw)
        kept = make(draw)
        right = fair(kept, draft)
        seen.add(right)
        assert exact(rule, draft, draft, kept, after) is right
        if right:
            assert exact(rule, target, draft, kept, after)
    assert seen == {make is predictable_policy}


def test_a_policy_that_looks_at_later_tokens_and_is_fair():
    """Keeps one token or none, and the second token is the coin: the kept first token has its law."""
    target = chain(random.Random(3))
    flat = {prefix: (F(1, 2), F(1, 2)) for prefix in PREFIXES}.__getitem__

    def zero_or_one(path):
        return {int(path[1] == 0): F(1)}  # the second token is never kept, so it is a coin

    assert fair(zero_or_one, flat)
    assert exact("block", target, flat, zero_or_one)
    assert not fair(lambda path: {2 * int(path[1] == 0): F(1)}, flat)


@pytest.mark.parametrize("rule", ["block", "speculative"])
def test_a_correction_kept_beside_a_cut_is_exact_only_if_what_is_accepted_has_the_targets_law(rule):
    """None of two tokens is kept, but where the verifier rejected the first, its correction stands."""
    p, q = (F(1, 3), F(2, 3)), (F(2, 3), F(1, 3))

    def none(path):
        return {0: F(1)}

    for target, right in ((p, False), (q, True)):
        table = dict.fromkeys(PREFIXES, target).__getitem__
        assert exact(rule, table, dict.fromkeys(PREFIXES, q).__getitem__, none, "correction") is right


def test_what_is_refused():
    with pytest.raises(ValueError, match="must verify one path"):
        stopped_law("medusa", lambda s: (F(1),), lambda s: (F(1),), 1, lambda path: {0: F(1)})
    with pytest.raises(ValueError, match="after must be"):
        stopped_law("block", lambda s: (F(1),), lambda s: (F(1),), 1, lambda path: {0: F(1)}, after="x")
