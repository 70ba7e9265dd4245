"""Mutated and truncated files of every format end in one line or in an answer.

``RESISPEC_FUZZ_CASES=2000 pytest -s tests/dumps/test_dumps_fuzz.py`` runs as many cases a format, and
``RESISPEC_FUZZ_SEED`` chooses others; what came of them is printed. A case must not raise anything but
`InputError`, allocate much more than the file's size, or take long.
"""

from __future__ import annotations

import io
import json
import os
import random
import struct
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from dump_helpers import (
    WRITERS,
    legacy_saved,
    saved,
    saved_llamacpp,
    saved_npz,
    saved_safetensors,
)
from top_helpers import pairs
from top_helpers import write as write_pairs

from resispec_verify.dumps import (
    open_dump,
    open_rounds,
    open_target,
    open_top_pairs,
    open_tree,
    open_tree_rounds,
)
from resispec_verify.dumps.formats import npz
from resispec_verify.dumps.formats.readers import READERS, RECOGNISED
from resispec_verify.errors import InputError
from resispec_verify.logged.inspection import inspect_dump

CASES = int(os.environ.get("RESISPEC_FUZZ_CASES", "20"))
SEED = int(os.environ.get("RESISPEC_FUZZ_SEED", "1"))
SECONDS = 20
SPARE = 8 << 20
TIMES = 60
"""How many times the size of the file may be in use: rows are widened, and looked at in several ways."""

EXTREMES = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    2**64 - 1,
)


