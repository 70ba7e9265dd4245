"""Many files, chunks and steps as one dump; targets alone."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from dump_helpers import saved, saved_llamacpp, saved_npz, saved_safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.dumps import (
    files_of,
    load_mapping,
    looks_like_probabilities,
    open_dump,
    open_target,
)
from resispec_verify.errors import InputError

GENERATOR = torch.Generator().manual_seed(2)
WHOLE = {
    "target_logits": torch.randn(10, 6, generator=GENERATOR),
    "draft_logits": torch.randn(10, 6, generator=GENERATOR),
    "proposal_logits": torch.randn(10, 6, generator=GENERATOR),
}
TOKENS = torch.arange(11) % 6


def refusal(path, read=open_dump, **options) -> str:
    with pytest.raises(InputError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def part(first: int, last: int, **others) -> dict:
    rows = {key: value[first:last].clone() for key, value in WHOLE.items()}
    return {"start": first, **rows, "tokens": TOKENS[first : last + 1].clone()} | others


CUTS = ((0, 4), (4, 5), (5, 10))


def folder_of(folder, parts=None, **others):
    folder.mkdir(exist_ok=True)
    for i, one in enumerate(parts or [part(*cut, **others) for cut in CUTS]):
        saved(folder / f"shard-{i}.pt", one)
    return folder


def assert_whole(dump) -> None:
    assert (dump.positions, dump.vocab, dump.dtype) == (10, 6, "float32")
    for first, last in ((0, 10), (3, 6), (9, 10), (4, 5), (0, 1)):
        batch = dump.batch(first, last)
        for key, rows in zip(WHOLE, batch, strict=True):
            assert np.array_equal(rows, WHOLE[key][first:last].numpy())
    for key, rows in zip(WHOLE, (dump.target, dump.draft, dump.proposal), strict=True):
        assert np.array_equal(np.asarray(rows), WHOLE[key].numpy())
    if dump.tokens is not None:
        assert dump.tokens.tolist() == TOKENS.tolist()


def test_folders_globs_and_indexes(tmp_path):
    folder = folder_of(tmp_path / "shards")
    (folder / "notes.txt").write_text("not a shard")
    (folder / "sub").mkdir()
    (folder / "._shard-0.pt").write_text("what a file system leaves")
    index = {
        "shards": [{"file": f"shard-{i}.pt", "start": a, "rows": b - a} for i, (a, b) in enumerate(CUTS)]
    }
    for meta in (None, {"model": "m"}):
        for path in (folder, folder / "*.pt", folder / "shard-?.pt", f"{folder}/shard-[0-2].pt"):
            dump = open_dump(path)
            assert_whole(dump)
            assert dump.tokens is not None
            assert len(files_of(path)) == 3
            assert str(path) in repr(dump)
            assert "3 parts" in dump.notes[-1]
        (folder / "index.json").write_text(json.dumps(index | ({"meta": meta} if meta else {})))
    assert open_dump(folder / "index.json").meta == {"model": "m"}
    assert_whole(open_dump(folder / "index.json"))
    assert files_of(folder / "shard-0.pt") == [folder / "shard-0.pt"]


def test_order_is_by_start_and_else_by_number(tmp_path):
    folder = tmp_path / "x"
    folder.mkdir()
    for name, cut in (("a", (5, 10)), ("b", (0, 4)), ("c", (4, 5))):
        saved(folder / f"{name}.pt", part(*cut))
    assert_whole(open_dump(folder))
    numbered = tmp_path / "y"
    numbered.mkdir()
    for i in range(10):
        one = part(i, i + 1)
        del one["start"], one["tokens"]
        saved_safetensors(numbered / f"part{i + 3}.safetensors", one)  # part10 comes after part9
    dump = open_dump(numbered)
    assert_whole(dump)
    assert dump.tokens is None
    names = [f"part{i + 3}.safetensors" for i in range(10)]
    (numbered / "index.json").write_text(json.dumps({"shards": names[::-1]}))
    assert np.array_equal(open_dump(numbered).batch(0, 1).target, WHOLE["target_logits"][9:].numpy())


def test_formats_may_be_mixed_and_labels_are_joined(tmp_path):
    folder = tmp_path / "x"
    folder.mkdir()
    labels = {"candidates": np.array([[1, 2]] * 4), "dataset": np.array("a")}
    one = {key: value.numpy() for key, value in part(0, 4).items() if key != "start"}
    saved_npz(folder / "1.npz", one | labels | {"start": np.array(0)}, compressed=True)
    saved(
        folder / "2.pt",
        part(
            4, 10, candidates=torch.tensor([[0, 3]] * 6), dataset="b", meta={"sampling": {"temperature": 0.5}}
        ),
    )
    dump = open_dump(folder)
    assert_whole(dump)
    assert dump.dataset == ("a",) * 4 + ("b",) * 6
    assert dump.candidates.tolist() == [[1, 2]] * 4 + [[0, 3]] * 6
    assert [one.get("temperature") for one in dump.sampling] == [None] * 4 + [0.5] * 6
    saved(folder / "2.pt", part(4, 10))
    assert "different numbers of candidates" in refusal(folder)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_cut_gives_the_same_rows(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("x")
    cuts = sorted(data.draw(st.sets(st.integers(1, 9), max_size=4)))
    edges = [0, *cuts, 10]
    parts = [part(a, b) for a, b in pairwise(edges)]
    order = data.draw(st.permutations(range(len(parts))))
    for i, at in enumerate(order):
        saved(folder / f"{i}.pt", parts[at])
    dump = open_dump(folder)
    assert_whole(dump)
    assert dump.tokens.tolist() == TOKENS.tolist()
    first = data.draw(st.integers(0, 9))
    last = data.draw(st.integers(first + 1, 10))
    assert np.array_equal(dump.batch(first, last).draft, WHOLE["draft_logits"][first:last].numpy())
    assert_whole(open_dump(saved(folder / "chunks.pt", {"chunks": [parts[at] for at in order]})))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({1: part(5, 6)}, ["shard-1.pt", "start is 5", "leaves a gap", "position 4"]),
        ({1: part(3, 5)}, ["shard-1.pt", "start is 3", "overlaps"]),
        ({0: part(1, 4)}, ["shard-0.pt", "start is 1", "position 0"]),
        ({1: {k: v for k, v in part(4, 5).items() if k != "start"}}, ["shard-1.pt", "has no start"]),
        ({1: part(4, 5, start=-4)}, ["shard-1.pt: start is -4"]),
        ({1: part(4, 5, start=True)}, ["shard-1.pt: start is a bool"]),
        ({2: part(5, 10, draft_logits=torch.randn(5, 7))}, ["shard-2.pt", "widths 6 and 7"]),
        (
            {2: {k: v[:, :5] if v.ndim > 1 else v for k, v in part(5, 10, start=torch.tensor(5)).items()}},
            ["shard-2.pt", "vocabulary 5", "shard-0.pt has 6"],
        ),
        ({2: part(5, 10, target_logits=torch.randn(5, 6).half())}, ["shard-2.pt", "float16", "float32"]),
        ({1: {k: v for k, v in part(4, 5).items() if k != "proposal_logits"}}, ["shard-1.pt", "no proposal"]),
        ({1: {"rounds": []}}, ["shard-1.pt", "rounds dump"]),
        ({1: {"parent": []}}, ["shard-1.pt", "tree dump"]),
        ({1: {"target_logits": torch.ones(1, 6)}}, ["shard-1.pt", "has no draft_logits"]),
        ({1: torch.ones(2)}, ["shard-1.pt", "not a dict"]),
    ],
)
def test_shards_that_do_not_fit(tmp_path, change, words):
    parts = [change.get(i) if i in change else part(*cut) for i, cut in enumerate(CUTS)]
    folder = folder_of(tmp_path / "x", parts)
    message = refusal(folder)
    for word in words:
        assert word in message
    if "position 0" in message:  # a glob may begin later
        assert open_dump(folder / "*.pt").positions == 9
    else:
        refusal(folder / "*.pt")


def test_a_glob_may_choose_later_shards(tmp_path):
    folder = folder_of(tmp_path / "x")
    dump = open_dump(folder / "shard-[12].pt")
    assert dump.positions == 6
    assert "position 0 here is position 4 of the run" in dump.notes[-1]


def test_nothing_there(tmp_path):
    assert "matches" in refusal(tmp_path / "*.pt")
    (tmp_path / "a.txt").touch()
    assert "matches" in refusal(tmp_path / "*")
    assert "is a directory without dumps" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "index.json")
    assert "no such file" in refusal(tmp_path / "absent.pt")
    odd = tmp_path / "a[1].pt"
    saved(odd, part(0, 10))
    assert_whole(open_dump(odd))  # a name that exists is no pattern


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("[", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "no list of shards"),
        ({"choices": []}, "give what an engine answered to the command convert"),
        ({"shards": []}, "no list of shards"),
        ({"shards": {}}, "no list of shards"),
        ({"shards": [1]}, "shard 0 names no file"),
        ({"shards": [{"file": ""}]}, "shard 0 names no file"),
        ({"shards": [{"file": "a\0.pt"}]}, "shard 0 names no file"),
        ({"shards": ["shard-0.pt", "../shard-1.pt"]}, "shard 1 is ../shard-1.pt"),
        ({"shards": ["/etc/x.pt"]}, "shard 0 is /etc/x.pt"),
        ({"shards": ["index.json"]}, "shard 0 is index.json"),
        ({"shards": ["absent.pt"]}, "absent.pt: no such file"),
        ({"shards": [{"file": "shard-0.pt", "start": -1}]}, "shard 0: start is -1"),
        ({"shards": [{"file": "shard-0.pt", "start": "0"}]}, "shard 0: start is a str"),
        ({"shards": [{"file": "shard-0.pt", "start": 1}]}, "the index says 1"),
        ({"shards": [{"file": "shard-0.pt", "rows": 5}]}, "has 4 positions but the index says 5"),
        ({"shards": ["shard-0.pt", "shard-2.pt"]}, "leaves a gap"),
        ({"shards": ["shard-0.pt", "shard-0.pt"]}, "count twice"),
    ],
)
def test_indexes_that_are_wrong(tmp_path, index, words):
    folder = folder_of(tmp_path / "x")
    (folder / "index.json").write_text(index if isinstance(index, str) else json.dumps(index))
    assert words in refusal(folder)
    assert words in refusal(folder / "index.json")


def test_faults_name_the_shard(tmp_path):
    bad = part(5, 10)
    bad["draft_logits"][2, 3] = torch.nan
    dump = open_dump(folder_of(tmp_path / "x", [part(0, 4), part(4, 5), bad]))
    with pytest.raises(
        InputError, match=r"draft_logits has NaN at position 7 \(shard-2.pt, row 2\), token 3"
    ):
        dump.batch(6, 9)


def test_few_shards_are_open_at_a_time(tmp_path, monkeypatch):
    parts = [part(i, i + 1) for i in range(10)]
    folder = folder_of(tmp_path / "x", parts)
    opened = []
    monkeypatch.setattr(
        "resispec_verify.dumps.load_mapping", lambda path: opened.append(path.name) or load_mapping(path)
    )
    dump = open_dump(folder)
    assert len(opened) == 10 + 2  # one for each, the first again, and to see what they are parts of
    opened.clear()
    dump.batch(0, 10)
    assert len(opened) <= 30
    saved(folder / "shard-5.pt", part(5, 7))
    dump.batch(0, 4)
    with pytest.raises(InputError, match=r"shard-5.pt: changed while it was read"):
        dump.batch(5, 6)


def test_probabilities_are_noticed_across_shards(tmp_path):
    rows = WHOLE["target_logits"].softmax(-1)
    parts = [
        {"start": a, "target_logits": rows[a:b].clone(), "draft_logits": rows[a:b].clone()} for a, b in CUTS
    ]
    assert looks_like_probabilities(open_dump(folder_of(tmp_path / "x", parts)))


def test_chunks(tmp_path):
    chunks = [part(*cut) for cut in CUTS]
    for value in ({"chunks": chunks, "meta": {"a": 1}}, chunks, tuple(chunks)):
        dump = open_dump(saved(tmp_path / "x.pt", value))
        assert_whole(dump)
    chunks[1]["target_logits"][0, 2] = torch.inf
    dump = open_dump(saved(tmp_path / "x.pt", {"chunks": chunks}))
    with pytest.raises(InputError, match=r"position 4 \(x.pt: chunks\[1\], row 0\), token 2"):
        dump.batch(0, 10)
    for bad, words in (
        ([], "not a list of dicts"),
        ({}, "not a list of dicts"),
        ([1], "chunks[0]: holds a int, not a dict"),
        ([{"chunks": chunks}], "has chunks itself"),
        ([*chunks, {"target_logits": torch.ones(2, 6)}], "chunks[3]: has no draft_logits"),
        ([part(0, 4), part(0, 4)], "overlaps"),
    ):
        message = refusal(saved(tmp_path / "x.pt", {"chunks": bad}))
        assert words in message


# Lists over steps


def test_steps_of_a_batch(tmp_path):
    """transformers#37378: generate(output_logits=True) gives a tuple over steps of [B, V]."""
    target = [torch.randn(3, 7) for _ in range(4)]
    draft = tuple(torch.randn(3, 7) for _ in range(4))
    path = saved(tmp_path / "x.pt", {"target_logits": target, "draft_logits": draft})
    dump = open_dump(path)
    assert (dump.positions, dump.vocab, dump.shape) == (12, 7, (4, 3, 7))
    assert "4 steps of a batch of 3" in dump.notes[0]
    expected = torch.stack(target).reshape(12, 7).numpy()
    for first, last in ((0, 12), (2, 4), (5, 11)):
        assert np.array_equal(dump.batch(first, last).target, expected[first:last])
    mixed = {"target_logits": target, "draft_logits": torch.stack(draft)}
    batch = open_dump(saved(path, mixed)).batch(0, 12)
    assert np.array_equal(batch.draft, torch.stack(draft).reshape(12, 7).numpy())
    target[2][1, 5] = torch.nan
    with pytest.raises(InputError, match=r"position 7 \(step 2, row 1 of the batch\), token 5"):
        open_dump(saved(path, mixed)).batch(0, 12)


