"""Files that were made to be read as something else: read rightly, or refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from dump_helpers import WRITERS, logit_pair, refused, saved, saved_npz

from resispec_verify.backends import get_backend
from resispec_verify.cli import main
from resispec_verify.dumps import open_dump, open_rounds, open_target, open_tree
from resispec_verify.errors import InputError
from resispec_verify.record.recorder import Recorder
from resispec_verify.tables.reading import Clock, Reading, pairs_of


def logits(*shape: int, seed: int = 5) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32) * 3)


def laws(path, kind=None, **opening):
    """Target and draft laws of all positions, as `kl` gets them."""
    reading = Reading(kind=kind)
    pairs = list(pairs_of(open_dump(path, **opening), reading, backend=get_backend("numpy"), clock=Clock()))
    return tuple(np.concatenate([getattr(one.pair, name) for one in pairs]) for name in ("target", "draft"))


def run(*words) -> int:
    return main([str(word) for word in words])


# Probabilities and their logarithms.


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("widen", [False, True])
def test_rounded_probabilities_are_seen_and_read(tmp_path, stored, widen):
    """Storing bfloat16 moves a sum by up to 2^-8; float16 loses what is below its smallest number."""
    exact = torch.softmax(logits(64, 4000), dim=-1)
    rows = exact.to(stored)
    assert stored != torch.bfloat16 or ((rows.double().sum(-1) - 1).abs() > 1e-3).any()
    rows = rows.float() if widen else rows
    path = saved(tmp_path / "x.pt", {"target_logits": rows, "draft_logits": rows.flip(0)})
    with pytest.raises(InputError, match="look like probabilities"):
        laws(path)
    found, _ = laws(path, "probabilities")
    np.testing.assert_allclose(found, exact.double(), rtol=0.02, atol=2.0**-24)


@pytest.mark.parametrize("take", [torch.softmax, torch.log_softmax])
def test_a_constant_row_switches_no_guard_off(tmp_path, take):
    for position in (0, 3):
        rows = take(logits(6, 50), dim=-1)
        rows[position] = 0.0
        value = {
            "target_logits": rows,
            "draft_logits": rows.flip(1),
            "meta": {"sampling": {"temperature": 0.6}},
        }
        with pytest.raises(InputError, match=r"look like probabilities|logsumexp 0"):
            laws(saved(tmp_path / "x.pt", value))


def test_constant_rows_alone_say_nothing(tmp_path):
    path = saved(tmp_path / "x.pt", {"target_logits": torch.zeros(3, 5), "draft_logits": torch.zeros(3, 5)})
    assert laws(path)[0][0] == pytest.approx([0.2] * 5)


def test_rounded_log_probabilities_are_read(tmp_path):
    rows = torch.log_softmax(logits(16, 4000), dim=-1).to(torch.bfloat16)
    path = saved(tmp_path / "x.pt", {"target_logits": rows, "draft_logits": rows.flip(0)})
    found, _ = laws(path, "log-probabilities")
    assert found.sum(axis=-1) == pytest.approx(np.ones(16))


def test_what_does_not_sum_to_one_is_no_probability(tmp_path):
    rows = torch.softmax(logits(4, 100), dim=-1) * 0.998
    path = saved(tmp_path / "x.pt", {"target_logits": rows, "draft_logits": rows})
    with pytest.raises(InputError, match=r"sum to 0\.998"):
        laws(path, "probabilities")


def test_probabilities_of_a_reduced_draft(tmp_path):
    draft = torch.softmax(logits(4, 3), dim=-1)
    value = {"target_logits": torch.softmax(logits(4, 8), dim=-1), "draft_logits": draft}
    path = saved(tmp_path / "x.pt", value | {"d2t": torch.tensor([5, 0, 1])})
    with pytest.raises(InputError, match="target and draft"):
        laws(path)
    _, found = laws(path, "probabilities")
    assert found[:, [5, 1, 3]] == pytest.approx(draft.numpy())
    assert not found[:, [0, 2, 4, 6, 7]].any()
    path = saved(tmp_path / "y.pt", value | {"target_logits": logits(4, 8), "d2t": torch.tensor([5, 0, 1])})
    with pytest.raises(InputError, match="every row of draft"):
        laws(path)


def test_probabilities_of_padded_vocabularies(tmp_path):
    value = {
        "target_logits": torch.softmax(logits(4, 8), dim=-1),
        "draft_logits": torch.softmax(logits(4, 6), dim=-1),
    }
    _, found = laws(saved(tmp_path / "x.pt", value), "probabilities", pad_vocab=True)
    assert found[:, :6] == pytest.approx(value["draft_logits"].numpy())
    assert not found[:, 6:].any()


# What lies beside chunks and shards.


def wrapped(folder, form, beside, parts=2):
    """The same 8 positions as one file, as chunks, or as shards with an index that says the rest."""
    target, draft = logits(8, 12), logits(8, 12, seed=6)
    one = {"target_logits": target, "draft_logits": draft}
    cut = [{key: value[i : i + 4].clone() for key, value in one.items()} for i in (0, 4)]
    if form == "plain":
        return saved(folder / "x.pt", one | beside)
    if form == "chunks":
        return saved(folder / "x.pt", {"chunks": cut} | beside)
    shards = folder / "shards"
    shards.mkdir()
    for i, part in enumerate(cut):
        saved(shards / f"s{i}.pt", part)
    held = {
        key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in beside.items()
    }
    (shards / "index.json").write_text(json.dumps({"shards": ["s0.pt", "s1.pt"]} | held))
    return shards


FORMS = ("plain", "chunks", "index")


@pytest.mark.parametrize("form", FORMS)
def test_what_lies_beside_parts_is_honoured(tmp_path, form):
    beside = {
        "meta": {"sampling": {"temperature": [0.5] * 4 + [0.7] * 4}, "vocab_size": 12},
        "mask": torch.tensor([1, 1, 0, 1, 1, 1, 1, 0]),
        "candidates": torch.arange(8).reshape(8, 1),
        "dataset": ["a"] * 4 + ["b"] * 4,
    }
    path = wrapped(tmp_path, form, beside)
    dump = open_dump(path)
    assert dump.positions == 6
    assert dump.left_out == 2
    assert [one["temperature"] for one in dump.sampling] == [0.5] * 3 + [0.7] * 3
    assert dump.candidates.ravel().tolist() == [0, 1, 3, 4, 5, 6]
    assert dump.dataset == ("a", "a", "a", "b", "b", "b")
    np.testing.assert_array_equal(dump.batch(2, 3).target[0], logits(8, 12)[3])
    target = open_target(path)
    assert (target.positions, [one["temperature"] for one in target.sampling]) == (6, [0.5] * 3 + [0.7] * 3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "beside",
    [
        {"temperature": 0.6},
        {"repetition_penalty": 1.1},
        {"lengths": 5},
        {"node_mask": torch.ones(8)},
        {"topk_ids": torch.zeros(8, 12, dtype=torch.int64)},
        {"vocab_start": 12},
        {"candidates": torch.tensor([[12]] * 8)},
        {"meta": {"repetition_penalty": 1.1}},
        {"meta": {"vocab_size": 24}},
        {"meta": {"sampling": {"temperature": -1, "what": 2}}},
    ],
    ids=lambda beside: str(list(beside)),
)
def test_what_lies_beside_parts_is_refused(tmp_path, form, beside):
    path = wrapped(tmp_path, form, beside)
    for read in (open_dump,) if "candidates" in beside else (open_dump, open_target):
        refused(path, read)


@pytest.mark.parametrize("form", FORMS[1:])
def test_parts_and_whole_do_not_disagree(tmp_path, form):
    path = wrapped(tmp_path, form, {"meta": {"sampling": {"temperature": 0.5}}})
    assert open_dump(path).sampling == {"temperature": 0.5}
    part = {"target_logits": logits(4, 12), "draft_logits": logits(4, 12), "meta": {"temperature": 0.7}}
    if form == "chunks":
        saved(path, {"chunks": [part, part], "meta": {"sampling": {"temperature": 0.5}}})
    else:
        saved(path / "s0.pt", part)
        saved(path / "s1.pt", part)
    assert "the parts state another" in refused(path, open_dump)


def test_a_map_beside_chunks(tmp_path):
    part = {"target_logits": logits(4, 12), "draft_logits": logits(4, 3)}
    path = saved(tmp_path / "x.pt", {"chunks": [part, part], "d2t": torch.tensor([5, 0, 1])})
    assert np.isfinite(open_dump(path).batch(0, 8).draft).sum(axis=1).tolist() == [3] * 8
    path = saved(tmp_path / "y.pt", {"chunks": [part], **part})
    assert "beside chunks" in refused(path, open_dump)


# Commands that had no guard.


def test_compare_applies_no_temperature_twice(tmp_path, capsys):
    """Both sides log-probabilities at T = 0.6, which meta states: TV 0.2 became another."""
    meta = {"sampling": {"temperature": 0.6}}
    a, b = (
        saved(
            tmp_path / f"{seed}.pt",
            {"target_logits": torch.log_softmax(logits(4, 9, seed=seed) / 0.6, -1)} | {"meta": meta},
        )
        for seed in (1, 2)
    )
    assert run("compare", a, b) == 2
    assert "logsumexp 0" in capsys.readouterr().err
    assert run("compare", a, b, "--input", "log-probabilities") == 2
    assert "may have it already" in capsys.readouterr().err
    exact = torch.softmax(logits(4, 9, seed=1) / 0.6, -1), torch.softmax(logits(4, 9, seed=2) / 0.6, -1)
    tv = float((exact[0].double() - exact[1].double()).abs().sum(-1).max() / 2)
    for words in (["--temperature", 1], ["--temperature", 1, "--input", "log-probabilities"]):
        assert run("compare", a, b, *words, "--json", "-") == 0
        assert json.loads(capsys.readouterr().out)["results"][0]["tv_max"] == pytest.approx(tv, abs=1e-6)
    a, b = (saved(tmp_path / f"p{i}.pt", {"target_logits": rows}) for i, rows in enumerate(exact))
    assert run("compare", a, b) == 2
    assert "--input probabilities" in capsys.readouterr().err
    assert run("compare", a, b, "--input", "probabilities", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["tv_max"] == pytest.approx(tv, abs=1e-6)


def test_compare_pairs_only_rows_of_the_same_prefixes(tmp_path):
    a, b, c = (
        saved(tmp_path / f"{name}.pt", {"target_logits": logits(4, 9), "mask": torch.tensor(mask)})
        for name, mask in (("a", [0, 1, 1, 1]), ("b", [1, 1, 1, 0]), ("c", [0, 1, 1, 1]))
    )
    assert run("compare", a, b) == 2
    assert run("compare", a, c) == 0


def tree_of(path, take, **meta):
    """A root with two children; the draft's law is (.5, .3, .2) before any temperature."""
    rows = take(logits(2, 1, 6))
    return saved(
        path,
        {"parent": torch.tensor([-1, 0, 0]), "tokens": torch.tensor([[-1, 1, 2], [-1, 0, 3]]),
         "target_logits": rows, "draft_logits": rows.flip(0), "meta": meta},
    )  # fmt: skip


