"""Reported log-probabilities: planted faults get their names, and right engines agree in every convention."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from resispec_verify import InputError, make_rule
from resispec_verify.dumps import open_rounds
from resispec_verify.logged.inspection import inspect_dump
from resispec_verify.logged.replay import replay
from resispec_verify.logged.replay_summary import summarize_replay
from resispec_verify.logged.rounds_input import read_rounds
from resispec_verify.logged.tree_input import read_any_rounds
from resispec_verify.logged.tree_replay import replay_any

RAW = "the raw target"
SPECULATIVE, VOCAB, T, K = make_rule("speculative"), 12, 0.7, 6


def log_softmax(rows):
    return rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))


def processed(rows):
    kept = np.where(rows >= np.sort(rows, axis=-1)[:, -K, None], rows, -np.inf)
    return log_softmax(kept / T)


CONVENTIONS = {
    "the raw target": log_softmax,
    "the target after temperature": lambda rows: log_softmax(rows / T),
    "the target after temperature and filters": processed,
}


def rounds(report, *, count=40, dtype=torch.float32, gammas=(3,)):
    """Rounds of likely tokens; ``report(i, kind, rows, token)`` gives each one's value."""
    rng = np.random.default_rng(19)
    made = []
    for r in range(count):
        g = gammas[r % len(gammas)]
        target = rng.normal(0, 2, (g + 1, VOCAB)).astype(np.float32)
        draft = (target[:g] + rng.normal(0, 1, (g, VOCAB))).astype(np.float32)
        rows = target.astype(np.float64)
        top = np.argsort(-rows, axis=-1)[:, :3]
        tokens, accepted = top[np.arange(g), rng.integers(0, 3, g)], int(rng.integers(0, g + 1))
        y = int(top[accepted, 0])
        emitted = [*tokens[:accepted].tolist(), y]
        kinds = ["accepted"] * accepted + ["ordinary" if not g else "corrected" if accepted < g else "bonus"]
        values = [
            report(i, kind, rows, token) for i, (kind, token) in enumerate(zip(kinds, emitted, strict=True))
        ]
        made.append({
            "draft_tokens": torch.tensor(tokens.tolist(), dtype=torch.int64), "accepted": accepted,
            "next_token": y, "draft_logits": torch.tensor(draft), "target_logits": torch.tensor(target),
            "reported_logprobs": torch.tensor(values, dtype=dtype),
        })  # fmt: skip
    return made


def found(tmp_path, made):
    path = tmp_path / "rounds.pt"
    torch.save({"rounds": made, "meta": {"sampling": {"temperature": T, "top_k": K}}}, path)
    return summarize_replay(replay(read_rounds(path), SPECULATIVE))["reported_logprobs"]


def by_class(answer):
    return {one["class"]: one for one in answer["classes"]}


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_each_convention_is_recognised(tmp_path, convention, dtype):
    table = CONVENTIONS[convention]
    answer = found(tmp_path, rounds(lambda i, kind, rows, y: table(rows)[i, y], dtype=dtype))
    assert (answer["verdict"], answer["convention"], answer["mixed_conventions"]) == (
        "agree",
        convention,
        False,
    )
    assert {one["class"] for one in answer["classes"]} == {"accepted", "corrected", "bonus"}
    assert all(one["fits"] == [convention] and one["verdict"] == "right" for one in answer["classes"])


def test_zeros_for_every_speculative_token(tmp_path):
    made = rounds(
        lambda i, kind, rows, y: log_softmax(rows)[i, y] if kind == "ordinary" else 0.0, gammas=(3, 0)
    )
    answer = found(tmp_path, made)
    classes = by_class(answer)
    assert answer["verdict"] == "differs"
    assert classes["ordinary"]["verdict"] == "right"
    for kind in ("accepted", "corrected", "bonus"):
        assert classes[kind]["verdict"] == "wrong"
        assert classes[kind]["looks_like"] == ["0 for every token"]
        assert classes[kind]["zeros"] == classes[kind]["tokens"] == classes[kind]["misfits"]


def test_right_on_ordinary_tokens_and_wrong_after_verification(tmp_path):
    noise = np.random.default_rng(3)
    made = rounds(
        lambda i, kind, rows, y: log_softmax(rows)[i, y] - (kind != "ordinary") * noise.uniform(0.01, 0.5),
        gammas=(3, 0),
    )
    classes = by_class(found(tmp_path, made))
    assert classes["ordinary"]["fits"] == ["the raw target"]
    assert classes["accepted"]["verdict"] == "wrong"
    assert classes["accepted"]["looks_like"] == []
    assert classes["accepted"]["nearest"] == "the raw target"
    first = classes["accepted"]["first"]
    assert 0.01 <= first["expected"] - first["reported"] <= 0.5


