"""Every command that a page prints is run, in a folder where the files that the pages name exist.

What is in a block of a shell, in a job of CI or in a code span counts. Not run again are commands above
``<!-- output: ... -->``, run by `tests/cli/test_documented_outputs.py`, and those of `NOT_RUN`.
"""

from __future__ import annotations

import argparse
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fake_engine import engines
from fake_server import FakeServer
from printed_commands import ROOT, Printed, all_printed, arguments_with_outputs
from printed_stand_ins import write, write_for

from resispec_verify.cli import COMMANDS

#: What no bare machine can run, or what takes too long: a pattern of the whole command, and why.
#: Of a script of this repository its own parser still reads the words.
NOT_RUN = {
    r"(sudo|make|curl|for|do|done|cd|\.)( .*)?": "the system's own; nothing of this package is in it",
    r"(\S*/)?pip install .*": "installs packages",
    r"python(3|3\.11)? -m venv .*": "makes an environment",
    r"(ruff|pyright|sphinx-build).*": "developers' tools, run on the tree as it is before each commit",
    r"(\S*/)?pytest(?! test_engine).*": "is this test suite; its paths are looked up below",
    r"resispec-verify prove": "half a minute where machines are slow; `prove --json ledger.json` is run",
    r"(llama-server|vllm serve|python -m sglang\.launch_server) .*": "needs an engine and a model",
    r"resispec-verify check resispec_verify\.adapters\.flashspec:.*": "needs flashspec",
    r"resispec-verify audit (openvino|transformers)_engine\.py:.*": "needs that engine and a model",
    r"resispec-verify record --target \./my-target .*": "needs transformers and a model's folder",
    r"resispec-verify kl .* --scheduler .*": "starts or needs a Dask cluster; run in test_cli_scheduler.py",
    r"python (transformers|vllm|sglang|llamacpp)_run\.py": "needs that engine",
    r"python experiments/engines/live/.*": "needs engines and a model",
    r"python experiments/engines/run\.py( mlx_lm_loop .*)?": "needs the engines",
    r"python experiments/(table_\d|figure_\d|ot_n)\.py( --jobs 2| --quick .*| --target .*)?": "needs a model",
    r"python experiments/record_example\.py .*": "needs a model",
    r"python experiments/(topk/\w+\.py DUMP\.\.\.|(rl_weights|distinct)\.py .*)": "takes minutes",
    r"python benchmarks/.*": "measures for minutes; run small in test_benchmarks.py",
    r"python tests/(extremes/extremes|planted/planted|golden/golden)\.py.*": "takes minutes to hours",
    r"python docs/(regenerate|make_\w+)\.py( --pictures)?": "writes pages or pictures, which tests compare",
    r"(python )?(docs/run_tutorials\.py|\.ci/(package|readme_main|run)).*": "runs for minutes; .ci/run does",
    r"python experiments/(claims|engines/page)\.py": "writes a page; run with --check here",
    r"python -": "names an interpreter",
    r"python -c .*": "makes a dump of other files; tests/dumps/test_dumps_foreign.py runs such lines",
}

#: What a page leaves to its reader.
STAND_INS = {
    "$ON": "http://127.0.0.1:8001",
    "$OFF": "http://127.0.0.1:8000",
    "COMMAND": "kl",
    "NAME": "llama-cpp",
    "...": "vllm serve m",
    "cmd:python engine.py": f"cmd:{sys.executable} engine.py",
}

#: Options that make a run small; they replace what is printed, or are added (None: without a value).
SMALLER = {
    r"check .*": {"--draws": "600", "--seconds": "60", "--no-search": None},
    r"audit .*(http:|\$ON|engine\.py:).*": {"--tokens": "400", "--length": "12", "--least-drafts": "8"},
    r"rules --attack .*": {"--budget": "0.2"},
    r"record .*--kind tree.*": {"--topology": "d3b2", "--positions": "1"},
    r"record (?!.*--kind).*": {"--positions": "2"},
    r"(report|drift|kl) .*examples/.*": {"--positions": "0:1"},
    r"runtime .*": {"--repeats": "2"},
    r"pytest test_engine\.py": {"--lossless-draws": "2000"},
    r"python experiments/table_1\.py --render": {"--out": "results"},
}

DEMANDS = ("--require-", "--max-tv")
FILES = ("--json", "--csv", "--plot", "--out", "--resume")
ERROR = "resispec-verify: error: "
PRINTED = all_printed()