def test_tree_knows_what_rows_are(tmp_path, capsys):
    def length(path, *words):
        assert run("tree", "--logits", path, "--rule", "specinfer", "--json", "-", *words) == 0
        return json.loads(capsys.readouterr().out)["results"][0]["accepted_length_mean"]

    raw = length(tree_of(tmp_path / "raw.pt", lambda x: x, sampling={"temperature": 0.6}))
    path = tree_of(tmp_path / "p.pt", lambda x: torch.softmax(x / 0.6, -1), sampling={"temperature": 0.6})
    assert run("tree", "--logits", path) == 2
    assert "say --input probabilities" in capsys.readouterr().err
    assert run("tree", "--logits", path, "--input", "probabilities") == 2
    assert "may have it already" in capsys.readouterr().err
    assert length(path, "--input", "probabilities", "--temperature", 1) == pytest.approx(raw, abs=1e-6)
    path = tree_of(tmp_path / "l.pt", lambda x: torch.log_softmax(x / 0.6, -1), sampling={"temperature": 0.6})
    assert run("tree", "--logits", path) == 2
    assert "logsumexp 0" in capsys.readouterr().err
    words = "--input", "log-probabilities", "--temperature", 1
    assert length(path, *words) == pytest.approx(raw, abs=1e-6)
    path = tree_of(tmp_path / "n.pt", lambda x: torch.log_softmax(x, -1))
    assert run("tree", "--logits", path, "--temperature", 0.6) == 2
    assert length(path, "--temperature", 0.6, "--input", "logits") == pytest.approx(raw, abs=1e-6)


