"""Rounds over trees: the shapes that engines keep, formats of arrays, and what must be refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dump_helpers import saved, saved_npz, saved_safetensors

from resispec_verify.dumps import open_rounds, open_tree_rounds, tree_rounds_from_mapping
from resispec_verify.dumps.kinds.tree_shapes import shape_of
from resispec_verify.errors import InputError

HERE = "here"
PARENT = [-1, 0, 0, 1, 1, 2]
NEXT, SIBLING = [1, 3, 5, -1, -1, -1], [-1, 2, -1, 4, -1, -1]
PATHS = [[0, 1, 3], [0, 1, 4], [0, 2, 5]]
ROWS = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))


def one(**others):
    entry = {"tokens": torch.tensor([-1, 3, 4, 5, 6, 7]), "parent": torch.tensor(PARENT),
             "target_logits": ROWS, "accepted_path": torch.tensor([1, 4]), "next_token": 2}  # fmt: skip
    return {key: value for key, value in (entry | others).items() if value is not None}


def opened(*entries, **others):
    plain = [{k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in e.items()} for e in entries]
    return tree_rounds_from_mapping(HERE, {"rounds": plain} | others)


def refusal(*entries, **others):
    with pytest.raises(InputError) as caught:
        opened(*entries, **others)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "shape",
    [
        {"parent": np.array(PARENT)},
        {"retrive_next_token": np.array(NEXT), "retrive_next_sibling": np.array(SIBLING)},
        {"retrieve_next_token": [NEXT][0], "retrieve_next_sibling": SIBLING},
        {"retrieve_indices": np.array(PATHS)},
        {"retrieve_indices": PATHS, "parent": PARENT},
    ],
)
def test_all_statements_of_a_shape_are_one(shape):
    found = shape_of(HERE, shape, 6)
    assert found.parent.tolist() == PARENT
    assert found.depth.tolist() == [0, 1, 1, 2, 2, 2]
    assert [nodes.tolist() for nodes in found.children] == [[1, 2], [3, 4], [5], [], [], []]


def test_the_order_of_siblings_is_that_of_the_engine():
    links = {"retrive_next_token": [2, -1, -1], "retrive_next_sibling": [-1, -1, 1]}
    assert shape_of(HERE, links, 3).children[0].tolist() == [2, 1]
    assert shape_of(HERE, {"retrieve_indices": [[0, 2], [0, 1]]}, 3).children[0].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({}, "has no parent"),
        ({"parent": [0, 0, 0]}, "parent of node 0 is 0, not -1"),
        ({"parent": [-1, 0, -1]}, "parent of node 2 is -1, and only the root has none"),
        ({"parent": [-1, 2, 1]}, "does not reach node 1 from node 0"),
        ({"parent": [-1, 0]}, "has 2 entries for 3 nodes"),
        ({"parent": [-1, 0, 3]}, "parent of node 2 is 3, and the nodes are 0..2"),
        ({"retrive_next_token": [1, -1, -1]}, "need each other"),
        (
            {"retrive_next_token": [1, -1, -1], "retrive_next_sibling": [-1, 2, 1]},
            "goes in a circle below node 0",
        ),
        ({"retrive_next_token": [1, 1, -1], "retrive_next_sibling": [-1, 2, -1]}, "reaches node 1 twice"),
        ({"retrive_next_token": [1, -1, -1], "retrive_next_sibling": [2, -1, -1]}, "and the root has none"),
        ({"retrieve_indices": [[0, 1], [1, 2]]}, "each begins at 0"),
        ({"retrieve_indices": [[0, -1, 1]]}, "each begins at 0 and ends in -1s"),
        ({"retrieve_indices": [[0, 1, 2], [0, 2, -1]]}, "puts node 2 below 1 and 0"),
        ({"retrieve_indices": [0, 1]}, "save integers [leaves, depth + 1]"),
        ({"parent": [-1, 0, 0], "retrieve_indices": [[0, 1, 2]]}, "are of different trees"),
    ],
)
def test_shapes_that_are_none(shape, words):
    with pytest.raises(InputError) as caught:
        shape_of(HERE, shape, 3)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"tokens": None}, "has no tokens or target_logits"),
        ({"candidates": torch.tensor([0])}, "tokens and candidates both"),
        ({"tokens": torch.tensor([-1, 3, -1, 5, 6, 7])}, "of node 2 is -1 or missing"),
        ({"tokens": torch.tensor([-1, 3, 4, 5, 6, 9])}, "9 at 5 is outside -1..8"),
        ({"target_logits": ROWS[:5]}, "[5, 9] for 6 nodes"),
        ({"target_logits": ROWS[None]}, "save a plain matrix"),
        ({"draft_logits": ROWS[:4]}, "the tree has 6 nodes, 3 of them with children"),
        ({"draft_logits": ROWS[:, :8].contiguous()}, "vocabulary widths 9 and 8 differ"),
        ({"accepted_path": None}, "none of accepted_path, accept_index, best_candidate"),
        ({"accepted_path": torch.tensor([4])}, "goes from node 0 to 4, which is none of its children"),
        ({"accepted_path": torch.tensor([1, 5])}, "goes from node 1 to 5"),
        ({"accepted": 1}, "accepted is 1, and accepted_path has 2 nodes"),
        ({"accepted_path": None, "accept_index": torch.tensor([1, 4])}, "another node than the root (0)"),
        ({"accepted_path": None, "best_candidate": 0}, "needs retrieve_indices and accept_length"),
        ({"u": torch.rand(5)}, "u is [5], but must be [6]"),
        ({"u": torch.ones(6)}, "outside [0, 1)"),
        ({"next_token": 9}, "next_token is 9, outside 0..8"),
        ({"tree_mask": torch.ones(3)}, "mask"),
        ({"temperature": 0.5}, "state it in meta['sampling']"),
    ],
)
def test_rounds_that_are_refused(others, words):
    assert words in refusal(one(), one(**others))
    assert "round 1" in refusal(one(), one(**others))


def test_other_kinds_are_told_apart(tmp_path):
    chain = {
        "draft_tokens": torch.tensor([1]),
        "draft_logits": ROWS[:1],
        "target_logits": ROWS[:2],
        "accepted": 0,
    }
    assert "is a rounds dump, and one of rounds over trees" in refusal(chain)
    with pytest.raises(InputError, match="over a tree"):
        open_rounds(saved(tmp_path / "x.pt", {"rounds": [one()]}))


@pytest.mark.parametrize("save", [saved_npz, saved_safetensors])
def test_formats_of_arrays_have_a_leading_axis_of_rounds(tmp_path, save):
    small = one(tokens=torch.tensor([-1, 3, 4, -1, -1, -1]), parent=torch.tensor([-1, 0, 0, -1, -1, -1]),
                accepted_path=torch.tensor([2, -1]), next_token=-1)  # fmt: skip
    both = [one(), small]
    arrays = {key: torch.stack([torch.as_tensor(entry[key]) for entry in both]) for key in small}
    suffix = ".npz" if save is saved_npz else ".safetensors"
    dump = open_tree_rounds(save(tmp_path / f"x{suffix}", arrays))
    assert [entry.path.tolist() for entry in dump.rounds] == [[1, 4], [2]]
    assert [entry.next_token for entry in dump.rounds] == [2, None]
    assert dump.rounds[1].tokens.tolist() == [-1, 3, 4]
    assert dump.logits(1, [2]).target.tolist() == ROWS[2:3].tolist()
    assert dump.rounds[0].draft_tokens.tolist() == [3, 6]


def test_a_draft_of_a_reduced_vocabulary_and_of_inner_nodes():
    draft = torch.randn(3, 4)
    dump = opened(one(draft_logits=draft), d2t=np.array([8, 0, 3, 1]))
    rows = dump.logits(0, [0, 2, 5])
    assert rows.draft.shape == (2, 9)
    assert rows.draft[1, [8, 1, 5, 4]].tolist() == draft[2].tolist()
    assert np.isneginf(rows.draft[0, 0])
