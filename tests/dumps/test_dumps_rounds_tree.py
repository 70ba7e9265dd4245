"""Rounds and tree dumps: what they hold, and what each fault says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dump_helpers import UNEVEN, V, one_round, saved, saved_npz, saved_safetensors, tree
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.dumps import open_dump, open_rounds, open_target, open_tree
from resispec_verify.dumps.kinds.rounds import rounds_from_mapping
from resispec_verify.dumps.kinds.tree import tree_from_mapping
from resispec_verify.errors import InputError


def refusal(call, *args, **options) -> str:
    with pytest.raises(InputError) as caught:
        call(*args, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def as_arrays(value):
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, dict):
        return {key: as_arrays(item) for key, item in value.items()}
    return [as_arrays(item) for item in value] if isinstance(value, list) else value


def test_rounds(tmp_path):
    rounds = [one_round(), one_round(2, 2, u_next=0.5), one_round(1, 0, u=None, next_token=torch.tensor([4]))]
    value = {"rounds": rounds, "context_tokens": torch.tensor([-1, 3]), "meta": {"sampling": {"top_k": 3}}}
    dump = open_rounds(saved(tmp_path / "x.pt", value))
    assert repr(dump).startswith("RoundsDump(")
    assert (len(dump), dump.vocab, dump.dtype) == (3, V, "float32")
    assert [one.gamma for one in dump.rounds] == [3, 2, 1]
    assert [one.accepted for one in dump.rounds] == [1, 2, 0]
    assert [one.next_token for one in dump.rounds] == [2, 2, 4]
    assert dump.rounds[1].u_next == 0.5
    assert dump.rounds[2].u is None
    assert dump.rounds[0].u.tolist() == rounds[0]["u"].tolist()
    assert dump.context_tokens.tolist() == [-1, 3]
    assert dump.sampling == {"top_k": 3}
    for i, one in enumerate(rounds):
        logits = dump.logits(i)
        assert np.array_equal(logits.target, one["target_logits"].numpy())
        assert np.array_equal(logits.draft, one["draft_logits"].numpy())
        assert logits.proposal is None
    for read in (open_dump, open_target):
        assert "is a rounds dump" in refusal(read, tmp_path / "x.pt")
    assert "is a rounds dump" in refusal(open_tree, tmp_path / "x.pt")


def test_rounds_of_other_vocabularies():
    one = one_round(draft_logits=torch.randn(3, 4), proposal_logits=torch.randn(3, 4))
    one["draft_tokens"] = torch.tensor([0, 1, 5])
    rounds = as_arrays({"rounds": [one]})
    assert "round 0: vocabulary widths 6 and 4" in refusal(rounds_from_mapping, "x", rounds)
    padded = rounds_from_mapping("x", rounds, pad_vocab=True)
    assert np.isneginf(padded.logits(0).draft[:, 4:]).all()
    reduced = rounds_from_mapping("x", rounds | {"d2t": np.array([1, 1, 2, 2])})
    found = reduced.logits(0)
    assert np.array_equal(found.draft[:, [1, 2, 4, 5]], one["draft_logits"].numpy())
    assert np.isneginf(found.draft[:, [0, 3]]).all()
    assert np.array_equal(found.proposal[:, [1, 2, 4, 5]], one["proposal_logits"].numpy())
    assert "round 0: d2t" in refusal(rounds_from_mapping, "x", rounds | {"d2t": np.array([9, 9, 9, 9])})


def test_a_round_that_drafted_nothing():
    one = one_round(0, 0, draft_tokens=torch.tensor([]), u=torch.tensor([]))
    dump = rounds_from_mapping("x", as_arrays({"rounds": [one]}))
    assert dump.rounds[0].gamma == 0
    assert dump.logits(0).draft.shape == (0, V)
    assert dump.logits(0).target.shape == (1, V)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"draft_tokens": torch.tensor([0, 1])}, "draft_tokens is [2], but must be [3]"),
        ({"draft_tokens": torch.tensor([0, 6, 1])}, "draft_tokens: 6 at 1 is outside 0..5"),
        ({"draft_tokens": torch.tensor([0, -1, 1])}, "draft_tokens: -1 at 1"),
        ({"draft_tokens": torch.ones(3)}, "draft_tokens is float32 [3]"),
        ({"draft_tokens": torch.zeros(1, dtype=torch.int64).expand(3)}, "draft_tokens is an expanded"),
        ({"draft_logits": torch.randn(2, V)}, "one row more than the draft"),
        ({"draft_logits": torch.randn(3, V + 1)}, "vocabulary widths 6 and 7"),
        ({"target_logits": torch.randn(V)}, "target_logits is an array of shape [6]"),
        ({"target_logits": torch.randn(1, V).expand(4, V)}, "target_logits is an array of shape [4, 6]"),
        ({"target_logits": torch.ones(4, V, dtype=torch.int64)}, "integers are not logits"),
        ({"target_logits": None}, "target_logits is a NoneType"),
        ({"draft_logits": [1.0]}, "draft_logits is a list"),
        ({"proposal_logits": torch.randn(2, V)}, "proposal_logits is [2, 6], but must be [3, 6]"),
        ({"u": torch.tensor([0.5, 1.0, 0.2])}, "u: 1 at 1 is outside [0, 1)"),
        ({"u": torch.tensor([0.5, -0.1, 0.2])}, "u: -0.1 at 1"),
        ({"u": torch.tensor([torch.nan, 0.1, 0.2])}, "u: nan at 0"),
        ({"u": torch.tensor([0, 0, 0])}, "u is int64 [3]"),
        ({"u": torch.zeros(2)}, "u is [2], but must be [3]"),
        ({"u_next": 1.5}, "u_next: 1.5"),
        ({"accepted": 4}, "accepted is 4, outside 0..3"),
        ({"accepted": -1}, "accepted is -1"),
        ({"accepted": 1.0}, "accepted is a float"),
        ({"accepted": True}, "accepted is a bool"),
        ({"accepted": torch.tensor([1, 2])}, "accepted is int64 [2]"),
        ({"accepted": 10**5000}, "accepted is a huge int"),
        ({"next_token": 6}, "next_token is 6, outside 0..5"),
        ({"context_len": -1}, "context_len is -1, outside 0 and above"),
    ],
)
def test_rounds_that_do_not_hold_together(tmp_path, change, words):
    value = {"rounds": [one_round(), one_round(**change)]}
    message = refusal(open_rounds, saved(tmp_path / "x.pt", value))
    assert "x.pt: round 1: " in message
    assert words in message


def test_more_rounds_that_do_not(tmp_path):
    path = tmp_path / "x.pt"
    for key in ("draft_tokens", "accepted"):
        one = one_round()
        del one[key]
        assert f"round 0 has no {key}" in refusal(open_rounds, saved(path, {"rounds": [one]}))
    for rounds, words in (([], "length 0"), ({}, "a dict"), ([1], "round 0 is a int")):
        assert words in refusal(open_rounds, saved(path, {"rounds": rounds}))
    wider = one_round(draft_logits=torch.randn(3, 7), target_logits=torch.randn(4, 7))
    assert "round 1 has vocabulary 7" in refusal(open_rounds, saved(path, {"rounds": [one_round(), wider]}))
    assert "is a flat dump" in refusal(open_rounds, saved(path, {"target": 1, "draft": 2}))
    assert "output_tokens is a str" in refusal(
        open_rounds, saved(path, {"rounds": [one_round()], "output_tokens": "x"})
    )
    bad = one_round()
    bad["target_logits"][2, 1] = torch.nan
    dump = open_rounds(saved(path, {"rounds": [one_round(), bad]}))
    dump.logits(0)
    assert "round 1: target_logits has NaN at row 2, token 1" in refusal(dump.logits, 1)


def test_halves_may_round_a_uniform_to_one():
    one = one_round(u=torch.tensor([1.0, 0.5, 0.0]).half())
    assert rounds_from_mapping("x", as_arrays({"rounds": [one]})).rounds[0].u[0] == 1


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_rounds_are_kept_exactly(tmp_path_factory, data):
    gammas = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    dtype = data.draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
    rounds = []
    for gamma in gammas:
        one = one_round(gamma, data.draw(st.integers(0, gamma)))
        rounds.append(one | {key: one[key].to(dtype) for key in ("draft_logits", "target_logits")})
    dump = open_rounds(saved(tmp_path_factory.mktemp("x") / "x.pt", {"rounds": rounds}))
    for i, one in enumerate(rounds):
        assert dump.rounds[i].accepted == one["accepted"]
        assert np.array_equal(dump.logits(i).draft, one["draft_logits"].double().numpy())


# Trees


def test_trees(tmp_path):
    value = tree(UNEVEN, depth=torch.tensor([0, 1, 1, 2, 2, 2, 2, 3]))
    value |= {"prefix": torch.tensor([[-1, 1, 2], [3, 4, 5]]), "prefix_len": torch.tensor([2, 3])}
    path = saved(tmp_path / "x.pt", value)
    dump = open_tree(path)
    assert repr(dump).startswith("TreeDump(")
    assert (dump.prefixes, dump.nodes, dump.vocab, dump.dtype) == (2, 8, V, "float32")
    assert [nodes.tolist() for nodes in dump.children] == [[1, 2], [3], [4, 5, 6], [], [7], [], [], []]
    assert dump.depth.tolist() == [0, 1, 1, 2, 2, 2, 2, 3]
    assert dump.target_row.tolist() == [0, 1, 2, -1, 3, -1, -1, -1]
    assert [tokens.tolist() for tokens in dump.prefix] == [[1, 2], [3, 4, 5]]
    for i in range(2):
        logits = dump.logits(i)
        assert np.array_equal(logits.target, value["target_logits"][i].numpy())
        assert np.array_equal(logits.draft, value["draft_logits"][i].numpy())
    for read in (open_dump, open_target):
        assert "is a tree dump" in refusal(read, path)
    assert "is a tree dump" in refusal(open_rounds, path)
    assert "is a flat dump" in refusal(open_tree, saved(path, {"target": 1, "draft": 2}))


def test_trees_in_other_formats(tmp_path):
    value = tree(UNEVEN)
    for path in (saved_npz(tmp_path / "x.npz", value), saved_safetensors(tmp_path / "x.safetensors", value)):
        dump = open_tree(path)
        assert np.array_equal(dump.logits(1).target, value["target_logits"][1].numpy())
        assert "is a tree dump" in refusal(open_dump, path)


def test_rows_for_all_nodes_and_single_prefixes():
    value = tree(UNEVEN, 1, rows=8)
    value["draft_logits"] = value["draft_logits"][:, :4]
    dump = tree_from_mapping("x", as_arrays(value))
    assert dump.target_row.tolist() == list(range(8))
    assert dump.draft_row.tolist() == [0, 1, 2, -1, 3, -1, -1, -1]
    flat = {key: value[key][0] for key in ("target_logits", "draft_logits", "tokens")}
    flat |= {"parent": UNEVEN, "prefix": torch.tensor([1, 2])}
    one = tree_from_mapping("x", as_arrays(flat))
    assert np.array_equal(one.logits(0).target, value["target_logits"][0].numpy())
    assert one.prefix[0].tolist() == [1, 2]
    root = tree_from_mapping("x", as_arrays(tree([-1])))
    assert (root.nodes, root.children[0].tolist()) == (1, [])


def test_trees_of_other_vocabularies():
    value = as_arrays(tree(UNEVEN) | {"draft_logits": torch.randn(2, 4, 3)})
    assert "vocabulary widths 6 and 3" in refusal(tree_from_mapping, "x", value)
    padded = tree_from_mapping("x", value, pad_vocab=True)
    assert np.isneginf(padded.logits(0).draft[:, 3:]).all()
    reduced = tree_from_mapping("x", value | {"d2t": np.array([0, 1, 3])})
    for i in range(2):
        assert np.array_equal(reduced.logits(i).draft[:, [0, 2, 5]], value["draft_logits"][i])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_tree(data):
    size = data.draw(st.integers(1, 12))
    parent = [-1, *(data.draw(st.integers(0, i - 1)) for i in range(1, size))]
    dump = tree_from_mapping("x", as_arrays(tree(parent)))
    assert dump.depth[0] == 0
    assert sum(map(len, dump.children)) == size - 1
    for node in range(1, size):
        assert node in dump.children[parent[node]]
        assert dump.depth[node] == dump.depth[parent[node]] + 1
    rows = [row for row in dump.target_row if row >= 0]
    assert rows == list(range(max(len(rows), 1)))[: len(rows)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parent": torch.tensor([-1, 0, 0, 1, 2, 2, 2, 7])}, "parent of node 7 is 7"),
        ({"parent": torch.tensor([-1, 0, 0, 5, 2, 2, 2, 4])}, "parent of node 3 is 5"),
        ({"parent": torch.tensor([-1, 0, -1, 1, 2, 2, 2, 4])}, "parent of node 2 is -1"),
        ({"parent": torch.tensor([-1, 0, -2, 1, 2, 2, 2, 4])}, "parent: -2 at 2"),
        ({"parent": torch.tensor([0, 0, 0, 1, 2, 2, 2, 4])}, "parent of node 0 is 0, not -1"),
        ({"parent": torch.tensor([])}, "parent of node 0 is missing"),
        ({"parent": torch.zeros(2, 8, dtype=torch.int64)}, "must be one-dimensional"),
        ({"parent": "x"}, "parent is a str"),
        ({"depth": torch.tensor([0, 1, 1, 2, 2, 2, 2, 2])}, "depth of node 7 is 2 but its parent makes it 3"),
        ({"depth": torch.tensor([0])}, "depth is [1], but must be [8]"),
        ({"tokens": torch.zeros(2, 7, dtype=torch.int64)}, "tokens is [2, 7], but must be [2, 8]"),
        ({"tokens": torch.full((2, 8), 6)}, "tokens: 6 at [0, 0] is outside -1..5"),
        ({"tokens": torch.full((2, 8), -1)}, "tokens of prefix 0, node 1 is -1"),
        ({"tokens": None}, "tokens is a NoneType"),
        ({"target_logits": torch.randn(2, 5, V)}, "has 5 rows a prefix; the tree has 8 nodes, 4 of them"),
        ({"target_logits": torch.randn(V)}, "target_logits is [6]"),
        ({"target_logits": torch.randn(1, 4, V)}, "has 1 prefixes but draft_logits has 2"),
        ({"target_logits": None}, "target_logits is a NoneType"),
        ({"prefix": torch.tensor([[1, -1], [1, 2]])}, "prefix 0 does not have 1 tokens"),
        ({"prefix": torch.tensor([[1, 2], [1, 2]]), "prefix_len": torch.tensor([2, 1])}, "prefix 1 does not"),
        (
            {"prefix": torch.tensor([[1, 2], [1, 2]]), "prefix_len": torch.tensor([2, 3])},
            "prefix_len: 3 at 1",
        ),
        ({"prefix": torch.tensor([[1, 9], [1, 2]])}, "prefix: 9 at [0, 1]"),
        ({"prefix": [1]}, "prefix is [1]"),
    ],
)
def test_trees_that_do_not_hold_together(tmp_path, change, words):
    path = saved(tmp_path / "x.pt", tree(UNEVEN) | change)
    message = refusal(open_tree, path)
    assert words in message
    assert message.startswith(f"{path}: ")


def test_faults_in_logits_name_prefix_and_row(tmp_path):
    value = tree(UNEVEN)
    value["draft_logits"][1, 3, 2] = torch.inf
    dump = open_tree(saved(tmp_path / "x.pt", value))
    dump.logits(0)
    assert "prefix 1: draft_logits has +inf at row 3, token 2" in refusal(dump.logits, 1)


@pytest.mark.parametrize("kind", ["rounds", "tree"])
def test_folders_of_other_kinds(tmp_path, kind):
    saved(tmp_path / "a.pt", {"rounds": [one_round()]} if kind == "rounds" else tree(UNEVEN))
    for read in (open_dump, open_target):
        assert f"a.pt: is a {kind} dump" in refusal(read, tmp_path)