# Parts of a vocabulary.


def parts_of(folder, names, metas=None, **more):
    """Files that each have 4 rows of 8 tokens, of one run of 16 tokens or of 8 positions."""
    folder.mkdir(exist_ok=True)
    for i, name in enumerate(names):
        meta = {"meta": metas[i]} if metas else {}
        value = {"target_logits": logits(4, 8, seed=i), "draft_logits": logits(4, 8, seed=9 + i)}
        saved(folder / name, value | meta | {key: held[i] for key, held in more.items()})
    return folder


CERTAIN = [
    (["tp0.pt", "tp1.pt"], None),
    (["run_tp_rank_0.pt", "run_tp_rank_1.pt"], None),
    (["tp=0.pt", "tp=1.pt"], None),
    (["tensor_parallel_0.pt", "tensor_parallel_1.pt"], None),
    (["a.pt", "b.pt"], [{"tp_rank": 0, "tp_size": 2}, {"tp_rank": 1, "tp_size": 2}]),
    (["rank0.pt", "rank1.pt"], [{"tensor_parallel_size": 2}] * 2),
]
UNCERTAIN = [
    ["model0.pt", "model1.pt"],
    ["model-00001-of-00002.pt", "model-00002-of-00002.pt"],
    ["mp0.pt", "mp1.pt"],
    ["tensor0.pt", "tensor1.pt"],
    ["gpu0.pt", "gpu1.pt"],
    ["worker0.pt", "worker1.pt"],
    ["rank0.pt", "rank1.pt"],
    ["tp2_step0.pt", "tp2_step1.pt"],
    ["run_tp2_part0.pt", "run_tp2_part1.pt"],
    ["tp_size2_0.pt", "tp_size2_1.pt"],
    ["dp0_tp0.pt", "dp1_tp0.pt"],
]


