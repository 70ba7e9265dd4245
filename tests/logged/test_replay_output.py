"""Outputs that were cut, texts that ended inside a round, and rounds padded with -1."""

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

P, Q = [0.5, 0.3, 0.2], [0.5, 0.25, 0.25]
SPECULATIVE = make_rule("speculative")


def one(tokens, accepted, next_token=None, **others):
    """A round whose drafts are all accepted by rule where the uniforms are small."""
    g = len(tokens)
    rows = {"target_logits": torch.tensor([P] * (g + 1)).log(), "draft_logits": torch.tensor([Q] * g).log()}
    entry = {"draft_tokens": torch.tensor(tokens), "accepted": accepted, "next_token": next_token}
    return rows | entry | {"u": torch.full((g,), 0.1)} | others


def summary(tmp_path, rounds, stops=(), **others):
    path = tmp_path / "rounds.pt"
    others = {k: torch.tensor(v) if k == "output_tokens" else v for k, v in others.items()}
    torch.save({"rounds": rounds} | others, path)
    return summarize_replay(replay(read_rounds(path, stops=stops), SPECULATIVE)), inspect_dump(path)


def differs(row):
    return [note for note in row["notes"] if "output_tokens differs" in note]


ROUNDS = [one([0, 1], 2, 1), one([0, 2, 1], 3, 0)]


@pytest.mark.parametrize("length", [4, 5, 6, 7])
def test_an_output_cut_in_the_last_round_is_no_difference(tmp_path, length):
    output = [0, 1, 1, 0, 2, 1, 0][:length]
    row, looked = summary(tmp_path, ROUNDS, output_tokens=output)
    assert not differs(row)
    assert row["tokens_emitted"] == length
    assert row["tokens_per_round"] == looked["rounds"]["tokens_per_round"] == length / 2
    assert row["rounds_cut"] == (length < 7)
    assert not [o for o in looked["oddities"] if o["kind"] == "broken-chain"]


@pytest.mark.parametrize(
    ("output", "index"),
    [
        ([0, 1, 0, 2, 1, 0], 2),  # cut in the first round, though the second goes on
        ([0, 1, 1], 3),  # the last round emitted nothing
        ([0, 1, 1, 0, 2, 2], 5),
        ([0, 1, 1, 0, 2, 1, 0, 0], 7),
        ([2], 0),
    ],
)
def test_other_outputs_differ(tmp_path, output, index):
    row, looked = summary(tmp_path, ROUNDS, output_tokens=output)
    assert differs(row) == [f"output_tokens differs from what the rounds emitted, first at index {index}"]
    assert [o for o in looked["oddities"] if o["kind"] == "broken-chain"]


def test_texts_end_where_prompts_change_or_contexts_start_again(tmp_path):
    for first, second in (({"prompt": 0}, {"prompt": 1}), ({"context_len": 9}, {"context_len": 4})):
        rounds = [ROUNDS[0] | first, ROUNDS[1] | second]
        row, _ = summary(tmp_path, rounds, output_tokens=[0, 0, 2, 1, 0])
        assert not differs(row)
        assert (row["tokens_emitted"], row["rounds_cut"]) == (5, 1)
    rounds = [ROUNDS[0] | {"context_len": 9}, ROUNDS[1] | {"context_len": 12}]
    row, _ = summary(tmp_path, rounds, output_tokens=[0, 0, 2, 1, 0])
    assert differs(row)


def test_a_known_end_of_text_ends_a_text_anywhere(tmp_path):
    """Token 1 ends it: among the accepted drafts of round 0, whose last token was not emitted."""
    output = [0, 1, 0, 2, 1, 0]
    assert differs(summary(tmp_path, ROUNDS, output_tokens=output)[0])
    for given in ({"stops": [1]}, {"meta": {"eos_token_id": 1}}, {"meta": {"eos_token_id": [7, 1]}}):
        row, _ = summary(tmp_path, ROUNDS, output_tokens=output, **given)
        assert not differs(row)
        assert row["tokens_emitted"] == 6
    without, _ = summary(tmp_path, ROUNDS, stops=[1])
    assert without["tokens_emitted"] == 2 + 3  # each round up to its first end of text
    with pytest.raises(InputError, match="eos_token_id"):
        summary(tmp_path, ROUNDS, meta={"eos_token_id": "no"})


