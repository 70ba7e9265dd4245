"""What `inspect` says of rows: each oddity once on rows that have it, and silence on rows that do not."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
import torch
from dump_helpers import UNEVEN, one_round, saved, saved_llamacpp, saved_safetensors, tree
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.dumps.checks.oddities import RowScan
from resispec_verify.logged.inspection import inspect_dump

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def same_numbers_whatever_ran_before():
    """Every test draws from the start of the generator, in any order and on any number of workers."""
    RNG.bit_generator.state = np.random.default_rng(7).bit_generator.state


N, V = 8, 400


def inspected(*paths, **options) -> dict:
    """Without that target and draft hardly overlap: rows are drawn apart here; test_overlap.py has that."""
    result = inspect_dump(*paths, **options)
    result["oddities"] = [o for o in result["oddities"] if o["kind"] != "hardly-overlapping"]
    result["notes"] = [note for note in result["notes"] if "hardly overlap" not in note]
    return result


def rows(n: int = N, v: int = V, dtype=np.float32) -> np.ndarray:
    return RNG.normal(size=(n, v)).astype(dtype) * 4


def look(tmp_path, target: np.ndarray | None = None, draft: np.ndarray | None = None, **others) -> dict:
    value = {
        "target_logits": torch.from_numpy(rows() if target is None else target),
        "draft_logits": torch.from_numpy(rows() if draft is None else draft),
    } | others
    result = inspected(saved(tmp_path / "x.pt", value))
    json.dumps(result, allow_nan=False)
    return result


def found(result: dict) -> dict[tuple[str, str], tuple[int, int]]:
    assert result["problems"] == []
    for oddity in result["oddities"]:
        assert "\n" not in oddity["text"]
        assert oddity["key"] in oddity["text"] or oddity["key"] == "target and draft"
    return {(o["kind"], o["key"]): (o["count"], o["first_position"]) for o in result["oddities"]}


def test_ordinary_rows_are_not_odd(tmp_path):
    tokens = torch.from_numpy(RNG.integers(0, V, N + 1))
    result = look(tmp_path, tokens=tokens)
    assert found(result) == {}
    assert result["notes"] == []


def test_filtered_by_top_k(tmp_path):
    target = rows()
    for row in target:
        row[np.argsort(row)[:-50]] = -np.inf
    result = look(tmp_path, target)
    assert found(result) == {("filtered", "target_logits"): (N, 0)}
    assert "exactly 50 of 400" in result["oddities"][0]["text"]


def test_filtered_otherwise(tmp_path):
    target = rows()
    for i, row in enumerate(target[2:]):
        row[np.argsort(row)[: 300 - i]] = -np.inf
    kinds = found(look(tmp_path, target))
    assert kinds[("filtered", "target_logits")] == (N - 2, 2)
    assert kinds[("support-grows", "target_logits")] == (N - 3, 3)
    assert len(kinds) == 2


def test_masked_tokens_are_told_from_filters(tmp_path):
    target = rows()
    target[:, 390:] = -np.inf
    result = look(tmp_path, target)
    assert found(result) == {("masked", "target_logits"): (N, 0)}
    assert "the same 10 of 400" in result["oddities"][0]["text"]


def test_floors(tmp_path):
    target = rows()
    target[3, :200] = target[5, :100] = -1e4
    target[6, :4] = -1e4  # 1 %, not more
    result = look(tmp_path, target)
    assert found(result) == {("floor", "target_logits"): (2, 3)}
    assert "-10000" in result["oddities"][0]["text"]
    assert "100 to 200 times" in result["oddities"][0]["text"]


def test_one_hot(tmp_path):
    for low in (0.0, -np.inf):
        target = np.full((N, V), low, np.float32)
        target[np.arange(N), RNG.integers(0, V, N)] = 1
        assert found(look(tmp_path, target)) == {("one-hot", "target_logits"): (N, 0)}
    target[0] = rows(1)[0]
    assert ("one-hot", "target_logits") not in found(look(tmp_path, target))


def test_padding_wins(tmp_path):
    draft = rows() - 20
    draft[:, 380:] = 0
    assert found(look(tmp_path, draft=draft))[("padding-wins", "draft_logits")] == (N, 0)
    draft[2, 5] = 50
    draft[0, 5] = 50
    assert found(look(tmp_path, draft=draft))[("padding-wins", "draft_logits")] == (N - 2, 1)
    target, draft = rows(), rows()
    for values in (target, draft):
        values[:, 390:] -= 20  # by chance a random row's best token could lie there
    target[4, 395] = 99
    assert found(look(tmp_path, target, draft=draft, meta={"vocab_size": 390})) == {
        ("padding-wins", "target_logits"): (1, 4)
    }
    path = saved(
        tmp_path / "w.pt", {"target": torch.from_numpy(target), "draft": torch.from_numpy(rows(v=390))}
    )
    result = inspected(path, pad_vocab=True)
    assert found(result) == {("padding-wins", "target"): (1, 4)}
    assert "widths differ" in result["notes"][0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_near_ties(dtype, tmp_path):
    """Within one unit in the last place of the storage type, which grows with the value."""
    target = torch.from_numpy(rows()).to(dtype)
    top = torch.tensor(24.0, dtype=dtype)
    one = torch.tensor(24 + {2: 0.015625, 4: 2**-19, 8: 2**-48}[dtype.itemsize], dtype=dtype)
    if dtype is torch.bfloat16:
        one = torch.tensor(24.125, dtype=dtype)
    target[:, :2] = torch.stack([one + (one - top), top])  # two units apart
    target[2, :2] = torch.stack([top, one])
    target[5, :2] = torch.stack([top, top])
    result = inspected(saved(tmp_path / "x.pt", {"target": target, "draft": torch.from_numpy(rows())}))
    assert found(result) == {("near-tie", "target"): (2, 2)}
    assert "(1 equal)" in result["oddities"][0]["text"]


def test_the_last_bit_of_two_runs(tmp_path):
    """vllm-rbln#630: 23.625 and 23.5 are neighbours in bfloat16 and far apart in float32."""
    target = torch.full((1, 4), 1.0)
    target[0, :2] = torch.tensor([23.625, 23.5])
    for dtype, count in ((torch.bfloat16, 1), (torch.float32, 0)):
        scan = RowScan("t", np.dtype(ml_dtypes.bfloat16 if count else np.float32))
        scan.add(target.to(dtype).float().numpy())
        assert [o.kind for o in scan.oddities() if o.kind == "near-tie"] == ["near-tie"] * count


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), dtype=st.sampled_from([np.float16, np.float32, np.float64]))
def test_near_ties_are_those_of_nextafter(seed, dtype):
    values = np.random.default_rng(seed).choice(np.arange(-8, 8, dtype=dtype) / 8, size=(5, 3))
    ulps = np.random.default_rng(seed + 1).integers(-2, 3, size=(5, 3))
    for _ in range(2):
        values = np.where(ulps > 0, np.nextafter(values, dtype(100)), values)
        values = np.where(ulps < 0, np.nextafter(values, dtype(-100)), values)
        ulps = ulps - np.sign(ulps)
    ordered = np.sort(values.astype(np.float64), axis=-1)
    top = values.max(axis=-1)
    ulp = np.spacing(np.abs(top)).astype(np.float64)
    expected = int((ordered[:, -1] - ordered[:, -2] <= ulp).sum())
    scan = RowScan("t", np.dtype(dtype))
    scan.add(values)
    assert sum(o.count for o in scan.oddities() if o.kind == "near-tie") == expected


