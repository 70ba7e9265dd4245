"""Tree rules on toy chains, in fractions: joint laws of emitted blocks, and what they are over paths."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction as F

import pytest

from resispec_verify.catalogue.random_trees import SHAPES, measure_trees, random_chain, random_pair
from resispec_verify.oracle import (
    TREE_RULES,
    block_law,
    complete,
    drawn_trees,
    fork,
    memoryless,
    node_law,
    sequence_law,
    tree_law,
)


def f(*values):
    return tuple(F(value) for value in values)


def accepted_length(blocks):
    return sum(weight * (len(block) - 1) for block, weight in blocks.items())


@pytest.mark.parametrize("name", list(TREE_RULES))
def test_exact_on_random_trees(name):
    found = list(measure_trees(name, 9))
    assert len(found) in (3 * 9, len(SHAPES) * 9)
    assert all(one.exact for one in found)
    assert any(one.accepted > 1 for one in found)


def test_the_laws_of_a_random_pair_do_not_depend_on_what_is_asked_first():
    """Zeros keep some texts from a chain; their laws are drawn all the same, before anything is asked."""
    prefixes = [text for size in range(3) for text in itertools.product(range(3), repeat=size)]
    for seed in range(5):
        one, other = (random_pair(random.Random(seed), 3, 2) for _ in range(2))
        asked = {(i, s): one[i](s) for s in prefixes for i in (0, 1)}
        assert asked == {(i, s): other[i](s) for s in reversed(prefixes) for i in (1, 0)}


def test_a_rule_that_is_not_is_found():
    assert sum(not one.exact for one in measure_trees("gbv", 9, ties="drawn")) > 3


@pytest.mark.parametrize("name", [name for name in TREE_RULES if name != "gls"])
def test_on_one_path_every_rule_is_block_verification(name):
    rng = random.Random(1)
    for _ in range(10):
        target, draft = random_chain(rng, 3), random_chain(rng, 3)
        wanted = {block: mass for block, mass in block_law("block", target, draft, 2).items() if mass}
        assert tree_law(name, target, draft, fork(1, 2)) == wanted


def test_hsd_is_block_verification():
    rng = random.Random(2)
    credit = 0
    for _ in range(40):
        target, draft = random_chain(rng, 3), random_chain(rng, 3)
        blocks = block_law("block", target, draft, 3)
        assert block_law("hsd", target, draft, 3) == blocks
        last = block_law("hsd", target, draft, 3, cap="last")
        credit += complete(last, target, 4) != complete(blocks, target, 4)
        assert accepted_length(last) >= accepted_length(blocks)
    assert credit > 10


def test_the_pair_of_the_block_paper_over_trees():
    """p = (1/3, 2/3), q = (2/3, 1/3): two paths of two tokens, against 11/9 over one."""
    p, q = memoryless(f("1/3", "2/3")), memoryless(f("2/3", "1/3"))
    lengths = {name: accepted_length(tree_law(name, p, q, fork(2, 2))) for name in TREE_RULES}
    assert min(lengths.values()) > F(11, 9)
    # Two tokens without replacement are all there are, so at least one token is always accepted.
    assert tree_law("traversal", p, q, fork(2, 1)) == sequence_law(p, 2)
    # The greater of two draws has s = (4/9, 5/9): 1 - TV(p, s) = 8/9.
    assert accepted_length(tree_law("gbv", p, q, fork(2, 1))) == F(8, 9)


def test_drawn_trees():
    draft = memoryless(f("1/2", "1/3", "1/6"))
    for siblings in ("iid", "without-replacement", "best-and-one"):
        drawn = drawn_trees(draft, (((),), ()), siblings)
        assert sum(weight for _, weight in drawn) == 1
    pairs = {(x, y): weight for ((x, _), (y, _)), weight in drawn_trees(draft, fork(2, 1), "best-and-one")}
    assert pairs == {(0, 1): F(2, 3), (0, 2): F(1, 3)}
    pairs = dict(drawn_trees(draft, fork(2, 1), "without-replacement"))
    assert pairs[((0, ()), (2, ()))] == F(1, 2) * F(1, 3)
    # Where nothing is left to draw, there is no further child.
    (only,) = drawn_trees(memoryless(f(1, 0)), fork(2, 1), "without-replacement")
    assert only == (((0, ()),), 1)
    assert fork(2, 3, trunk=1) == ((((),), ((),)),)


def test_unknown_rules_and_shapes():
    law = memoryless(f(1))
    with pytest.raises(ValueError, match="rule must be one of gbv, gls, traversal"):
        tree_law("block", law, law, ())
    for name in ("gbv", "gls"):
        with pytest.raises(ValueError, match="that part at the root"):
            tree_law(name, law, law, (((), ()),))


def test_a_shape_a_rule_or_a_way_of_drawing_that_there_is_not_is_refused():
    half = memoryless(f("1/2", "1/2"))
    with pytest.raises(ValueError, match="siblings must be one of"):
        drawn_trees(half, fork(2, 1), "fixed")
    with pytest.raises(ValueError, match="rule must be one of"):
        node_law("nothing", half, half, fork(2, 1))
    for paths, length, trunk in ((0, 1, 0), (1, 0, 0), (2, 1, 1), (2, 2, -1)):
        with pytest.raises(ValueError, match="a fork needs"):
            fork(paths, length, trunk)
