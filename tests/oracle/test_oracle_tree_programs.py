"""The longest lossless step over a tree: values by hand, other oracles, certificates that can fail."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction as F
from typing import Any

import pytest

from resispec_verify.catalogue.random_trees import SHAPES, random_chain
from resispec_verify.oracle import (
    Uncertified,
    block_law,
    fork,
    limit_by_subsets,
    limit_of_tuples,
    longest_by_node,
    longest_step,
    memoryless,
    node_law,
    sum_bound,
    tree_law,
    without_replacement,
)
from resispec_verify.oracle.exact_programs import Program, certified, optimum
from resispec_verify.oracle.tree_programs import path_sets
from resispec_verify.oracle.tree_worlds import longest_in_worlds
from resispec_verify.proofs.longest_tree import attains, by_antichains

SIBLINGS = ("iid", "without-replacement", "best-and-one", "fixed")
BOTH = (((), ()), ((), ()))


def f(*values):
    return tuple(F(value) for value in values)


P, Q = memoryless(f("1/3", "2/3")), memoryless(f("2/3", "1/3"))


def accepted(blocks):
    return sum(mass * (len(block) - 1) for block, mass in blocks.items())


def chain(laws, otherwise):
    return lambda prefix: laws.get(tuple(prefix), otherwise)


def test_the_pair_of_the_block_paper():
    path = fork(1, 2)
    assert longest_step(P, Q, path, "iid").value == F(11, 9)
    assert longest_step(P, Q, path, "iid", lookahead=1).value == F(11, 9)
    assert (
        longest_step(P, Q, path, "iid", lookahead=0).value == longest_by_node(P, Q, path, "iid") == F(10, 9)
    )
    assert sum_bound(P, Q, path, "iid") == F(4, 3)
    two = fork(2, 2)
    lengths = (longest_by_node(P, Q, two, "iid"), longest_step(P, Q, two, "iid").value)
    assert (*lengths, sum_bound(P, Q, two, "iid")) == (F(128, 81), F(131, 81), F(134, 81))


def test_one_node_is_the_limit():
    rng = random.Random(3)
    for _ in range(6):
        p, q = (random_chain(rng, 3)(()) for _ in range(2))
        for n in (1, 2, 3):
            found = longest_step(memoryless(p), memoryless(q), fork(n, 1), "iid").value
            assert found == limit_by_subsets(p, q, n)
        found = longest_step(memoryless(p), memoryless(q), fork(2, 1), "without-replacement").value
        assert found == limit_of_tuples(p, without_replacement(q, 2))


def test_fixed_candidates_are_accepted_as_often_as_the_target_has_them():
    p, q = memoryless(f("1/2", "1/3", "1/6")), memoryless(f("1/4", "1/2", "1/4"))
    # The tree is {1, 10, 11, 0, 00, 01}: 5/6 at the first token, 25/36 at the second.
    assert longest_step(p, q, BOTH, "fixed").value == F(5, 6) + F(25, 36)
    assert accepted(node_law("eagle", p, q, BOTH)) == F(5, 6) + F(25, 36)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_the_more_is_seen_the_longer_and_by_node_is_shortest(shape):
    depth, nested = SHAPES[shape]
    for number, siblings in itertools.product(range(2), SIBLINGS):
        rng = random.Random(f"{shape} {number}")
        p, q = random_chain(rng, 2 + number), random_chain(rng, 2 + number)
        lengths = [longest_step(p, q, nested, siblings, lookahead=ahead).value for ahead in range(depth)]
        assert lengths == sorted(lengths)
        assert lengths[-1] == longest_step(p, q, nested, siblings).value <= sum_bound(p, q, nested, siblings)
        node = longest_by_node(p, q, nested, siblings)
        assert node <= lengths[0]
        if siblings != "iid" and shape in ("path of 3", "2 siblings with 2 children each", "2 paths of 2"):
            assert node == lengths[0]  # the shape below a text is known from the text


def test_without_looking_ahead_can_be_longer_than_node_by_node_where_shapes_differ():
    """The correction after a text may lean on what is drawn below it: exact in all, not at each node."""
    shape = (((), ()), ())
    p, q = memoryless(f("1/3", "2/3")), memoryless(f("2/3", "1/3"))
    assert longest_by_node(p, q, shape, "iid") < longest_step(p, q, shape, "iid", lookahead=0).value


def test_rules_do_not_exceed_it_and_one_that_is_inexact_does():
    over = 0
    for seed in range(4):
        rng = random.Random(seed)
        p, q = random_chain(rng, 3), random_chain(rng, 3)
        best = longest_step(p, q, fork(2, 2), "iid").value
        for name in ("gbv", "gls"):
            assert accepted(tree_law(name, p, q, fork(2, 2))) <= best
        for name in ("specinfer", "optimal-joint"):
            assert accepted(node_law(name, p, q, fork(2, 2))) <= longest_by_node(p, q, fork(2, 2), "iid")
        best = longest_step(p, q, BOTH, "without-replacement").value
        assert accepted(tree_law("traversal", p, q, BOTH)) <= best
        best = longest_step(p, q, fork(1, 3), "iid").value
        assert accepted(block_law("block", p, q, 3)) == accepted(block_law("hsd", p, q, 3)) == best
        over += accepted(block_law("hsd", p, q, 3, cap="last")) > best
    assert over > 1


def test_by_node_over_one_candidate_is_token_by_token():
    rng = random.Random(5)
    p, q = random_chain(rng, 3), random_chain(rng, 3)
    assert node_law("specinfer", p, q, fork(1, 3)) == block_law("speculative", p, q, 3)
    # docs/explanation/optimal-rules.md: 83/27 and 99/27 with the final token, in d5b2
    laws_p = chain({(): f("4/9", "5/9")}, f("1/2", "1/2"))
    laws_q = chain({(): f("2/3", "1/3")}, f("1/2", "1/2"))

    def target(prefix):
        return f(1, 0) if tuple(prefix[:1]) == (0,) else laws_p(prefix)

    def draft(prefix):
        return f(0, 1) if tuple(prefix[:1]) == (0,) else laws_q(prefix)

    shape = ()
    for _ in range(4):
        shape = (shape, shape)
    assert accepted(node_law("specinfer", target, draft, shape)) == F(83, 27) - 1


def test_when_the_sum_of_minima_is_attained_on_one_path():
    """Where Q(s) < P(s) the draft must lie below the target on the target's support; it need not be equal."""
    shape, p0, q0 = fork(1, 2), f("2/3", "1/3"), f("1/3", "2/3")
    for p1, q1, attained in (
        (f("1/2", "1/2"), f("1/2", "1/2"), True),
        (f(1, 0), f("1/2", "1/2"), True),  # q <= p where p > 0, and not equal
        (f("1/2", "1/2"), f("1/3", "2/3"), False),
    ):
        p, q = chain({(): p0, (0,): p1}, f(1, 0)), chain({(): q0, (0,): q1}, f("1/2", "1/2"))
        found = longest_step(p, q, shape, "iid").value
        assert (found == sum_bound(p, q, shape, "iid")) is attained
        assert attains(p, q, shape, "iid") is attained
    # After a prefix that is never drawn the draft's law does not matter.
    p, q = chain({}, f("1/2", "1/2")), chain({(): f(0, 1), (0,): f(1, 0)}, f("1/2", "1/2"))
    assert longest_step(p, q, shape, "iid").value == sum_bound(p, q, shape, "iid") == 1