def test_steps_of_rows_and_steps_that_differ(tmp_path):
    rows = [torch.randn(5) for _ in range(3)]
    path = saved(tmp_path / "x.pt", {"target": rows, "draft": rows})
    dump = open_dump(path)
    assert (dump.positions, dump.notes) == (3, ())
    assert np.array_equal(dump.batch(0, 3).target, torch.stack(rows).numpy())
    for odd, words in (
        (torch.randn(6), "target[1] is float32 [6] but target[0] is float32 [5]"),
        (torch.randn(5).half(), "target[1] is float16 [5]"),
        (torch.ones(5, dtype=torch.int64), "target[1] has dtype int64"),
        (torch.tensor(1.0), "target[1] is a single number"),
    ):
        assert words in refusal(saved(path, {"target": [rows[0], odd], "draft": rows[:2]}))
    assert "is a list of length 2 of ndarray" in refusal(
        saved(path, {"target": [rows[0], 1], "draft": rows[:2]})
    )
    assert "[3, 5] but draft is [2, 5]" in refusal(saved(path, {"target": rows, "draft": rows[:2]}))


# Targets alone


def test_targets(tmp_path):
    flat = open_target(saved(tmp_path / "flat.pt", part(0, 10)))
    alone = open_target(
        saved(tmp_path / "alone.pt", {"logits_target": WHOLE["target_logits"], "tokens": TOKENS})
    )
    parts = open_target(folder_of(tmp_path / "x"))
    only = [{"start": a, "target": WHOLE["target_logits"][a:b].clone()} for a, b in CUTS]
    halves = open_target(folder_of(tmp_path / "y", only))
    steps = open_target(saved(tmp_path / "s.pt", {"target": list(WHOLE["target_logits"])}))
    chunked = open_target(saved(tmp_path / "c.pt", {"chunks": only}))
    for dump in (flat, alone, parts, halves, steps, chunked):
        assert (dump.positions, dump.vocab, dump.dtype, dump.step) == (10, 6, "float32", None)
        assert np.array_equal(dump.batch(2, 100), WHOLE["target_logits"][2:].numpy())
        with pytest.raises(IndexError):
            dump.batch(3, 3)
    for dump in (flat, alone, parts):
        assert dump.next_tokens.tolist() == TOKENS[1:].tolist()
    assert halves.next_tokens is None
    assert "TargetDump(" in repr(flat)


