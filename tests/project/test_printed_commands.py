"""Every command that a page prints is run, in a folder where the files that the pages name exist.

What is in a block of a shell, in a job of CI or in a code span counts. Not run again are the commands above
``<!-- output: ... -->``, whose output `tests/cli/test_documented_outputs.py` compares, and those of `NOT_RUN`.
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
from printed_commands import ROOT, Printed, all_printed, arguments_with_outputs, printed, simple_commands
from printed_stand_ins import write, write_for

from resispec_verify.cli import COMMANDS, main

#: What no bare machine can run, or what takes too long: a pattern of the whole command, and why.
#: Of a script of this repository its own parser still reads the words.
NOT_RUN = {
    r"(sudo|make|curl|for|do|done|cd|\.) ?.*": "the system's own; nothing of this package is in it",
    r"(\S*/)?pip install .*": "installs packages",
    r"python(3|3\.11)? -m venv .*": "makes an environment",
    r"(ruff|pyright|sphinx-build).*": "developers' tools, run on the tree as it is before each commit",
    r"(\S*/)?pytest\b.*": "is this test suite; its paths are looked up below",
    r"(llama-server|vllm serve|python -m sglang\.launch_server) .*": "needs an engine, a model and mostly a GPU",
    r"resispec-verify check resispec_verify\.adapters\.flashspec:.*": "needs flashspec",
    r"resispec-verify audit (openvino|transformers)_engine\.py:.*": "needs OpenVINO or transformers, and a model",
    r"resispec-verify record --target \./my-target .*": "needs transformers and a model's folder",
    r"resispec-verify kl .* --scheduler .*": "starts or needs a Dask cluster; run in test_cli_scheduler.py",
    r"python (transformers|vllm|sglang|llamacpp)_run\.py": "needs that engine",
    r"python experiments/engines/live/.*": "needs engines and a model",
    r"python experiments/engines/run\.py( mlx_lm_loop .*)?": "needs the engines",
    r"python experiments/(table_\d|figure_\d|ot_n)\.py( --jobs 2| --quick .*| --target .*)?": "needs a model",
    r"python experiments/record_example\.py .*": "needs a model",
    r"python experiments/(topk/\w+\.py DUMP\.\.\.|rl_weights\.py .*)": "takes minutes",
    r"python benchmarks/.*": "measures for minutes; run small in test_benchmarks.py",
    r"python tests/(extremes/extremes|planted/planted|golden/golden)\.py.*": "takes minutes to hours",
    r"python docs/(regenerate|make_\w+)\.py": "writes pages; what it would write is compared in tests of its own",
    r"python experiments/(claims|engines/page)\.py": "writes a page; run with --check here",
    r"python -": "names an interpreter",
}

#: What a page leaves to its reader.
STAND_INS = {
    "$ON": "http://127.0.0.1:8001",
    "$OFF": "http://127.0.0.1:8000",
    "COMMAND": "kl",
    "NAME": "llama-cpp",
    "...": "vllm serve m",
    "[STATEMENT]": "theorem-1",
    "[--json": "--json",
    "PATH]": "ledger.json",
    "cmd:python engine.py": f"cmd:{sys.executable} engine.py",
}

#: Options that make a run small; they replace what is printed, or are added (None: without a value).
SMALLER = {
    r"check .*": {"--draws": "600", "--seconds": "60", "--no-search": None},
    r"audit .*(http:|\$ON|engine\.py:).*": {"--tokens": "400", "--length": "12", "--least-drafts": "8"},
    r"rules --attack .*": {"--budget": "0.2"},
    r"record .*--kind rounds.*": {"--rounds": "1"},
    r"record (?!.*--kind (rounds|tree)).*": {"--positions": "2"},
    r"record .*--kind tree(?!.*--topology).*": {"--topology": "d3b2", "--positions": "1"},
    r"record .*--kind tree.*--topology.*": {"--topology": "d3b2", "--positions": "1"},
    r"(report|drift|kl) .*examples/\S+(?!.*--positions).*": {"--positions": "0:1"},
    r"runtime .*": {"--repeats": "2"},
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


RUN = [command for command in PRINTED if not not_run(command)]
COMMAND_LINES = different(
    [c for c in RUN if (given := ours(c)) is not None and tuple(given) not in arguments_with_outputs()]
)


def small(arguments: list[str]) -> list[str]:
    """The arguments with stand-ins, and with options that make the run small."""
    line = " ".join(arguments)
    words = [STAND_INS.get(word, word) for word in arguments]
    for pattern, options in SMALLER.items():
        if "--help" in words or not re.fullmatch(pattern, line, re.S):
            continue
        for name, value in options.items():
            if name in words:
                words[words.index(name) + 1] = value or ""
            else:
                words += [name] if value is None else [name, value]
    return words


def statuses(command: Printed, arguments: list[str]) -> set[int]:
    """The exit statuses that the page allows."""
    if command.status is not None:
        return {command.status}
    if command.shown.startswith(ERROR):
        return {2}
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
        yield SimpleNamespace(folder=folder, urls={":8001": first.url, ":8000": second.url})
    torch.set_num_threads(threads)


@pytest.mark.parametrize("command", COMMAND_LINES, ids=lambda command: command.line[:100])
def test_what_is_printed_runs(command, prepared, tmp_path, monkeypatch, cli):
    folder = tmp_path / "here"
    shutil.copytree(prepared.folder, folder, symlinks=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("COLUMNS", raising=False)
    arguments = small(ours(command) or [])
    write_for(folder, arguments)
    addresses = {f"http://127.0.0.1{port}": url for port, url in prepared.urls.items()}
    if "--backend" in arguments and arguments[arguments.index("--backend") + 1] == "cupy":
        absent("cupy")
    done = cli(*(addresses.get(word, word) for word in arguments))
    assert done.status in statuses(command, arguments), f"{command.where}: {done}"
    if done.status == 2:
        assert done.err.strip() == command.shown.strip(), command.where
        return
    assert ERROR not in done.err, command.where
    for option in FILES:
        if option in arguments and (name := arguments[arguments.index(option) + 1]) != "-":
            assert Path(name).stat().st_size, f"{command.where}: {name}"


def absent(package):
    try:
        __import__(package)
    except ImportError:
        return
    pytest.skip(f"the page shows what is said without {package}")


class ReadError(Exception):
    """Ends a script where it has read its words."""


def words_are_read(command: Printed, monkeypatch):
    """Let the script's own parser read the words; nothing else of it runs."""
    path = ROOT / command.words[1]
    source = path.read_text(encoding="utf-8")
    compile(source, str(path), "exec")
    if "parse_args" not in source and not re.search(r"^from pairs import .*\bmain\b", source, re.M):
        assert set(command.words[2:]) <= set(re.findall(r'"(--[a-z-]+)"', source)), command.where
        return
    read = argparse.ArgumentParser.parse_args

    def parse_args(self, args=None, namespace=None):
        raise ReadError(read(self, args, namespace))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    monkeypatch.setattr(sys, "argv", [str(path), *command.words[2:]])
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    with pytest.raises(ReadError):
        runpy.run_path(str(path), run_name="__main__")


SCRIPTS = different(
    [c for c in PRINTED if not_run(c) and re.match(r"python (docs|experiments|tests|benchmarks)/\S+\.py", c.line)]
)


@pytest.mark.parametrize("command", SCRIPTS, ids=lambda command: command.line)
def test_a_script_that_is_not_run_reads_what_is_printed(command, monkeypatch):
    words_are_read(command, monkeypatch)
