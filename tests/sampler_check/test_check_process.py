"""A sampler in a process of its own: what ends it, or writes past it."""

from __future__ import annotations

import json

import pytest
from check_helpers import FEW, check

from resispec_verify.cli import check_apart

ROGUES = """
import ctypes, os, signal, sys, time
from os import _exit as leave
from samplers_of_mine import good

calls = 0

def leaves(target, draft, rng):
    leave(0)

def leaves_later(target, draft, rng):
    global calls
    calls += 1
    return leave(0) if calls > 9 else good(target, draft, rng)

def leaves_by_name(target, draft, rng):
    os._exit(0)

def closes(target, draft, rng):
    os.closerange(3, 256)  # our pipe is one of them
    return good(target, draft, rng)

def crashes(target, draft, rng):
    os.kill(os.getpid(), signal.SIGSEGV)

def writes(target, draft, rng):
    os.write(1, b"from C\\n")
    return good(target, draft, rng)

def forks(target, draft, rng):
    global calls
    calls += 1
    if calls == 3 and os.fork() == 0:
        sys.exit(0)
    return good(target, draft, rng)

class Made:
    def __call__(self, target, draft, rng):
        return good(target, draft, rng)
"""


@pytest.fixture
def rogues(module, tmp_path):
    (tmp_path / "rogues.py").write_text(ROGUES.replace("\\\\", "\\"))
    return "rogues.py"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("leaves", "ended its process (status 0)"),
        ("leaves_later", "ended its process (status 0)"),
        ("leaves_by_name", "called os._exit(0), which ends the process at rogues.py:"),
        ("closes", "ended its process (status 1)"),
        ("crashes", "ended its process (SIGSEGV)"),
    ],
)
def test_a_sampler_that_ends_its_process_is_an_error(rogues, name, said, capfd):
    assert check(f"{rogues}:{name}", *FEW) == 1
    shown = capfd.readouterr()
    assert "error" in shown.out
    assert said in shown.out
    assert "Traceback" not in shown.err


def test_what_is_written_to_file_descriptor_1_does_not_reach_the_report(rogues, capfd):
    assert check(f"{rogues}:writes", *FEW, "--json", "-") == 0
    shown = capfd.readouterr()
    assert json.loads(shown.out)["results"][0]["verdict"] == "not-rejected"
    assert "from C" in shown.err


def test_a_fork_that_comes_out_of_the_sampler_does_not_report(rogues, capfd):
    assert check(f"{rogues}:forks", *FEW) == 0


def test_a_module_that_ends_the_process_is_bad_input(module, tmp_path, capfd):
    (tmp_path / "ends.py").write_text("import os\nos._exit(0)\n")
    assert check("ends:f", *FEW) == 2
    assert "while it was loaded" in capfd.readouterr().err


def test_a_class_is_not_a_sampler(rogues, capfd):
    assert check(f"{rogues}:Made", *FEW) == 2
    assert "is a class" in capfd.readouterr().err


def test_a_sampler_that_lets_no_other_thread_run_is_ended(module, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(check_apart, "_GRACE", 2.0)
    (tmp_path / "stuck.py").write_text(
        "import ctypes\ndef f(target, draft, rng):\n    ctypes.PyDLL(None).sleep(1000)\n"
    )
    assert check("stuck.py:f", *FEW, "--call-seconds", "2") == 1
    assert "let no other thread run" in capfd.readouterr().out