def likely(tokens: np.ndarray) -> np.ndarray:
    target = rows(len(tokens))
    target[np.arange(len(tokens)), tokens] += 12
    return target


def test_rows_shifted_against_tokens(tmp_path):
    tokens = RNG.integers(0, V, N + 1)
    held = torch.from_numpy(tokens)
    right = look(tmp_path, likely(tokens[1:]), likely(tokens[1:]), tokens=held)
    assert not [o for o in right["oddities"] if o["kind"] == "shifted"]
    wrong = look(tmp_path, likely(tokens[1:]), likely(tokens[:-1]), tokens=held)
    assert found(wrong) == {("shifted", "draft_logits"): (N, 0)}
    assert "tokens[i+1]" in wrong["oddities"][0]["text"]
    short = look(tmp_path, likely(tokens[:-1]), tokens=held[:-1])
    assert found(short) == {("shifted", "target_logits"): (N - 1, 0)}
    slip = held.clone()
    slip[3] += V
    assert found(look(tmp_path, tokens=slip)) == {
        ("tokens-outside", key): (1, 2) for key in ("target_logits", "draft_logits")
    }
    for odd in (held.float(), held[:3], "text", torch.full((N + 1,), -1)):
        assert found(look(tmp_path, tokens=odd)) == {}


def test_identical_matrices_and_probabilities(tmp_path):
    """pytorch#32520 and vllm-ascend#6685, before anything is computed."""
    same = rows()
    result = look(tmp_path, same, same)
    assert found(result) == {("identical", "target and draft"): (N, 0)}
    assert "identical" in result["notes"][0]
    p = np.exp(same) / np.exp(same).sum(-1, keepdims=True)
    result = look(tmp_path, p)
    assert found(result) == {("probabilities", "target_logits"): (N, 0)}
    result = look(tmp_path, p, p[::-1].copy())
    assert ("probabilities", "target and draft") in found(result)
    assert "--input probabilities" in result["notes"][0]


