"""Penalties, masks and bans by the text: flat dumps and rounds, and penalties that stood still in a block."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import resispec_verify as rv
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import open_dump
from resispec_verify.errors import InputError
from resispec_verify.logged.round_rows import read_rows
from resispec_verify.logged.texts import rows_texts
from resispec_verify.sampling.text import Text, adjusted
from resispec_verify.tables.reading import Reading, pairs_of

PENALTIES = {"order": "vllm", "repetition_penalty": 1.6, "presence_penalty": 0.8, "frequency_penalty": 0.5}

REPETITION = {"repetition_penalty": 1.2}
BLOCK_START = REPETITION | {"history": "block-start"}


def softmax(rows):
    return torch.softmax(torch.tensor(rows), -1).numpy()


def flat(folder, sampling, **others):
    target = torch.tensor([[2.0, -1.0, 0.5], [1.0, 3.0, -2.0]], dtype=torch.float64)
    held = {"target_logits": target, "draft_logits": target.flip(-1), "meta": {"sampling": sampling}}
    torch.save(held | others, folder / "flat.pt")
    return folder / "flat.pt"


def pairs(path, **reading):
    return list(pairs_of(open_dump(path), Reading(**reading)))


def test_a_flat_dump_with_its_history(tmp_path):
    history = torch.tensor([[0, 1, -1, -1], [1, 0, 1, 1]])
    sampling = {
        "order": "vllm",
        "repetition_penalty": 2.0,
        "frequency_penalty": 0.25,
        "presence_penalty": 0.5,
    }
    path = flat(tmp_path, sampling, history=history, prompt_len=torch.tensor([1, 2]))
    (batch,) = pairs(path)
    # Position 0: prompt 0, output 1. Position 1: prompt 1 0, output 1 1.
    target = [[1.0, -2.0 - 0.75, 0.5], [0.5, 1.5 - 1.0, -2.0]]
    np.testing.assert_allclose(batch.pair.target, softmax(target), atol=1e-15)
    draft = [[0.25, -2.0 - 0.75, 2.0], [-4.0, 1.5 - 1.0, 1.0]]
    np.testing.assert_allclose(batch.pair.draft, softmax(draft), atol=1e-15)
    (output,) = pairs(
        path, order="sglang"
    )  # its repetition penalty looks at the output alone, and comes last
    target = [[2.0, (-1.0 - 0.75) * 2, 0.5], [1.0, (3.0 - 1.0) / 2, -2.0]]
    np.testing.assert_allclose(output.pair.target, softmax(target), atol=1e-15)


def test_the_draft_without_penalties(tmp_path):
    sampling = {"repetition_penalty": 2.0, "draft": {"repetition_penalty": None}}
    (batch,) = pairs(flat(tmp_path, sampling, history=[torch.tensor([0]), torch.tensor([1])]))
    np.testing.assert_allclose(batch.pair.target, softmax([[1.0, -1.0, 0.5], [1.0, 1.5, -2.0]]), atol=1e-15)
    np.testing.assert_allclose(batch.pair.draft, softmax([[0.5, -1.0, 2.0], [-2.0, 3.0, 1.0]]), atol=1e-15)


def test_masks_bad_words_and_stops(tmp_path):
    allowed = torch.tensor([[True, False, True], [True, True, True]])
    sampling = {
        "allowed_tokens": "logged", "bad_words": [2], "logit_bias": {"0": 1.0},
        "min_tokens": 2, "stop_tokens": [1],
    }  # fmt: skip
    others = {"history": torch.tensor([[0, 0], [0, 0]]), "prompt_len": torch.tensor([0, 1])}
    (batch,) = pairs(flat(tmp_path, sampling, allowed_tokens=allowed, **others))
    np.testing.assert_allclose(batch.pair.target, [[1, 0, 0], [1, 0, 0]], atol=0)
    (later,) = pairs(flat(tmp_path, sampling | {"min_tokens": 1}, allowed_tokens=allowed, **others))
    np.testing.assert_allclose(later.pair.target[1], [*softmax([2.0, 3.0]), 0], atol=1e-15)


@pytest.mark.parametrize(
    ("sampling", "others", "words"),
    [
        ({"repetition_penalty": 1.2}, {}, "save them as history"),
        (PENALTIES, {"history": [[0], [1]]}, "save prompt_len"),
        ({"allowed_tokens": "logged"}, {}, "save a bool array [N, V]"),
        ({"bad_words": [7]}, {}, "bad_words has token 7, outside the vocabulary 0..2"),
        ({"bad_words": [0, 1, 2]}, {}, "leave no token"),
        ({"allowed_tokens": []}, {}, "leave no token"),
        ({"repetition_penalty": 1.2}, {"history": [[0], [9]]}, "history has token 9"),
        (BLOCK_START, {"history": [[0], [1]]}, "for dumps of rounds"),
        ({"repetition_penalty": 1.2}, {"history": [[0]]}, "a list of token ids for each of 2 positions"),
        (REPETITION, {"history": [[0], [1]], "prompt_len": 2}, "prompt_len of position 0 is 2"),
        ({"allowed_tokens": "logged"}, {"allowed_tokens": torch.ones(2, 2) > 0}, "as bool [2, 3]"),
        ({"heat": 1}, {}, "unknown keys heat; known: temperature, top_k"),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_said(tmp_path, sampling, others, words):
    others = {
        key: [torch.tensor(row) for row in value] if isinstance(value, list) else value
        for key, value in others.items()
    }
    with pytest.raises(InputError) as caught:
        pairs(flat(tmp_path, sampling, **others))
    assert words in str(caught.value)


def test_a_repetition_penalty_of_log_probabilities(tmp_path):
    path = flat(tmp_path, {"repetition_penalty": 1.2}, history=[torch.tensor([0]), torch.tensor([1])])
    held = torch.load(path)
    held |= {key: torch.log_softmax(held[key], -1) for key in ("target_logits", "draft_logits")}
    torch.save(held, path)
    with pytest.raises(InputError, match=r"repetition penalty 1\.2"):
        pairs(path)
    with pytest.raises(InputError, match="repetition penalty"):
        pairs(path, kind="log-probabilities", samplings=(Sampling(repetition_penalty=1.2),))


def rounds(history, *, count=40, g=3, vocab=12, seed=0, prompts=1):
    """Rounds of an engine that penalises by ``history``, decided in float64."""
    rng, sampling, entries = np.random.default_rng(seed), Sampling(**PENALTIES, history=history), []
    prompt = np.asarray([1, 2, 3])
    for number in range(prompts):
        output: list[int] = []
        for _ in range(count // prompts):
            target = rng.normal(size=(g + 1, vocab)) * 2
            draft = target[:g] + rng.normal(size=(g, vocab))
            text, tokens = Text(prompt, np.asarray(output, np.int64)), np.zeros(g, np.int64)
            for i in range(g):
                here = rows_texts(text, tokens, i, 1, history, None)
                tokens[i] = rng.choice(vocab, p=softmax(adjusted(draft[i : i + 1], sampling, here))[0])
            p = softmax(adjusted(target, sampling, rows_texts(text, tokens, 0, g + 1, history, None)))
            q = softmax(adjusted(draft, sampling, rows_texts(text, tokens, 0, g, history, None)))
            u, k = rng.random(g), 0
            while k < g and u[k] * q[k, tokens[k]] < p[k, tokens[k]]:
                k += 1
            law = p[g] if k == g else np.clip(p[k] - q[k], 0, None)
            y = int(rng.choice(vocab, p=law / law.sum()))
            entry = {
                "target_logits": torch.tensor(target),
                "draft_logits": torch.tensor(draft),
                "next_token": y,
            }
            entry |= {"draft_tokens": torch.tensor(tokens), "u": torch.tensor(u), "accepted": k}
            entries.append(entry | ({"prompt": number} if prompts > 1 else {}))
            output += [*tokens[:k].tolist(), y]
    context = torch.tensor(prompt) if prompts == 1 else [torch.tensor(prompt)] * prompts
    return {"rounds": entries, "context_tokens": context, "meta": {"sampling": PENALTIES}}


@pytest.mark.parametrize("prompts", [1, 4])
def test_replay_follows_penalties_by_token(tmp_path, prompts):
    torch.save(rounds("token", prompts=prompts), tmp_path / "rounds.pt")
    report = rv.replay(tmp_path / "rounds.pt").to_dict()["results"][0]
    assert report["divergences"] == 0
    assert report["notes"] == []


def test_replay_tells_penalties_of_the_block_start(tmp_path):
    torch.save(rounds("block-start"), tmp_path / "rounds.pt")
    report = rv.replay(tmp_path / "rounds.pt").to_dict()["results"][0]
    assert report["divergences"] > 0
    (note,) = report["notes"]
    assert note.startswith("history 'block-start' explains the log: nothing differs (")
    as_it_was = Sampling(**PENALTIES, history="block-start")
    report = rv.replay(tmp_path / "rounds.pt", sampling=as_it_was).to_dict()["results"][0]
    assert (report["divergences"], report["notes"]) == (0, [])


def test_neither_history_explains_other_penalties(tmp_path):
    held = rounds("token")
    held["meta"] = {"sampling": PENALTIES | {"repetition_penalty": 3.0}}
    torch.save(held, tmp_path / "rounds.pt")
    (note,) = rv.replay(tmp_path / "rounds.pt").to_dict()["results"][0]["notes"]
    assert "does not explain the log either" in note


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda held: held.pop("context_tokens"), "has no context_tokens"),
        (lambda held: held["rounds"][3].update(next_token=-1), "round 4: penalties need the text"),
        (lambda held: held["rounds"][0].update(context_len=9), "round 0: context_len is 9"),
        (lambda held: held["meta"]["sampling"].update(allowed_tokens="logged"), "read with flat dumps only"),
    ],
)
def test_rounds_without_their_text(tmp_path, change, words):
    held = rounds("token")
    held["meta"] = {"sampling": dict(PENALTIES)}
    change(held)
    torch.save(held, tmp_path / "rounds.pt")
    with pytest.raises(InputError) as caught:
        rv.replay(tmp_path / "rounds.pt")
    assert words in str(caught.value)


@pytest.mark.parametrize("order", ["transformers", "vllm", "sglang", "llama.cpp"])
def test_replay_of_an_engines_order(tmp_path, order):
    """Decisions by that order agree; the bounds under rounding hold every token that was drawn."""
    rng, g, vocab, entries = np.random.default_rng(3), 2, 10, []
    settings = {"order": order, "temperature": 1.7, "top_k": 6, "top_p": 0.9, "min_p": 0.05}
    sampling = Sampling(**settings)
    for _ in range(60):
        target = torch.tensor(rng.normal(size=(g + 1, vocab)) * 2).to(torch.float16)
        draft = (target[:g].double() + torch.tensor(rng.normal(size=(g, vocab)))).to(torch.float16)
        p, q = (sampling.probabilities(rows.double().numpy(), dtype=np.float64) for rows in (target, draft))
        tokens = np.asarray([rng.choice(vocab, p=law) for law in q])
        u, k = rng.random(g), 0
        while k < g and u[k] * q[k, tokens[k]] < p[k, tokens[k]]:
            k += 1
        law = p[g] if k == g else np.clip(p[k] - q[k], 0, None)
        entries.append({
            "target_logits": target, "draft_logits": draft, "draft_tokens": torch.tensor(tokens),
            "u": torch.tensor(u), "accepted": k, "next_token": int(rng.choice(vocab, p=law / law.sum())),
        })  # fmt: skip
    torch.save({"rounds": entries, "meta": {"sampling": settings}}, tmp_path / "rounds.pt")
    report = rv.replay(tmp_path / "rounds.pt").to_dict()["results"][0]
    assert report["divergences"] == 0
    assert report["statistics"]["verdict"] == "not-rejected"


def test_the_commands_take_an_order_and_a_history(tmp_path, cli):
    p = torch.tensor([0.35, 0.25, 0.2, 0.05, 0.03, *[0.015] * 8], dtype=torch.float64)
    held = {"target_logits": p.log()[None], "draft_logits": (p.log() + torch.linspace(0, 1, 13))[None]}
    torch.save(held | {"meta": {"sampling": {"top_k": 4, "top_p": 0.82}}}, tmp_path / "flat.pt")
    limits = [
        cli("limits", "--logits", tmp_path / "flat.pt", "--engine-order", order)
        for order in ("vllm", "sglang")
    ]
    assert [one.status for one in limits] == [0, 0]
    assert limits[0].out != limits[1].out
    refused = cli("kl", "--logits", tmp_path / "flat.pt", "--engine-order", "tgi")
    assert refused.status == 2
    assert "--engine-order has 'tgi'" in refused.err
    torch.save(rounds("block-start"), tmp_path / "rounds.pt")
    arguments = ("replay", "--logits", tmp_path / "rounds.pt", "--require-agreement")
    told = cli(*arguments)
    assert told.status == 1
    assert "history 'block-start' explains the log" in told.out
    assert cli(*arguments, "--history", "block-start").status == 0


def test_a_barred_logit_counts_for_the_deviation_in_bounds_too(tmp_path):
    """-1e9 bars a token and is finite: the deviation is large, and top-n-sigma keeps the others."""
    logits = np.array([[1.0, 0.5, -1e9]])
    rounds = [
        {"draft_tokens": np.array([0]), "draft_logits": logits, "target_logits": np.repeat(logits, 2, 0)}
    ]
    sampling = Sampling(order="llama.cpp", top_n_sigma=1.0)
    rows = read_rows("a round", rounds[0], slice(0, 2), sampling)
    law, box = rows.p[0], rows.target_box().normalised()
    assert law.argmin() == 2
    assert law[1] > 0.3
    assert (box.low[0] <= law).all()
    assert (law <= box.high[0]).all()


def test_a_proposal_with_a_bias_of_its_own_has_it(tmp_path):
    """Before, the bias was left out without a word; what the draft has goes on where it has none."""
    path = flat(tmp_path, {"bad_words": [1]})
    dump, bias = open_dump(path), Sampling(logit_bias={0: 2.0})

    def drawn(proposal):
        (batch,) = pairs_of(dump, Reading(kind="logits", proposal_sampling=lambda _: proposal))
        return batch.pair.proposal

    np.testing.assert_allclose(drawn(bias), softmax([[2.5, -1.0, 2.0], [0.0, 3.0, 1.0]]), atol=1e-15)
    kept = softmax(np.array([[1.0, -np.inf, 4.0], [-4.0, -np.inf, 2.0]]))
    np.testing.assert_allclose(drawn(Sampling(0.5)), kept, atol=1e-15)
    with pytest.raises(InputError, match="save them as history"):
        drawn(Sampling(repetition_penalty=1.2))
    with pytest.raises(InputError, match="give its draft_sampling"):
        rv.verify(path, rule="specinfer", proposal=Sampling(draft={"top_k": 2}))