@pytest.mark.parametrize(("shift", "name"), [(-1, "before"), (1, "after")])
def test_another_rows_value(tmp_path, shift, name):
    def report(i, kind, rows, y):
        return log_softmax(rows)[max(0, min(i + shift, len(rows) - 1)), y]

    classes = by_class(found(tmp_path, rounds(report, count=80)))
    kind = "bonus" if shift < 0 else "accepted"
    assert classes[kind]["verdict"] == "wrong"
    assert classes[kind]["looks_like"] == [f"the target's raw row {name}"]


def test_classes_that_follow_different_conventions(tmp_path):
    def report(i, kind, rows, y):
        return (log_softmax if kind == "accepted" else processed)(rows)[i, y]

    answer = found(tmp_path, rounds(report))
    assert (answer["verdict"], answer["convention"], answer["mixed_conventions"]) == ("differs", None, True)


def test_the_drafts_own_values(tmp_path):
    made = rounds(lambda i, kind, rows, y: 0.0)
    for one in made:
        rows = one["draft_logits"].double().numpy()
        tokens = one["draft_tokens"].tolist()
        values = [
            CONVENTIONS["the target after temperature and filters"](rows)[i, y] for i, y in enumerate(tokens)
        ]
        one["reported_logprobs"] = torch.tensor([*values[: one["accepted"]], 0.0])
    accepted = by_class(found(tmp_path, made))["accepted"]
    assert accepted["looks_like"] == ["the draft"]


def test_no_values_are_no_answer(tmp_path):
    made = [{k: v for k, v in one.items() if k != "reported_logprobs"} for one in rounds(lambda *_: 0.0)]
    assert found(tmp_path, made) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.tensor([0.5]), "0.5 at 0 is no log-probability"),
        (torch.tensor([float("nan"), -1.0]), "nan at 0"),
        (torch.tensor([]), "has 0 numbers, and 1 tokens were emitted"),
        (torch.tensor([1, 2]), "save one floating-point number"),
        (torch.full((9,), -1.0), "has 9 numbers"),
    ],
)
def test_what_is_no_log_probability_is_refused(tmp_path, value, words):
    made = rounds(lambda *_: -1.0, count=1)
    made[0] |= {"accepted": 0, "reported_logprobs": value}
    torch.save({"rounds": made}, tmp_path / "bad.pt")
    with pytest.raises(InputError, match=words) as refused:
        open_rounds(tmp_path / "bad.pt")
    assert "round 0: reported_logprobs" in str(refused.value)


@pytest.mark.parametrize(
    ("value", "speculative", "looks"),
    [
        (lambda raw, i, y, spec: raw[i, y], "right", []),
        (lambda raw, i, y, spec: 0.0 if spec else raw[i, y], "wrong", ["0 for every token"]),
        (
            lambda raw, i, y, spec: raw[i - 1, y] if spec else raw[i, y],
            "wrong",
            ["the target's raw row before"],
        ),
    ],
)
def test_flat_dumps_are_looked_at_by_inspect(tmp_path, value, speculative, looks):
    rng = np.random.default_rng(5)
    rows = rng.normal(0, 2, (60, VOCAB)).astype(np.float32)
    tokens, spec = rng.integers(0, VOCAB, 60), np.arange(60) % 3 == 1
    raw = log_softmax(rows.astype(np.float64))
    values = [value(raw, i, y, s) for i, (y, s) in enumerate(zip(tokens, spec, strict=True))]
    held = {"target_logits": torch.tensor(rows), "next_tokens": torch.tensor(tokens),
            "speculative": torch.tensor(spec), "reported_logprobs": torch.tensor(values)}  # fmt: skip
    torch.save(held, tmp_path / "flat.pt")
    seen = inspect_dump(tmp_path / "flat.pt")
    assert not seen["problems"]
    assert not seen["ignored"]
    classes = by_class(seen["reported_logprobs"])
    assert classes["ordinary"]["verdict"] == "right"
    assert RAW in classes["ordinary"]["fits"]
    assert (classes["speculative"]["verdict"], classes["speculative"]["looks_like"]) == (speculative, looks)


