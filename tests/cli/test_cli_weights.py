"""`weights` as a command: report, outputs, exit statuses, and one-line errors."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math

import numpy as np
import pytest
import torch
from cli_helpers import assert_refused, logs, save

P, Q = (0.3, 0.4, 0.3), (0.6, 0.3, 0.1)
# One candidate of Algorithm 1: it emits (3/10, 141/290, 31/145).
WEIGHTS = [1.0, 0.4 * 290 / 141, 0.3 * 145 / 31]


@pytest.fixture
def flat(tmp_path):
    return save(tmp_path / "d.pt", logs(P, P, P), logs(Q, Q, Q), next_tokens=torch.tensor([0, 1, 2]))


@pytest.fixture
def rounds(tmp_path):
    one = {"draft_tokens": torch.tensor([1]), "accepted": 1, "next_token": 2, "draft_logits": logs(Q),
           "target_logits": logs(P, P)}  # fmt: skip
    torch.save({"rounds": [one, one | {"accepted": 0}]}, tmp_path / "r.pt")
    return tmp_path / "r.pt"


def test_the_report(cli, flat):
    done = cli("weights", flat, "--rule", "resispec", "--truncate", "1.2", "--json", "-")
    report = done.json
    assert done.status == 0
    assert (report["schema"], report["command"]) == (1, "weights")
    (row,) = report["results"]
    assert (row["rule"], row["candidates"], row["temperature"]) == ("resispec", 1, 1.0)
    assert (row["tokens"], row["texts"], row["effective_size_of_texts"]) == (3, 0, None)
    assert row["mean_weight"] == pytest.approx([np.mean(WEIGHTS)] * 2)
    assert row["expected_mean_weight"] == pytest.approx([1, 1])
    size = sum(WEIGHTS) ** 2 / sum(w**2 for w in WEIGHTS)
    assert row["effective_size"] == pytest.approx([size, size])
    assert row["greatest_weight"] == pytest.approx([WEIGHTS[2]] * 2)
    assert row["greatest_at"]["position"] == 2
    assert row["truncated_share"] == pytest.approx([1 / 3, 1 / 3])
    cut = 0.3 - 1.2 * 31 / 145
    assert row["truncated_mass"]["mean"] == pytest.approx([cut, cut])
    assert (row["mean_test"]["verdict"], row["mean_test"]["blind"]) == ("not-rejected", False)
    assert "mean weight" in done.err


def test_rounds_and_texts(cli, rounds):
    (row,) = cli("weights", rounds, "--rule", "resispec", "--json", "-").json["results"]
    assert (row["tokens"], row["texts"]) == (3, 1)  # 1 and a bonus token, then a residual token
    assert row["sequences"][0]["log_weight"] == pytest.approx([math.log(WEIGHTS[1] * WEIGHTS[2])] * 2)


def test_an_exact_rule_says_that_nothing_is_tested(cli, flat):
    done = cli("weights", flat, "--rule", "specinfer", "--candidates", "2")
    assert "no test: every weight is 1 whatever was drawn" in done.out


def test_every_format_has_the_same_numbers(cli, flat, tmp_path):
    files = {end: tmp_path / f"w.{end}" for end in ("npz", "csv", "jsonl")}
    for file in files.values():
        assert cli("weights", flat, "--rule", "resispec", "--out", file).status == 0
    arrays = np.load(files["npz"], allow_pickle=False)
    assert np.exp(arrays["log_weight"]).mean(axis=1) == pytest.approx(WEIGHTS)
    assert arrays["token"].tolist() == [0, 1, 2]
    assert arrays["text"].tolist() == [-1, -1, -1]
    lines = [json.loads(line) for line in files["jsonl"].read_text("utf-8").splitlines()]
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_text("utf-8"))))
    for i, (line, row) in enumerate(zip(lines, rows, strict=True)):
        assert (line["token"], line["text"], row["text"]) == (i, None, "")
        for name in ("log_mu", "log_weight", "truncated"):
            ends = arrays[name][i].tolist()
            assert [line[f"{name}_low"], line[f"{name}_high"]] == ends
            assert [float(row[f"{name}_low"]), float(row[f"{name}_high"])] == ends


def test_infinite_logarithms_are_json(cli, tmp_path):
    path = save(tmp_path / "d.pt", logs((0.5, 0.5, 0)), logs(Q), next_tokens=torch.tensor([2]))
    done = cli("weights", path, "--rule", "resispec", "--out", tmp_path / "w.jsonl")
    assert "1 tokens cannot have been drawn by this rule (first: position 0, token 2)" in done.out
    assert json.loads((tmp_path / "w.jsonl").read_text("utf-8"))["log_p"] == "-inf"


def test_parquet_where_pyarrow_is(cli, flat, tmp_path):
    done = cli("weights", flat, "--rule", "resispec", "--out", tmp_path / "w.parquet")
    if importlib.util.find_spec("pyarrow") is None:
        assert_refused(done, ".parquet needs the package pyarrow; install it, or write .npz")
        return
    import pyarrow.parquet

    read = pyarrow.parquet.read_table(tmp_path / "w.parquet").to_pylist()
    assert [row["token"] for row in read] == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "which rule drew the tokens? Say --rule NAME"),
        (("--rule", "resispek"), "did you mean 'resispec'"),
        (
            ("--rule", "block"),
            "--rule block: verifies paths of several tokens; its weights need a rounds dump",
        ),
        (("--rule", "resispec", "--truncate", "0.5"), "--truncate must be at least 1 and finite, got 0.5"),
        (("--rule", "resispec", "--truncate", "nan"), "--truncate must be at least 1 and finite, got nan"),
        (("--rule", "resispec", "--gap", "2"), "--gap must be in [0, 1], got 2"),
        (("--rule", "resispec", "--candidates", "0"), "--candidates must be in 1..1000, got 0"),
        (("--rule", "resispec", "--eos", "2"), "leave out eos"),
        (("--rule", "resispec", "--out", "w.txt"), "--out w.txt: the name must end in .npz, .csv, .jsonl"),
    ],
)
def test_what_cannot_be_weighed_is_one_line(cli, flat, options, message):
    assert_refused(cli("weights", flat, *options), message)


def test_a_log_without_tokens_is_one_line(cli, tmp_path):
    path = save(tmp_path / "d.pt", logs(P), logs(Q))
    assert_refused(cli("weights", path, "--rule", "resispec"), "next_tokens is missing")


def test_the_log_is_not_overwritten(cli, tmp_path):
    path = save(tmp_path / "d.pt", logs(P), logs(Q), next_tokens=torch.tensor([0]))
    (tmp_path / "w.npz").symlink_to(path)
    assert_refused(cli("weights", path, "--rule", "resispec", "--out", tmp_path / "w.npz"), "cannot write")