@pytest.mark.parametrize(("names", "metas"), CERTAIN)
def test_parts_of_a_vocabulary(tmp_path, names, metas):
    folder = parts_of(tmp_path / "x", names, metas)
    dump = open_dump(folder)
    assert (dump.positions, dump.vocab) == (4, 16)
    np.testing.assert_array_equal(dump.batch(0, 4).target[:, 8:], logits(4, 8, seed=1))
    for name in names[1:]:  # alone, or one after the other
        for read in (open_dump, open_target):
            assert "--shards" in refused(folder / name, read)
        assert open_dump(folder / name, shards="positions").positions == 4
    assert run("compare", folder / names[1], folder / names[1]) == 2


@pytest.mark.parametrize("names", UNCERTAIN, ids=lambda names: names[0])
def test_names_that_may_be_of_either_kind(tmp_path, names):
    folder = parts_of(tmp_path / "x", names)
    for read in (open_dump, open_target):
        assert "Say --shards" in refused(folder, read)
    assert open_dump(folder, shards="positions").positions == 8
    assert open_dump(folder, shards="vocab").vocab == 16


def test_ranks_that_are_missing(tmp_path):
    metas = [{"tp_size": 4, "tp_rank": i} for i in (0, 1)]
    assert "of 4 ranks, and 2 are here" in refused(
        parts_of(tmp_path / "x", ["a.pt", "b.pt"], metas), open_dump
    )
    assert "of 4 ranks" in refused(parts_of(tmp_path / "y", ["tp0.pt", "tp1.pt"], metas), open_dump)
    folder = parts_of(tmp_path / "z", ["a.pt"], rank=[1], world_size=[2])
    assert "one rank of several" in refused(folder / "a.pt", open_dump)