def test_flat_values_need_their_tokens(tmp_path):
    torch.save(
        {"target_logits": torch.randn(3, VOCAB), "reported_logprobs": torch.full((3,), -1.0)},
        tmp_path / "a.pt",
    )
    assert "needs next_tokens" in inspect_dump(tmp_path / "a.pt")["problems"][0]


def test_a_sampling_by_position_is_refused(tmp_path):
    held = {"target_logits": torch.randn(3, VOCAB), "next_tokens": torch.arange(3),
            "reported_logprobs": torch.full((3,), -1.0),
            "meta": {"sampling": {"temperature": [1.0, 0.5, 1.0]}}}  # fmt: skip
    torch.save(held, tmp_path / "a.pt")
    assert "a sampling by position" in inspect_dump(tmp_path / "a.pt")["problems"][0]


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_bias_is_part_of_what_is_processed_and_not_of_the_raw_target(tmp_path, convention):
    """Rounds and flat rows alike; before, rounds had it in all three conventions and flat rows in none."""
    bias = np.zeros(VOCAB)
    bias[:3] = 2.5, -2.0, 1.0

    def report(i, kind, rows, y):
        return CONVENTIONS[convention](rows if convention == RAW else rows + bias)[i, y]

    # A token that the filter leaves out has no finite value in the last convention: none is such here.
    made = [one for one in rounds(report, count=400) if np.isfinite(one["reported_logprobs"].numpy()).all()]
    assert len(made) > 50
    meta = {"sampling": {"temperature": T, "top_k": K, "logit_bias": dict(enumerate(bias[:3].tolist()))}}
    torch.save({"rounds": made, "meta": meta}, tmp_path / "rounds.pt")
    answer = summarize_replay(replay(read_rounds(tmp_path / "rounds.pt"), SPECULATIVE))["reported_logprobs"]
    assert (answer["verdict"], answer["convention"]) == ("agree", convention)
    assert all(one["fits"] == [convention] for one in answer["classes"])

    rows = np.random.default_rng(7).normal(0, 2, (30, VOCAB)).astype(np.float32)
    tokens = (rows + bias).argmax(axis=-1)
    values = [report(i, "", rows.astype(np.float64), y) for i, y in enumerate(tokens)]
    flat = {"target_logits": rows, "draft_logits": rows, "next_tokens": tokens}
    flat |= {"reported_logprobs": np.asarray(values, np.float32)}
    torch.save({key: torch.tensor(value) for key, value in flat.items()} | {"meta": meta}, tmp_path / "f.pt")
    answer = inspect_dump(tmp_path / "f.pt")["reported_logprobs"]
    assert (answer["verdict"], answer["convention"]) == ("agree", convention)
    assert answer["classes"][0]["fits"] == [convention]


def test_a_penalty_beside_reported_values_goes_by_the_history(tmp_path):
    rows, tokens = np.zeros((2, 3), np.float32), np.array([0, 1])
    law = log_softmax(np.array([[-2.0, 0.0, 0.0], [0.0, -2.0, 0.0]]))
    made = {"target_logits": rows, "draft_logits": rows, "next_tokens": tokens}
    made |= {"reported_logprobs": law[[0, 1], tokens].astype(np.float32)}
    made = {key: torch.tensor(value) for key, value in made.items()}
    made["meta"] = {"sampling": {"order": "vllm", "presence_penalty": 2.0}}
    path = tmp_path / "f.pt"
    torch.save(made | {"history": torch.tensor([[2, 0], [2, 1]]), "prompt_len": 1}, path)
    found = inspect_dump(path)["reported_logprobs"]
    assert (found["verdict"], found["convention"]) == ("agree", "the target after temperature")
    torch.save(made, path)
    assert "save them as history" in inspect_dump(path)["problems"][0]


def test_values_that_rounds_over_trees_reported_are_named_as_not_tested(tmp_path):
    one = {
        "tokens": torch.tensor([-1, 0]),
        "parent": torch.tensor([-1, 0]),
        "target_logits": torch.randn(2, 3),
    }
    one |= {"accepted_path": torch.tensor([1]), "next_token": 0}
    for more, notes in (
        ({}, []),
        ({"reported_logprobs": torch.zeros(2)}, ["reported_logprobs of rounds over trees are not tested"]),
    ):
        torch.save({"rounds": [one | more]}, tmp_path / "r.pt")
        assert replay_any(read_any_rounds(tmp_path / "r.pt"), make_rule("eagle")).notes == notes
