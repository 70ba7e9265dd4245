"""Files that are no dumps: each is said to be what it is, and the line that converts it is run."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from dump_helpers import saved
from top_helpers import chat, dumped, lines, llamacpp, sglang, vllm_offline, vllm_server

from resispec_verify import InputError, open_dump
from resispec_verify.cli import main
from resispec_verify.dumps import open_top_pairs

ROOT = Path(__file__).parents[2]
T, D = (np.random.default_rng(seed).normal(size=(3, 5)) for seed in (1, 2))
BOTH = {"target_logits": T, "draft_logits": D}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def refusal(path: str) -> str:
    with pytest.raises(InputError) as caught:
        open_dump(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: is ")
    assert len(message) < 400
    return message


def run_line(message: str, marker: str = ": ") -> None:
    """Run what follows the last colon, as a shell would, with this Python."""
    line = message.rpartition(marker)[2]
    bin_of = str(Path(sys.executable).parent)
    path = {**os.environ, "PATH": f"{bin_of}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    if line.startswith("resispec-verify "):
        assert main(shlex.split(line)[1:]) == 0
        return
    done = subprocess.run(
        ["sh", "-c", line], env=path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def assert_holds(path: str) -> None:
    batch = open_dump(path).batch(0, 3)
    np.testing.assert_allclose(batch.target, T, rtol=1e-6)
    np.testing.assert_allclose(batch.draft, D, rtol=1e-6)


ONE_ARRAY = {
    ".npy": np.save,
    ".csv": lambda name, rows: np.savetxt(name, rows, delimiter=","),
    ".tsv": np.savetxt,
    ".txt": np.savetxt,
}


@pytest.mark.parametrize("suffix", ONE_ARRAY)
@pytest.mark.parametrize("asked", ["target", "draft"])
def test_files_of_one_array(suffix, asked):
    ONE_ARRAY[suffix](f"my target{suffix}", T)
    ONE_ARRAY[suffix](f"my draft{suffix}", D)
    message = refusal(f"my {asked}{suffix}")
    line = message.partition("convert it: ")[2].partition("; decisions")[0]
    run_line(f"x: {line}", "x: ")
    assert_holds("dump.npz")


def test_a_stack_of_both():
    np.save("both.npy", np.stack([T, D]))
    run_line(refusal("both.npy"), "if the first is the target: ")
    assert_holds("both.npz")


def test_arrays_without_names():
    np.savez("both.npz", T, D)
    with pytest.raises(InputError) as caught:
        open_dump("both.npz")
    run_line(str(caught.value), "arr_1 the draft: ")
    assert_holds("named-both.npz")
    np.savez("one.npz", T)
    with pytest.raises(InputError, match="has no target_logits"):
        open_dump("one.npz")


def test_a_table_of_decisions_is_another_command_s():
    Path("log.csv").write_text("p,q,u,accepted\n0.5,0.5,0.1,1\n")
    assert refusal("log.csv").endswith("resispec-verify replay log.csv")


def _parquet(name: str) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({key: list(rows) for key, rows in BOTH.items()}), name)


def _h5(name: str) -> None:
    h5py = pytest.importorskip("h5py", reason="what writes HDF5 is not installed")
    with h5py.File(name, "w") as file:
        for key, rows in BOTH.items():
            file[key] = rows


NAMED = {
    ".json": lambda name: Path(name).write_text(
        json.dumps({key: rows.tolist() for key, rows in BOTH.items()})
    ),
    ".pkl": lambda name: Path(name).write_bytes(pickle.dumps(BOTH)),
    ".pickle": lambda name: Path(name).write_bytes(pickle.dumps(BOTH)),
    ".parquet": _parquet,
    ".h5": _h5,
    ".hdf5": _h5,
}


@pytest.mark.parametrize("suffix", NAMED)
def test_files_of_named_arrays(suffix):
    name = f"it's{suffix}"
    NAMED[suffix](name)
    message = refusal(name)
    assert ("only if you trust it" in message) == suffix.startswith(".p") * (suffix != ".parquet")
    run_line(message, "convert it: ")
    assert_holds("it's.npz")


def test_hdf5_is_told_without_its_library():
    Path("x.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(64))
    assert "is an HDF5 file; convert it: python -c" in refusal("x.h5")


ANSWERS = {
    "vllm offline": (vllm_offline, "an answer of vLLM", "vllm"),
    "vllm server": (vllm_server, "an answer of vLLM", "vllm"),
    "sglang": (sglang, "an answer of SGLang", "sglang"),
    "llama.cpp": (llamacpp, "an answer of llama.cpp", "llamacpp"),
    "a chat": (chat, "an answer of a server", "openai"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_of_engines(name):
    answer, what, source = ANSWERS[name]
    for role in ("target", "draft"):
        dumped(Path(f"{role}.json"), answer(role))
    message = refusal("target.json")
    assert what in message
    assert f"--from {source} " in message
    assert refusal("draft.json").rpartition(": ")[2] == message.rpartition(": ")[2]
    run_line(message)
    assert open_top_pairs("pairs.npz").positions > 0


def test_lines_of_positions():
    for role in ("target", "draft"):
        Path(f"{role}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines(role)))
    message = refusal("target.jsonl")
    assert "one position a line" in message
    run_line(message)
    assert open_top_pairs("pairs.npz").positions > 0


def test_a_parquet_of_positions():
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for role in ("target", "draft"):
        parquet.write_table(pa.Table.from_pylist(lines(role)), f"{role}.parquet")
    message = refusal("target.parquet")
    assert "without target_logits" in message
    run_line(message)
    assert open_top_pairs("pairs.npz").positions > 0


def test_lines_of_something_else_name_both_commands():
    Path("x.jsonl").write_text('{"p": 0.5}\n')
    message = refusal("x.jsonl")
    assert "resispec-verify replay x.jsonl" in message
    assert "resispec-verify convert x.jsonl draft.jsonl" in message


def test_files_under_another_name():
    saved(Path("x.pt"), {key: torch.tensor(rows) for key, rows in BOTH.items()})
    np.savez("y.npz", **BOTH)
    for source, name, back in (
        ("x.pt", "x.zip", "x.pt"),
        ("x.pt", "x.txt", "x.pt"),
        ("y.npz", "y.bin", "y.npz"),
    ):
        shutil.copy(source, name)
        Path(back).rename("kept")
        run_line(refusal(name), "rename it: ")
        assert_holds(back)
        Path("kept").replace(back)


def test_a_zip_of_a_folder_is_unpacked():
    np.savez("y.npz", **BOTH)
    with zipfile.ZipFile("z.zip", "w") as archive:
        archive.write("y.npz")
    run_line(refusal("z.zip"), "give what is in it: ")
    assert_holds("z/y.npz")


def test_a_damaged_zip_file():
    Path("z.zip").write_bytes(b"PK\3\4" + bytes(40))
    assert "damaged" in refusal("z.zip")


def test_a_model_is_recorded():
    Path("m.gguf").write_bytes(b"GGUF" + bytes(40))
    assert "resispec-verify record --target m.gguf" in refusal("m.gguf")