def test_rows_that_are_whole_say_so(tmp_path):
    folder = parts_of(tmp_path / "x", ["run_tp2.pt"], [{"tp_size": 2, "vocab_size": 8}])
    assert open_dump(folder / "run_tp2.pt").vocab == 8
    for names in (["shard0.pt", "shard1.pt"], ["part0.pt", "part1.pt"], ["dp0.pt", "dp1.pt"]):
        assert open_dump(parts_of(tmp_path / names[0], names)).positions == 8
    assert "'vocab' or 'positions'" in refused(folder, lambda path: open_dump(path, shards="x"))


def test_a_file_that_counts_twice(tmp_path):
    folder = parts_of(tmp_path / "x", ["a.pt", "b.pt"])
    saved_npz(folder / "b.npz", {"target_logits": logits(4, 8), "draft_logits": logits(4, 8)})
    assert "count twice" in refused(folder, open_dump)
    (folder / "index.json").write_text(json.dumps({"shards": ["a.pt", "b.pt", "a.pt"]}))
    assert "count twice" in refused(folder, open_dump)


# Rounds.


def one_round(seed=0, **more):
    return {
        "draft_tokens": torch.tensor([1, 2]),
        "draft_logits": logits(2, 6, seed=seed),
        "target_logits": logits(3, 6, seed=seed + 50),
        "accepted": 1,
        "next_token": 3,
    } | more


@pytest.mark.parametrize(
    "beside",
    [
        {"mask": torch.tensor([1, 0])},
        {"attention_mask": torch.tensor([[1, 1], [1, 0]])},
        {"loss_mask": [1, 0]},
        {"num_draft_tokens": torch.tensor([2, 1])},
        {"lengths": torch.tensor([1, 2])},
        {"meta": {"mask": [1, 0]}},
        {"topk_ids": torch.arange(36).reshape(2, 3, 6)},
        {"topk_ids": torch.arange(36.0).reshape(2, 3, 6)},
    ],
    ids=lambda beside: str(list(beside)),
)
def test_rounds_have_no_masks(tmp_path, beside):
    fine = {"mask": torch.ones(2), "num_draft_tokens": torch.tensor([2, 2])}
    assert len(open_rounds(saved(tmp_path / "x.pt", {"rounds": [one_round(), one_round(1)]} | fine))) == 2
    refused(saved(tmp_path / "x.pt", {"rounds": [one_round(), one_round(1)]} | beside), open_rounds)
    stacked = {key: torch.stack([torch.as_tensor(one_round(i)[key]) for i in (0, 1)]) for key in one_round()}
    refused(saved(tmp_path / "y.pt", stacked | beside), open_rounds)


@pytest.mark.parametrize(
    "inside", [{"mask": [1, 0]}, {"attention_mask": torch.tensor([0, 1])}, {"num_draft_tokens": 1}], ids=str
)
def test_masks_inside_a_round(tmp_path, inside):
    refused(saved(tmp_path / "x.pt", {"rounds": [one_round(**inside)]}), open_rounds)


@pytest.mark.parametrize("name", WRITERS)
def test_prompts_of_stacked_rounds(tmp_path, name):
    stacked = {key: torch.stack([torch.as_tensor(one_round(i)[key]) for i in (0, 1)]) for key in one_round()}
    path = WRITERS[name](tmp_path / name, stacked | {"prompt": torch.tensor([4, 7])})
    assert [one.prompt for one in open_rounds(path).rounds] == [4, 7]


def test_a_prompt_in_an_array(tmp_path):
    path = saved(tmp_path / "x.pt", {"rounds": [one_round(prompt=torch.tensor(3))]})
    assert open_rounds(path).rounds[0].prompt == 3
    refused(saved(tmp_path / "x.pt", {"rounds": [one_round(prompt=[1.5])]}), open_rounds)


