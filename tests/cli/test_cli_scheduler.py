"""`kl --scheduler`: the bits of one process, whatever workers do; one line where there is no cluster."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_helpers import Result, assert_one_line, assert_refused, drawn, save

from resispec_verify.dumps.fingerprint import fingerprint
from resispec_verify.errors import InputError
from resispec_verify.rules import SpecInfer
from resispec_verify.runs import cluster
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import Reading

POSITIONS = 18
RULE = """
import os, time
from resispec_verify import Rule, SpecInfer

class Slow(Rule):
    name, claims_exact, source, depends_on = "slow", True, "a test", "nothing"

    def reject(self, state, tokens):
        if state.residual.shape[-1] > 3:  # not in the check before the run
            time.sleep(0.02)
        return SpecInfer().reject(state, tokens)
"""


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    """Two worker processes and a scheduler."""
    distributed = pytest.importorskip("distributed")
    here = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**here, silence_logs="CRITICAL") as made:
        yield made


@pytest.fixture
def run(tmp_path: Path) -> list[object]:
    """A run over a dump of two datasets with a rule that workers cannot import."""
    (tmp_path / "slow.py").write_text(RULE)
    labels = {"dataset": ["a", "b", "b"] * (POSITIONS // 3)}
    dump = save(tmp_path / "dump.pt", drawn(POSITIONS, 50, seed=1), drawn(POSITIONS, 50, seed=2), **labels)
    return [
        "kl", "--logits", dump, "--rule", f"{tmp_path / 'slow.py'}:Slow", "--rule", "resispec", "--json", "-",
        "--csv", tmp_path / "positions.csv", "--seed", "3", "--batch", "1",
    ]  # fmt: skip


def numbers(result: Any, run: list[object]) -> tuple[Any, str]:
    assert result.status == 0, result.err
    report = result.json
    report.pop("seconds")
    return report, Path(str(run[run.index("--csv") + 1])).read_text()


def spans(journal: Path) -> list[list[int]]:
    return sorted(json.loads(line)["span"] for line in journal.read_bytes().splitlines()[1:])


def test_two_processes_give_the_bits_of_one(cli, run, workers):
    assert numbers(cli(*run, "--scheduler", workers.scheduler_address), run) == numbers(cli(*run), run)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_worker_that_is_killed_costs_nothing_but_time(cli, run, workers, tmp_path):
    whole, journal = numbers(cli(*run), run), tmp_path / "journal"
    killed = []

    def kill() -> None:
        until = time.monotonic() + 300
        while time.monotonic() < until and not killed:
            if journal.exists() and 4 < journal.read_bytes().count(b"\n") < POSITIONS - 4:
                killed.append(next(iter(workers.workers.values())).pid)
                os.kill(killed[0], signal.SIGKILL)
            time.sleep(0.002)

    thread = threading.Thread(target=kill)
    thread.start()
    result = cli(*run, "--scheduler", workers.scheduler_address, "--resume", journal)
    thread.join()
    assert killed
    assert numbers(result, run) == whole
    assert "distributed" not in result.err  # what Dask repairs is not our news
    assert spans(journal) == [[i, i + 1] for i in range(POSITIONS)]


def test_a_cluster_goes_on_with_a_journal_of_one_process_and_the_other_way_round(cli, run, workers, tmp_path):
    whole, journal = numbers(cli(*run), run), tmp_path / "journal"
    there = ["--scheduler", workers.scheduler_address]
    for first, then in ((there, []), ([], there)):
        journal.unlink(missing_ok=True)
        cli(*run, *first, "--resume", journal)
        lines = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join(lines[:9]))
        assert numbers(cli(*run, *then, "--resume", journal), run) == whole
        assert spans(journal) == [[i, i + 1] for i in range(POSITIONS)]


def test_the_first_bad_position_is_reported_whichever_worker_meets_one_first(cli, workers, tmp_path):
    logits = drawn(12, 6)
    logits[7, 2], logits[9, 1] = torch.nan, torch.nan
    dump = save(tmp_path / "bad.pt", logits)
    run = ["kl", "--logits", dump, "--batch", "1"]
    here = cli(*run)
    there = cli(*run, "--scheduler", workers.scheduler_address)
    assert here.status == there.status == 2
    assert here.err == there.err
    assert "NaN at position 7, token 2" in there.err


def test_the_address_of_a_worker_is_refused(cli, workers, tmp_path, dump):
    address = next(iter(workers.workers.values())).worker_address
    assert_refused(
        cli("kl", "--logits", dump, "--scheduler", address), address, "no Dask scheduler", "a Worker"
    )


@pytest.mark.parametrize("how", ["script", pytest.param("standard input", marks=pytest.mark.slow)])
def test_local_starts_processes_of_its_own_and_needs_no_guard_in_a_script(cli, run, tmp_path, how):
    """Nor a script: `multiprocessing` alone would run it again in each worker, or look for a file <stdin>."""
    pytest.importorskip("distributed")
    whole = numbers(cli(*run), run)
    arguments = [str(word) for word in [*run, "--scheduler", "local"]]
    script = f"from resispec_verify.cli import main\nprint(main({arguments!r}))\n"
    path = tmp_path / "script.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, str(path) if how == "script" else "-"], input=script, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert done.stdout.endswith("\n0\n")
    assert numbers(Result(done.returncode, done.stdout[:-2], done.stderr), run) == whole


def mail(server: socket.socket) -> None:
    """Answer a connection with what is not Dask's."""
    with server.accept()[0] as there:
        there.sendall(b"220 mail\r\n" * 99)
        there.recv(1)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_at_the_terminal_of_a_local_cluster_is_one_line(run, tmp_path, heard):
    pytest.importorskip("distributed")
    journal = tmp_path / "journal"
    more = ["--scheduler", "local", "--resume", journal]
    started = subprocess.Popen(
        [sys.executable, "-m", "resispec_verify", *map(str, [*run, *more])],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 300
    while (not journal.exists() or journal.read_bytes().count(b"\n") < 3) and time.monotonic() < until:
        assert started.poll() is None, started.communicate()
        time.sleep(0.005)
    os.killpg(started.pid, signal.SIGINT)  # a terminal sends it to the workers too
    out, err = started.communicate(timeout=300)
    assert started.returncode == 130
    assert out == ""
    lines = [line for line in err.splitlines() if "compiling" not in line]
    assert len(lines) == 1
    assert "the same command goes on from there" in lines[0]


@pytest.mark.parametrize("address", ["closed", "silent", "talks", "nonsense", "", "no://such:1"])
def test_a_scheduler_that_does_not_answer_is_one_line(cli, dump, monkeypatch, address):
    pytest.importorskip("distributed")
    assert cluster.PATIENCE <= 6  # with the start of Python and Dask, within 10 s
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with contextlib.ExitStack() as stack:
        if address in ("closed", "silent", "talks"):
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            kind, address = address, f"127.0.0.1:{server.getsockname()[1]}"
            if kind == "closed":
                server.close()
            if kind == "talks":
                stack.enter_context(ThreadPoolExecutor()).submit(mail, server)
        result = cli("kl", "--logits", dump, "--scheduler", address)
    assert_refused(result, f"--scheduler {address}", "no Dask scheduler answers there")


def test_without_dask_the_way_to_install_it_is_named(cli, dump, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = cli("kl", "--logits", dump, "--scheduler", "local")
    assert_refused(result, "--scheduler", "pip install 'resispec-verify[cluster]'")


def test_values_by_hand_need_no_cluster(cli):
    result = cli("kl", "--target", "0.5,0.5", "--draft", "0.5,0.5", "--scheduler", "local")
    assert_refused(result, "--scheduler needs a dump")


def packed(dump: Path, **change: Any) -> bytes:
    """What a task is given."""
    pytest.importorskip("cloudpickle")
    found = fingerprint(dump, whole=False)
    made = cluster.SharedWork(str(dump), "dump.pt", False, found, Evaluation((SpecInfer(),)), "numpy")
    return cluster._packed(replace(made, **change), Reading(kind="logits"))


def test_what_comes_back_does_not_grow_with_the_vocabulary(tmp_path):
    sizes = []
    for vocab in (50, 5000):
        path = save(tmp_path / f"{vocab}.pt", drawn(4, vocab, seed=1), drawn(4, vocab, seed=2))
        sizes.append(len(pickle.dumps(cluster.evaluate_there(packed(path), (0, 4)))))
    assert sizes[1] < 1.2 * sizes[0] < 20_000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "0.0.0"}, "install 0.0.0 there"),
        ({"found": (1, "other")}, "is not the dump that dump.pt is where the run was started"),
        ({"path": "/no/such/dump.pt"}, "no such file"),
    ],
)
def test_a_worker_that_is_not_like_us_says_so(dump, change, words):
    with pytest.raises(InputError) as caught:
        cluster.evaluate_there(packed(dump, **change), (0, 1))
    assert_one_line(f"resispec-verify: error: {caught.value}", words, socket.gethostname())