def test_when_it_is_attained_on_random_trees():
    met = []
    for seed, (shape, siblings) in itertools.product(
        range(6), itertools.product((fork(2, 2), (((),), ()), fork(2, 2, trunk=1)), SIBLINGS)
    ):
        rng = random.Random(seed)
        p, q = random_chain(rng, 2), random_chain(rng, 2)
        found = longest_step(p, q, shape, siblings).value
        met.append(found == sum_bound(p, q, shape, siblings))
        assert met[-1] == attains(p, q, shape, siblings)
        assert found == by_antichains(p, q, shape, siblings)
    assert 0 < sum(met) < len(met)


def test_laws_off_the_tree_help_over_two_paths_of_three():
    """Two worlds that differ after token 1 only: a rule that cannot tell them apart loses in one of them."""
    half = f("1/2", "1/2")
    p0 = {(): f("1/5", "4/5"), (0,): f(0, 1), (0, 0): f(0, 1), (0, 1): f("3/5", "2/5")}
    q0 = {(): f("2/3", "1/3"), (0,): f("3/4", "1/4"), (0, 0): half, (0, 1): f(1, 0)}

    def world(after_p, after_q):
        return tuple(
            lambda prefix, laws=laws, after=after: after if prefix[:1] == (1,) else laws.get(prefix, half)
            for laws, after in ((p0, after_p), (q0, after_q))
        )

    alike, apart = world(half, half), world(f(1, 0), f(0, 1))
    shape = fork(2, 3)
    told = sum(longest_step(*world, shape, "iid").value for world in (alike, apart))
    blind = longest_in_worlds([alike, apart], shape, "iid")
    assert (blind, told) == (F(146, 45), F(2923, 900))
    assert longest_in_worlds([alike], shape, "iid") == longest_step(*alike, shape, "iid").value
    path = longest_in_worlds([alike, apart], fork(1, 3), "iid")
    assert path == sum(longest_step(*world, fork(1, 3), "iid").value for world in (alike, apart))


