"""Path rules on toy chains: joint laws of emitted blocks, exact."""

from __future__ import annotations

from fractions import Fraction as F

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.oracle import (
    block_law,
    complete,
    marginal,
    memoryless,
    normalise,
    rotating,
    sequence_law,
)


def f(*values):
    return tuple(F(value) for value in values)


@st.composite
def chains(draw, length=2):
    """Two chains over 2 or 3 tokens with a law of its own after every prefix."""
    size = draw(st.integers(2, 3))
    entries = st.lists(st.integers(0, 4), min_size=size, max_size=size).filter(any)
    tables = []
    for _ in range(2):
        prefixes = sequence_law(memoryless(normalise([F(1)] * size)), length)
        every = [()] + [prefix[:k] for prefix in prefixes for k in range(1, length + 1)]
        table = {prefix: normalise([F(w) for w in draw(entries)]) for prefix in dict.fromkeys(every)}
        tables.append(table.__getitem__)
    return tables


def accepted_length(blocks):
    return sum(weight * (len(block) - 1) for block, weight in blocks.items())


@settings(max_examples=40, deadline=None)
@given(chains())
def test_block_verification_is_exact_over_the_path_and_accepts_no_less(laws):
    target, draft = laws
    wanted = sequence_law(target, 3)
    blocks = block_law("block", target, draft, 2)
    assert complete(blocks, target, 3) == wanted
    tokens = block_law("speculative", target, draft, 2)
    assert complete(tokens, target, 3) == wanted
    assert accepted_length(blocks) >= accepted_length(tokens)


def test_the_example_of_the_block_verification_paper():
    """p = (1/3, 2/3), q = (2/3, 1/3), two tokens: 11/9 accepted against 10/9 token by token."""
    p, q = memoryless(f("1/3", "2/3")), memoryless(f("2/3", "1/3"))
    assert accepted_length(block_law("speculative", p, q, 2)) == F(10, 9)
    assert accepted_length(block_law("block", p, q, 2)) == F(11, 9)


def test_one_token_is_speculative_sampling():
    p, q = f("3/10", "4/10", "3/10"), f("6/10", "3/10", "1/10")
    for rule in ("block", "speculative"):
        blocks = block_law(rule, memoryless(p), memoryless(q), 1)
        assert accepted_length(blocks) == marginal("speculative", p, q, 1).acceptance[0]
        first = [sum(w for block, w in blocks.items() if block[0] == x) for x in range(3)]
        assert tuple(first) == p


@pytest.mark.parametrize("rule", ["block", "speculative"])
@pytest.mark.parametrize(
    ("target", "draft"),
    [
        (f("1/2", "1/2"), f("1/2", "1/2")),
        (f(1, 0), f(0, 1)),
        (f(1, 0, 0), f("1/3", "1/3", "1/3")),
        (f("1/4", "3/4"), f(1, 0)),
    ],
)
@pytest.mark.parametrize("make", [memoryless, rotating])
def test_edges(rule, target, draft, make):
    p, q = make(target), make(draft)
    blocks = block_law(rule, p, q, 3)
    assert sum(blocks.values()) == 1
    assert complete(blocks, p, 4) == sequence_law(p, 4)


def test_medusa_is_lossy_and_its_threshold_is_that_of_the_paper():
    p, q = memoryless(f("1/10", "2/10", "3/10", "4/10")), memoryless(f("4/10", "3/10", "2/10", "1/10"))
    # 1/10 and 2/10 are above min(0.09, 0.3 exp(-H)) = 0.0835: the first path of full length wins
    assert block_law("medusa", p, q, 2) == {(0, 0, 3): 1}  # then the target's best token
    drawn = {"correction": "target"}
    blocks = block_law("medusa", p, q, 2, **drawn)
    assert blocks == {(0, 0, x): F(x + 1, 10) for x in range(4)}
    assert complete(blocks, p, 3) != sequence_law(p, 3)
    # a target that is too sure of itself to let 1/20 pass: 0.3 exp(-0.1985) is above 0.09, so delta decides
    sure = memoryless(f("1/20", "19/20"))
    zero, split = memoryless(f(1, 0)), (F(1, 20), F(19, 20))
    assert block_law("medusa", sure, zero, 1, top=1, **drawn) == {(0,): split[0], (1,): split[1]}
    passes = block_law("medusa", sure, zero, 1, top=1, delta="1/25", **drawn)
    assert passes == {(0, 0): split[0], (0, 1): split[1]}
    # the longest wins over the first
    assert block_law("medusa", sure, zero, 1, top=2, **drawn) == {(1, 0): split[0], (1, 1): split[1]}
    # ties to the lowest index
    assert block_law("medusa", memoryless(f("1/2", "1/2")), zero, 1, top=1) == {(0, 0): 1}
    with pytest.raises(ValueError, match="correction must be greedy or target, got 'draw'"):
        block_law("medusa", p, q, 1, correction="draw")


def test_chains():
    assert rotating(f("1/2", "1/3", "1/6"))((1,)) == f("1/3", "1/6", "1/2")
    assert sequence_law(memoryless(f("1/2", "1/2")), 0) == {(): 1}
    assert complete({(0,): F(1)}, memoryless(f("1/4", "3/4")), 2) == {(0, 0): F(1, 4), (0, 1): F(3, 4)}
    with pytest.raises(ValueError, match=r"rule must be one of block, hsd, medusa, .*got 'specinfer'"):
        block_law("specinfer", memoryless(f(1)), memoryless(f(1)), 1)
