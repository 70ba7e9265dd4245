"""The journal: what is on the disk counts, half a line does not, and foreign files are left alone."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from resispec_verify.errors import InputError
from resispec_verify.runs.journal import Journal

HEADER = {
    "journal": 1,
    "command": "kl",
    "version": "1",
    "dumps": [{"path": "/a.pt", "size": 3, "sha256": "x"}],
    "options": {"candidates": 3, "top_k": None},
}


def entries(path: Path, header: dict = HEADER) -> list:
    with Journal(path, header) as journal:
        return journal.entries


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "run.journal"
    with Journal(path, HEADER) as journal:
        assert journal.entries == []
        for i in range(3):
            journal.append({"span": [i, i + 1], "kl": 0.1 + i})
    return path


def test_what_was_appended_is_found_again(path):
    assert entries(path) == [{"span": [i, i + 1], "kl": 0.1 + i} for i in range(3)]
    assert entries(path) == entries(path)


def test_it_is_on_the_disk_before_append_returns(tmp_path, monkeypatch):
    events = []
    write, sync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda f, data: events.append("write") or write(f, data))
    monkeypatch.setattr(os, "fsync", lambda f: events.append("sync") or sync(f))
    with Journal(tmp_path / "j", HEADER) as journal:
        events.clear()
        journal.append({"span": [0, 1]})
        assert events == ["write", "sync"]


def test_every_cut_of_the_file_is_usable(path):
    whole = path.read_bytes()
    lines = whole.count(b"\n")
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        kept = max(whole[:size].count(b"\n") - 1, 0)
        assert len(entries(path)) == kept, size
        # What was half-written is gone, and what follows is not glued to it.
        with Journal(path, HEADER) as journal:
            journal.append({"span": [9, 10]})
        assert entries(path)[kept] == {"span": [9, 10]}
    assert lines == 4


def test_short_writes_are_completed(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda f, data: write(f, data[:7]))
    with Journal(tmp_path / "j", HEADER) as journal:
        journal.append({"kl": 0.1})
    monkeypatch.undo()
    assert entries(tmp_path / "j") == [{"kl": 0.1}]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "2"}, "version 1, not 2"),
        ({"command": "limits"}, "command kl, not limits"),
        ({"options": {"candidates": 4, "top_k": None}}, "--candidates 3, not 4"),
        ({"options": {"candidates": 3, "top_k": 5}}, "--top-k null, not 5"),
        ({"options": {"candidates": 3, "top_k": None, "new": 1}}, "--new null, not 1"),
        ({"dumps": [{"path": "/b.pt", "size": 3, "sha256": "x"}]}, "is of /a.pt, not of /b.pt"),
        ({"dumps": [{"path": "/a.pt", "size": 4, "sha256": "x"}]}, "/a.pt has changed"),
        ({"dumps": [{"path": "/a.pt", "size": 3, "sha256": "y"}]}, "/a.pt has changed"),
        ({"dumps": HEADER["dumps"] * 2}, "is of /a.pt, not of /a.pt, /a.pt"),
        ({"journal": 2}, "not a journal of this kind"),
    ],
)
def test_other_work_is_refused(path, change, words):
    before = path.read_bytes()
    with pytest.raises(InputError) as caught:
        Journal(path, HEADER | change)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("data", [b"notes of mine", b"notes\nof mine\n", b"{}\n", b"[1]\n", b"\0" * 5, b"\n"])
def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(InputError, match="is not a journal"):
        Journal(path, HEADER)
    assert path.read_bytes() == data


def test_a_damaged_line_is_named(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:-3] + b"\n" + lines[2])
    with pytest.raises(InputError, match="line 2 is damaged"):
        Journal(path, HEADER)


def test_a_device_is_refused():
    with pytest.raises(InputError, match="not a regular file"):
        Journal(Path(os.devnull), HEADER)


@pytest.mark.skipif(sys.platform == "win32", reason="no locks")
def test_two_runs_do_not_share_one(path):
    with Journal(path, HEADER), pytest.raises(InputError, match="another run is writing"):
        Journal(path, HEADER)
    assert len(entries(path)) == 3


def test_it_is_json_lines(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == HEADER
    assert len(lines) == 4
    with Journal(path, HEADER) as journal, pytest.raises(ValueError, match="JSON"):
        journal.append({"kl": float("nan")})


def test_an_option_that_one_release_did_not_have_is_one_that_was_not_given(path):
    """A journal without `engine_order`, which is None now; before, this was a StopIteration."""
    now = HEADER | {"options": {**HEADER["options"], "engine_order": None}}
    assert entries(path, now) == entries(path)
    assert entries(path, HEADER | {"options": {"candidates": 3}}) == entries(path)
    now["options"]["engine_order"] = "vllm"
    with pytest.raises(InputError, match="was begun with --engine-order null, not vllm; name another file"):
        entries(path, now)
