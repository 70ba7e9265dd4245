"""`--jobs`: the same reports for any number of threads; resuming and interrupting with several."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_helpers import assert_refused, drawn, save

from resispec_verify.tables import marginals, table

POSITIONS = 9


@pytest.fixture
def longer(tmp_path: Path) -> Path:
    """Nine positions of two datasets."""
    names = ["a", "b", "a"] * 3
    return save(
        tmp_path / "dump.pt", drawn(POSITIONS, 12, seed=1), drawn(POSITIONS, 12, seed=2), dataset=names
    )


def whole(result: Any) -> Any:
    assert result.status == 0, result.err
    report = result.json
    report.pop("seconds", None)
    return report


@pytest.mark.parametrize(
    "command",
    [
        ["kl", "--rule", "resispec", "--rule", "specinfer", "--candidates", 2],
        ["limits"],
        ["drift", "--candidates", 2],
        ["explore", "--check"],
    ],
    ids=lambda command: command[0],
)
def test_any_number_of_threads_gives_the_same_report(cli, longer, tmp_path, command):
    def run(*more: object) -> tuple[Any, str]:
        path = tmp_path / "positions.csv"
        return whole(cli(*command, "--logits", longer, "--json", "-", "--csv", path, *more)), path.read_text()

    one = run("--jobs", 1)
    batches = [[]] if command[0] == "explore" else [[], ["--batch", 1], ["--batch", 4]]
    for jobs in (2, 5):
        for batch in batches:
            assert run("--jobs", jobs, *batch) == one
    assert run() == one


def test_any_number_of_threads_gives_the_same_page(cli, longer, tmp_path):
    pages = []
    for jobs in (1, 5):
        out = tmp_path / "page.html"
        result = cli("report", longer, "--out", out, "--candidates", 2, "--jobs", jobs)
        assert result.status == 0, result.err
        pages.append(out.read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
    assert "--jobs" not in pages[0]  # of which nothing in it depends


def test_the_first_bad_position_is_told(cli, tmp_path):
    bad = drawn(POSITIONS, 6)
    bad[3, 1] = bad[5, 2] = torch.nan
    path = save(tmp_path / "bad.pt", bad)
    for command in ("kl", "limits", "drift"):
        result = cli(command, path, "--jobs", 4, "--batch", 1)
        assert_refused(result, "bad.pt: target_logits has NaN at position 3, token 1")


def test_a_journal_goes_on_with_another_number_of_threads(cli, longer, tmp_path):
    journal = tmp_path / "j"
    run = ["kl", "--logits", longer, "--json", "-", "--batch", 2]
    expected = whole(cli(*run))
    assert whole(cli(*run, "--resume", journal, "--jobs", 3)) == expected
    lines = journal.read_bytes().splitlines(keepends=True)
    assert sorted(json.loads(line)["span"] for line in lines[1:]) == [[0, 2], [2, 4], [4, 6], [6, 8], [8, 9]]
    for left, jobs in (([lines[0], lines[3]], 2), ([lines[0], lines[5], lines[1]], 1), (lines[:2], 5)):
        journal.write_bytes(b"".join(left))
        assert whole(cli(*run, "--resume", journal, "--jobs", jobs)) == expected


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.usefixtures("heard")
def test_an_interrupt_does_not_wait_for_threads(cli, longer, tmp_path, monkeypatch):
    """Position 4 is never finished: what was before it is in the journal, and the run goes on from there."""
    go, evaluate, journal = threading.Event(), marginals.evaluate, tmp_path / "j"

    def evaluated(*given: Any, **options: Any) -> None:
        if given[0].positions[0] == 4:
            until = time.monotonic() + 60
            while journal.read_bytes().count(b"\n") < 5 and time.monotonic() < until:
                time.sleep(0.005)
            os.kill(os.getpid(), signal.SIGINT)
            assert go.wait(60)
        evaluate(*given, **options)

    run = ["kl", "--logits", longer, "--json", "-", "--batch", 1, "--resume", journal]
    with monkeypatch.context() as patched:
        patched.setattr(table, "evaluate", evaluated)
        result = cli(*run, "--jobs", 2)
        assert not go.is_set()
        go.set()
    assert (result.status, result.out) == (130, "")
    start, kept, end = re.split(r"; (\d) of 9 positions are in ", result.err)
    assert start == "resispec-verify: interrupted"
    assert end == f"{journal}: the same command goes on from there\n"
    spans = [json.loads(line)["span"] for line in journal.read_bytes().splitlines()[1:]]
    assert len(spans) - int(kept) in (0, 1)  # it may have been ended between writing and counting
    assert [4, 5] not in spans
    assert all([i, i + 1] in spans for i in range(4))
    again = whole(cli(*run, "--jobs", 5))
    assert again == whole(cli("kl", "--logits", longer, "--json", "-", "--jobs", 1))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["kl", "DUMP", "--jobs", 0], ["--jobs must be at least 1, got 0"]),
        (["limits", "DUMP", "--jobs", -1], ["--jobs must be at least 1, got -1"]),
        (["drift", "DUMP", "--jobs", "many"], ["many"]),
        (["kl", "--target", "0.5,0.5", "--draft", "0.5,0.5", "--jobs", 2], ["--jobs needs a dump"]),
        (["limits", "--target", "0.5,0.5", "--draft", "0.5,0.5", "--jobs", 2], ["--jobs needs a dump"]),
        (["kl", "DUMP", "--scheduler", "local", "--jobs", 2], ["--jobs would do nothing beside --scheduler"]),
        (["explore", "DUMP", "--jobs", 2], ["--jobs needs --check"]),
    ],
)
def test_a_number_of_threads_that_makes_no_sense_is_refused(cli, longer, arguments, words):
    assert_refused(cli(*(longer if one == "DUMP" else one for one in arguments)), *words)
