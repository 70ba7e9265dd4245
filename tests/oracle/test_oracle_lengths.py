"""Accepted lengths are not bounded by the ratio of acceptances, in fractions; rules by node on trees."""

from __future__ import annotations

import random
from fractions import Fraction as F

import pytest

from resispec_verify.oracle import (
    block_law,
    enumerate_rule,
    independent,
    limit_by_subsets,
    memoryless,
    normalise,
)
from resispec_verify.oracle.engine import outcomes_of
from resispec_verify.oracle.shipped.optimal_joint import optimal_joint
from resispec_verify.oracle.shipped.specinfer import specinfer


def masses(rule, p, q, n):
    """Probability that each token is emitted as a candidate."""
    found = [F(0)] * len(p)
    for tokens, weight in independent(q, n).items():
        for token, place, chance in outcomes_of(rule, p, q, tokens):
            found[token] += weight * chance if place is not None else 0
    return found


def length(rule, node, levels, n, prefix=()):
    """Expected tokens of a step over the complete tree of so many levels; ``node(prefix)`` is (p, q)."""
    if levels == 1:
        return F(1)
    p, q = node(prefix)
    parts = masses(rule, p, q, n)
    return 1 + sum(
        mass * length(rule, node, levels - 1, n, (*prefix, token)) for token, mass in enumerate(parts) if mass
    )


SURE = (F(1), F(0))


def uneven(prefix):
    """After token 0 the two laws are disjoint, after token 1 they are equal."""
    if not prefix:
        return (F(4, 9), F(5, 9)), (F(2, 3), F(1, 3))
    return SURE, SURE[::-1] if prefix[0] == 0 else SURE


def race(p, q, tokens):
    """optimal-joint: at the root token 1 owns the left third, so that it wins with 1 - (2/3)^2 = 5/9."""
    line = [(1, q[1]), (0, q[0])]
    return optimal_joint(len(tokens), line)(p, q, tokens)


def test_a_tree_whose_lengths_differ_by_more_than_the_ratio_of_acceptances():
    root = uneven(())
    assert masses(specinfer(), *root, 2) == [F(12, 27), F(11, 27)]
    assert masses(race, *root, 2) == [F(4, 9), F(5, 9)]
    assert enumerate_rule(race, *root, 2).law == root[0]
    assert limit_by_subsets(*root, 2) / sum(masses(specinfer(), *root, 2)) == F(27, 23)  # the ratio at a node
    slow, fast = length(specinfer(), uneven, 5, 2), length(race, uneven, 5, 2)
    assert (slow, fast) == (F(83, 27), F(99, 27))
    assert (fast - 1) / (slow - 1) == F(9, 7)  # without the final token
    assert fast / slow > F(27, 23)


def test_a_rule_that_looks_ahead_has_longer_steps_where_the_ratio_is_one():
    p, q = memoryless((F(1, 3), F(2, 3))), memoryless((F(2, 3), F(1, 3)))

    def accepted(rule):
        return sum(weight * (len(block) - 1) for block, weight in block_law(rule, p, q, 2).items())

    assert (accepted("speculative"), accepted("block")) == (F(10, 9), F(11, 9))


@pytest.mark.parametrize("seed", range(20))
def test_specinfer_accepts_what_the_coq_proof_says(seed):
    """``min(p, S_n q)`` token by token, with S_1 = 1 and S_(k+1) = S_k + 1 - sum min(p, S_k q)."""
    draw = random.Random(seed)
    p, q = (normalise([F(draw.randint(0, 5)) for _ in range(3)] + [F(1)]) for _ in range(2))
    time = F(0)
    for n in (1, 2, 3):
        time += 1 - sum(min(a, time * b) for a, b in zip(p, q, strict=True))
        assert masses(specinfer(), p, q, n) == [min(a, time * b) for a, b in zip(p, q, strict=True)]


@pytest.mark.parametrize("seed", range(12))
def test_layouts_that_are_not_the_best_are_exact_and_accept_less(seed):
    """Random pieces in fractions; and the worst order, the tokens by ascending p/q."""
    draw = random.Random(seed)
    p, q = (normalise([F(draw.randint(1, 6)) for _ in range(3)]) for _ in range(2))
    pieces = [(x, q[x] * F(k, 3)) for x in range(3) for k in (1, 2)]
    draw.shuffle(pieces)
    ascending = sorted(((x, q[x]) for x in range(3)), key=lambda piece: p[piece[0]] / q[piece[0]])
    less = 0
    for n in (2, 3):
        limit = limit_by_subsets(p, q, n)
        for line in (pieces, ascending):
            found = enumerate_rule(optimal_joint(n, line), p, q, n)
            assert found.law == p
            assert sum(found.acceptance) <= limit
            less += sum(found.acceptance) < limit
    assert less or p == q