def test_path_sets_merge_twins():
    law = path_sets(Q, (((),), ()), "iid")
    assert law[frozenset([(0,), (0, 0)])] == F(4, 9) * F(2, 3)
    assert sum(law.values()) == 1
    assert len(path_sets(Q, fork(2, 2), "fixed")) == 1


def test_a_certificate_is_checked_in_fractions():
    program = Program([F(1), F(1)], [{0: F(1), 1: F(2)}, {0: F(3), 1: F(1)}], [F(1), F(1)])
    found = optimum(program)
    assert (found.value, found.point, found.prices) == (F(3, 5), f("1/5", "2/5"), f("2/5", "1/5"))
    assert certified(program, found.point, found.prices)
    assert not certified(program, f("1/5", "1/5"), found.prices)  # feasible, not the best
    assert not certified(program, f("1/5", "1/2"), found.prices)  # not feasible
    assert not certified(program, found.point, f("2/5", 0))  # the prices do not pay for the second variable


def test_what_cannot_be_certified_is_refused(monkeypatch):
    from resispec_verify.oracle import exact_programs

    program = Program([F(1), F(1)], [{0: F(1), 1: F(2)}, {0: F(3), 1: F(1)}], [F(1), F(1)])
    with pytest.raises(Uncertified, match="no optimum"):
        optimum(Program([F(1)], [{0: F(-1)}], [F(1)]))  # unbounded
    monkeypatch.setattr(exact_programs, "_READINGS", ((1e4, 1e9),))  # everything counts as 0
    with pytest.raises(Uncertified, match="no optimum in fractions"):
        optimum(program)


def test_the_pairs_of_the_verdicts():
    """docs/explanation/trees.md: what published rules leave, beside the longest step."""
    half, most = memoryless(f("1/2", "1/2")), memoryless(f("1/5", "4/5"))
    less, last = memoryless(f("2/5", "3/5")), memoryless(f(0, "1/3", "2/3"))
    even, one = memoryless(f("1/3", "1/3", "1/3")), (((),), ())
    for name, siblings, p, q, shape, length, longest in (
        ("gbv", "iid", half, half, fork(2, 1), F(3, 4), 1),
        ("gbv", "iid", most, less, fork(2, 1), F(24, 25), 1),
        ("gbv", "iid", most, less, fork(2, 2), F(233, 125), F(1219, 625)),
        ("traversal", "without-replacement", last, even, fork(2, 1), F(5, 6), 1),
        ("traversal", "without-replacement", P, Q, one, F(14, 9), F(5, 3)),
        ("univer", "best-and-one", P, Q, fork(2, 2), F(16, 9), F(17, 9)),
    ):
        assert accepted(tree_law(name, p, q, shape)) == length
        assert longest_step(p, q, shape, siblings).value == longest


def test_what_is_no_law_shape_or_way_of_drawing_is_refused():
    """No certified answer to a question that was not asked: each of these gave a number before."""
    half, third = memoryless(f("1/2", "1/2")), memoryless(f("1/3", "1/3", "1/3"))
    refused: Any = (
        (half, half, fork(2, 1), "without_replacement", "siblings must be one of iid"),
        (lambda _: f("1/4", "1/4"), half, fork(2, 1), "iid", r"target after .* must sum to exactly 1"),
        (half, lambda _: (0.1, 0.3), fork(2, 1), "iid", r"draft after .* must sum to exactly 1"),
        (lambda _: f("-1/4", "5/4"), half, fork(2, 1), "iid", "non-negative"),
        (half, third, fork(2, 1), "iid", "must have the 3 tokens"),
        (half, half, [(), ()], "iid", "nested tuples"),
    )
    for target, draft, shape, siblings, words in refused:
        for ask in (longest_step, longest_by_node, sum_bound):
            with pytest.raises(ValueError, match=words):
                ask(target, draft, shape, siblings)
        with pytest.raises(ValueError, match=words):
            longest_in_worlds([(target, draft)], shape, siblings)
    with pytest.raises(ValueError, match="lookahead must be at least 0"):
        longest_step(half, half, fork(1, 2), "iid", lookahead=-1)
    # A float is its binary value; the answer is a fraction.
    floats: Any = (lambda _: (0.5, 0.5), lambda _: (0.25, 0.75))
    found = longest_by_node(*floats, fork(1, 2), "iid")
    assert (type(found), found) == (F, F(3, 4) + F(9, 16))


def test_a_vertex_with_small_masses_is_read_again_before_it_is_refused():
    """Masses of 1e-12 count as 0 at first; the certificate then fails, and a finer reading has it."""
    p, q = f("43/125", "82/125"), f("1/10000", "9999/10000")
    assert longest_step(memoryless(p), memoryless(q), fork(3, 1), "iid").value == limit_by_subsets(p, q, 3)
