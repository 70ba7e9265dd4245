"""Files that look like rows over a vocabulary and are something else: read rightly, or refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from dump_helpers import WRITERS, logit_pair, refused, saved, saved_npz

from resispec_verify.dumps import open_dump, open_rounds, open_target, open_tree
from resispec_verify.dumps.checks.looks import FALSE_ALARM, in_order, log_probabilities
from resispec_verify.dumps.parts.reduced import token_map
from resispec_verify.errors import InputError
from resispec_verify.logged.inspection import inspect_dump

RNG = np.random.default_rng(11)
TOP = torch.tensor([[3.0, 2.0, -1e4], [4.0, 1.0, 0.5]])
IDS = torch.tensor([[5, 9, -1], [7, 2, 3]])


def rows(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).normal(size=shape).astype(np.float32) * 3)


def top(*shape: int) -> torch.Tensor:
    return rows(*shape).sort(dim=-1, descending=True).values


# Top-k values.


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("key", ["ids", "topk_indices", "whatever", "tokens", "draft"])
def test_top_k_values_beside_their_ids(tmp_path, name, key):
    """Acceptance is .5379 with ids [5, 9, -1] against [9, 5, -1]; read as a vocabulary of 3 it is 1."""
    value = {"target_logits": TOP, "draft_logits": TOP.clone(), key: IDS}
    path = WRITERS[name](tmp_path / name, value)
    for read in (open_dump, open_target):
        assert "top-k values and their token ids" in refused(path, read)


@pytest.mark.parametrize("ids", [IDS.reshape(1, 2, 3), IDS.tolist(), list(IDS), IDS.to(torch.int16)])
def test_ids_in_other_shapes(tmp_path, ids):
    path = saved(tmp_path / "x.pt", {"target_logits": TOP, "draft_logits": TOP, "target_ids": ids})
    assert "target_ids has an integer for each value" in refused(path, open_dump)


def test_ids_that_went_through_floats(tmp_path):
    value = {"target_logits": TOP, "draft_logits": TOP, "target_indices": IDS.float()}
    assert "target_indices" in refused(saved(tmp_path / "x.pt", value), open_dump)


def test_integers_that_are_no_ids_are_fine(tmp_path):
    value = logit_pair(4, 4) | {
        "candidates": torch.tensor([[0, 1, 2, 3]] * 4),
        "context_tokens": torch.arange(4),
    }
    assert open_dump(saved(tmp_path / "x.pt", value)).candidates.shape == (4, 4)
    one = {"target_logits": torch.randn(5), "draft_logits": torch.randn(5), "context_tokens": torch.arange(5)}
    assert open_dump(saved(tmp_path / "x.pt", one)).positions == 1


def test_top_k_values_in_rounds_and_trees(tmp_path):
    one = {"draft_tokens": torch.tensor([0]), "draft_logits": TOP[:1], "target_logits": TOP, "accepted": 1}
    path = saved(tmp_path / "x.pt", {"rounds": [one | {"ids": IDS}]})
    assert "round 0: ids has an integer" in refused(path, open_rounds)
    wide = one | {"draft_logits": top(1, 12), "target_logits": top(2, 12)}
    assert "in the order of its values" in refused(saved(tmp_path / "x.pt", {"rounds": [wide]}), open_rounds)
    tree = {"parent": torch.tensor([-1, 0]), "tokens": torch.tensor([[0, 1]])}
    logits = {"target_logits": top(1, 2, 12), "draft_logits": rows(1, 2, 12)}
    path = saved(tmp_path / "x.pt", tree | logits)
    assert "every row of target_logits is in the order" in refused(path, open_tree)
    logits = {"target_logits": TOP[None], "draft_logits": TOP[None], "ids": IDS[None]}
    assert "ids has an integer" in refused(saved(tmp_path / "x.pt", tree | logits), open_tree)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("key", ["target_logits", "draft_logits"])
def test_top_k_values_alone(tmp_path, key, flip):
    """One matrix is enough: the other may hold values of the same tokens, which are in no order."""
    values = {"target_logits": rows(4, 5), "draft_logits": rows(4, 5)} | {key: top(4, 5)}
    if flip:
        values[key] = values[key].flip(-1)
    path = saved(tmp_path / "x.pt", values)
    message = refused(path, open_dump)
    assert f"every row of {key} is in the order of its values" in message
    assert "meta['vocab_size'] = 5" in message
    assert open_dump(saved(path, values | {"meta": {"vocab_size": 5}})).positions == 4
    folder = tmp_path / "shards"
    folder.mkdir()
    for i in range(2):
        saved(folder / f"{i}.pt", {name: value[2 * i : 2 * i + 2] for name, value in values.items()})
    assert "in the order of its values" in refused(folder, open_dump)


@pytest.mark.parametrize("values", [[3.0, 2.0, 1.0], [0.0] * 40, [0.0] + [-np.inf] * 40, [1.0] + [0.0] * 30])
def test_rows_that_may_be_in_order_by_chance(tmp_path, values):
    row = torch.tensor([values] * 6)
    assert open_dump(saved(tmp_path / "x.pt", {"target_logits": row, "draft_logits": row})).positions == 6


def test_the_chance_of_an_order_is_counted():
    """By listing all orders of a row with ties, both directions."""
    from itertools import permutations

    row = np.array([2.0, 2.0, 1.0, 0.0, 0.0])
    orders = set(permutations(row))
    sorted_ = [o for o in orders if list(o) == sorted(o) or list(o) == sorted(o, reverse=True)]
    assert in_order(row[None]) == pytest.approx(len(sorted_) / len(orders), rel=1e-12)
    assert in_order(np.stack([row, row, np.zeros(5)])) == pytest.approx(in_order(row[None]), rel=1e-12)
    assert in_order(np.stack([row, row[::-1]])) is None


def test_random_rows_are_never_refused():
    """The alarm is FALSE_ALARM at most: of 20,000 random matrices none can be expected to set it off."""
    rng = np.random.default_rng(0)
    for _ in range(20_000):
        found = in_order(rng.normal(size=(int(rng.integers(1, 4)), int(rng.integers(2, 7)))))
        assert found is None or found >= FALSE_ALARM


def test_parts_of_a_vocabulary_that_say_so(tmp_path):
    value = logit_pair(4, 10)
    for more, words in (
        ({"meta": {"vocab_size": 20}}, "meta['vocab_size'] is 20"),
        (
            {"meta": {"vocab_size": 4}, "target_logits": rows(4, 3), "draft_logits": rows(4, 3)},
            "wrong way round",
        ),
        ({"vocab_start": 10}, "a part of the vocabulary, from token 10 on"),
        ({"tokens": torch.tensor([1, 50, 60, 70, 80])}, "position 0 was followed by token 50"),
        (
            {"target_logits": rows(20, 4), "draft_logits": rows(20, 4), "tokens": torch.arange(5) % 4},
            "wrong way",
        ),
    ):
        assert words in refused(saved(tmp_path / "x.pt", value | more), open_dump)
    assert open_dump(saved(tmp_path / "x.pt", value | {"meta": {"vocab_size": "10"}})).vocab == 10


# Shards of the vocabulary.

WHOLE = {"target_logits": rows(4, 20), "draft_logits": rows(4, 20) * 0.5, "proposal_logits": rows(4, 20) + 1}
TOKENS = torch.tensor([3, 19, 0, 7, 12])


def ranks(folder, pattern: str, count: int = 2, **more):
    folder.mkdir(exist_ok=True)
    width = 20 // count
    for i in range(count):
        part = {key: value[:, i * width : (i + 1) * width].clone() for key, value in WHOLE.items()}
        extra = {key: value(i) if callable(value) else value for key, value in more.items()}
        saved(folder / pattern.format(i), part | extra)
    return folder


def assert_joined(dump) -> None:
    assert (dump.positions, dump.vocab) == (4, 20)
    for found, key in zip(dump.batch(1, 3), WHOLE, strict=True):
        assert np.array_equal(found, WHOLE[key][1:3].numpy())


@pytest.mark.parametrize(
    "pattern", ["tp{}.pt", "run-tp_rank_{}.pt", "logits.tp-{}.pt", "tensor_parallel_rank{}.pt"]
)
def test_vocabulary_shards_by_name(tmp_path, pattern):
    folder = ranks(tmp_path / "x", pattern, 10, candidates=torch.tensor([[19, 3]] * 4))
    dump = open_dump(folder)
    assert_joined(dump)
    assert dump.candidates.tolist() == [[19, 3]] * 4
    assert "10 parts of the vocabulary" in dump.notes[-1]
    target = open_target(folder)
    assert np.array_equal(target.batch(0, 4), WHOLE["target_logits"].numpy())
    assert inspect_dump(folder)["vocab"] == 20


@pytest.mark.parametrize(
    "more",
    [
        {"tokens": TOKENS},
        {"meta": {"vocab_size": 20}},
        {"vocab_start_index": lambda i: 10 * i},
        {"meta": lambda i: {"vocab_start": 10 * i, "vocab_end": 10 * i + 10}},
    ],
)
def test_ranks_that_something_tells_apart(tmp_path, more):
    assert_joined(open_dump(ranks(tmp_path / "x", "rank{}.pt", **more)))


def test_ranks_that_nothing_tells_apart(tmp_path):
    """Data parallelism leaves the same names and shapes."""
    folder = ranks(tmp_path / "x", "rank{}.pt")
    assert "named by rank" in refused(folder, open_dump)
    assert "--shards vocab" in refused(folder, open_target)
    assert_joined(open_dump(folder, shards="vocab"))
    assert open_dump(folder, shards="positions").positions == 8
    index = {"shards": ["rank0.pt", "rank1.pt"], "axis": "vocab"}
    (folder / "index.json").write_text(json.dumps(index))
    assert_joined(open_dump(folder))
    (folder / "index.json").write_text(json.dumps(index | {"axis": "depth"}))
    assert "axis is depth" in refused(folder, open_dump)
    (folder / "index.json").unlink()
    ranks(folder, "rank{}.pt", tokens=lambda i: TOKENS + i)
    assert open_dump(folder).positions == 8
    ranks(folder, "rank{}.pt", start=lambda i: 4 * i)
    assert open_dump(folder).positions == 8
    assert "is one file" in refused(folder / "rank0.pt", open_dump, shards="vocab")


def test_the_same_tokens_under_other_names(tmp_path):
    assert "the same tokens" in refused(ranks(tmp_path / "x", "part-{}.pt", tokens=TOKENS), open_dump)


def test_vocabulary_shards_that_do_not_fit(tmp_path):
    folder = ranks(tmp_path / "x", "tp{}.pt")
    (folder / "tp0.pt").rename(folder / "tp2.pt")
    assert "rank 0 of 2 is missing" in refused(folder, open_dump)
    folder = ranks(tmp_path / "y", "tp{}.pt", tokens=lambda i: TOKENS + i)
    assert "its tokens are not those" in refused(folder, open_dump)
    folder = ranks(tmp_path / "z", "tp{}.pt", vocab_start=lambda i: 11 * i)
    assert "begins at token 11, and token 10 is next" in refused(folder, open_dump)
    folder = ranks(tmp_path / "w", "tp{}.pt", meta={"vocab_size": 40})
    assert "meta['vocab_size'] is 40" in refused(folder, open_dump)
    folder = ranks(tmp_path / "v", "tp{}.pt")
    saved(folder / "tp1.pt", logit_pair(3, 10, dtype=torch.float32))
    assert "other positions or another type" in refused(folder, open_dump)


# Reduced draft vocabularies.

HAS = np.isin(np.arange(40), PLACES := [0, 3, 4, 11, 30, 39])
OFFSETS = np.array(PLACES) - np.arange(6)


@pytest.mark.parametrize(
    ("d2t", "words"),
    [
        (OFFSETS, None),
        (np.array(PLACES), "token ids, not offsets"),
        (np.arange(6), "neither offsets nor ids"),
        (np.zeros(6, np.int64), "neither offsets nor ids"),
        (None, "in their order"),
    ],
)
def test_t2d_decides(tmp_path, d2t, words):
    draft = rows(2, 6).numpy()
    value = {"target_logits": rows(2, 40).numpy(), "draft_logits": draft, "t2d": HAS}
    if d2t is not None:
        value["d2t"] = d2t
    dump = open_dump(saved_npz(tmp_path / "x.npz", value))
    assert np.array_equal(dump.batch(0, 2).draft[:, PLACES], draft)
    assert np.isfinite(dump.batch(0, 2).draft).sum() == 12
    assert words is None or any(words in note for note in dump.notes)


def test_a_permuted_map_keeps_its_order():
    ids = np.array(PLACES)[::-1]
    for value in (ids - np.arange(6), ids):
        assert token_map("x", {"d2t": value, "t2d": HAS}, 6, 40)[0].tolist() == ids.tolist()


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"d2t": np.arange(3000)}, "these are token ids (or a range), not offsets"),
        ({"d2t": np.arange(3000) * 2}, "these are token ids (or a range), not offsets"),
        ({"t2d": np.ones(9, bool)}, "one truth value a target token [10000]"),
        ({"t2d": np.arange(10000)}, "other values than 0 and 1"),
        ({"t2d": np.arange(10000) < 2000}, "2000 tokens for 3000 draft tokens"),
        ({"t2d": np.arange(10000) < 2000, "d2t": np.arange(3000)}, "contradict each other"),
    ],
)
def test_maps_that_cannot_be(mapping, words):
    with pytest.raises(InputError) as caught:
        token_map("x", mapping, 3000, 10000)
    assert words in str(caught.value)


def test_draft_tokens_without_counterpart(tmp_path):
    """They keep their mass, on places after the vocabulary where the target has none."""
    draft = rows(2, 4)
    value = {"target_logits": rows(2, 9), "draft_logits": draft}
    for maps in (
        {"d2t": torch.tensor([1, -2, 3, -4])},  # -1 - i leads to -1
        {"d2t": torch.tensor([1, -1, 3, -1]), "t2d": torch.tensor([x in (1, 5) for x in range(9)])},
        {"d2t": torch.tensor([1, -1, 5, -1]), "t2d": torch.tensor([x in (1, 5) for x in range(9)])},
    ):
        dump = open_dump(saved(tmp_path / "x.pt", value | maps))
        batch = dump.batch(0, 2)
        assert batch.draft.shape == batch.target.shape == (2, 11)
        assert np.array_equal(batch.draft[:, [1, 9, 5, 10]], draft.numpy())
        assert np.isneginf(batch.target[:, 9:]).all()


# Masks, lengths, settings.


@pytest.mark.parametrize("key", ["attention_mask", "mask", "loss_mask"])
def test_masks_leave_rows_out(tmp_path, key):
    value = logit_pair(6, 5) | {"candidates": torch.arange(6)[:, None] % 5, "dataset": list("aabbcc")}
    value["meta"] = {"sampling": {"temperature": [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]}}
    mask = torch.tensor([1, 1, 0, 1, 0, 0])
    for form in (mask, mask.bool(), mask.float(), mask.bfloat16(), mask.tolist()):
        dump = open_dump(saved(tmp_path / "x.pt", value | {key: form}))
        assert (dump.positions, dump.left_out) == (3, 3)
        assert np.array_equal(dump.batch(0, 3).target, value["target_logits"].float()[[0, 1, 3]])
        assert np.array_equal(dump.batch(2, 3).draft, value["draft_logits"].float()[3:4])
        assert dump.candidates[:, 0].tolist() == [0, 1, 3]
        assert dump.dataset == ("a", "a", "b")
        assert [one["temperature"] for one in dump.sampling] == [0.5, 0.6, 0.8]
        assert f"{key}: 3 of 6 positions are left out" in dump.notes[0]
    assert open_target(tmp_path / "x.pt").positions == 3
    assert open_dump(saved(tmp_path / "x.pt", value | {key: torch.ones(6)})).notes == ()


def test_masks_of_batches_and_of_shards(tmp_path):
    value = {"target_logits": rows(2, 3, 5), "draft_logits": rows(2, 3, 5)}
    mask = torch.tensor([[0, 1, 1], [1, 0, 0]])
    dump = open_dump(saved(tmp_path / "x.pt", value | {"mask": mask}))
    assert np.array_equal(dump.batch(0, 3).target, value["target_logits"].reshape(6, 5)[[1, 2, 3]])
    bad = value["draft_logits"].clone()
    bad[1, 0, 2] = torch.nan
    dump = open_dump(saved(tmp_path / "x.pt", value | {"mask": mask, "draft_logits": bad}))
    with pytest.raises(InputError, match=r"NaN at position 2 \(row 3 of the file\), token 2"):
        dump.batch(0, 3)
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(2):
        part = {key: value[i] for key, value in value.items()}
        saved(folder / f"{i}.pt", part | {"mask": mask[i], "start": 3 * i})
    dump = open_dump(folder)
    assert (dump.positions, dump.left_out) == (3, 3)
    assert "masks: 3 of 6" in dump.notes[0]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"mask": torch.ones(7)}, "mask is [7], and the logits have the positions [6]"),
        ({"mask": torch.tensor([0.0, 0, -torch.inf, 0, 0, 0])}, "other values than 0 and 1"),
        ({"mask": [1, [0], 1, 1, 1, 1]}, "other values than 0 and 1"),
        ({"mask": torch.zeros(6)}, "no position is left"),
        ({"mask": torch.ones(1).expand(6)}, "expanded"),
        ({"key_padding_mask": torch.ones(6)}, "a mask that nothing says how to read"),
        ({"vocab_mask": torch.ones(5)}, "a mask that nothing says how to read"),
        ({"mask": torch.arange(6) < 3, "loss_mask": torch.arange(6) > 1}, "contradict each other"),
        ({"num_tokens": 4}, "fewer tokens than the 6 rows"),
        ({"lengths": torch.tensor([2, 3])}, "fewer tokens than the 6 rows"),
        ({"temperature": 0.7}, "temperature beside the logits is not read"),
        ({"top_k": torch.tensor([5] * 6)}, "top_k beside the logits is not read"),
        ({"repetition_penalty": 1.1}, "repetition_penalty beside the logits is not read"),
    ],
)
def test_what_changes_the_meaning_is_refused(tmp_path, more, words):
    path = saved(tmp_path / "x.pt", logit_pair(6, 5) | more)
    assert words in refused(path, open_dump)
    assert words in refused(path, open_target)


def test_what_changes_nothing_is_not(tmp_path):
    more = {
        "temperature": 1.0, "top_k": -1, "presence_penalty": torch.zeros(6), "num_tokens": 7,
        "lengths": [3, 3], "lens": [1, [2]],
        "seq_lens": torch.tensor([9, 8, 7, 6, 5, 4]), "note": "x", "attention_mask": torch.ones(6),
        "loss_mask": torch.tensor([0, 0, 1, 1, 1, 1]),
    }  # fmt: skip
    result = inspect_dump(saved(tmp_path / "x.pt", logit_pair(6, 5) | more))
    assert result["positions"] == 4
    assert result["problems"] == []
    assert {"note", "seq_lens"} <= set(result["ignored"])
    assert not {"target_logits", "loss_mask", "tokens"} & set(result["ignored"])


def test_settings_of_rounds_and_masks_of_trees(tmp_path):
    one = {
        "draft_tokens": torch.tensor([0]),
        "draft_logits": rows(1, 3),
        "target_logits": rows(2, 3),
        "accepted": 1,
    }
    assert "round 0: temperature beside" in refused(
        saved(tmp_path / "x.pt", {"rounds": [one | {"temperature": 0.5}]}), open_rounds
    )
    result = inspect_dump(saved(tmp_path / "x.pt", {"rounds": [one | {"request": 5}]}))
    assert result["ignored"] == ["rounds.request"]
    tree = {"parent": torch.tensor([-1, 0]), "tokens": torch.tensor([[0, 1]])}
    tree |= {"target_logits": rows(1, 2, 3), "draft_logits": rows(1, 2, 3)}
    assert open_tree(saved(tmp_path / "x.pt", tree | {"tree_mask": torch.ones(2, 2)})).nodes == 2
    assert "nothing says" in refused(saved(tmp_path / "x.pt", tree | {"mask": torch.ones(2)}), open_tree)


# What meta states.


def test_a_temperature_of_meta_means_the_same_everywhere(tmp_path):
    value = logit_pair(3, 5)
    one = {
        "draft_tokens": torch.tensor([0]),
        "draft_logits": rows(1, 3),
        "target_logits": rows(2, 3),
        "accepted": 1,
    }
    tree = {"parent": torch.tensor([-1, 0]), "tokens": torch.tensor([[0, 1]])}
    tree |= {"target_logits": rows(1, 2, 3), "draft_logits": rows(1, 2, 3)}
    for meta in (
        {"temperature": 0.5},
        {"temperature": "0.5"},
        {"sampling": {"temperature": 0.5}, "temperature": 0.5},
    ):
        for read, held in (
            (open_dump, value),
            (open_target, value),
            (open_rounds, {"rounds": [one]}),
            (open_tree, tree),
        ):
            assert read(saved(tmp_path / "x.pt", held | {"meta": meta})).sampling == {"temperature": 0.5}
    meta = {"temperature": [0.5, 0.6, 0.7]}
    stated = open_dump(saved(tmp_path / "x.pt", value | {"meta": meta})).sampling
    assert [one["temperature"] for one in stated] == [0.5, 0.6, 0.7]


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"temperature": 0.5, "sampling": {"temperature": 0.6}}, "differ; state temperature in one place"),
        ({"temperature": 0.5, "sampling": {"top_k": 3}}, "differ; state temperature in one place"),
        ({"temperature": "hot"}, "must be a number, got str"),
        ({"temperature_of_logits": 0.5}, "these logits were divided already"),
        (
            {"repetition_penalty": 1.2},
            "meta['repetition_penalty'] is not applied: these logits may have it already",
        ),
        ({"presence_penalty": 0.5}, "meta['presence_penalty'] is not applied"),
    ],
)
def test_statements_that_are_refused(tmp_path, meta, words):
    assert words in refused(saved(tmp_path / "x.pt", logit_pair(3, 5) | {"meta": meta}), open_dump)


def test_penalties_that_do_nothing_are_fine(tmp_path):
    sampling = {
        "temperature": 0.5,
        "repetition_penalty": 1.0,
        "presence_penalty": 0,
        "frequency_penalty": None,
    }
    path = saved(tmp_path / "x.pt", logit_pair(3, 5) | {"meta": {"sampling": sampling}})
    assert open_dump(path).sampling == {"temperature": 0.5}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_log_probabilities_are_told_from_logits(tmp_path, dtype):
    logits = rows(6, 500)
    path = tmp_path / "x.pt"
    normal = open_target(saved(path, {"target_logits": logits.log_softmax(-1).to(dtype)})).target
    assert log_probabilities(normal)
    assert not log_probabilities(open_target(saved(path, {"target_logits": logits.to(dtype)})).target)
    point = torch.full((3, 5), -torch.inf, dtype=dtype)
    point[:, 2] = 0
    assert not log_probabilities(open_target(saved(path, {"target_logits": point})).target)


def test_inspect_names_what_it_sees(tmp_path):
    flat = rows(3, 40)
    flat[1] = 0
    value = {"target_logits": flat, "draft_logits": rows(3, 40).log_softmax(-1)}
    result = inspect_dump(saved(tmp_path / "x.pt", value))
    assert {(o["kind"], o["key"]): (o["count"], o["first_position"]) for o in result["oddities"]} == {
        ("constant", "target_logits"): (1, 1),
        ("near-tie", "target_logits"): (1, 1),
        ("log-probabilities", "draft_logits"): (3, 0),
    }
