"""`kl --resume`: a run that is ended, however hard, goes on to the same bits; other work is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_helpers import assert_one_line, assert_refused, drawn, save

POSITIONS = 30


@pytest.fixture
def slow(tmp_path: Path) -> tuple[Path, Path]:
    """A dump, and a rule that takes its time at each position."""
    rule = tmp_path / "slow.py"
    rule.write_text(
        "import time\n"
        "from resispec_verify import SpecInfer, Rule\n"
        "class Slow(Rule):\n"
        "    name, claims_exact, source, depends_on = 'slow', True, 'a test', 'nothing'\n"
        "    def reject(self, state, tokens):\n"
        "        if state.residual.shape[-1] > 3: time.sleep(0.05)\n"  # not in the check before the run
        "        return SpecInfer().reject(state, tokens)\n"
    )
    dump = save(tmp_path / "dump.pt", drawn(POSITIONS, 40, seed=1), drawn(POSITIONS, 40, seed=2))
    return dump, rule


def arguments(slow: tuple[Path, Path], *more: object) -> list[str]:
    dump, rule = slow
    return [
        "kl", "--logits", str(dump), "--rule", f"{rule}:Slow", "--rule", "resispec", "--batch", "1",
        "--json", "-", "--csv", str(dump.parent / "positions.csv"), *map(str, more),
    ]  # fmt: skip


def numbers(out: str, slow: tuple[Path, Path]) -> tuple[Any, str]:
    report = json.loads(out)
    report.pop("seconds")
    return report, (slow[0].parent / "positions.csv").read_text()


def ended(slow: tuple[Path, Path], journal: Path, how: signal.Signals, lines: int) -> tuple[int, str]:
    """Start a run in a process of its own and end it when the journal has so many lines."""
    run = subprocess.Popen(
        [sys.executable, "-m", "resispec_verify", *arguments(slow, "--resume", journal)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 300
    while (not journal.exists() or journal.read_bytes().count(b"\n") < lines) and time.monotonic() < until:
        assert run.poll() is None, run.communicate()
        time.sleep(0.005)
    run.send_signal(how)
    out, err = run.communicate(timeout=300)
    assert out == ""
    return run.returncode, "".join(line for line in err.splitlines(True) if "compiling" not in line)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_run_that_is_ended_again_and_again_ends_with_the_same_bits(cli, slow, tmp_path, heard):
    whole = numbers(cli(*arguments(slow)).out, slow)
    journal = tmp_path / "run.journal"
    status, err = ended(slow, journal, signal.SIGINT, 5)
    assert status == 130
    assert err.count("\n") == 1
    assert err.startswith("resispec-verify: interrupted; ")
    assert f"of {POSITIONS} positions are in {journal}: the same command goes on from there" in err
    before = journal.read_bytes().count(b"\n") - 1
    assert int(err.split()[2]) in (before - 1, before)  # it may have been ended between writing and counting
    status, err = ended(slow, journal, signal.SIGKILL, before + 6)
    assert status == -signal.SIGKILL
    after = journal.read_bytes()
    assert before + 4 < after.count(b"\n") <= POSITIONS
    journal.write_bytes(after + b'{"dump":0,"span":[29,')  # as if it had been killed while it wrote
    last = cli(*arguments(slow, "--resume", journal))
    assert last.status == 0, last.err
    assert numbers(last.out, slow) == whole
    assert journal.read_bytes().startswith(after)
    assert journal.read_bytes().count(b"\n") == POSITIONS + 1


def test_a_finished_journal_gives_the_report_again_without_evaluating(cli, dump, tmp_path, monkeypatch):
    run = ["kl", "--logits", dump, "--json", "-", "--resume", tmp_path / "j"]
    first = cli(*run)
    monkeypatch.setattr("resispec_verify.tables.table.evaluate", None)
    again = cli(*run)
    assert again.status == 0, again.err
    reports = [first.json, again.json]
    times = [report.pop("seconds") for report in reports]
    assert reports[0] == reports[1]
    assert times[0]["rounds"] == times[1]["rounds"] > 0  # the time of the work, whenever that was


def test_another_batch_size_goes_on_with_what_is_left(cli, dump, tmp_path):
    journal = tmp_path / "j"
    run = ["kl", "--logits", dump, "--json", "-", "--jobs", 1]
    cli(*run, "--resume", journal, "--batch", 2)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + lines[2])
    again, whole = cli(*run, "--resume", journal, "--batch", 5).json, cli(*run).json
    assert again.pop("seconds").keys() == whole.pop("seconds").keys()
    assert again == whole
    spans = [json.loads(line)["span"] for line in journal.read_bytes().splitlines()[1:]]
    assert spans == [[2, 4], [0, 2], [4, 5]]


def test_several_dumps_share_a_journal_and_one_that_is_bad_is_reported_again(cli, dump, tmp_path):
    other = save(tmp_path / "other.pt", drawn(3, 6, seed=5))
    bad = drawn(3, 6, seed=6)
    bad[2, 1] = torch.nan
    bad = save(tmp_path / "bad.pt", bad)
    run = ["kl", "--logits", dump, bad, other, "--json", "-", "--batch", "1"]
    whole = cli(*run)
    first, again = (cli(*run, "--resume", tmp_path / "j") for _ in range(2))
    assert whole.status == first.status == again.status == 2
    reports = [result.json for result in (whole, first, again)]
    for report in reports:
        report.pop("seconds")
    assert reports[0] == reports[1] == reports[2]
    for result in (first, again):
        assert "bad.pt: target_logits has NaN at position 2, token 1" in result.err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--candidates", "2"], "--candidates 3, not 2"),
        (["--temperature", "0.5"], "--temperature null, not [0.5]"),
        (["--precision", "float32"], "--precision float64, not float32"),
        (["--seed", "1"], "--seed 0, not 1"),
        (["--positions", "0:2"], "--positions null, not 0:2"),
        (["--rule", "specinfer"], '--rule null, not ["specinfer"]'),
        (["--proposal-temperature", "0.5"], "--proposal-temperature null, not 0.5"),
    ],
)
def test_a_journal_of_other_options_is_refused(cli, dump, tmp_path, more, words):
    run = ["kl", "--logits", dump, "--resume", tmp_path / "j"]
    assert cli(*run).status == 0
    assert_refused(cli(*run, *more), tmp_path / "j", words, "name another file")
    assert cli(*run, "--max-tv", "1").status == 0  # what is demanded of the results does not bind


def test_a_journal_of_another_dump_rule_or_version_is_refused(cli, dump, slow, tmp_path, monkeypatch):
    journal = tmp_path / "j"
    run = arguments(slow, "--resume", journal, "--positions", "0:1")
    assert cli(*run).status == 0
    elsewhere = tmp_path / "elsewhere.pt"
    elsewhere.write_bytes(slow[0].read_bytes())
    assert_refused(cli(*arguments((elsewhere, slow[1]), *run[-4:])), "is of", "elsewhere.pt")
    data = bytearray(slow[0].read_bytes())
    data[len(data) // 2] ^= 1  # one bit of one number
    slow[0].write_bytes(data)
    assert_refused(cli(*run), "dump.pt has changed")
    data[len(data) // 2] ^= 1
    slow[0].write_bytes(data)
    text = slow[1].read_text()
    slow[1].write_text(text + "# changed\n")
    assert_refused(cli(*run), "--rule-files")
    slow[1].write_text(text)
    assert cli(*run).status == 0
    monkeypatch.setattr("resispec_verify.cli.resumable.__version__", "0.0.0")
    assert_refused(cli(*run), "was begun by version", "not 0.0.0")


def test_where_a_journal_cannot_be(cli, dump, tmp_path):
    run = ["kl", "--logits", dump, "--resume"]
    before = dump.read_bytes()
    assert_refused(cli(*run, "-"), "needs a file")
    assert_refused(cli(*run, dump), "it is the dump that is read")
    assert_refused(cli(*run, tmp_path), "it is a folder")
    assert_refused(cli(*run, tmp_path / "no" / "j"), "does not exist")
    assert_refused(cli(*run, os.devnull), "not a regular file")
    assert_refused(cli(*run, tmp_path / "j", "--json", tmp_path / "j"), "same path")
    (tmp_path / "text").write_text("my notes\n")
    assert_refused(cli(*run, tmp_path / "text"), "is not a journal")
    assert (tmp_path / "text").read_text() == "my notes\n"
    assert dump.read_bytes() == before
    by_hand = cli("kl", "--target", "0.5,0.5", "--draft", "0.5,0.5", "--resume", tmp_path / "j")
    assert_refused(by_hand, "--resume needs a dump")


def test_an_entry_that_is_not_of_this_run_is_refused(cli, dump, tmp_path):
    journal = tmp_path / "j"
    run = ["kl", "--logits", dump, "--resume", journal, "--jobs", 1]
    cli(*run)
    lines = journal.read_bytes().splitlines(keepends=True)
    for bad in (
        b'{"dump":0}\n',
        lines[1].replace(b'"specinfer"', b'"other"'),
        lines[1].replace(b"[0,5]", b"[0,4]"),
        lines[1] + lines[1].replace(b"[0,5]", b"[0,6]"),
    ):
        journal.write_bytes(lines[0] + bad)
        result = cli(*run)
        assert result.status == 2, bad
        assert_one_line(result.err, journal, "damaged")


def test_what_a_journal_is_bound_to(cli, dump, tmp_path):
    """The options of its first line are what they were: a journal of an earlier version goes on."""
    journal = tmp_path / "run.journal"
    assert cli("kl", dump, "--rule", "specinfer", "--batch", 2, "--resume", journal).status == 0
    header = json.loads(journal.read_text().splitlines()[0])
    assert header["options"] == {
        "backend": "auto", "budget": "local", "candidate_list": None, "candidates": 3,
        "engine_order": None, "gap": None,
        "hole": "excluded", "input": None, "marginal": "both", "max_expansions": None, "min_p": None,
        "pad_vocab": False, "positions": None, "precision": "float64", "proposal_temperature": None,
        "proposal_top_k": None, "proposal_top_p": None, "redistribution": "proportional",
        "rule": ["specinfer"], "rule_files": {}, "seed": 0, "shards": None, "temperature": None,
        "top_k": None, "top_p": None,
    }  # fmt: skip


def test_a_journal_of_the_release_before_orders_is_continued(cli, dump, tmp_path):
    """It has no option `engine_order`, and a sampling is a list: the same work, so it goes on."""
    journal, run = tmp_path / "j", ["kl", "--logits", dump, "--rule", "specinfer", "--json", "-"]
    whole = json.loads(cli(*run, "--resume", journal).out)
    header, *entries = map(json.loads, journal.read_text().splitlines())
    del header["options"]["engine_order"]
    assert [one["tables"][0]["sampling"] for one in entries] == [[1.0, None, None, None]] * len(entries)
    journal.write_text("".join(json.dumps(one) + "\n" for one in (header, *entries)))
    again = json.loads(cli(*run, "--resume", journal).out)
    assert again["results"] == whole["results"]
    assert_refused(cli(*run, "--resume", journal, "--engine-order", "vllm"), "--engine-order null, not vllm")