def test_problems_and_their_positions(tmp_path):
    target = rows()
    target[2, 3] = np.nan
    result = look(tmp_path, target)
    assert "position 2, token 3" in result["problems"][0]
    assert len(result["problems"]) == 1
    result = inspected(saved(tmp_path / "y.pt", {"target_logits": torch.ones(2, 3, dtype=torch.int64)}))
    assert result["kind"] == "target"
    assert "integers are not logits" in result["problems"][0]


def test_batches_do_not_matter(tmp_path, monkeypatch):
    target, tokens = rows(), RNG.integers(0, V, N + 1)
    target[3, :200] = -1e4
    target[5:, 100:] = -np.inf
    held = torch.from_numpy(tokens)
    draft = likely(tokens[:-1])
    whole = look(tmp_path, target, draft, tokens=held)
    monkeypatch.setattr("resispec_verify.logged.inspection._BATCH_ELEMENTS", 3 * V)
    assert look(tmp_path, target, draft, tokens=held)["oddities"] == whole["oddities"]
    assert len(whole["oddities"]) >= 3


def test_reduced_vocabularies_are_not_filtered(tmp_path):
    value = {"target_logits": torch.from_numpy(rows()), "draft_logits": torch.from_numpy(rows(v=100))}
    result = inspected(saved(tmp_path / "x.pt", value | {"d2t": torch.arange(100) // 10 * 20}))
    assert found(result) == {}
    assert "100 draft tokens are placed among 400" in result["notes"][0]
    assert {e["key"]: e["used_as"] for e in result["keys"]}["d2t"] == "draft tokens"


def test_rounds(tmp_path):
    rounds = [one_round(3, 1), one_round(3, 3, context_len=12), one_round(2, 1, context_len=16)]
    output = torch.tensor([0, 2, 0, 1, 2, 2, 0, 2])
    value = {"rounds": rounds, "output_tokens": output}
    result = inspected(saved(tmp_path / "x.pt", value))
    assert result["problems"] == []
    assert result["rounds"] == {
        "rounds": 3,
        "gamma": [2, 3],
        "accepted": {"1": 2, "3": 1},
        "tokens_per_round": 8 / 3,
        "uniforms": True,
    }
    assert not [o for o in result["oddities"] if o["kind"] == "broken-chain"]
    rounds[2]["context_len"] = 17
    output[7] = 3
    result = inspected(saved(tmp_path / "x.pt", value))
    chains = {
        o["key"]: (o["count"], o["first_position"]) for o in result["oddities"] if o["kind"] == "broken-chain"
    }
    assert chains == {"context_len": (1, 2), "output_tokens": (1, 2)}
    rounds[1]["target_logits"][0, 0] = torch.nan
    result = inspected(saved(tmp_path / "x.pt", value))
    assert "round 1: target_logits has NaN" in result["problems"][0]
    result = inspected(saved(tmp_path / "x.pt", {"rounds": [1]}))
    assert "round 0" in result["problems"][0]


def test_trees(tmp_path):
    value = tree(UNEVEN)
    value["draft_logits"][1, 2, :] = value["draft_logits"][1, 2, 0]
    result = inspected(saved(tmp_path / "x.pt", value))
    assert result["tree"] == {"prefixes": 2, "nodes": 8, "depth": 3, "branching": [1, 3], "leaves": 4}
    assert {e["key"]: e["used_as"] for e in result["keys"]}["parent"] == "tree"
    ties = [o for o in result["oddities"] if o["kind"] == "near-tie" and o["key"] == "draft_logits"]
    assert ties[0]["first_position"] == 1
    assert "prefix 1" in ties[0]["text"]
    value["target_logits"][1, 2, 0] = torch.nan
    assert "prefix 1" in inspected(saved(tmp_path / "x.pt", value))["problems"][0]


def test_targets(tmp_path):
    logits = (RNG.normal(size=(2, 12, 30)) * 9).astype(np.float32)
    logits[:, :, 5] = 40  # far above the rest: rows are cut off
    logits[:, :, 6] = 38  # but never one-hot
    path = saved_llamacpp(tmp_path / "base.kld", logits, RNG.integers(0, 30, (2, 12)))
    result = inspected(path)
    assert (result["kind"], result["positions"], result["vocab"], result["dtype"]) == (
        "target",
        10,
        30,
        "uint16",
    )
    assert "0.000244" in result["notes"][1]
    assert "cut off at -16" in result["notes"][1]
    assert result["oddities"] == []
    flat = inspected(saved(tmp_path / "t.pt", {"target": torch.from_numpy(rows())}))
    assert (flat["kind"], flat["positions"]) == ("target", N)
    assert "without draft" in flat["notes"][0]


def test_shards(tmp_path):
    for i in range(3):
        value = {"target_logits": torch.from_numpy(rows()), "draft_logits": torch.from_numpy(rows())}
        saved_safetensors(tmp_path / f"{i}.safetensors", value, {"dataset": "a"})
    result = inspected(tmp_path)
    assert found(result) == {}
    assert (result["kind"], result["positions"]) == ("flat", 3 * N)
    shapes = {e["key"]: (e["shape"], e["used_as"]) for e in result["keys"]}
    assert shapes["target_logits"] == ([3 * N, V], "target")
    assert "3 parts" in result["notes"][0]
    for path in tmp_path.iterdir():
        saved_safetensors(path, {"target_logits": torch.from_numpy(rows())})
    assert inspected(tmp_path)["kind"] == "target"


def test_chunks(tmp_path):
    chunk = {"target_logits": torch.from_numpy(rows()), "draft_logits": torch.from_numpy(rows())}
    result = inspected(saved(tmp_path / "x.pt", {"chunks": [chunk, chunk]}))
    assert found(result) == {}
    assert result["positions"] == 2 * N
    assert result["keys"][0]["used_as"] == "target and draft"


def test_keys_of_any_kind(tmp_path):
    result = inspected(saved(tmp_path / "x.pt", {10**5000: 1, (1, "a"): 2, None: 3, 4: 5}))
    assert [entry["key"] for entry in result["keys"]] == ["a huge int", "(1, 'a')", "None", "4"]


def test_unknown_dicts(tmp_path):
    result = inspected(saved(tmp_path / "x.pt", {"a": 1}))
    assert result["kind"] == "unknown"
    assert "has no target_logits" in result["problems"][0]
    assert result["keys"] == [{"key": "a", "type": "int", "shape": None, "dtype": None, "used_as": None}]