def test_targets_that_are_none(tmp_path):
    assert "rounds dump" in refusal(saved(tmp_path / "x.pt", {"rounds": []}), open_target)
    assert "tree dump" in refusal(saved(tmp_path / "x.pt", {"parent": []}), open_target)
    assert "has no target_logits" in refusal(saved(tmp_path / "x.pt", {"draft": torch.ones(2)}), open_target)
    bad = WHOLE["target_logits"].clone()
    bad[3, 1] = torch.nan
    dump = open_target(saved(tmp_path / "x.pt", {"target_logits": bad}))
    with pytest.raises(InputError, match="target_logits has NaN at position 3, token 1"):
        dump.batch(0, 10)
    odd = open_target(saved(tmp_path / "x.pt", {"target_logits": bad, "tokens": TOKENS + 3}))
    assert odd.next_tokens is None
    assert "followed by token 10, and the rows of target_logits have only 6 entries" in refusal(
        saved(tmp_path / "x.pt", {"target_logits": bad, "tokens": TOKENS + 9}), open_target
    )
    folder = tmp_path / "mixed"
    folder.mkdir()
    saved_llamacpp(folder / "base.pt", np.zeros((1, 4, 3), np.float32), np.zeros((1, 4), int))
    assert "base.pt" in refusal(folder, open_target)