# Statements in other places.


@pytest.mark.parametrize("inner", [{"sampling": {"temperature": 0.6}}, {"temperature": 0.6}])
def test_meta_as_text(tmp_path, inner):
    pair, text = logit_pair(4, 8), json.dumps(inner)
    paths = [
        saved(tmp_path / "a.pt", pair | {"meta": text}),
        saved(tmp_path / "b.pt", pair | {"metadata": text}),
        saved(tmp_path / "c.pt", {"chunks": [pair | {"meta": text}]}),
        saved_npz(tmp_path / "d.npz", pair | {"meta": np.array([text])}),
        saved_npz(tmp_path / "e.npz", pair | {"metadata": np.array(text)}),
    ]
    from safetensors.torch import save_file

    save_file(pair, tmp_path / "f.safetensors", metadata={"meta": text})
    for path in [*paths, tmp_path / "f.safetensors"]:
        assert open_dump(path).sampling == {"temperature": 0.6}, path


@pytest.mark.parametrize(
    "beside",
    [
        {"meta": {"sampling_params": {"temperature": 0.6}}},
        {"meta": {"generation_config": {"top_p": 0.9, "eos_token_id": 2}}},
        {"meta": {"logit_bias": {"3": -100}}},
        {"generation_config": {"temperature": 0.6}},
        {"meta": {"mask": [1, 1, 1, 0]}},
        {"meta": {"lengths": 3}},
        {"labels": torch.tensor([-100, 1, 2, 3])},
        {"cu_seqlens": torch.tensor([0, 2, 3])},
        {"meta": {"token_ids": [[7, 3, 1, 0, 2, 4, 5, 6]] * 4}},
        {"which": torch.tensor([[7.0, 3, 1, 0, 2, 4, 5, 6]] * 4)},
        {"flat": torch.tensor([7, 3, 1, 0, 2, 4, 5, 6] * 4)},
        {"tokens": [0, 90, 91, 92, 93]},
    ],
    ids=str,
)
def test_what_could_change_the_reading(tmp_path, beside):
    refused(saved(tmp_path / "x.pt", logit_pair(4, 8) | beside), open_dump)


def test_what_says_nothing_is_fine(tmp_path):
    meta = {"generation_config": {"temperature": 1.0, "top_k": 0, "eos_token_id": 2}, "logit_bias": None}
    beside = {"cu_seqlens": torch.tensor([0, 2, 4]), "labels": torch.tensor([1, 2, 3, 4]), "meta": meta}
    assert open_dump(saved(tmp_path / "x.pt", logit_pair(4, 8) | beside)).positions == 4


@pytest.mark.parametrize("none", [0, -1])
def test_vllms_way_to_say_no_filter(tmp_path, none):
    for meta in ({"top_k": none}, {"sampling": {"top_k": none, "temperature": torch.tensor(0.6)}}):
        path = saved(tmp_path / "x.pt", logit_pair(4, 8) | {"meta": meta})
        assert "top_k" not in open_dump(path).sampling
        assert laws(path)[0].shape == (4, 8)
    assert open_dump(path).sampling["temperature"] == pytest.approx(0.6)
    path = saved(tmp_path / "x.pt", logit_pair(4, 8) | {"meta": {"temperature": torch.tensor(0.6)}})
    assert open_dump(path).sampling["temperature"] == pytest.approx(0.6)


def test_maps_that_were_never_made(tmp_path):
    for value in (torch.arange(100), torch.arange(0, 900, 9), torch.zeros(100, dtype=torch.int64)):
        path = saved(
            tmp_path / "x.pt",
            {"target_logits": logits(2, 1000), "draft_logits": logits(2, 100), "d2t": value},
        )
        assert "t2d" in refused(path, open_dump)


