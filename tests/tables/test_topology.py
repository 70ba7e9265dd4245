"""Trees without tokens, and the best tree of a budget against all trees of that many nodes."""

import itertools

import numpy as np
import pytest

from resispec_verify.errors import InputError
from resispec_verify.kernels.optimal.tree_growth import grow
from resispec_verify.topology import MOST_NODES, Topology


@pytest.mark.parametrize(
    ("text", "cost", "levels"),
    [
        ("d7b2", 127, 7),
        ("d5b3", 121, 5),
        ("d4b5", 156, 4),
        ("d3b11", 133, 3),
        ("d4b4", 85, 4),
        ("d9b1", 9, 9),
    ],
)
def test_the_trees_of_the_paper(text, cost, levels):
    tree = Topology.parse(text)
    assert (tree.nodes, tree.levels) == (cost, levels)
    assert str(tree) == text
    assert Topology.parse(",".join(map(str, tree.parents))) == tree


def test_children_by_level_and_in_order():
    tree = Topology.by_level([3, 2])
    assert tree.parents == (-1, 0, 0, 0, 1, 1, 2, 2, 3, 3)
    assert str(tree) == "-1,0,0,0,1,1,2,2,3,3"
    assert Topology.by_level([3, 3, 3]) == Topology.parse("d4b3") == Topology.parse("3,3,3")
    assert Topology.parse("3,2") == tree == Topology.parse(str(tree))
    assert Topology.parse("4") == Topology.parse("d2b4")
    assert str(Topology((-1,))) == "d1b1"
    uneven = Topology((-1, 0, 0, 2, 2, 1))
    assert uneven.children == ((1, 2), (5,), (3, 4), (), (), ())
    assert str(uneven) == "-1,0,0,2,2,1"


def test_a_part_of_a_tree():
    large = Topology.parse("d4b3")
    assert Topology.parse("d3b2").nodes_in(large) == (0, 1, 2, 4, 5, 7, 8)
    assert Topology((-1, 0, 0, 2, 2, 1)).nodes_in(large) == (0, 1, 2, 7, 8, 4)
    assert large.nodes_in(large) == tuple(range(40))
    assert large.with_at_most(2) == Topology.parse("d4b2")
    assert large.with_at_most(0) == Topology((-1,))
    for text in ("d5b1", "d2b4"):
        with pytest.raises(InputError, match="in the recorded tree d4b3"):
            Topology.parse(text).nodes_in(large)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no tree"),
        ("d0b3", "at least one level"),
        ("b3d5", "is no tree"),
        ("-1,x", "is no tree"),
        ("0,0", "each level needs at least one; parents begin with -1"),
        ("-2,0", "starts with its root"),
        ("-1,2,1", "node 1 has parent 2"),
        ("-1,1", "node 1 has parent 1"),
        ("-1,0,-1", "node 2 has parent -1"),
        ("d40b9", "take a smaller tree"),
        ("d600b1", "600 levels; at most 512"),
    ],
)
def test_text_that_is_no_tree(text, words):
    with pytest.raises(InputError, match=words):
        Topology.parse(text)
    with pytest.raises(InputError, match=f"more than {MOST_NODES}"):
        Topology.by_level([300, 300])


def length(parents, rows):
    """Expected length when a node with m children emits each with ``rows[m - 1]``, or None."""
    children = [[c for c, p in enumerate(parents) if p == n] for n in range(len(parents))]
    value = [1.0] * len(parents)
    for node in reversed(range(len(parents))):
        if children[node]:
            if len(children[node]) > len(rows) or rows[len(children[node]) - 1] is None:
                return None
            rates = rows[len(children[node]) - 1]
            value[node] += sum(a * value[c] for a, c in zip(rates, children[node], strict=True))
    return value[0]


def all_trees(most):
    for nodes in range(1, most + 1):
        for parents in itertools.product(*(range(node) for node in range(1, nodes))):
            depth = [0]
            for parent in parents:
                depth.append(depth[parent] + 1)
            yield (-1, *parents), max(depth) + 1


def rates(kind, generator):
    if kind == "by count":
        return [generator.dirichlet(np.ones(m + 1))[:m] for m in (1, 2, 3, 4)]
    if kind == "not for one":
        return [None, *(generator.dirichlet(np.ones(m + 1))[:m] for m in (2, 3))]
    vector = {
        "early": [0.6, 0.2, 0.1, 0.05],
        "late": [0.05, 0.1, 0.2, 0.6],
        "useless first": [0.0, 0.0, 0.9],
        "ties": [0.25, 0.25, 0.25],
        "nothing": [0.0, 0.0],
        "sure": [1.0, 0.0],
    }[kind]
    return [vector[:m] for m in range(1, len(vector) + 1)]


KINDS = ("early", "late", "useless first", "ties", "nothing", "sure", "by count", "not for one")
TREES = list(all_trees(8))


@pytest.mark.parametrize("kind", KINDS)
def test_no_tree_of_the_budget_is_longer(kind):
    rows = rates(kind, np.random.default_rng(KINDS.index(kind)))
    lengths = [(len(parents), levels, length(parents, rows)) for parents, levels in TREES]
    for nodes, levels in itertools.product(range(1, 9), (None, 1, 2, 3, 4)):
        best = max(
            found for n, deep, found in lengths
            if found is not None and n <= nodes and (levels is None or deep <= levels)
        )  # fmt: skip
        parents, found = grow(rows, nodes, levels)
        # Sums of at most 8 products, each of at most 8 factors.
        assert found == pytest.approx(best, abs=1e-14)
        assert length(parents, rows) == pytest.approx(best, abs=1e-14)
        assert len(parents) <= nodes
        assert levels is None or Topology(tuple(parents)).levels <= levels


def test_taking_candidates_in_descending_order_would_be_wrong():
    """Greedy growth, which adds the likeliest next node, misses what lies behind a useless candidate."""
    rows = rates("useless first", None)
    parents, best = grow(rows, 4)
    assert parents == [-1, 0, 0, 0]
    assert best == 1.9
    greedy = max(length((-1, 0), rows), length((-1,), rows))  # no single node is of any use
    assert greedy == 1.0


def test_no_child_is_without_use():
    assert grow(rates("nothing", None), 100) == ([-1], 1.0)
    assert grow(rates("sure", None), 6)[0] == [-1, 0, 1, 2, 3, 4]
