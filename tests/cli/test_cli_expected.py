"""Demands on the expected acceptance, bands for a server's counters, and files of synthetic acceptance."""

import json

import numpy as np
import pytest
import torch
from cli_helpers import assert_refused, drawn

from resispec_verify.evidence.mean_band import mean_band, share_band

CHAIN = {"parent": torch.tensor((-1, 0, 1, 2)), "tokens": torch.zeros(6, 4, dtype=torch.int64)}


@pytest.fixture
def dump(tmp_path):
    """Three prompts of eight positions each."""
    torch.save(
        {"target_logits": drawn(3, 8, 6, seed=1), "draft_logits": drawn(3, 8, 6, seed=2)}, tmp_path / "d.pt"
    )
    return tmp_path / "d.pt"


@pytest.fixture
def chain(tmp_path):
    torch.save({**CHAIN, "target_logits": drawn(6, 3, 6, seed=1), "draft_logits": drawn(6, 3, 6, seed=2)},
               tmp_path / "c.pt")  # fmt: skip
    return tmp_path / "c.pt"


def overlaps(path):
    content = torch.load(path)
    p, q = (torch.softmax(content[key].double(), -1) for key in ("target_logits", "draft_logits"))
    return torch.minimum(p, q).sum(-1).numpy()


def test_the_band_is_over_prompts(cli, dump):
    asked = ("limits", dump, "--rule", "speculative", "--min-acceptance", 0.3, "--alpha", 0.05)
    found = cli(*asked, "--json", "-").json["results"][0]["expected"]
    means = overlaps(dump).mean(axis=1)
    assert found["band"] == pytest.approx(mean_band(means, means, [8] * 3, 0.05))
    assert (found["independent"], found["alpha"]) == (3, 0.05)
    shown = cli(*asked)
    assert shown.status == 0
    assert "over 3 prompts: not surely below the 0.3 demanded" in shown.out


def test_only_what_is_surely_below_fails(cli, tmp_path):
    rows = drawn(200, 6, seed=3)
    torch.save({"target_logits": rows, "draft_logits": drawn(200, 6, seed=4)}, tmp_path / "broken.pt")
    torch.save({"target_logits": rows, "draft_logits": rows + 0.01}, tmp_path / "good.pt")
    asked = ("--rule", "speculative", "--min-acceptance", 0.9)
    broken, good = (cli("limits", tmp_path / f"{name}.pt", *asked) for name in ("broken", "good"))
    assert (broken.status, good.status) == (1, 0)
    assert "surely below the 0.9 demanded" in broken.out
    assert "200 positions, taken as independent" in broken.out


def test_prompts_by_their_tokens(cli, tmp_path):
    content = {"target_logits": drawn(6, 5, seed=1), "draft_logits": drawn(6, 5, seed=2),
               "history": [[1, 2], [1, 2, 3], [4], [4, 4], [1, 2, 3, 4], [4, 1, 1]],
               "prompt_len": torch.tensor([2, 2, 1, 1, 2, 1])}  # fmt: skip
    torch.save(content, tmp_path / "d.pt")
    asked = ("limits", tmp_path / "d.pt", "--rule", "speculative", "--min-acceptance", 0.1, "--json", "-")
    assert cli(*asked).json["results"][0]["expected"]["independent"] == 2
    torch.save({**content, "draft_logits": drawn(6, 5, seed=3)}, tmp_path / "again.pt")
    both = (asked[0], tmp_path / "again.pt", *asked[1:])
    assert cli(*both).json["results"][0]["expected"]["independent"] == 2  # the same prompts, not others


def independent(cli, path):
    asked = ("limits", path, "--rule", "speculative", "--min-acceptance", 0.1, "--json", "-")
    done = cli(*asked)
    assert done.status == 0, done.err
    return done.json["results"][0]["expected"]


def test_prompts_of_padded_rows_are_known(cli, tmp_path):
    rows = {"target_logits": drawn(3, 8, 6, seed=1), "draft_logits": drawn(3, 8, 6, seed=2)}
    mask = torch.arange(8)[None] < torch.tensor([8, 2, 5])[:, None]
    torch.save({**rows, "attention_mask": mask}, tmp_path / "d.pt")
    found, kept = independent(cli, tmp_path / "d.pt"), mask.numpy()
    torch.save(rows, tmp_path / "whole.pt")
    means = [row[there].mean() for row, there in zip(overlaps(tmp_path / "whole.pt"), kept, strict=True)]
    assert found["independent"] == 3
    assert found["band"] == pytest.approx(mean_band(means, means, [8, 2, 5], 0.01), abs=1e-6)


