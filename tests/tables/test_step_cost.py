"""What a step costs, and the tree with the most tokens a millisecond."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from resispec_verify.errors import InputError
from resispec_verify.kernels.optimal.tree_growth import grow, growth
from resispec_verify.tables.step_cost import StepCost, drafted_from, fastest_grown, priced, two_best
from resispec_verify.topology import Topology

NODES = np.array([1, 4, 8])
TARGET = np.array([10.0, 11.0, 15.0])


def table(draft=None):
    return StepCost(NODES, TARGET, None if draft is None else np.asarray(draft, float), "--cost t.csv")


def test_a_step_is_a_pass_of_the_target_and_one_of_the_draft_a_level():
    tree = Topology.parse("d3b2")  # 7 nodes; the draft passes over the root, then over 2 nodes
    assert drafted_from(tree) == [1, 2]
    assert table().of(tree) == pytest.approx(11 + 3 / 4 * 4)
    assert table([2, 5, 6]).of(tree) == pytest.approx(14 + 2 + 3)
    assert drafted_from(Topology.parse("-1,0,0,1")) == [1, 1]
    assert drafted_from(Topology.parse("d1b1")) == []
    assert table([2, 5, 6]).of(Topology.parse("d1b1")) == 10.0


def test_nothing_is_said_beyond_the_sizes_that_are_given():
    with pytest.raises(InputError, match=r"t\.csv: the tree d3b3 has 13 nodes, .* given for 1 to 8"):
        table().of(Topology.parse("d3b3"))
    later = StepCost(NODES[1:], TARGET[1:], None, "--cost t.csv")
    with pytest.raises(InputError, match="has 3 nodes, and milliseconds are given for 4 to 8"):
        later.of(Topology.parse("d2b2"))
    assert later.plain() is None
    assert table().plain() == 10.0


def test_the_price_of_a_length():
    found = priced(2.5, 0.5, table(), Topology.parse("-1,0,0,1"))
    assert found == {
        "step_ms": 11.0,
        "tokens_per_ms": pytest.approx(2.5 / 11),
        "tokens_per_ms_se": pytest.approx(0.5 / 11),
        "speedup": pytest.approx(2.5 / 11 * 10),
    }


def test_two_shapes_are_compared_prefix_by_prefix():
    small, large = Topology.parse("d1b1"), Topology.parse("-1,0,0,1")  # 10 and 11 ms
    best, after, ahead, error = two_best([(small, [1.0, 1.0]), (large, [2.2, 3.3])], table())
    assert (best, after) == (1, 0)
    assert ahead == pytest.approx(0.15)  # 0.1 and 0.2 tokens a ms more
    assert error == pytest.approx(0.05)
    assert two_best([(small, [1.0])], table()) == (0, None, None, None)


def all_trees(most):
    """Every tree of at most so many nodes whose children are numbered breadth-first."""
    for n in range(1, most + 1):
        for parents in itertools.product(*(range(i) for i in range(1, n))):
            if list(parents) == sorted(parents):
                yield Topology((-1, *parents))


def length_of(tree, acceptance):
    reached = [1.0] * tree.nodes
    for node, children in enumerate(tree.children):
        for child, emitted in zip(children, acceptance[len(children) - 1] if children else (), strict=True):
            reached[child] = reached[node] * emitted
    return sum(reached)


ACCEPTANCE = [
    [[0.5], [0.45, 0.3], [0.4, 0.3, 0.2]],
    [[0.9], [0.9, 0.05]],
    [[0.05], [0.05, 0.6]],
    [[0.0], [0.0, 0.0]],
]


@pytest.mark.parametrize("acceptance", ACCEPTANCE)
@pytest.mark.parametrize("draft", [None, 0.5, 6.0])
def test_no_tree_emits_more_tokens_a_millisecond(acceptance, draft):
    cost = table(None if draft is None else [draft] * 3)
    tree, length = fastest_grown(growth(acceptance, 7), cost)
    fits = (t for t in all_trees(7) if all(len(c) <= len(acceptance) for c in t.children))
    best = max(length_of(t, acceptance) / cost.of(t) for t in fits)
    assert length == pytest.approx(length_of(tree, acceptance))
    assert length / cost.of(tree) == pytest.approx(best, rel=1e-12)


def test_a_dear_draft_makes_the_tree_flat_and_a_free_one_deep():
    acceptance = [[0.6], [0.55, 0.2]]
    free, _ = fastest_grown(growth(acceptance, 8), table())
    dear, _ = fastest_grown(growth(acceptance, 8), table([4, 4, 4]))
    assert (free.levels, dear.levels) == (4, 2)


def test_sizes_that_are_not_given_are_not_tried():
    cost = StepCost(np.array([4, 8]), np.array([11.0, 15.0]), None, "--cost t.csv")
    tree, _ = fastest_grown(growth([[0.9]], 8), cost)
    assert 4 <= tree.nodes <= 8
    with pytest.raises(InputError, match="given from 4 nodes on, and no tree of 4 to 8"):
        fastest_grown(growth([[0.0]], 8), cost)


def test_the_growth_of_all_sizes_is_that_of_each():
    acceptance = [[0.5], [0.45, 0.3]]
    found = growth(acceptance, 9)
    for nodes, levels in itertools.product(range(1, 10), range(1, len(found.lengths) + 1)):
        tree = Topology(tuple(found.parents(nodes, levels)))
        length = found.lengths[levels - 1][nodes]
        assert tree.nodes <= nodes
        assert tree.levels <= levels
        assert length == grow(acceptance, nodes, levels)[1]
        assert length_of(tree, acceptance) == pytest.approx(length)