def is_name(command: Printed) -> bool:
    """Whether a code span only names a command: then there is its help to show."""
    return command.inline and len(command.words) == 2 and command.words[1] in COMMANDS


def not_run(command: Printed) -> list[str]:
    """The patterns that say why a command is not run."""
    return [pattern for pattern in NOT_RUN if re.fullmatch(pattern, command.line, re.S)]


def ours(command: Printed) -> list[str] | None:
    """The arguments, if it is ``resispec-verify`` in one of its forms; else None."""
    words = list(command.words)
    if words[:3] == ["python", "-m", "resispec_verify"]:
        return words[3:] or ["--help"]
    if words[0] in ("resispec-verify", ".venv/bin/resispec-verify"):
        return words[1:] + ["--help"] * is_name(command)
    return None


def different(commands: list[Printed]) -> list[Printed]:
    """Each of the same words once, and with the status that a page says."""
    found: dict[tuple[tuple[str, ...], bool], Printed] = {}
    for command in commands:
        key = command.words, is_name(command)
        if key not in found or (command.status is not None and found[key].status is None):
            found[key] = command
    return list(found.values())


COMPARED = arguments_with_outputs()
RUN = [c for c in PRINTED if not not_run(c) and tuple(ours(c) or ()) not in COMPARED]
COMMAND_LINES = different([command for command in RUN if ours(command) is not None])
OTHERS = different([command for command in RUN if ours(command) is None])


def small(arguments: list[str]) -> list[str]:
    """The arguments with stand-ins, and with options that make the run small."""
    line = " ".join(arguments)
    words = [STAND_INS.get(word, word) for word in arguments]
    for pattern, options in SMALLER.items():
        if "--help" in words or not re.fullmatch(pattern, line, re.S):
            continue
        for name, value in options.items():
            if name not in words:
                words += [name] if value is None else [name, value]
            elif value is not None:
                words[words.index(name) + 1] = value
    return words


def statuses(command: Printed, arguments: list[str]) -> set[int]:
    """The exit statuses that the page allows."""
    if command.status is not None:
        return {command.status}
    if command.shown.startswith(ERROR):
        return {2}
    if {"--command-line", "--config"} & set(arguments):
        return {0, 1, 3}
    judges = arguments[0] in ("check", "audit")
    return {0, 1} if judges or any(word.startswith(DEMANDS) for word in arguments) else {0}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The folder of stand-ins, and two servers: one speculates, the other does not."""
    for package in ("gguf", "tokenizers", "pyarrow"):
        pytest.importorskip(package, reason=f"the printed commands need the package {package}")
    folder = tmp_path_factory.mktemp("printed") / "files"
    folder.mkdir()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are tiny
    write(folder)
    on, off = engines(None)
    with FakeServer(on, "vllm") as first, FakeServer(off, "vllm") as second:
        yield SimpleNamespace(
            folder=folder,
            urls={"http://127.0.0.1:8001": first.url, "http://127.0.0.1:8000": second.url},
        )
    torch.set_num_threads(threads)


@pytest.fixture
def folder(prepared, tmp_path, monkeypatch):
    """A copy of the stand-ins as the working directory."""
    here = tmp_path / "here"
    shutil.copytree(prepared.folder, here, symlinks=True)
    monkeypatch.chdir(here)
    monkeypatch.delenv("COLUMNS", raising=False)
    return here


def runs(command: Printed, prepared, folder, cli):
    """Run it, and hold the status, what it says and what it writes against the page."""
    arguments = small(ours(command) or [])
    write_for(folder, arguments)
    if "cupy" in arguments:
        absent("cupy")
    done = cli(*(prepared.urls.get(word, word) for word in arguments))
    assert done.status in statuses(command, arguments), f"{command.where}: {done}"
    if done.status == 2:
        assert done.err.strip() == command.shown.strip(), command.where
        return
    assert ERROR not in done.err, f"{command.where}: {done.err}"
    for option in FILES:
        if option in arguments and (name := arguments[arguments.index(option) + 1]) != "-":
            assert Path(name).stat().st_size, f"{command.where}: {name}"


@pytest.mark.parametrize("command", COMMAND_LINES, ids=lambda command: command.line[:100])
def test_what_is_printed_runs(command, prepared, folder, cli):
    runs(command, prepared, folder, cli)


@pytest.mark.parametrize("command", OTHERS, ids=lambda command: command.line)
def test_scripts_that_are_printed_run(command, folder, monkeypatch, capsys):
    words = small(list(command.words))
    if "results" in words:
        shutil.copytree(ROOT / "experiments" / "results", folder / "results")
    if words[0] == "pytest":
        write_for(folder, ["check", "engine.py"])
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command.where}: {done}"
        return
    assert words[0] == "python", f"{command.where}: run it, or say in NOT_RUN why not: {command.line}"
    script = Path(words[1]) if Path(words[1]).exists() else ROOT / words[1]
    monkeypatch.setattr(sys, "argv", [str(script), *words[2:]])
    monkeypatch.syspath_prepend(script.parent)
    assert not ended_with(script), f"{command.where}: {capsys.readouterr()}"


def ended_with(script: Path) -> object:
    """The exit status of a script in this process; None where it does not set one."""
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        return end.code
    return None


def absent(package):
    try:
        __import__(package)
    except ImportError:
        return
    pytest.skip(f"the page shows what is said without {package}")


class WereRead(BaseException):
    """Ends a script where it has read its words."""


def words_are_read(command: Printed, monkeypatch):
    """Let the script's own parser read the words; nothing of it runs after that."""
    path = ROOT / command.words[1]
    source = path.read_text(encoding="utf-8")
    if "parse_args" not in source and not re.search(r"^from pairs import .*\bmain\b", source, re.M):
        assert set(command.words[2:]) <= set(re.findall(r'"(--[a-z-]+)"', source)), command.where
        return
    read = argparse.ArgumentParser.parse_args  # refuses with SystemExit

    def parse_args(self, args=None, namespace=None):
        raise WereRead(read(self, args, namespace))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    monkeypatch.setattr(sys, "argv", [str(path), *command.words[2:]])
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    with pytest.raises(WereRead):
        runpy.run_path(str(path), run_name="__main__")


