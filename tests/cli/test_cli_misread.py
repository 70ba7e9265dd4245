"""What the commands do with files that are something else than they look."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cli_helpers import assert_refused, check_report, row
from cli_helpers import save as save_tensors

RNG = np.random.default_rng(4)
TARGET, DRAFT = RNG.normal(size=(2, 5, 7)) * 2


def save(path, target, draft, **others):
    return save_tensors(path, torch.from_numpy(target.copy()), torch.from_numpy(draft.copy()), **others)


def report_of(cli, path, *options) -> dict:
    result = cli("kl", "--logits", path, *options, "--json", "-")
    assert result.status == 0, result.err
    check_report(result.json)
    return result.json


def normal(rows: np.ndarray) -> np.ndarray:
    return rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))


def tv(cli, path, *options) -> float:
    return row(report_of(cli, path, "--rule", "resispec", *options), "resispec")["tv_mean"]


def test_a_temperature_is_not_applied_twice(cli, tmp_path):
    cooled = [normal(rows / 0.5) for rows in (TARGET, DRAFT)]
    raw = save(tmp_path / "raw.pt", TARGET, DRAFT, meta={"sampling": {"temperature": 0.5}})
    path = save(tmp_path / "dump.pt", *cooled, meta={"sampling": {"temperature": 0.5}})
    right = tv(cli, raw)
    result = cli("kl", "--logits", path)
    assert result.status == 2
    assert "target_logits and draft_logits has logsumexp 0" in result.err
    assert "temperature 0.5, stated in meta, may have been applied already" in result.err
    result = cli("kl", "--logits", path, "--input", "log-probabilities")
    assert result.status == 2
    assert "temperature 0.5 is stated in meta, and log-probabilities may have it already" in result.err
    assert tv(cli, path, "--input", "log-probabilities", "--temperature", 1) == pytest.approx(right, rel=1e-9)
    assert tv(cli, path, "--temperature", 1) == pytest.approx(right, rel=1e-9)
    # The logarithms of the raw softmax are logits.
    plain = save(
        tmp_path / "plain.pt", normal(TARGET), normal(DRAFT), meta={"sampling": {"temperature": 0.5}}
    )
    assert tv(cli, plain, "--input", "logits") == pytest.approx(right, rel=1e-9)
    for command in ("limits", "drift"):
        result = cli(command, "--logits", plain)
        assert result.status == 2
        assert "may have been applied already" in result.err


def test_one_of_two_was_processed(cli, tmp_path):
    path = save(tmp_path / "dump.pt", normal(TARGET / 0.5), DRAFT)
    result = cli("kl", "--logits", path, "--temperature", 0.5)
    assert result.status == 2
    assert "every row of target_logits has logsumexp 0, unlike the other's" in result.err
    assert "record both alike" in result.err
    half = save(tmp_path / "half.pt", np.exp(normal(TARGET)), DRAFT)
    result = cli("kl", "--logits", half)
    assert result.status == 2
    assert "every row of target is in [0, 1] and sums to 1" in result.err


def test_point_masses_have_any_temperature(cli, tmp_path):
    """As docs/howto/log-from-engines.md says to log a draft of one token."""
    draft = np.full((5, 7), -np.inf)
    draft[:, 3] = 0
    path = save(tmp_path / "dump.pt", TARGET, draft)
    assert cli("kl", "--logits", path, "--rule", "speculative", "--temperature", 0.5).status == 0


def test_metas_temperature_is_the_same_in_every_command(cli, tmp_path):
    for name, meta in (("a", {"temperature": 0.5}), ("b", {"sampling": {"temperature": 0.5}})):
        save(tmp_path / f"{name}.pt", TARGET, DRAFT, meta=meta)
    one, other = (tv(cli, tmp_path / f"{name}.pt") for name in "ab")
    assert one == other
    assert one != tv(cli, tmp_path / "a.pt", "--temperature", 1)
    for command in (("limits",), ("drift",), ("explore",)):
        option = "--logits"
        reports = [cli(*command, option, tmp_path / f"{name}.pt", "--json", "-").json for name in "ab"]
        for report in reports:
            for result in report["results"]:
                assert result["temperature"] == 0.5
                for key in ("path", "witness_path"):
                    result.pop(key, None)
        assert reports[0]["results"] == reports[1]["results"]
    report = cli("compare", tmp_path / "a.pt", tmp_path / "b.pt", "--json", "-").json
    assert report["results"][0]["temperature"] == 0.5
    save(tmp_path / "c.pt", TARGET, DRAFT, meta={"temperature": 0.7})
    result = cli("compare", tmp_path / "a.pt", tmp_path / "c.pt")
    assert result.status == 2
    assert "different temperatures" in result.err
    assert cli("compare", tmp_path / "a.pt", tmp_path / "c.pt", "--temperature", 1).status == 0


def test_masked_and_constant_rows(cli, tmp_path):
    target, draft = TARGET.copy(), DRAFT.copy()
    target[3:], draft[3:] = 0, 0
    path = save(tmp_path / "dump.pt", target, draft)
    report = report_of(cli, path)
    assert report["dump"]["constant_rows"] == [{"path": str(path), "positions": [3, 4]}]
    assert "a row of equal values at 2 of the positions (first: 3)" in cli("kl", "--logits", path).out
    masked = save(tmp_path / "masked.pt", target, draft, attention_mask=torch.tensor([1, 1, 1, 0, 0]))
    right = save(tmp_path / "right.pt", target[:3], draft[:3])
    assert tv(cli, masked) == tv(cli, right)
    report = report_of(cli, masked)
    assert (report["dump"]["left_out"], report["dump"]["positions"]) == (2, 3)
    assert "2 of 5 positions are left out" in cli("kl", "--logits", masked).out
    for words in (
        ("limits", masked), ("drift", masked), ("compare", masked, masked), ("explore", masked),
        ("explore", masked, "--check"), ("picture", masked), ("runtime", masked, "--repeats", 1),
        ("tree", "grow", masked, "--nodes", 3, "--rule", "specinfer"),
    ):  # fmt: skip
        result = cli(*words)
        assert result.status == 0
        assert "attention_mask: 2 of 5 positions are left out" in result.err
    out = cli("inspect", path).out
    assert "all entries are equal (0): padding?" in out.replace("\n", " ")


def test_vocabulary_shards(cli, tmp_path):
    folder = tmp_path / "ranks"
    folder.mkdir()
    whole = save(tmp_path / "whole.pt", TARGET[:, :6], DRAFT[:, :6])
    for i in range(2):
        save(folder / f"rank{i}.pt", TARGET[:, 3 * i : 3 * i + 3], DRAFT[:, 3 * i : 3 * i + 3])
    result = cli("kl", "--logits", folder)
    assert result.status == 2
    assert "named by rank" in result.err
    assert tv(cli, folder, "--shards", "vocab") == tv(cli, whole)
    assert report_of(cli, folder, "--shards", "positions")["dump"]["positions"] == 10
    for command in ("limits", "drift", "inspect", "compare"):
        paths = (folder,) if command == "inspect" else (folder, whole)
        paths = ("--logits", folder) if command in ("limits", "drift") else paths
        if command != "compare":
            assert cli(command, *paths, "--shards", "vocab").status == 0
    result = cli("kl", "--logits", whole, "--shards", "vocab")
    assert result.status == 2
    assert "is one file" in result.err


def test_check_takes_logits_only_and_names_no_option_of_other_commands(cli, tmp_path):
    laws = np.full((3, 4), 0.25)
    probabilities = save(tmp_path / "laws.pt", laws, laws)
    logged = save(tmp_path / "logs.pt", np.log(laws), np.log(laws), meta={"sampling": {"temperature": 0.5}})
    for path, words in (
        (probabilities, "look like probabilities"),
        (logged, "may have been applied already"),
    ):
        result = cli("check", "nowhere:sampler", "--logits", path)
        assert_refused(result, path, words, "check --logits takes logits only")
        assert "--input" not in result.err
    assert_refused(
        cli("check", "nowhere:sampler", "--logits", logged, "--temperature", 1), "no module 'nowhere'"
    )


def test_top_k_values_are_refused(cli, tmp_path):
    values = np.array([[3, 2, -1e4]] * 2)
    path = save(tmp_path / "dump.pt", values, values, ids=torch.tensor([[5, 9, -1]] * 2))
    for command in (("kl", "--logits"), ("limits", "--logits"), ("inspect",)):
        result = cli(*command, path)
        assert result.status == 2
        assert "top-k values and their token ids" in result.err
    result = cli("compare", path, path)
    assert (result.status, "top-k values and their token ids" in result.err) == (2, True)
