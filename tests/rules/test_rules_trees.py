"""Rules over whole trees on toy chains, in floats: exact, as in the oracle; faults must be seen."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from resispec_verify.errors import InputError
from resispec_verify.evidence.path_rules import path_marginal
from resispec_verify.evidence.tree_rules import tree_marginal
from resispec_verify.oracle import TREE_RULES as ORACLE_TREES
from resispec_verify.oracle import tree_law
from resispec_verify.rules import (
    GBV,
    GLS,
    HSD,
    TREE_RULES,
    Block,
    Traversal,
    UniVer,
    make_path_rule,
    make_rule,
    make_tree_rule,
)
from resispec_verify.rules.shipped import traversal

EPS = float(np.finfo(np.float64).eps)
PAIR = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])
# By parents, and nested as the oracle has them.
SHAPES = {
    "path": ((-1, 0, 1), (((),),)),
    "siblings": ((-1, 0, 0), ((), ())),
    "two paths": ((-1, 0, 1, 0, 3), (((),), ((),))),
    "full": ((-1, 0, 1, 1, 0, 4, 4), (((), ()), ((), ()))),
    "uneven": ((-1, 0, 1, 1, 0), (((), ()), ())),
    "breadth-first": ((-1, 0, 0, 1, 1), (((), ()), ())),
    "late fork": ((-1, 0, 1, 1), (((), ()),)),
}
PATHS = ("path", "siblings", "two paths")


def depth_of(parents):
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    return max(depths)


def random_chain(rng, vocab, levels):
    return [rng.dirichlet(np.ones(vocab), (vocab,) * i) for i in range(levels)]


def memoryless(law, levels):
    return [np.broadcast_to(law, (len(law),) * i + (len(law),)) for i in range(levels)]


def shapes_of(name):
    return PATHS if TREE_RULES[name].paths_only else tuple(SHAPES)


@pytest.mark.parametrize(("name", "shape"), [(n, s) for n in TREE_RULES for s in shapes_of(n)])
@pytest.mark.parametrize("vocab", [2, 3])
def test_a_tree_rule_is_exact(name, shape, vocab):
    parents, _ = SHAPES[shape]
    rng, depth = np.random.default_rng(len(parents) + vocab), depth_of(parents)
    for _ in range(8):
        targets, drafts = random_chain(rng, vocab, depth + 1), random_chain(rng, vocab, depth)
        found = tree_marginal(make_tree_rule(name), targets, drafts, parents)
        assert found.tv <= found.rounding
        assert abs(found.accepted.sum() - 1) <= found.rounding


@pytest.mark.parametrize(("name", "shape"), [(n, s) for n in TREE_RULES for s in shapes_of(n)])
def test_as_in_the_oracle(name, shape):
    """Accepted length and first token, laws with memory, zeros and ties."""
    parents, nested = SHAPES[shape]
    depth = depth_of(parents)
    p, q = (Fraction(3, 8), Fraction(3, 8), Fraction(1, 4)), (Fraction(1, 8), Fraction(5, 8), Fraction(1, 4))

    def rotated(law):
        return lambda prefix: tuple(law[(x + sum(prefix)) % 3] for x in range(3))

    def levels(law, count):
        chain = rotated(law)
        grids = [np.indices((3,) * i).reshape(i, -1).T if i else np.zeros((1, 0), int) for i in range(count)]
        rows = [[[float(v) for v in chain(tuple(map(int, prefix)))] for prefix in grid] for grid in grids]
        return [np.asarray(row).reshape((3,) * (i + 1)) for i, row in enumerate(rows)]

    values = (GBV("index"), GBV("drawn")) if name == "gbv" else (make_tree_rule(name),)
    for rule in values:
        blocks = tree_law(name, rotated(p), rotated(q), nested, **rule.changed_options())
        found = tree_marginal(rule, levels(p, depth + 1), levels(q, depth), parents)
        by_length = [float(sum(w for b, w in blocks.items() if len(b) == i + 1)) for i in range(depth + 1)]
        np.testing.assert_allclose(found.accepted, by_length, rtol=0, atol=found.rounding)
        first = [float(sum(w for b, w in blocks.items() if b[0] == x)) for x in range(3)]
        emitted = found.joint.reshape(3, -1).sum(axis=1)
        np.testing.assert_allclose(emitted, first, rtol=0, atol=2 * found.rounding)


def test_every_tree_rule_is_transcribed_with_the_same_siblings():
    assert {name: rule.siblings for name, rule in TREE_RULES.items()} == {
        name: siblings for name, (_, siblings) in ORACLE_TREES.items()
    }


@pytest.mark.parametrize("name", [name for name in TREE_RULES if name != "gls"])
def test_on_one_path_it_is_block_verification(name):
    rng = np.random.default_rng(5)
    targets, drafts = random_chain(rng, 3, 4), random_chain(rng, 3, 3)
    path = path_marginal(Block(), targets, drafts)
    tree = tree_marginal(make_tree_rule(name), targets, drafts, (-1, 0, 1, 2))
    np.testing.assert_allclose(tree.accepted, path.accepted, rtol=0, atol=tree.rounding)
    if name != "traversal":
        return
    p, q = PAIR  # and it accepts what the paper on block verification says: 11/9
    found = tree_marginal(Traversal(), memoryless(p, 3), memoryless(q, 2), (-1, 0, 1))
    assert abs(found.mean_accepted - 11 / 9) <= 2 * found.rounding


def test_siblings_by_hand():
    # Two siblings without replacement over two tokens are both tokens: one of them is always accepted.
    p, q = PAIR
    found = tree_marginal(Traversal(), [p, memoryless(p, 2)[1]], [q], (-1, 0, 0))
    np.testing.assert_allclose(found.accepted, [0, 1], rtol=0, atol=found.rounding)
    # Two i.i.d. paths of one token, p/q = 1/2 and 2: the greater is 1 unless both are 0, s = (4/9, 5/9).
    found = tree_marginal(GBV(), [p, memoryless(p, 2)[1]], [q], (-1, 0, 0))
    np.testing.assert_allclose(found.accepted, [1 / 9, 8 / 9], rtol=0, atol=found.rounding)


class KeepsTheDraft(Traversal):
    """Siblings tested as if they were independent draws, though none comes twice."""

    siblings = "iid"


class DrawnOnce(GBV):
    """The greatest path, verified as if it were the only one drawn."""

    def outcome(self, targets, drafts, tokens, parents):
        ends, laws = super().outcome(targets, drafts, tokens, parents)
        only = Block().outcome(targets[:, [0], :].repeat(2, axis=1), drafts[:, :1, :], tokens[:, 1:2])[1]
        laws = laws.copy()
        laws[:, 0, :] = only[:, 0, :]
        return ends, laws


class Redrawn(GLS):
    """Where no path has drawn the token, another is drawn from what a residual would be."""

    def outcome(self, targets, drafts, tokens, parents):
        ends, laws = super().outcome(targets, drafts, tokens, parents)
        laws = laws.copy()
        rest = np.clip(targets[:, 0, :] - drafts[:, 0, :], 0.0, None)
        laws[:, 0, :] = rest / rest.sum(axis=-1, keepdims=True)
        return ends, laws


@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        (Redrawn(), "siblings"),
        (KeepsTheDraft(), "siblings"),
        (DrawnOnce(), "siblings"),
        (GBV("drawn"), "two paths"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_fault_is_seen(rule, shape):
    parents, _ = SHAPES[shape]
    rng, depth = np.random.default_rng(3), depth_of(parents)
    targets, drafts = random_chain(rng, 4, depth + 1), random_chain(rng, 4, depth)
    found = tree_marginal(rule, targets, drafts, parents)
    assert found.tv > 1e-3 > 1e6 * found.rounding


def test_a_residual_without_its_weight_is_seen(monkeypatch):
    # What vllm-ascend did to block verification: right in the first token, wrong in the pair.
    whole = traversal._rejected

    def unweighted(weight, p, q):
        return whole(weight, p, q)[0], whole(np.ones_like(weight), p, q)[1]

    parents, _ = SHAPES["two paths"]
    targets = memoryless(np.array([0.3, 0.1, 0.4, 0.2]), 3)
    drafts = memoryless(np.array([0.4, 0.5, 0.05, 0.05]), 2)
    assert tree_marginal(Traversal(), targets, drafts, parents).tv < 1e-12
    monkeypatch.setattr(traversal, "_rejected", unweighted)
    assert tree_marginal(Traversal(), targets, drafts, parents).tv > 1e-3


def test_list_sampling_by_hand():
    # One path: sum over i of 1 / sum over j of max(q_j / q_i, p_j / p_i), 1/3 + 1/3.
    p, q = PAIR
    found = tree_marginal(GLS(), memoryless(p, 2), memoryless(q, 1), (-1, 0))
    np.testing.assert_allclose(found.accepted, [1 / 3, 2 / 3], rtol=0, atol=found.rounding)
    # The races themselves, two paths of one token: 400,000 of them, four standard errors.
    p, q, rng = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6]), np.random.default_rng(0)
    clocks = rng.exponential(size=(400_000, 2, 3))
    drawn, emitted = (clocks / q).argmin(axis=2), (clocks / p).min(axis=1).argmin(axis=1)
    found = tree_marginal(GLS(), memoryless(p, 2), memoryless(q, 1), (-1, 0, 0))
    assert abs((drawn == emitted[:, None]).any(axis=1).mean() - found.mean_accepted) < 4 * 0.5 / 400_000**0.5


def test_hsd_is_block_verification():
    rng = np.random.default_rng(7)
    targets, drafts = rng.dirichlet(np.ones(4), (50, 4)), rng.dirichlet(np.ones(4), (50, 3))
    path = rng.integers(0, 4, (50, 3))
    for found, wanted in zip(
        HSD().outcome(targets, drafts, path), Block().outcome(targets, drafts, path), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e3 * EPS)
    p, q = PAIR
    found = path_marginal(make_path_rule("hsd"), memoryless(p, 3), memoryless(q, 2))
    assert abs(found.mean_accepted - 11 / 9) <= 2 * found.rounding + 5 * EPS
    # Cut at 1 by themselves, joint ratios accept more, and emit something else.
    credit = path_marginal(HSD("last"), memoryless(p, 3), memoryless(q, 2))
    assert credit.mean_accepted > found.mean_accepted + 1e-3
    assert credit.tv > 1e-3


def test_one_path_in_a_batch_of_any_shape():
    rng = np.random.default_rng(2)
    targets, drafts = rng.dirichlet(np.ones(3), (2, 4, 5)), rng.dirichlet(np.ones(3), (2, 4, 5))
    tokens = rng.integers(0, 3, (2, 4, 5))
    for rule in (Traversal(), GBV(), GLS(), UniVer()):
        ends, laws = rule.outcome(targets, drafts, tokens, SHAPES["two paths"][0])
        assert (ends.shape, laws.shape) == ((2, 4, 5), (2, 4, 5, 3))
        alone, law = rule.outcome(targets[1, 2], drafts[1, 2], tokens[1, 2], SHAPES["two paths"][0])
        np.testing.assert_array_equal(alone, ends[1, 2])
        np.testing.assert_array_equal(law, laws[1, 2])


def test_bad_trees_and_parameters():
    p, q = PAIR
    targets, drafts = memoryless(p, 2), memoryless(q, 1)
    with pytest.raises(InputError, match="rule 'gbv' decides about whole trees"):
        make_rule("gbv")
    with pytest.raises(InputError, match="unknown rule 'traversel'; did you mean 'traversal'"):
        make_tree_rule("traversel")
    with pytest.raises(InputError, match="gbv: ties must be index or drawn"):
        GBV("first")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="hsd: cap must be running or last"):
        HSD("none")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="rule must be a TreeRule"):
        tree_marginal(Traversal, targets, drafts, (-1, 0))  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="parents must begin with -1"):
        tree_marginal(Traversal(), targets, drafts, (0, 0))
    with pytest.raises(InputError, match="a tree 1 tokens deep needs 2 target levels and 1 draft levels"):
        tree_marginal(Traversal(), targets[:1], drafts, (-1, 0))
    with pytest.raises(InputError, match="node 0 has more children than tokens that the draft can draw"):
        tree_marginal(Traversal(), targets, [np.array([1.0, 0.0])], (-1, 0, 0))
    with pytest.raises(InputError, match="is too much to enumerate"):
        tree_marginal(Traversal(), targets, drafts, (-1, *(0 for _ in range(30))))
    with pytest.raises(InputError, match="gbv is for paths that part at the root; node 1 has several"):
        tree_marginal(GBV(), memoryless(p, 3), memoryless(q, 2), SHAPES["late fork"][0])
    with pytest.raises(InputError, match=r"paths of one length, got lengths \[2, 1\]"):
        tree_marginal(GBV(), memoryless(p, 3), memoryless(q, 2), (-1, 0, 1, 0))
