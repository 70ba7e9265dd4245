"""Many threads read one dump at once: every row is what one thread reads, in every format."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from resispec_verify.dumps import FlatDump, open_dump
from resispec_verify.dumps.formats import npz
from resispec_verify.errors import InputError

POSITIONS, VOCAB = 96, 4096
ROWS = {
    name: np.random.default_rng(seed).normal(size=(POSITIONS, VOCAB)).astype(np.float32)
    for seed, name in enumerate(("target_logits", "draft_logits"))
}


def tensors(step: int = 1) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(rows[::step].copy()) for name, rows in ROWS.items()}


def cut(first: int, last: int) -> dict[str, np.ndarray]:
    return {name: rows[first:last] for name, rows in ROWS.items()}


def in_files(path: Path) -> Path:
    path.mkdir()
    for first in range(0, POSITIONS, 4):  # more files than stay open
        np.savez(path / f"{first}.npz", **cut(first, first + 4))
    return path


def by_vocabulary(path: Path) -> Path:
    path.mkdir()
    for i in range(12):
        part = {name: rows[:, i * VOCAB // 12 : (i + 1) * VOCAB // 12] for name, rows in ROWS.items()}
        np.savez(path / f"{i:02}.npz", **part)
    names = [{"file": f"{i:02}.npz"} for i in range(12)]
    (path / "index.json").write_text(json.dumps({"shards": names, "axis": "vocab"}))
    return path


def masked(path: Path) -> Path:
    doubled = {name: np.repeat(rows, 2, axis=0) for name, rows in ROWS.items()}
    np.savez(path, **doubled, mask=np.tile([True, False], POSITIONS))
    return path.with_name(f"{path.name}.npz")


def chunks(path: Path) -> Path:
    value = [
        {k: torch.from_numpy(v.copy()) for k, v in cut(i, i + 4).items()} for i in range(0, POSITIONS, 4)
    ]
    torch.save({"chunks": value}, path)
    return path


def saved(save: Callable[[Path], object], suffix: str) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        save(path.with_suffix(suffix))
        return path.with_suffix(suffix)

    return write


FORMATS: dict[str, Callable[[Path], Path]] = {
    "pt": saved(lambda path: torch.save(tensors(), path), ".pt"),
    "pt before 1.6": saved(
        lambda path: torch.save(tensors(), path, _use_new_zipfile_serialization=False), ".pt"
    ),
    "chunks": saved(chunks, ".pt"),
    "safetensors": saved(lambda path: save_file(ROWS, path), ".safetensors"),
    "npz": saved(lambda path: np.savez(path, **ROWS), ".npz"),
    "compressed": saved(lambda path: np.savez_compressed(path, **ROWS), ".npz"),
    "files": in_files,
    "parts of the vocabulary": by_vocabulary,
    "mask": masked,
}


def read(dump: FlatDump, spans: list[tuple[int, int]], threads: int) -> list[tuple[np.ndarray, np.ndarray]]:
    with ThreadPoolExecutor(threads) as pool:
        return [batch[:2] for batch in pool.map(lambda span: dump.batch(*span), spans)]


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("order", ["in order", "any order"])
def test_rows_are_those_of_the_file(tmp_path, name, order):
    dump = open_dump(FORMATS[name](tmp_path / "dump"))
    spans = [(i, min(i + 3, POSITIONS)) for i in range(0, POSITIONS, 3)] * 4
    if order == "any order":
        np.random.default_rng(0).shuffle(spans)
    for (first, last), found in zip(spans, read(dump, spans, 12), strict=True):
        for rows, mine in zip(ROWS.values(), found, strict=True):
            assert np.array_equal(rows[first:last], mine), (first, last)


def test_a_compressed_matrix_is_not_begun_again_for_rows_that_were_skipped(tmp_path, monkeypatch):
    dump = open_dump(FORMATS["compressed"](tmp_path / "dump"))
    begun = []
    inflated = npz._Inflated
    monkeypatch.setattr(npz, "_Inflated", lambda *given: begun.append(given) or inflated(*given))
    for first in (2, 0, 6, 8, 4, 10):
        found = dump.batch(first, first + 2)
        assert np.array_equal(found.target, ROWS["target_logits"][first : first + 2])
    assert len(begun) == 2  # once each matrix
    dump.batch(0, 1)  # was handed on already
    assert len(begun) == 4


def test_one_thread_at_a_time_decompresses_a_matrix(tmp_path, monkeypatch):
    dump = open_dump(FORMATS["compressed"](tmp_path / "dump"))
    inside, take = threading.Lock(), npz._Inflated.take

    def alone(*given: Any, **options: Any) -> bytearray:
        assert inside.acquire(blocking=False)
        time.sleep(1e-3)
        inside.release()
        return take(*given, **options)

    monkeypatch.setattr(npz._Inflated, "take", alone)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda first: dump.target.rows(first, first + 2), range(0, 24, 2)))


def test_what_is_kept_of_skipped_rows_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "MOST_SKIPPED", 3 * VOCAB * 4)
    dump = open_dump(FORMATS["compressed"](tmp_path / "dump"))
    rows = dump.target
    assert isinstance(rows, npz._CompressedRows)
    for first in (9, 30, 6, 27, 28, 29, 95, 94):
        assert np.array_equal(rows.rows(first, first + 1), ROWS["target_logits"][first : first + 1])
        assert len(rows._skipped) <= 3


def test_damage_is_an_error_in_every_thread(tmp_path):
    path = FORMATS["files"](tmp_path / "dump")
    dump = open_dump(path)
    np.savez(path / "40.npz", **cut(0, 3))  # another shape than when it was opened
    for first in range(0, 40, 4):
        dump.batch(first, first + 4)  # so that it is opened again

    def error(_: int) -> str:
        with pytest.raises(InputError) as raised:
            dump.batch(40, 44)
        return str(raised.value)

    with ThreadPoolExecutor(8) as pool:
        assert all("changed while it was read" in line for line in pool.map(error, range(16)))