def test_prompts_of_shards_and_chunks_are_known(cli, tmp_path):
    parts = [
        {"target_logits": drawn(n, 4, 6, seed=n), "draft_logits": drawn(n, 4, 6, seed=9 - n)} for n in (2, 3)
    ]
    (tmp_path / "shards").mkdir()
    for i, part in enumerate(parts):
        torch.save(part, tmp_path / "shards" / f"{i}.pt")
    torch.save({"chunks": parts}, tmp_path / "chunks.pt")
    masked = [{**part, "mask": torch.ones(len(part["target_logits"]), 4).bool()} for part in parts]
    masked[0]["mask"][0, 2:] = False
    torch.save({"chunks": masked}, tmp_path / "masked.pt")
    for name in ("shards", "chunks.pt", "masked.pt"):
        assert independent(cli, tmp_path / name)["independent"] == 5
    flat = [{key: rows.reshape(-1, 6) for key, rows in part.items()} for part in parts]
    torch.save({"chunks": flat}, tmp_path / "flat.pt")
    assert independent(cli, tmp_path / "flat.pt")["independent"] == 20


def test_a_prompt_of_steps_of_a_batch_is_a_row_of_the_batch(cli, tmp_path):
    steps = {key: list(drawn(5, 2, 6, seed=i)) for i, key in enumerate(("target_logits", "draft_logits"))}
    torch.save(steps, tmp_path / "d.pt")
    assert independent(cli, tmp_path / "d.pt")["independent"] == 2


def test_texts_of_parts_are_joined(cli, tmp_path):
    def part(seed, history):
        n = len(history)
        return {"target_logits": drawn(n, 5, seed=seed), "draft_logits": drawn(n, 5, seed=seed + 5),
                "history": history, "prompt_len": torch.ones(n, dtype=torch.int64)}  # fmt: skip

    parts = [part(1, [[1], [1, 2], [3]]), part(2, [[3, 4], [4]])]
    torch.save({"chunks": parts}, tmp_path / "d.pt")
    assert independent(cli, tmp_path / "d.pt")["independent"] == 3
    for key in ("history", "prompt_len"):
        del parts[1][key]
    torch.save({"chunks": parts}, tmp_path / "d.pt")
    asked = ("limits", tmp_path / "d.pt", "--rule", "speculative", "--min-acceptance", 0.1)
    assert_refused(cli(*asked), "some parts have history and others do not")


def test_a_narrower_draft_is_opened_as_it_was_asked(cli, tmp_path):
    content = {"target_logits": drawn(3, 8, 6, seed=1), "draft_logits": drawn(3, 8, 4, seed=2)}
    torch.save(content, tmp_path / "d.pt")
    asked = ("limits", tmp_path / "d.pt", "--rule", "speculative", "--min-acceptance", 0, "--pad-vocab")
    done = cli(*asked)
    assert (done.status, done.err.count("error")) == (0, 0)
    assert "over 3 prompts" in done.out


def test_what_a_server_counts(cli, dump):
    means = overlaps(dump).mean(axis=1)
    low, high = share_band(*mean_band(means, means, [8] * 3, 0.005), 1000, 0.005)
    asked = ("limits", dump, "--rule", "speculative", "--drafted", 1000)
    found = cli(*asked, "--json", "-").json["results"][0]["expected"]
    assert found["accepted_band"] == [int(np.ceil(low * 1000)), int(np.floor(high * 1000))]
    least, most = found["accepted_band"]
    assert f"of 1000 draft tokens {least} to {most} should be accepted" in cli(*asked).out
    for accepted, status in ((least, 0), (most, 0), (least - 1, 1), (most + 1, 1)):
        result = cli(*asked, "--accepted", accepted)
        assert result.status == status
        assert f"{accepted} were: {'outside' if status else 'within'}" in result.out


def test_paths_of_several_draft_tokens(cli, chain):
    asked = ("tree", "length", chain, "--rule", "speculative", "--drafted", 300, "--min-acceptance", 0.01)
    row = cli(*asked, "--json", "-").json["results"][0]
    assert row["expected"]["acceptance"] == pytest.approx((row["accepted_length_mean"] - 1) / 3)
    assert row["expected"]["independent"] == 6
    low, high = mean_band(*[[0.5] * 6] * 2, [1] * 6, 0.005)
    assert row["expected"]["accepted_band"][1] - row["expected"]["accepted_band"][0] > (high - low) * 150
    assert cli(*asked, "--accepted", 300).status == int(row["expected"]["accepted_band"][1] < 300)