def test_nothing_is_decided_after_the_end_of_a_text(tmp_path):
    """The engine counts up to the end-of-text token and draws no more: not a rejection of what follows."""
    rounds = [one([0, 1, 0], 2)]
    row, _ = summary(tmp_path, rounds, output_tokens=[0, 1])
    assert (row["decisions"], row["divergences"]) == (3, 1)
    row, _ = summary(tmp_path, rounds, stops=[1], output_tokens=[0, 1])
    assert (row["decisions"], row["divergences"], row["notes"]) == (2, 0, [])


def padded(entry, width, fill):
    """The same round with -1 for tokens and anything for rows and uniforms."""
    g = len(entry["draft_tokens"])
    more = width - g

    def longer(rows):
        return torch.cat([rows, torch.full((more, *rows.shape[1:]), fill, dtype=rows.dtype)])

    return entry | {
        "draft_tokens": torch.cat([entry["draft_tokens"], torch.full((more,), -1)]),
        "draft_logits": longer(entry["draft_logits"]),
        "target_logits": longer(entry["target_logits"]),
        "u": longer(entry["u"]),
    }


@pytest.mark.parametrize("fill", [0.0, -1.0, float("nan")])
def test_rounds_padded_with_minus_one_are_those_without(tmp_path, fill):
    rounds = [*ROUNDS, one([2], 0, 1), one([0], 1, 2)]
    others = {"output_tokens": [0, 1, 1, 0, 2, 1, 0, 1, 0, 2]}
    plain, looked = summary(tmp_path, rounds, **others)
    row, again = summary(tmp_path, [padded(entry, 4, fill) for entry in rounds], **others)
    assert row == plain
    assert again["rounds"] == looked["rounds"]
    assert again["problems"] == []


def test_stacked_rounds_and_outputs_are_padded_too(tmp_path):
    entries = [padded(entry, 3, 0.0) for entry in ROUNDS]
    stacked = {key: torch.stack([entry[key] for entry in entries])
               for key in ("draft_tokens", "draft_logits", "target_logits", "u")}  # fmt: skip
    stacked |= {"accepted": torch.tensor([2, 3]), "next_token": torch.tensor([1, 0])}
    path = tmp_path / "stacked.pt"
    torch.save(stacked | {"output_tokens": torch.tensor([[0, 1, 1, -1], [0, 2, 1, 0]])}, path)
    assert [one.gamma for one in open_rounds(path).rounds] == [2, 3]
    row = summarize_replay(replay(read_rounds(path), SPECULATIVE))
    assert row["notes"] == []
    assert row["tokens_emitted"] == 7


def test_minus_one_before_a_token_and_accepted_padding_are_refused(tmp_path):
    path = tmp_path / "rounds.pt"
    for tokens, accepted, words in (
        ([-1, 0], 0, "draft_tokens: -1 at 0 is outside"),
        ([0, -1], 2, "accepted is 2"),
    ):
        torch.save({"rounds": [one(tokens, accepted)]}, path)
        with pytest.raises(InputError, match=words):
            read_rounds(path)


@pytest.mark.parametrize("none", [-1, torch.tensor(-1)])
def test_a_next_token_of_minus_one_is_none(tmp_path, none):
    rounds = [ROUNDS[0], one([0, 1], 1, none, u_next=-1.0)]
    path = tmp_path / "rounds.pt"
    torch.save({"rounds": rounds}, path)
    assert [(entry.next_token, entry.u_next) for entry in open_rounds(path).rounds] == [
        (1, None),
        (None, None),
    ]
    torch.save({"rounds": [one([0, 1], 1, -2)]}, path)
    with pytest.raises(InputError, match="next_token is -2"):
        read_rounds(path)


def test_stacked_arrays_pad_next_tokens_with_minus_one(tmp_path):
    rounds = [one([0, 1], 2, 1), one([0, 1], 2, -1)]
    stacked = {
        key: torch.stack([torch.as_tensor(entry[key]) for entry in rounds]).numpy() for key in rounds[0]
    }
    np.savez(tmp_path / "rounds.npz", **stacked)
    assert [entry.next_token for entry in open_rounds(tmp_path / "rounds.npz").rounds] == [1, None]