def test_ordered_rows_of_two_widths_can_be_declared(tmp_path):
    down = {"target_logits": logits(4, 20).sort().values, "draft_logits": logits(4, 16).sort().values}
    read = lambda path: open_dump(path, pad_vocab=True)  # noqa: E731
    assert "target_vocab_size" in refused(saved(tmp_path / "x.pt", down), read)
    for meta in ({"vocab_size": [20, 16]}, {"target_vocab_size": 20, "draft_vocab_size": 16}):
        assert read(saved(tmp_path / "x.pt", down | {"meta": meta})).vocab == 20


def test_order_in_both_matrices_counts(tmp_path):
    """5 values in order: 2 / 5! = 1/60 a row, and 2 / 120^2 in two rows, 1e-8 in both matrices."""
    one, other = logits(2, 5).sort().values, logits(2, 5, seed=6).sort().values
    assert open_dump(saved(tmp_path / "x.pt", {"target_logits": one, "draft_logits": one})).vocab == 5
    assert "target_logits and of draft_logits" in refused(
        saved(tmp_path / "x.pt", {"target_logits": one, "draft_logits": other}), open_dump
    )


def test_masks_of_trees(tmp_path):
    path = tree_of(tmp_path / "x.pt", lambda x: x)
    value = torch.load(path)
    own = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]])
    for mask in (own, own.bool(), (own - 1) * 1e4, own[None]):
        assert open_tree(saved(path, value | {"tree_mask": mask})).nodes == 3
    for beside in ({"mask": torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 0]])}, {"siblings": "iid"}):
        refused(saved(path, value | beside), open_tree)


@pytest.mark.parametrize("read", [open_dump, open_rounds, open_target, open_tree, Recorder])
@pytest.mark.parametrize("path", [None, 3])
def test_what_is_no_path(read, path):
    with pytest.raises(InputError, match="a path is needed"):
        read(path)


def test_the_drawn_token_and_the_best_are_no_vocabulary(tmp_path):
    """vLLM's log-probabilities: the value of the token that was drawn, then those of the k best."""
    target, draft = logits(64, 5000), logits(64, 5000, seed=6)
    drawn = torch.from_numpy(np.random.default_rng(7).integers(0, 5000, (64, 1)))

    def best(rows):
        return torch.cat([rows.gather(1, drawn), rows.topk(20).values], 1)

    both = {"target_logits": best(target), "draft_logits": best(draft)}
    message = refused(saved(tmp_path / "x.pt", both), open_dump)
    assert "is in the order of its values, the first apart: these look like top-k values" in message
    open_dump(saved(tmp_path / "said.pt", {**both, "meta": {"vocab_size": 21}}))  # who says so is believed


def test_whole_rows_are_not_taken_for_the_best_of_more(tmp_path):
    rng = np.random.default_rng(8)
    for i in range(300):
        shape = (int(rng.integers(1, 4)), int(rng.integers(2, 9)))
        both = {key: torch.from_numpy(rng.normal(size=shape)) for key in ("target_logits", "draft_logits")}
        open_dump(saved(tmp_path / f"{i}.pt", both))


def test_columns_beyond_the_stated_vocabulary_are_named(tmp_path, capsys):
    both = {key: torch.cat([logits(4, 20, seed=s), torch.zeros(4, 6)], 1)
            for key, s in (("target_logits", 1), ("draft_logits", 2))}  # fmt: skip
    path = saved(tmp_path / "wide.pt", {**both, "meta": {"vocab_size": 20}})
    assert run("kl", "--logits", path, "--rule", "specinfer", "--marginal", "operational") == 0
    assert "rows have 26 entries and meta states a vocabulary of 20" in capsys.readouterr().out


def test_replay_names_rows_of_equal_values(tmp_path, capsys):
    """The bonus row stored last, behind the padding, instead of after the tokens that are there."""
    target = logits(5, 12)
    target[2:4] = 0.0
    one = {"draft_tokens": torch.tensor([3, 4, -1, -1]), "draft_logits": logits(4, 12, seed=6),
           "target_logits": target, "accepted": 2, "next_token": 1}  # fmt: skip
    run("replay", "--logits", saved(tmp_path / "r.pt", {"rounds": [one]}))
    assert "a target's row of equal values in 1 rounds (first: 0): padding?" in capsys.readouterr().out