def test_rates_of_a_path_are_unconditional(cli, chain, tmp_path):
    out = tmp_path / "rates.json"
    asked = ("tree", "length", chain, "--rule", "speculative")
    row = cli(*asked, "--acceptance-out", out, "--json", "-").json["results"][0]
    found = json.loads(out.read_text())
    rates = found["vllm"]["synthetic_acceptance_rates"]
    assert rates == pytest.approx(row["reached"][1:], abs=1e-6)
    assert rates == sorted(rates, reverse=True)
    assert found["vllm"]["num_speculative_tokens"] == 3
    assert found["vllm"]["rejection_sample_method"] == "synthetic"
    assert found["llama_cpp"][:2] == ["--spec-draft-n-max", "3"]
    assert found["llama_cpp"][2] == "--spec-synth-rates"
    assert [float(rate) for rate in found["llama_cpp"][3].split(",")] == pytest.approx(rates)
    assert found["results"][0]["mean_length"] == pytest.approx(row["accepted_length_mean"], abs=1e-5)


def test_rates_of_a_flat_dump_are_powers(cli, dump, tmp_path):
    out = tmp_path / "rates.json"
    asked = ("limits", dump, "--rule", "speculative", "--draft-tokens", 3, "--acceptance-out", out)
    assert cli(*asked).status == 0
    found = json.loads(out.read_text())
    mean = overlaps(dump).mean()
    assert found["vllm"]["synthetic_acceptance_rates"] == pytest.approx([mean, mean**2, mean**3], abs=1e-6)
    assert "whatever came before" in found["results"][0]["assumes"]


def test_rates_of_rounds(cli, tmp_path):
    """Two rounds of two tokens: p/q of the drafted ones is 1/2 and, where it is reached, 1/4."""
    rows = np.log([[[0.25, 0.75], [0.125, 0.875], [0.5, 0.5]]])
    draft = np.log([[[0.5, 0.5], [0.5, 0.5]]])
    rounds = [
        {"draft_tokens": torch.tensor([0, 0]), "target_logits": torch.tensor(rows[0]),
         "draft_logits": torch.tensor(draft[0]), "accepted": accepted, "next_token": 1}
        for accepted in (0, 1, 1)
    ]  # fmt: skip
    torch.save({"rounds": rounds}, tmp_path / "r.pt")
    out = tmp_path / "rates.json"
    assert cli("replay", tmp_path / "r.pt", "--acceptance-out", out).status == 0
    found = json.loads(out.read_text())
    assert found["vllm"]["synthetic_acceptance_rates"] == pytest.approx([0.5, 0.125])
    assert found["results"][0]["counted_unconditional_rates"] == pytest.approx([2 / 3, 0.0])
    torch.save({"rounds": rounds[:1]}, tmp_path / "r.pt")
    assert_refused(
        cli("replay", tmp_path / "r.pt", "--acceptance-out", out), "no round got as far as token 2"
    )


def test_bad_usage_is_one_line(cli, dump, chain, tmp_path):
    limits = ("limits", dump)
    rule = (*limits, "--rule", "speculative")
    out = tmp_path / "rates.json"
    assert_refused(cli(*limits, "--min-acceptance", 0.5), "give --rule NAME")
    assert_refused(cli(*rule, "--min-acceptance", 1.5), "--min-acceptance must be in [0, 1]")
    assert_refused(cli(*rule, "--accepted", 5), "--accepted needs --drafted")
    assert_refused(cli(*rule, "--drafted", 5, "--accepted", 6), "--accepted must be in 0..5")
    assert_refused(cli(*rule, "--alpha", 0.1), "--alpha needs --min-acceptance or --drafted")
    assert_refused(cli(*rule, "--min-acceptance", 0.5, "--alpha", 1), "--alpha must be in (0, 1)")
    assert_refused(cli(*limits, "--rule", "specinfer", "--drafted", 9), "give --candidates 1")
    assert_refused(cli(*rule, "--draft-tokens", 3), "--draft-tokens needs --acceptance-out")
    assert_refused(cli(*rule, "--acceptance-out", out), "give --draft-tokens K")
    assert_refused(cli(*rule, "--acceptance-out", "-", "--draft-tokens", 3), "give a file name")
    assert_refused(
        cli(*rule, "--acceptance-out", tmp_path / "r.csv", "--draft-tokens", 3), "end its name in .json"
    )
    hand = ("limits", "--target", "0.5,0.5", "--draft", "0.2,0.8", "--rule", "speculative")
    assert_refused(cli(*hand, "--min-acceptance", 0.5), "one position by hand has no band")
    length = ("tree", "length", chain, "--rule", "speculative")
    assert_refused(cli(*length, "--drafted", 100), "no multiple of the 3 draft tokens")
    assert_refused(cli(*length, "--rule", "specinfer", "--acceptance-out", out), "and 2 were measured")
    assert not out.exists()
