"""`replay` on scalar logs as a command: form, report, exit status, one-line errors."""

from __future__ import annotations

import pytest
import torch
from cli_helpers import assert_refused, lines_of, logs
from scalar_logs import lines, write


@pytest.fixture
def right(tmp_path):
    return write(tmp_path / "right.jsonl", lines(1, 400))


@pytest.fixture
def wrong(tmp_path):
    return write(tmp_path / "wrong.jsonl", lines(1, 400, "q/p instead of p/q"))


def test_the_form_is_told_by_the_file(cli, right):
    done = cli("replay", right, "--json", "-", "--require-agreement")
    report = done.json
    assert done.status == 0
    assert (report["schema"], report["command"]) == (1, "replay")
    (row,) = report["results"]
    assert (row["form"], row["rule"], row["decisions"], row["agree"]) == ("scalars", "speculative", 400, 400)
    assert "400 of 400 agree" in done.err
    assert "proves nothing exact" in done.err


def test_the_form_can_be_said(cli, right, tmp_path, monkeypatch):
    other = tmp_path / "decisions.txt"
    other.write_text("\n" + right.read_text())
    assert cli("replay", other, "--form", "scalars").status == 0
    monkeypatch.chdir(tmp_path)  # the line names the file several times
    assert_refused(cli("replay", other.name), other.name)


def test_a_wrong_log(cli, wrong, tmp_path):
    done = cli("replay", wrong, "--csv", tmp_path / "differ.csv", "--require-agreement")
    assert done.status == 1
    assert "logged accepted, recomputed rejected" in done.out
    assert "rejected at alpha 1e-06 over 5 tests" in done.out
    records = lines_of((tmp_path / "differ.csv").read_text())
    assert records[0].keys() >= {"line", "p", "q", "u", "logged", "recomputed"}
    assert cli("replay", wrong).status == 0


def test_no_uniforms(cli, right):
    done = cli("replay", right, "--no-uniforms")
    assert "not replayed, there are no uniforms" in done.out


def test_what_would_do_nothing_is_refused(cli, right, tmp_path):
    assert_refused(
        cli("replay", right, "--temperature", 1), "--temperature would do nothing beside a scalar log"
    )
    assert_refused(cli("replay", right, "--rule", "block"), "--rule block: its acceptance is not a function")
    assert_refused(cli("replay", right, "--precision", "often"), "--precision must be float32")
    entry = {"draft_tokens": torch.tensor([0]), "accepted": 1, "draft_logits": logs((0.5, 0.5)),
             "target_logits": logs((0.5, 0.5), (0.5, 0.5))}  # fmt: skip
    torch.save({"rounds": [entry]}, tmp_path / "rounds.pt")
    assert_refused(cli("replay", right, tmp_path / "rounds.pt"), "replayed one kind at a time")
    assert_refused(
        cli("replay", tmp_path / "rounds.pt", "--precision", "4"), "--precision needs --form scalars"
    )


def test_a_bad_line_is_one_line(cli, right):
    right.write_text(right.read_text() + '{"p": 2, "q": 1, "accepted": true}\n')
    assert_refused(cli("replay", right), "line 401: p is 2; log p as a probability in [0, 1]")


def test_reported_log_probabilities_of_rounds(cli, tmp_path):
    entry = {"draft_tokens": torch.tensor([0]), "accepted": 1, "next_token": 1,
             "draft_logits": logs((0.5, 0.3, 0.2)),
             "target_logits": logs((0.5, 0.3, 0.2), (0.25, 0.5, 0.25))}  # fmt: skip
    for values, status, words in (
        ([0.5, 0.5], 0, "reported log-probabilities agree: the raw target"),
        ([1.0, 1.0], 1, "accepted: 1 tokens, wrong; they are those of 0 for every token"),
    ):
        torch.save({"rounds": [entry | {"reported_logprobs": torch.tensor(values).log()}]}, tmp_path / "r.pt")
        done = cli("replay", tmp_path / "r.pt", "--require-agreement")
        assert done.status == status
        assert words in done.out