def logits(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def flat() -> dict:
    return {
        "target_logits": logits(6, 20),
        "draft_logits": logits(6, 20).half(),
        "tokens": torch.arange(7),
        "candidates": torch.arange(12).reshape(6, 2),
        "dataset": ["a", "b"] * 3,
        "meta": {"sampling": {"temperature": [0.5] * 6, "top_k": 4}, "vocab_size": 18, "n": np.float64(2)},
    }


def arrays() -> dict:
    return {key: value for key, value in flat().items() if isinstance(value, torch.Tensor)}


def rounds() -> dict:
    one = {
        "draft_tokens": torch.tensor([1, 2]),
        "draft_logits": logits(2, 20),
        "target_logits": logits(3, 20).bfloat16(),
        "u": torch.tensor([0.5, 0.25], dtype=torch.float64),
        "accepted": 1,
        "next_token": 7,
        "context_len": 3,
    }
    return {
        "rounds": [one, one | {"accepted": torch.tensor([2])}],
        "output_tokens": torch.tensor([1, 7, 1, 2, 7]),
    }


def stacked() -> dict:
    return {
        "draft_tokens": torch.tensor([[1, 2], [3, 4]]),
        "draft_logits": logits(2, 2, 20),
        "target_logits": logits(2, 3, 20),
        "accepted": torch.tensor([1, 2]),
        "u": torch.rand(2, 2),
    }


def tree() -> dict:
    return {
        "target_logits": logits(2, 2, 20),
        "draft_logits": logits(2, 2, 20),
        "tokens": torch.ones(2, 5, dtype=torch.int64),
        "parent": torch.tensor([-1, 0, 0, 1, 1]),
        "depth": torch.tensor([0, 1, 1, 2, 2]),
        "prefix": torch.tensor([[-1, 1], [2, 3]]),
        "prefix_len": torch.tensor([1, 2]),
    }


def tree_rounds() -> dict:
    one = {
        "tokens": torch.tensor([-1, 1, 2, 3]),
        "parent": torch.tensor([-1, 0, 0, 1]),
        "target_logits": logits(4, 20).bfloat16(),
        "draft_logits": logits(2, 20),
        "accepted_path": torch.tensor([1, 3]),
        "u": torch.tensor([0.5, 0.25, 0.1, 0.9], dtype=torch.float64),
        "u_next": 0.5,
        "next_token": 7,
        "context_len": 3,
        "seed": 5,
    }
    linked = {
        "candidates": torch.tensor([4, 1, 2, 3]),
        "retrive_next_token": torch.tensor([1, 3, -1, -1]),
        "retrive_next_sibling": torch.tensor([-1, 2, -1, -1]),
        "retrive_index": torch.arange(4) + 4,
        "accept_index": torch.tensor([4, 6, -1]),
    }
    along = {
        "tokens": torch.tensor([4, 1, 2, 3]),
        "retrieve_indices": torch.tensor([[0, 1, 3], [0, 2, -1]]),
        "best_candidate": 0,
        "accept_length": torch.tensor(1),
    }
    rest = {"target_logits": one["target_logits"], "next_token": 3}
    return {
        "rounds": [one, linked | rest, along | rest],
        "output_tokens": torch.tensor([1, 3, 7, 2, 3, 1, 3]),
    }


def stacked_trees() -> dict:
    return {
        "tokens": torch.tensor([[0, 1, 2, 3], [0, 4, 5, -1]]),
        "parent": torch.tensor([[-1, 0, 0, 1], [-1, 0, 0, -1]]),
        "target_logits": logits(2, 4, 20),
        "accepted_path": torch.tensor([[1, 3], [2, -1]]),
        "next_token": torch.tensor([7, -1]),
        "u": torch.rand(2, 4),
    }


def folder(path: Path) -> Path:
    path.mkdir()
    for i in range(2):
        saved_safetensors(path / f"{i}.safetensors", arrays() | {"start": torch.tensor(6 * i)})
    entries = [{"file": f"{i}.safetensors", "start": 6 * i, "rows": 6} for i in range(2)]
    (path / "index.json").write_text(json.dumps({"shards": entries, "meta": {"vocab_size": 20}}))
    return path


def reduced() -> dict:
    return arrays() | {"draft_logits": logits(6, 9), "d2t": torch.arange(9)}


def steps() -> dict:
    return {"target": list(logits(4, 2, 9)), "draft": tuple(logits(4, 2, 9))}


def chunks() -> dict:
    return {"chunks": [arrays() | {"start": 6 * i} for i in range(2)]}


def top() -> dict:
    return pairs() | {"next_tokens": np.arange(7), "draft_tail": np.stack([np.zeros(7), np.ones(7)], axis=-1)}


def labelled() -> dict:
    return arrays() | {"meta": np.array('{"a": 1}'), "dataset": np.array("d")}


FORMATS = {name: lambda path, name=name: WRITERS[name](path / name, arrays()) for name in WRITERS} | {
    "x.pt": lambda path: saved(path / "x.pt", flat()),
    "pt-d2t": lambda path: saved(path / "x.pt", reduced()),
    "pt-steps": lambda path: saved(path / "x.pt", steps()),
    "pt-chunks": lambda path: saved(path / "x.pt", chunks()),
    "pt-rounds": lambda path: saved(path / "x.pt", rounds()),
    "pt-tree": lambda path: saved(path / "x.pt", tree()),
    "pt-tree-rounds": lambda path: saved(path / "x.pt", tree_rounds()),
    "npz-tree-rounds": lambda path: saved_npz(path / "x.npz", stacked_trees()),
    "old.pt": lambda path: legacy_saved(path / "x.pt", arrays() | {"meta": {"a": [1, "b"]}}),
    "x.safetensors": lambda path: saved_safetensors(
        path / "x.safetensors", arrays(), {"sampling": '{"top_k": 3}'}
    ),
    "safetensors-tree": lambda path: saved_safetensors(path / "x.safetensors", tree()),
    "x.npz": lambda path: saved_npz(path / "x.npz", labelled()),
    "npz-compressed": lambda path: saved_npz(path / "x.npz", arrays(), compressed=True),
    "npz-top": lambda path: write_pairs(path / "x.npz", top()),
    "pt-top": lambda path: write_pairs(path / "x.pt", top()),
    "safetensors-top": lambda path: write_pairs(path / "x.safetensors", top()),
    "npz-rounds": lambda path: saved_npz(path / "x.npz", stacked()),
    "llamacpp": lambda path: saved_llamacpp(path / "x.kld", logits(2, 8, 21).numpy(), np.ones((2, 8), int)),
    "shards": lambda path: folder(path / "shards"),
}


def test_every_format_is_among_them(tmp_path):
    every = {*READERS.values(), *(read for _, _, read in RECOGNISED)}
    for name, write in FORMATS.items():
        (tmp_path / name).mkdir()
        path = write(tmp_path / name)
        every.discard(READERS.get(path.suffix))
        every -= {read for _, matches, read in RECOGNISED if path.is_file() and matches(path)}
    assert not every, "not tried: a line is needed in WRITERS of tests/helpers/dump_helpers.py, or in FORMATS"


def inside(data: bytes, rng: random.Random) -> bytes:
    """Damage one record of a zip file and put the container in order again: only what it holds is wrong."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        names = old.namelist()
        chosen = rng.choice([name for name in names if name.endswith((".pkl", ".npy"))] or names)
        for info in old.infolist():
            content = old.read(info)
            damaged = mutated(content, rng) if info.filename == chosen else content
            new.writestr(info.filename, damaged, info.compress_type)
    return buffer.getvalue()


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Cut, flip, overwrite, insert, remove or repeat; mostly where the structure is."""
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        size = len(damaged)
        if not size:
            break
        edge = min(size, 600)
        at = rng.choice((rng.randrange(size), rng.randrange(edge), size - 1 - rng.randrange(edge)))
        what = rng.random()
        if what < 0.1:
            del damaged[at:]
        elif what < 0.35:
            damaged[at] ^= 1 << rng.randrange(8)
        elif what < 0.5:
            damaged[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif what < 0.7:
            width = rng.choice((2, 4, 8))
            value = rng.choice(EXTREMES) % 2 ** (8 * width)
            damaged[at : at + width] = value.to_bytes(width, rng.choice(("little", "big")))
        elif what < 0.8:
            digits = str(rng.choice((*EXTREMES, -1, 10**30, 6, 7, 19, 21))).encode()
            damaged[at : at + rng.choice((1, len(digits)))] = digits
        elif what < 0.87:
            del damaged[at : at + rng.choice((1, 2, 4, 8, 64))]
        elif what < 0.94:
            damaged[at:at] = rng.choice((bytes(8), b"\xff" * 4, damaged[: rng.randrange(1, 65)], b'"', b"}"))
        else:
            first = rng.randrange(size)
            piece = damaged[first : first + rng.randrange(1, 200)]
            damaged[at : at + len(piece)] = piece
    return bytes(damaged)


def read_all(path: Path) -> None:
    """Everything that can be done with a file; the first line that refuses it ends it."""
    problems = []
    for step in (
        lambda: inspect_dump(path),
        lambda: inspect_dump(path, pad_vocab=True),
        lambda: _flat(path),
        lambda: _target(path),
        lambda: [dump.logits(i) for dump in [open_rounds(path)] for i in range(len(dump))],
        lambda: [dump.logits(i) for dump in [open_tree(path)] for i in range(dump.prefixes)],
        lambda: _top(path),
        lambda: [dump.logits(i) for dump in [open_tree_rounds(path)] for i in range(len(dump))],
    ):
        try:
            step()
        except InputError as error:
            problems.append(str(error))
    assert not [line for line in problems if "\n" in line or len(line) > 2000]
    if len(problems) >= 7:  # not one of the readers could use it
        raise InputError(problems[0])


def _flat(path: Path) -> None:
    dump = open_dump(path)
    for first in range(0, dump.positions, 5):
        for rows in dump.batch(first, first + 5):
            assert rows is None or np.isfinite(rows.max(axis=-1)).all()


def _target(path: Path) -> None:
    dump = open_target(path)
    for first in range(0, dump.positions, 5):
        assert dump.batch(first, first + 5).shape[1] == dump.vocab


def _top(path: Path) -> None:
    for found in open_top_pairs(path).blocks(3):
        for side in (found.target, found.draft):
            assert ((side.probabilities >= 0) & (side.probabilities <= 1)).all()
            assert (side.tail[:, 0] <= side.tail[:, 1]).all()
            assert ((side.most >= 0) & (side.most <= 1)).all()


@pytest.mark.parametrize("name", FORMATS)
def test_damage_is_a_line_or_an_answer(name, tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "LARGE", 400)  # small matrices are streamed too
    path = FORMATS[name](tmp_path)
    read_all(path)  # whole, it is read
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    whole = {file: file.read_bytes() for file in files}
    rng = random.Random(f"{SEED} {name}")
    counts = {"refused": 0, "read": 0}
    worst_seconds, worst_bytes = 0.0, 0
    tracemalloc.start()
    for case in range(CASES):
        file = rng.choice(files)
        in_zip = zipfile.is_zipfile(file) and rng.random() < 0.5
        data = inside(whole[file], rng) if in_zip else mutated(whole[file], rng)
        file.write_bytes(data)
        tracemalloc.reset_peak()
        before, began = tracemalloc.get_traced_memory()[0], time.perf_counter()
        try:
            read_all(path)
            counts["read"] += 1
        except InputError:
            counts["refused"] += 1
        except BaseException:
            kept = Path(os.environ.get("RESISPEC_FUZZ_KEEP", tmp_path)) / f"{name}-{SEED}-{case}{file.suffix}"
            kept.write_bytes(data)
            print(f"{name}, case {case}: kept as {kept}")
            raise
        finally:
            file.write_bytes(whole[file])
        worst_seconds = max(worst_seconds, time.perf_counter() - began)
        used = tracemalloc.get_traced_memory()[1] - before
        worst_bytes = max(worst_bytes, used)
        assert used < TIMES * sum(map(len, whole.values())) + SPARE, case
        assert worst_seconds < SECONDS, case
    tracemalloc.stop()
    print(f"{name}: {CASES} cases, {counts}, at most {worst_seconds:.2f} s and {worst_bytes} bytes")
    assert counts["refused"] or CASES < 20


def test_extreme_lengths_in_headers(tmp_path):
    """Every eight bytes of the structure of each format overwritten by every extreme, one at a time."""
    for name in ("x.safetensors", "llamacpp"):
        folder = tmp_path / name
        folder.mkdir()
        path = FORMATS[name](folder)
        whole = path.read_bytes()
        for at in range(0, 24, 4):
            for value in EXTREMES:
                data = bytearray(whole)
                data[at : at + 8] = struct.pack("<Q", value)
                path.write_bytes(data)
                with pytest.raises(InputError):
                    open_dump(path)
