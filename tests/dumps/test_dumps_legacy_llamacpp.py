"""PyTorch files from before 1.6, and the base files of llama.cpp."""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from dump_helpers import (
    legacy_saved,
    raw_bytes,
    refused,
    saved_llamacpp,
)

from resispec_verify.dumps import load_mapping, open_dump, open_target
from resispec_verify.dumps.formats import legacy

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def same_numbers_whatever_ran_before():
    """Every test draws from the start of the generator, in any order and on any number of workers."""
    RNG.bit_generator.state = np.random.default_rng(11).bit_generator.state


def test_legacy_files(tmp_path):
    base = torch.arange(24.0)
    value = {
        "target_logits": base.reshape(4, 6).to(torch.bfloat16),
        "draft_logits": base.reshape(6, 4).T,
        "slice": base[3:9:2],
        "meta": {"n": [1, 2.5, None, "x", (True,)], "dtype": torch.float16},
        "empty": torch.zeros(0, 3),
        "expanded": base[:1].expand(5),
    }
    found = load_mapping(legacy_saved(tmp_path / "x.pt", value))
    for key, tensor in value.items():
        if isinstance(tensor, torch.Tensor):
            assert found[key].shape == tuple(tensor.shape)
            assert found[key].tobytes() == raw_bytes(tensor)
            assert not found[key].flags.writeable
    assert found["meta"] == {"n": [1, 2.5, None, "x", (True,)], "dtype": "torch.float16"}


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_legacy_files_run_nothing(tmp_path):
    marker = tmp_path / "marker"
    for value in (Bomb(marker), {"target_logits": torch.ones(2), "meta": [Bomb(marker)]}):
        message = refused(legacy_saved(tmp_path / "x.pt", value))
        assert "system" in message
        assert "nothing was executed" in message
    bare = tmp_path / "bare.pt"
    bare.write_bytes(pickle.dumps(Bomb(marker)))
    assert "bare pickle" in refused(bare)
    bare.write_bytes(pickle.dumps({"target_logits": 1}))
    assert "bare pickle" in refused(bare)
    assert not marker.exists()


def test_legacy_files_need_no_torch(tmp_path, monkeypatch):
    path = legacy_saved(tmp_path / "x.pt", {"t": torch.ones(2), "h": torch.arange(3.0).half()})
    monkeypatch.setitem(sys.modules, "torch", None)
    found = load_mapping(path)
    assert found["t"].tolist() == [1, 1]
    assert found["h"].tolist() == [0, 1, 2]
    assert isinstance(found["t"].base, mmap.mmap)


def test_legacy_storages_that_lie(tmp_path):
    whole = legacy_saved(tmp_path / "x.pt", {"t": torch.arange(1000.0)}).read_bytes()
    path = tmp_path / "y.pt"
    at = whole.index(struct.pack("<H", 1000))
    path.write_bytes(whole[:at] + struct.pack("<H", 65535) + whole[at + 2 :])
    assert "says 262140 bytes" in refused(path)
    at = whole.rindex(struct.pack("<q", 1000))
    path.write_bytes(whole[:at] + struct.pack("<q", 999) + whole[at + 8 :])
    assert "two lengths" in refused(path)
    huge = pickle.dumps(legacy.MAGIC, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": False}, 2)
    path.write_bytes(huge)
    assert "little-endian" in refused(path)


@pytest.mark.parametrize(("vocab", "contexts"), [(7, 8), (8, 9), (1, 3), (300, 16)])
def test_llamacpp(tmp_path, vocab, contexts):
    logits = (RNG.normal(size=(3, contexts, vocab)) * 6).astype(np.float32)
    tokens = RNG.integers(0, vocab, (3, contexts))
    path = saved_llamacpp(tmp_path / "base.kld", logits, tokens)
    dump = open_target(path)
    first = contexts // 2
    each = contexts - 1 - first
    assert (dump.positions, dump.vocab, dump.dtype) == (3 * each, vocab, "uint16")
    rows = logits[:, first : contexts - 1].reshape(-1, vocab).astype(np.float64)
    exact = rows - rows.max(-1, keepdims=True)
    norms = np.log(np.exp(exact).sum(-1, keepdims=True))
    found = dump.batch(0, 10**6)
    assert found.dtype == np.float32
    assert dump.step <= 16 / 65535 * (1 + 1e-6)
    assert np.abs(found - (np.maximum(exact, -16) - norms)).max() <= dump.step * 0.51 + 1e-5
    clipped = exact.min(-1) < -16
    floor = (-16 - norms[:, 0])[clipped].max(initial=-np.inf)
    assert dump.floor == pytest.approx(floor, abs=1e-4)
    assert np.array_equal(dump.next_tokens, tokens[:, first + 1 :].reshape(-1))
    assert np.array_equal(dump.tokens, tokens)
    assert np.array_equal(dump.batch(1, 2), found[1:2])
    assert "holds only a target" in refused(path, open_dump)
    assert dump.meta["n_chunk"] == 3


def test_llamacpp_damage(tmp_path):
    path = saved_llamacpp(tmp_path / "base", RNG.normal(size=(2, 8, 5)), np.zeros((2, 8), int))
    whole = path.read_bytes()
    row = 2 * (6 + 4)
    for size, words in (
        (9, "9 bytes"),
        (19, "19 bytes"),
        (30, "0 whole chunks"),
        (len(whole) - 1, "1 whole chunks"),
        (len(whole) - 3 * row - 1, "0 whole chunks"),
    ):
        path.write_bytes(whole[:size])
        assert words in refused(path)
    path.write_bytes(whole + b"\0")
    assert "longer" in refused(path)
    for head in ((2, 5, 2), (8, 0, 2), (8, 5, -1), (2**31 - 1,) * 3, (-(2**31), 5, 2)):
        path.write_bytes(whole[:8] + struct.pack("<3i", *head) + whole[20:])
        assert "record it again" in refused(path)
    for offset, value, words in (
        (0, np.nan, "position 4 has a step of nan"),
        (0, -1.0, "step of -1"),
        (4, np.inf, "minimum of inf"),
        (4, 1.0, "minimum of 1"),
    ):
        at = 20 + 4 * 16 + 4 * row + offset
        path.write_bytes(whole[:at] + struct.pack("<f", value) + whole[at + 4 :])
        assert words in refused(path)