SCRIPTS = different(
    [
        c
        for c in PRINTED
        if not_run(c) and re.match(r"python (docs|experiments|tests|benchmarks)/\S+\.py", c.line)
    ]
)


@pytest.mark.parametrize("command", SCRIPTS, ids=lambda command: command.line)
def test_a_script_that_is_not_run_reads_what_is_printed(command, monkeypatch):
    words_are_read(command, monkeypatch)


@pytest.mark.parametrize("words", [("--speed", "3"), ("--seconds", "x")])
def test_a_wrong_option_of_a_script_is_noticed(words, monkeypatch):
    command = Printed(("python", "tests/extremes/extremes.py", *words), "here")
    with pytest.raises(SystemExit, match="2"):
        words_are_read(command, monkeypatch)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("kl dump.pt --rul specinfer", ""),
        ("kl dump.pt --rule spacinfer", ""),
        ("inspect nowhere.pt", ""),
        ("verify dump.pt", ""),
        ("kl dump.pt --candidates 0", f"{ERROR}--candidates: another message"),
    ],
)
def test_a_wrong_command_is_noticed(line, shown, prepared, folder, cli):
    command = Printed(("resispec-verify", *line.split()), "here", shown=shown)
    with pytest.raises(AssertionError, match="here"):
        runs(command, prepared, folder, cli)


def test_paths_of_the_test_suite_exist():
    suites = [c for c in PRINTED if re.match(r"(\S*/)?pytest\b", c.line)]
    assert len(suites) > 5
    for command in suites:
        for word in command.words[1:]:
            known = word.startswith("-") or word in ("2", "slow", "gpu", "test_engine.py")
            assert known or (ROOT / word).exists(), f"{command.where}: {word}"


def test_no_entry_of_the_tables_is_idle():
    lines = [command.line for command in PRINTED]
    idle = [p for p in NOT_RUN if not any(re.fullmatch(p, line, re.S) for line in lines)]
    printed_words = {word for command in PRINTED for word in command.words}
    idle += [word for word in STAND_INS if word not in printed_words]
    given = [" ".join(ours(c) or c.words) for c in PRINTED if not not_run(c)]
    idle += [p for p in SMALLER if not any(re.fullmatch(p, line, re.S) for line in given)]
    assert idle == []


def test_nothing_that_runs_is_left_out_by_two_reasons():
    for command in PRINTED:
        assert len(not_run(command)) <= 1, f"{command.where}: {not_run(command)}"
