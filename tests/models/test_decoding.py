"""The decoding loop: tree forwards against plain ones, greedy decoding, and laws of what is emitted."""

import functools
import math

import numpy as np
import pytest
from record_helpers import HEADS, KV_HEADS, random_weights
from record_helpers import HashModel as SlowHashModel
from shipped_rules import measured

import resispec_verify as rv
from resispec_verify.decoding import decode, decode_steps, tree_model
from resispec_verify.decoding.candidates import Tree, expected_tokens, grow
from resispec_verify.evidence.given_candidates import NodeOutcome
from resispec_verify.rules import RULES, Greedy, make_rule
from resispec_verify.topology import MOST_LEVELS, Topology

PROMPT = [5, 9, 33, 2, 17, 8, 40, 21, 3, 3, 12]
UNEVEN = Topology.parse("-1,0,0,1,1,3,0,2,3,5")  # depth first here and there, and of 10 nodes
NODES = [44, 7, 12, 9, 9, 30, 7, 51, 3]
VOCAB, CONTEXT = 60, 64
GREEDY = rv.Sampling(0.0)
#: Rules that emit something else than the target's law; at T = 0 they may still be greedy.
WRONG = {*measured("inexact")} - {"medusa", "specinfer-skip-duplicates"}


class HashModel(SlowHashModel):
    """The same, with rows kept."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._row = functools.cache(super()._row)


def make_llama(seed=0, blocks=3, context=CONTEXT):
    torch = pytest.importorskip("torch", reason="models are computed with torch")
    from resispec_verify.models.llama import Llama

    weights = {
        name: torch.tensor(array, dtype=torch.float64)
        for name, array in random_weights(blocks, seed, VOCAB, tied=True).items()
    }
    return Llama(weights, tuple(range(blocks)), HEADS, KV_HEADS, context, 1e-5, 1000.0)


def plain(llama, sequence, window=None):
    """The row after a sequence, from a plain forward pass of it alone."""
    import torch

    return llama.logits(torch.tensor(sequence[-window:] if window else sequence), 1)[0].numpy()


def trees(window=None):
    llama = make_llama()
    from resispec_verify.models.llama_trees import LlamaTree, WindowedLlamaTree

    return llama, WindowedLlamaTree(llama, window) if window else LlamaTree(llama)


def rows_against_plain(llama, model, nodes, window=None):
    got = model.logits(nodes)
    paths = [[model.tokens[i] for i in model.path(node)] for node in nodes]
    expected = [plain(llama, [*model.sequence, *path], window) for path in paths]
    return float(np.abs(got - expected).max())


# A forward pass in float64 has some thousand roundings of values below 100: an error of 1e-11, and the
# logits themselves differ from node to node by 1e-1 and more.
CLOSE = 1e-9


@pytest.mark.parametrize("window", [None, 2, 4, 8, 40])
def test_a_row_of_a_tree_is_that_of_its_path(window):
    llama, model = trees(window)
    model.open(PROMPT)
    assert rows_against_plain(llama, model, [0], window) < CLOSE
    model.grow(NODES[:4], UNEVEN.parents[1:5])
    assert rows_against_plain(llama, model, [4, 2], window) < CLOSE
    model.grow(NODES[4:], UNEVEN.parents[5:])
    assert rows_against_plain(llama, model, range(UNEVEN.nodes), window) < CLOSE
    for path, tokens in (([1, 3, 5], [44, 12, 9, 6]), ([], [8]), ([2], [7, 7])):
        model.advance(path, tokens)
        model.grow(NODES, UNEVEN.parents[1:])
        assert rows_against_plain(llama, model, [0, 9, 7, 8], window) < CLOSE
    assert model.sequence == [*PROMPT, 44, 12, 9, 6, 8, 7, 7]
    model.advance([1, 3], [44, 12, 1])  # and what was never computed is computed later
    model.grow(NODES[:2], [0, 0])
    model.advance([1], [44, 2])
    assert rows_against_plain(llama, model, [0], window) < CLOSE
    model.open(PROMPT[:3])
    assert rows_against_plain(llama, model, [0], window) < CLOSE


@pytest.mark.parametrize(
    ("fault", "window"),
    [("siblings are seen", None), ("siblings are seen", 8), ("position by number", None),
     ("position by number", 8), ("another path is kept", None)],
)  # fmt: skip
def test_a_wrong_tree_is_told_from_a_right_one(fault, window, monkeypatch):
    llama, model = trees(window)
    import torch

    from resispec_verify.models import llama_trees

    model.open(PROMPT)
    if fault == "siblings are seen":
        monkeypatch.setattr(llama_trees, "ancestors", lambda parents: np.tri(len(parents), dtype=bool))
    if fault == "position by number":
        hidden = type(llama).hidden

        def counted(self, tokens, positions, *rest):
            return hidden(self, tokens, positions[0] + torch.arange(len(positions)), *rest)

        monkeypatch.setattr(type(llama), "hidden", counted)
    model.grow(NODES, UNEVEN.parents[1:])
    if fault == "another path is kept":
        model.logits([0])
        model.advance([1, 3], [NODES[1], NODES[4], 6])  # the tokens of nodes 2 and 5
        model.grow(NODES, UNEVEN.parents[1:])
    assert rows_against_plain(llama, model, range(UNEVEN.nodes), window) > 1e-3


def test_single_precision_is_as_close_as_single_precision():
    exact = make_llama()
    from resispec_verify.models.llama import LlamaModel
    from resispec_verify.models.llama_trees import LlamaTree

    single = type(exact)(
        {k: w.float() for k, w in exact.weights.items()}, exact.blocks, HEADS, KV_HEADS, CONTEXT, 1e-5, 1000.0
    )
    model = tree_model(LlamaModel(single))
    assert isinstance(model, LlamaTree)
    model.open(PROMPT)
    model.grow(NODES, UNEVEN.parents[1:])
    got = model.logits(range(UNEVEN.nodes))
    assert got.dtype == np.float32
    paths = [[model.tokens[i] for i in model.path(node)] for node in range(UNEVEN.nodes)]
    rows = np.stack([plain(exact, [*PROMPT, *path]) for path in paths])
    own = np.stack([plain(single, [*PROMPT, *path]) for path in paths])
    # Both are roundings of the same row: the tree's may differ from it as much as the plain pass does.
    assert np.abs(got - rows).max() < 8 * max(np.abs(own - rows).max(), np.finfo(np.float32).eps)


def test_every_model_has_its_tree_model():
    llama = make_llama()
    from resispec_verify.models.llama import LlamaModel
    from resispec_verify.models.llama_trees import LlamaTree, WindowedLlamaTree
    from resispec_verify.models.prefix_cache import Windowed
    from resispec_verify.models.tree_models import NodeByNode

    assert isinstance(tree_model(LlamaModel(llama)), LlamaTree)
    assert isinstance(tree_model(Windowed(LlamaModel(llama), 4)), WindowedLlamaTree)
    assert isinstance(tree_model(Windowed(HashModel(0), 4)), NodeByNode)
    one, other = tree_model(Windowed(LlamaModel(llama), 4)), NodeByNode(Windowed(LlamaModel(llama), 4))
    for model in (one, other):
        model.open(PROMPT)
        model.grow(NODES, UNEVEN.parents[1:])
    assert np.allclose(one.logits([0, 9, 7]), other.logits([0, 9, 7]), atol=CLOSE)


def tree_for(rule):
    most = 2 if rule.most_candidates is None else rule.most_candidates
    return Topology.complete(4, max(most, rule.least_candidates))


def greedy(model, prompt, count):
    sequence = list(prompt)
    for _ in range(count):
        sequence.append(int(np.argmax(model.logits(sequence)[0])))
    return sequence[len(prompt) :]


@pytest.mark.parametrize("name", RULES)
def test_at_temperature_0_it_is_greedy_decoding(name):
    pytest.importorskip("torch", reason="models are computed with torch")
    from resispec_verify.models.llama import LlamaModel
    from resispec_verify.models.prefix_cache import Windowed

    llama = make_llama()
    target, rule = LlamaModel(llama), make_rule(name)
    expected = greedy(target, PROMPT, 24)
    for draft in (LlamaModel(llama.without([1])), Windowed(LlamaModel(llama), 6), target):
        found = decode(
            target, draft, [PROMPT], rule=rule, topology=tree_for(rule), tokens=20, sampling=GREEDY
        )
        same = list(found[0].tokens) == expected[: len(found[0].tokens)]
        assert same or name in WRONG
    assert all(step.accepted_length == 4 for step in found[0].steps) or name in WRONG


def test_ties_go_to_the_lowest_token_on_both_sides():
    class Tied:
        vocab, context = 5, None

        def logits(self, tokens, last=1):
            return np.tile(np.array([0.0, 1.0, 0.0, 1.0, 1.0]), (last, 1))

    options = {"topology": Topology.complete(3, 2), "tokens": 6, "sampling": GREEDY}
    for name in ("specinfer", "sequoia", "eagle", "spechub", "optimal-joint"):
        assert set(decode(Tied(), Tied(), [[0]], rule=make_rule(name), **options)[0].tokens) == {1}
    found = decode(Tied(), Tied(), [[0]], rule=make_rule("sequoia"), **options)[0]
    assert {step.nodes for step in found.steps} == {3}  # without replacement there is one candidate to draw
    assert found.acceptance(2)[1].tolist() == [4, 0]


def test_seeds_and_steps():
    target, draft = HashModel(0), HashModel(1)
    options = {"rule": make_rule("specinfer"), "topology": Topology.parse("d4b2"), "tokens": 15}
    both = decode(target, draft, [[1, 2], [1, 2]], seed=7, **options)
    assert [found.seed for found in both] == [7, 8]
    assert both[0].tokens != both[1].tokens
    assert decode(target, draft, [[1, 2]], seed=8, **options)[0].tokens == both[1].tokens
    steps = decode_steps(target, draft, [1, 2], seed=8, **options)
    assert next(steps).tokens == both[1].steps[0].tokens
    for found in both:
        assert 15 <= len(found.tokens) < 19
        for step in found.steps:
            assert step.accepted_length == len(step.tokens) <= 4
            assert step.nodes == 15
            assert len(step.offered) == len(step.chosen) == min(step.accepted_length, 3)
            assert min(step.draft_seconds, step.target_seconds, step.verify_seconds) > 0
        emitted, reached = found.acceptance(2)
        assert emitted.sum() == sum(step.accepted_length - 1 for step in found.steps)
        assert reached[0] == sum(len(step.offered) for step in found.steps)
        assert reached[1] == reached[0] - emitted[0]


def test_the_end_of_a_sequence_ends_it():
    target, draft = HashModel(0), HashModel(0)
    options = {"rule": make_rule("specinfer"), "topology": Topology.parse("d4b2"), "tokens": 60}
    free = decode(target, draft, [[1, 2]], **options)[0].tokens
    end = free[5]
    cut = decode(target, draft, [[1, 2]], end=end, **options)[0]
    assert cut.tokens == free[: free.index(end) + 1]
    assert cut.steps[-1].accepted_length >= len(cut.steps[-1].tokens)


@pytest.mark.parametrize("name", ["specinfer", "eagle", "spechub", "optimal-joint"])
def test_the_expected_length_is_the_mean_over_verifications_of_one_tree(name):
    rule = make_rule(name)
    topology, sampling = tree_for(rule), rv.Sampling(1.5)
    target, draft = tree_model(HashModel(0)), tree_model(HashModel(1))
    draft.open([3])
    target.open([3])
    tree = grow(draft, rule.proposal, topology, sampling, np.random.default_rng(3))
    target.grow(tree.tokens[1:], tree.parents[1:])
    rows = target.logits(range(len(tree.tokens)))
    laws = sampling.probabilities(rows, dtype=np.float64)
    found = expected_tokens(tree, lambda node: tree.outcome(rule, laws[node], node))
    # The same by listing the paths: the mean of the length is the sum of P(length > i).
    reach = np.ones(len(tree.tokens))
    for node, children in enumerate(tree.children):
        if children:
            reach[children] = reach[node] * tree.outcome(rule, laws[node], node).emitted[: len(children)]
    assert found == pytest.approx(reach.sum(), abs=1e-12)
    # And the loop's lengths average to the loop's expectations: within 5 standard errors of the difference.
    steps = list(
        decode_steps(
            HashModel(0), HashModel(1), [3], rule=rule, topology=topology, tokens=150, sampling=sampling,
            expected=True,
        )
    )  # fmt: skip
    gap = np.array([step.accepted_length - step.expected_length for step in steps])
    assert abs(gap.mean()) < 5 * gap.std() / math.sqrt(len(gap))


def test_the_expected_length_of_the_longest_path():
    levels = MOST_LEVELS
    tree = Tree([0] * levels, [-1, *range(levels - 1)], [*([i] for i in range(1, levels)), []])
    found = expected_tokens(tree, lambda node: NodeOutcome(np.asarray([0.5]), None))
    assert found == 2.0  # 1 + 1/2 + 1/4 + ...


class Rows:
    """A memoryless model of one law, a zero of it at -inf."""

    def __init__(self, law, context=None):
        with np.errstate(divide="ignore"):
            self._row = np.log(np.asarray(law, float))
        self.vocab, self.context = len(law), context

    def logits(self, tokens, last=1):
        return np.tile(self._row, (last, 1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["target", "draft"])
@pytest.mark.parametrize("topology", ["d3b2", "d1b1"])
def test_logits_that_are_none_are_refused(value, side, topology):
    if (side, topology) == ("draft", "d1b1"):
        return  # a tree of the root alone asks the draft for nothing
    pair = {"target": Rows([0.5, 0.5]), "draft": Rows([0.5, 0.5])}
    pair[side]._row[:] = value
    with pytest.raises(rv.InputError, match=f"{side} logits"):
        decode(
            *pair.values(), [[0]], rule=make_rule("specinfer"), topology=Topology.parse(topology), tokens=3
        )


@pytest.mark.parametrize("name", RULES)
def test_nothing_of_target_probability_0_is_emitted(name):
    rule = make_rule(name)
    # 0.1 + 0.2 + 0.7 and the like: laws that agree up to rounding on the support.
    target, draft = Rows([0.1, 0.2, 0.0, 0.7]), Rows([0.7, 0.2, 0.1, 0.0])
    same = Rows([0.1, 0.2, 0.7, 0.0])
    for pair in ((target, draft), (same, same), (target, Rows([0.1, 0.2, 1e-17, 0.7]))):
        tokens = decode(*pair, [[0]], rule=rule, topology=tree_for(rule), tokens=60)[0].tokens
        allowed = {0, 1, 2} if pair[0] is same else {0, 1, 3}
        assert set(tokens) <= allowed or not rule.stays_in_support


def test_an_impossible_rejection_falls_back_on_the_target():
    class Leaves(type(make_rule("specinfer"))):
        """Accepts almost surely, and has nothing left to draw from."""

        def accept(self, state):
            return np.full_like(state.residual, 0.5)

        def final(self, state):
            return np.zeros_like(state.residual)

    tokens = decode(
        Rows([0.5, 0.0, 0.5]),
        Rows([0.5, 0.0, 0.5]),
        [[0]],
        rule=Leaves(),
        topology=Topology.parse("d2b1"),
        tokens=50,
    )[0].tokens
    assert set(tokens) == {0, 2}


def test_a_draft_that_runs_out_of_tokens_leaves_children_out():
    target, draft = Rows([0.25, 0.25, 0.25, 0.25]), Rows([0.5, 0.5, 0.0, 0.0])
    options = {"prompts": [[0]], "topology": Topology.parse("d3b3"), "tokens": 40}
    for name in ("sequoia", "sequoia+resispec"):
        steps = decode(target, draft, rule=make_rule(name), **options)[0].steps
        assert {step.nodes for step in steps} == {7}
        assert {offered for step in steps for offered in step.offered} == {2}
    pair = {"topology": Topology.parse("d3b2")}
    found = decode(target, Rows([1, 0, 0, 0]), rule=make_rule("spechub"), **(options | pair))[0]
    assert {step.nodes for step in found.steps} == {3}
    top = Greedy()
    tree = grow(tree_model(draft), top, Topology.parse("d2b3"), rv.Sampling(), np.random.default_rng(0))
    assert tree.tokens == [0, 0, 1, 2]
    ranks = tree_model(Rows([0.1, 0.3, 0.2, 0.4]))  # the best in turn are so at temperature 0 too
    tree = grow(ranks, top, Topology.parse("d2b3"), GREEDY, np.random.default_rng(0))
    assert tree.tokens[1:] == [3, 1, 2]
    assert tree.drafts[0].tolist() == [0, 0, 0, 1]


def test_the_root_alone_is_plain_sampling():
    found = decode(
        HashModel(0), HashModel(1), [[4]], rule=make_rule("resispec"), topology=Topology((-1,)), tokens=5
    )
    assert [step.accepted_length for step in found[0].steps] == [1] * 5
    assert found[0].acceptance(1)[0].tolist() == [0]


def test_bad_input_is_one_line():
    model = HashModel(0, context=20)
    options = {"rule": make_rule("specinfer"), "topology": Topology.parse("d3b3"), "tokens": 5}
    decode(model, model, [[1] * 14], **options)
    for prompts, changed, word in (
        ([[1] * 15], {}, "prompt 0 has 15 tokens and up to 6 are added, but the context of the model is 20"),
        ([[11]], {}, "token 11, outside the vocabulary"),
        ([[]], {}, "has no tokens"),
        ([], {}, "no prompts"),
        ([[1]], {"tokens": 0}, "0 tokens to decode"),
        ([[1]], {"seed": -1}, "the seed must not be negative"),
        ([[1]], {"rule": make_rule("speculative")}, "verifies at most 1 candidates at a node, .* 3 children"),
        ([[1]], {"rule": make_rule("spechub")}, "verifies at most 2 candidates at a node, .* 3 children"),
        ([[1]], {"rule": make_rule("spechub"), "topology": Topology.parse("-1,0")}, "2 candidates at a node"),
    ):  # fmt: skip
        with pytest.raises(rv.InputError, match=word) as caught:
            decode(model, model, prompts, **(options | changed))
        assert "\n" not in str(caught.value)
    with pytest.raises(rv.InputError, match="vocabularies of 11 and 12"):
        decode(model, HashModel(0, vocab=12), [[1]], **options)
