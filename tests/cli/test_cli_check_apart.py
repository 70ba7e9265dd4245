"""`check` from any Python program, and on dumps of any length."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_helpers import drawn, save

SAMPLER = """
import numpy as np

def good(target, draft, rng):
    total = target.sum(axis=-1, keepdims=True)
    below = np.cumsum(target, axis=-1) <= rng.random((len(target), 1)) * total
    return np.minimum(below.sum(axis=-1), target.shape[-1] - 1)
"""
FEW = ["--input", "base", "--draws", "600", "--no-search", "--no-boundary"]


@pytest.fixture
def sampler(tmp_path: Path) -> str:
    path = tmp_path / "sampler.py"
    path.write_text(SAMPLER)
    return f"{path}:good"


def python(*words: str, script: str | None = None, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        input=script,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )  # type: ignore[call-overload]


@pytest.mark.parametrize("how", ["script", "standard input", "-c"])
def test_a_script_needs_no_guard(sampler, tmp_path, how):
    """`multiprocessing` would run it again in the child, which fails, or look for a file <stdin>."""
    script = f"from resispec_verify.cli import main\nprint(main({['check', sampler, *FEW]!r}))\n"
    path = tmp_path / "script.py"
    path.write_text(script)
    words = {"script": [str(path)], "standard input": ["-"], "-c": ["-c", script]}[how]
    done = python(*words, script=script)
    assert done.stderr == ""
    assert "not rejected" in done.stdout
    assert done.stdout.endswith("\n0\n")


@pytest.mark.parametrize("ending", ["print(main(ARGUMENTS))", "import sys; sys.exit(main(ARGUMENTS))"])
def test_a_script_may_check_a_sampler_of_its_own(tmp_path, ending):
    """The child that loads it must not start a check again, and has what comes before that."""
    path = tmp_path / "script.py"
    arguments = repr(["check", f"{path}:good", *FEW])
    path.write_text(
        f"{SAMPLER}\nfrom resispec_verify.cli import main\n{ending.replace('ARGUMENTS', arguments)}\n"
    )
    done = python(str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("not rejected") == 1


def test_a_module_that_checks_itself_when_it_is_imported_is_told_the_guard(tmp_path):
    (tmp_path / "again.py").write_text(
        f"{SAMPLER}\nfrom resispec_verify.cli import main\nmain({['check', 'again:good', *FEW]!r})\n"
    )
    done = python("-m", "resispec_verify", "check", "again:good", *FEW, cwd=tmp_path)
    assert done.returncode == 2
    assert "__name__ == '__main__'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_child_finds_what_its_parent_finds(tmp_path):
    """Also what was put on the path at run time."""
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "away.py").write_text(SAMPLER)
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'far')!r})\n"
        f"from resispec_verify.cli import main\nprint(main({['check', 'away:good', *FEW]!r}))\n"
    )
    assert python("-", script=script).stdout.endswith("\n0\n")


def test_a_sampler_has_nothing_to_read(tmp_path):
    path = tmp_path / "reads.py"
    path.write_text(
        SAMPLER.replace("    total =", "    assert __import__('sys').stdin.read() == ''\n    total =")
    )
    done = python("-m", "resispec_verify", "check", f"{path}:good", *FEW, script="mine\n")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("positions", [1, 2, 3, 4, 6])
def test_a_dump_of_any_length(cli, sampler, tmp_path, positions):
    dump = save(tmp_path / "dump.pt", drawn(positions, 5, seed=1), drawn(positions, 5, seed=2))
    result = cli("check", sampler, *FEW, "--logits", dump, "--json", "-")
    assert result.status == 0, result.err
    report = json.loads(result.out)
    found = {row["input"] for row in report["results"][0]["inputs"] if "position" in row["input"]}
    assert {f"{dump}, position {i}" for i in range(min(positions, 4))} <= found
    assert not any(f"position {i}" in name for name in found for i in range(min(positions, 4), 9))
    result = cli("check", sampler, *FEW, "--logits", dump, "--positions", "0:7")
    assert result.status == 2
    assert "positions 0:7 are outside" in result.err


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_ends_the_child_and_all_that_it_started(tmp_path, heard):
    pids = tmp_path / "pids"
    (tmp_path / "slow.py").write_text(
        "import os, subprocess, time\n"
        "def slow(target, draft, rng):\n"
        "    other = subprocess.Popen(['sleep', '100'])\n"
        f"    with open({str(pids)!r}, 'w') as file: file.write(f'{{os.getpid()}} {{other.pid}}\\n')\n"
        "    time.sleep(100)\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-m", "resispec_verify", "check", f"{tmp_path / 'slow.py'}:slow", *FEW],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 300
    while (not pids.exists() or not pids.read_text().endswith("\n")) and time.monotonic() < until:
        assert started.poll() is None, started.communicate()
        time.sleep(0.005)
    os.killpg(started.pid, signal.SIGINT)
    out, err = started.communicate(timeout=300)
    assert (started.returncode, out, err) == (130, "", "resispec-verify: interrupted\n")
    for pid in map(int, pids.read_text().split()):
        while _runs(pid):
            assert time.monotonic() < until
            time.sleep(0.005)


def _runs(pid: int) -> bool:
    """Whether a process is there, and not only as the zombie of a parent that does not look."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
