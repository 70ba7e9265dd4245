"""Every format gives the same arrays, and what is not right in a file is one line."""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from dump_helpers import (
    cut_lengths,
    legacy_saved,
    raw_bytes,
    saved,
    saved_llamacpp,
    saved_npz,
    saved_safetensors,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.dumps import (
    jsons,
    legacy,
    load_mapping,
    looks_like_probabilities,
    npz,
    open_dump,
    open_rounds,
    open_target,
)
from resispec_verify.dumps import safetensors as safetensors_module
from resispec_verify.errors import InputError

RNG = np.random.default_rng(11)


def refusal(path, read=load_mapping, **options) -> str:
    with pytest.raises(InputError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


def pair(*shape: int, dtype=torch.float16) -> dict:
    generator = torch.Generator().manual_seed(5)
    return {
        key: torch.randn(shape, generator=generator).to(dtype) for key in ("target_logits", "draft_logits")
    } | {"tokens": torch.arange(shape[0] + 1)}


WRITERS = {
    "x.pt": saved,
    "x.safetensors": saved_safetensors,
    "x.npz": saved_npz,
    "old.pt": legacy_saved,
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_formats_agree(name, dtype, tmp_path):
    if name == "x.npz" and dtype is torch.bfloat16:
        pytest.skip("NumPy has no bfloat16")
    value = pair(5, 9, dtype=dtype)
    dump = open_dump(WRITERS[name](tmp_path / name, value))
    assert (dump.positions, dump.vocab, dump.dtype) == (5, 9, str(dtype).removeprefix("torch."))
    for key in value:
        found = load_mapping(tmp_path / name)[key]
        assert found.tobytes() == raw_bytes(value[key])
        assert not found.flags.writeable
    batch = dump.batch(1, 4)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    assert np.array_equal(batch.target, value["target_logits"][1:4].to(wide).numpy())
    assert dump.tokens.tolist() == [0, 1, 2, 3, 4, 5]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_safetensors_and_npz_equal_their_libraries(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("x")
    dtypes = (torch.float16, torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)
    value = {}
    for key in data.draw(st.lists(st.text("abcé.", min_size=1), min_size=1, max_size=4, unique=True)):
        shape = data.draw(st.lists(st.integers(0, 4), max_size=3))
        dtype = data.draw(st.sampled_from(dtypes))
        value[f"k{key}"] = torch.from_numpy(RNG.integers(0, 2, shape)).to(dtype)
    metadata = data.draw(st.none() | st.dictionaries(st.text("xy"), st.text(), max_size=2))
    path = saved_safetensors(folder / "x.safetensors", value, metadata)
    found = load_mapping(path)
    assert found.pop("meta", {}) == (metadata or {})
    assert found.keys() == value.keys()
    for key, tensor in value.items():
        assert found[key].shape == tuple(tensor.shape)
        assert np.array_equal(found[key], tensor.numpy())
    for compressed in (False, True):
        found = load_mapping(saved_npz(folder / f"{compressed}.npz", value, compressed=compressed))
        for key, tensor in value.items():
            assert np.array_equal(found[key], tensor.numpy())
            assert np.shape(found[key]) == tuple(tensor.shape)


def test_stored_arrays_are_mapped(tmp_path):
    value = pair(4, 8)
    for path in (saved_safetensors(tmp_path / "x.safetensors", value), saved_npz(tmp_path / "x.npz", value)):
        assert isinstance(load_mapping(path)["target_logits"].base, mmap.mmap)


# npz


def test_npz_details(tmp_path):
    path = saved_npz(
        tmp_path / "x.npz",
        {
            "target_logits": np.asfortranarray(RNG.normal(size=(3, 4)).astype(">f4")),
            "draft_logits": RNG.normal(size=(3, 4)),
            "meta": np.array(json.dumps({"sampling": {"temperature": 0.5}, "a": [1]})),
            "dataset": np.array(["x", "y", "x"]),
            "start": np.array(7),
            "raw": np.array(b"ab"),
        },
    )
    mapping = load_mapping(path)
    assert (mapping["start"], mapping["raw"], mapping["meta"]["a"]) == (7, b"ab", [1])
    dump = open_dump(path)
    assert dump.dataset == ("x", "y", "x")
    assert dump.sampling == {"temperature": 0.5}
    with np.load(path) as expected:
        assert np.array_equal(dump.batch(0, 3).target, expected["target_logits"])
    assert open_dump(saved_npz(path, {"dataset": np.array("one"), **pair(3, 4)})).dataset == "one"


def test_npz_without_pickles_and_types(tmp_path):
    good = {"draft_logits": RNG.normal(size=(2, 3))}
    path = tmp_path / "x.npz"
    np.savez(path, target_logits=np.array([[1, 2], [3]], dtype=object), **good)
    assert "Python objects" in refusal(path)
    assert "target_logits" in refusal(path)
    np.savez(path, target_logits=np.zeros((2, 3), ml_dtypes.bfloat16), **good)
    assert "bfloat16" in refusal(path, open_dump)
    assert "float32" in refusal(path, open_dump)
    np.savez(path, target_logits=np.zeros(2, [("a", "f4")]), **good)
    assert "with fields" in refusal(path)
    np.savez(path, target_logits=np.zeros(2, "M8[s]"), **good)
    assert "M8" in refusal(path)
    np.savez(path, **good, meta=np.array("{not json"))
    assert "meta is not valid JSON" in refusal(path)
    np.savez(path, **good, meta=np.array("[" * 100_000))
    assert "meta is not valid JSON" in refusal(path)


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode("latin1") + data


def npz_of(path: Path, data: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("target_logits.npy", data)
    return path


HEADER = "{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}"


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (npy(HEADER.format("'<f4'", False, "(2, 3)"), bytes(24)), ""),
        (npy(HEADER.format("'<f4'", False, "(2, 3)"), bytes(24), 2), ""),
        (npy(HEADER.format("'bfloat16'", False, "(2, 3)"), bytes(12)), ""),
        (npy(HEADER.format("'<f4'", False, "(2, 3)"), bytes(20)), "24 bytes"),
        (npy(HEADER.format("'<f4'", False, "(2, 3)"), bytes(28)), "24 bytes"),
        (npy(HEADER.format("'<f4'", False, f"({10**17},)")), "bytes"),
        (npy(HEADER.format("'<f4'", False, f"({10**30},)")), "damaged shape"),
        (npy(HEADER.format("'<f4'", False, "(" + "1," * 40 + ")"), bytes(4)), "damaged shape"),
        (npy(HEADER.format("'<f4'", False, "(-1, 3)"), bytes(4)), "header"),
        (npy(HEADER.format("'<f4'", "exit()", "(2,)"), bytes(8)), "header"),
        (npy(HEADER.format("__import__('os')", False, "(2,)"), bytes(8)), "header"),
        (npy(HEADER.format("'|O'", False, "(2,)"), pickle.dumps([1, 2])), "Python objects"),
        (npy(HEADER.format("'<U0'", False, f"({10**17},)")), "no size"),
        (npy(HEADER.format("[('a', '<f4')]", False, "(2,)"), bytes(8)), "with fields"),
        (b"\x93NUMPY\x01", "not in the .npy format"),
        (b"hello", "not in the .npy format"),
        (b"\x93NUMPY\x01\x00\xff\xffabc", "header"),
    ],
)
def test_npy_headers(tmp_path, data, words, compression):
    path = npz_of(tmp_path / "x.npz", data, compression)
    if not words:
        assert load_mapping(path)["target_logits"].shape == (2, 3)
    else:
        assert words in refusal(path)
        assert "target_logits" in refusal(path)


def test_compressed_npz_streams(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "LARGE", 1000)
    monkeypatch.setattr(npz, "PIECE", 512)
    value = pair(40, 33, dtype=torch.float32)
    path = saved_npz(tmp_path / "x.npz", value, compressed=True)
    dump = open_dump(path)
    assert not isinstance(dump.target, np.ndarray)
    for start, stop in ((0, 1), (1, 9), (20, 40), (3, 5), (0, 40)):
        assert np.array_equal(dump.batch(start, stop).target, value["target_logits"][start:stop].numpy())
    assert not looks_like_probabilities(dump)
    assert np.array_equal(np.asarray(dump.draft), value["draft_logits"].numpy())
    bad = value["target_logits"].clone()
    bad[30, 2] = torch.nan
    dump = open_dump(saved_npz(path, value | {"target_logits": bad}, compressed=True))
    dump.batch(0, 30)
    for _ in range(2):
        with pytest.raises(InputError, match="target_logits has NaN at position 30, token 2"):
            dump.batch(30, 31)


def test_compressed_npz_damage_and_bombs(tmp_path, monkeypatch):
    path = saved_npz(tmp_path / "x.npz", {"t": np.arange(1000)}, compressed=True)
    data = bytearray(path.read_bytes())
    data[400] ^= 0xFF
    path.write_bytes(data)
    assert "array t" in refusal(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.npy", npy(HEADER.format("'<f4'", False, "(1000,)"), bytes(4000)))
    data = bytearray(path.read_bytes())
    for at in (14, data.rindex(b"PK\x01\x02") + 16):
        data[at] ^= 0xFF  # the checksum
    path.write_bytes(data)
    assert "checksum" in refusal(path)
    monkeypatch.setattr(npz, "MOST_COMPRESSED", 5000)
    monkeypatch.setattr(npz, "LARGE", 1000)
    saved_npz(path, {"a": np.zeros((2, 1000))}, compressed=True)
    assert "array a needs 8000 bytes" in refusal(path)
    saved_npz(path, {"a": np.zeros(500), "b": np.zeros(500)}, compressed=True)
    assert "array b needs 4000 bytes" in refusal(path)
    lie = npz_of(path, npy(HEADER.format("'<f4'", False, f"({2**38},)"), bytes(4)), zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    refusal(lie)
    assert tracemalloc.get_traced_memory()[1] < 2e6
    tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zip_files_that_are_no_npz(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(saved(tmp_path / "x.pt", {"t": torch.ones(2)}).read_bytes())
    assert "not one of numpy.savez" in refusal(path)
    path.write_bytes(b"\x93NUMPY")
    assert "is not an .npz file" in refusal(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("t.npy", b"abc")
    assert "is compressed" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("t.npy", npy(HEADER.format("'<f4'", False, "(0,)")))
        archive.writestr("t.npy", npy(HEADER.format("'<f4'", False, "(0,)")))
    assert "two records" in refusal(path)


# safetensors


def safetensors(path: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        ({"t": entry()}, bytes(8), ""),
        ({"t": entry(), "e": entry(shape=(0,), offsets=(8, 8))}, bytes(8), ""),
        ({"t": entry()}, bytes(4), "has only"),
        ({"t": entry()}, bytes(12), "12 bytes of data"),
        ({"t": entry(offsets=(4, 12))}, bytes(12), "leaves a hole"),
        ({"t": entry(), "s": entry()}, bytes(8), "overlaps"),
        ({"t": entry(), "s": entry(offsets=(4, 12))}, bytes(12), "overlaps"),
        ({"t": entry(offsets=(8, 0))}, bytes(8), "no valid"),
        ({"t": entry(offsets=(-8, 0))}, bytes(8), "no valid"),
        ({"t": entry(offsets=(0, 2**70))}, bytes(8), "bytes"),
        ({"t": entry(offsets=(0, True))}, bytes(8), "no valid"),
        ({"t": entry(offsets=(0.0, 8))}, bytes(8), "no valid"),
        ({"t": entry(shape=(3,))}, bytes(8), "12 bytes, but has 8"),
        ({"t": entry(shape=(2**40, 2**40))}, bytes(8), "bytes"),
        ({"t": entry(shape=(0, 2**80), offsets=(0, 0))}, b"", "damaged"),
        ({"t": entry(shape=[1] * 40, offsets=(0, 4))}, bytes(4), "damaged"),
        ({"t": entry(shape="ab")}, bytes(8), "no valid"),
        ({"t": entry("F4")}, bytes(8), "type F4"),
        ({"t": entry("BOO\u001b[31m")}, bytes(8), r"\x1b[31m"),
        ({"t": {}}, b"", "no valid"),
        ({"t": [1]}, b"", "no valid"),
        ([1], b"", "not a dict"),
        (b'{"t": 1, "t": 2}', b"", "two keys"),
        (b"{", b"", "not valid JSON"),
        (b"\xff", b"", "not valid JSON"),
        (b"[" * 200_000, b"", "not valid JSON"),
        (b"9" * 10_000, b"", "not valid JSON"),
        ({"__metadata__": {"a": 1}}, b"", "metadata"),
        ({"__metadata__": "a"}, b"", "metadata"),
        ({"__metadata__": {"sampling": "{"}}, b"", "sampling"),
    ],
)  # fmt: skip
def test_safetensors_headers(tmp_path, header, data, words):
    path = safetensors(tmp_path / "x.safetensors", header, data)
    if not words:
        assert load_mapping(path)["t"].tolist() == [0, 0]
        return
    assert words in refusal(path)


def test_headers_are_not_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors_module, "LONGEST", 100)
    monkeypatch.setattr(jsons, "LONGEST", 100)
    assert "too long" in refusal(safetensors(tmp_path / "x.safetensors", {"__metadata__": {"a": "b" * 100}}))
    np.savez(tmp_path / "x.npz", meta=np.array(json.dumps("a" * 100)))
    assert "too long" in refusal(tmp_path / "x.npz")


@pytest.mark.parametrize("length", [10**6, 2**63, 2**64 - 1])
def test_safetensors_header_longer_than_the_file(tmp_path, length):
    path = safetensors(tmp_path / "x.safetensors", {}, length=length)
    tracemalloc.start()
    assert "10 bytes" in refusal(path)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


def test_safetensors_metadata(tmp_path):
    metadata = {"sampling": '{"top_k": [1, 2, 3]}', "dataset": "gsm8k", "model": "m"}
    dump = open_dump(saved_safetensors(tmp_path / "x.safetensors", pair(3, 4), metadata))
    assert dump.meta == {"sampling": {"top_k": [1, 2, 3]}, "dataset": "gsm8k", "model": "m"}
    assert dump.dataset == "gsm8k"
    assert [one["top_k"] for one in dump.sampling] == [1, 2, 3]


# PyTorch before 1.6


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
        message = refusal(legacy_saved(tmp_path / "x.pt", value))
        assert "system" in message
        assert "nothing was executed" in message
    bare = tmp_path / "bare.pt"
    bare.write_bytes(pickle.dumps(Bomb(marker)))
    assert "bare pickle" in refusal(bare)
    bare.write_bytes(pickle.dumps({"target_logits": 1}))
    assert "bare pickle" in refusal(bare)
    assert not marker.exists()


def test_legacy_files_need_a_safe_torch(tmp_path, monkeypatch):
    path = legacy_saved(tmp_path / "x.pt", {"t": torch.ones(2)})
    for version in ("2.5.1+cu121", "1.13.0", "unknown"):
        monkeypatch.setattr(torch, "__version__", version)
        assert "CVE-2025-32434" in refusal(path)
        assert "before 1.6" in refusal(path)
    monkeypatch.setattr(torch, "__version__", "2.6.0")
    assert load_mapping(path)["t"].tolist() == [1, 1]
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install 'resispec-verify[torch]'" in refusal(path)


def test_legacy_storages_that_lie(tmp_path):
    whole = legacy_saved(tmp_path / "x.pt", {"t": torch.arange(1000.0)}).read_bytes()
    path = tmp_path / "y.pt"
    at = whole.index(struct.pack("<H", 1000))
    path.write_bytes(whole[:at] + struct.pack("<H", 65535) + whole[at + 2 :])
    assert "says 262140 bytes" in refusal(path)
    at = whole.rindex(struct.pack("<q", 1000))
    path.write_bytes(whole[:at] + struct.pack("<q", 999) + whole[at + 8 :])
    assert "two lengths" in refusal(path)
    huge = pickle.dumps(legacy.MAGIC, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": False}, 2)
    path.write_bytes(huge)
    assert "little-endian" in refusal(path)


def test_what_torch_refuses_is_a_line(tmp_path, monkeypatch):
    def fails(*_args, **_options):
        raise RuntimeError("one\ntwo")

    path = legacy_saved(tmp_path / "x.pt", {"t": torch.ones(2)})
    monkeypatch.setattr(torch, "load", fails)
    assert "torch.load refuses it (one two)" in refusal(path)


# llama.cpp


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
    assert "holds only a target" in refusal(path, open_dump)
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
        assert words in refusal(path)
    path.write_bytes(whole + b"\0")
    assert "longer" in refusal(path)
    for head in ((2, 5, 2), (8, 0, 2), (8, 5, -1), (2**31 - 1,) * 3, (-(2**31), 5, 2)):
        path.write_bytes(whole[:8] + struct.pack("<3i", *head) + whole[20:])
        assert "record it again" in refusal(path)
    for offset, value, words in (
        (0, np.nan, "position 4 has a step of nan"),
        (0, -1.0, "step of -1"),
        (4, np.inf, "minimum of inf"),
        (4, 1.0, "minimum of 1"),
    ):
        at = 20 + 4 * 16 + 4 * row + offset
        path.write_bytes(whole[:at] + struct.pack("<f", value) + whole[at + 4 :])
        assert words in refusal(path)


# What downloads and engines do to files


def every_format(folder: Path) -> dict[str, Path]:
    value = pair(40, 50)
    rounds = {"draft_tokens": torch.zeros(2, 3, dtype=torch.int64), "accepted": torch.tensor([1, 3])}
    rounds |= {"draft_logits": torch.randn(2, 3, 9), "target_logits": torch.randn(2, 4, 9)}
    return {
        "pt": saved(folder / "x.pt", value),
        "legacy": legacy_saved(folder / "old.pt", value),
        "safetensors": saved_safetensors(folder / "x.safetensors", value),
        "npz": saved_npz(folder / "x.npz", value),
        "compressed": saved_npz(folder / "c.npz", value, compressed=True),
        "rounds": saved_npz(folder / "r.npz", rounds),
        "llamacpp": saved_llamacpp(folder / "x.kld", RNG.normal(size=(2, 16, 30)), np.zeros((2, 16), int)),
    }


@pytest.mark.parametrize("name", ["pt", "legacy", "safetensors", "npz", "compressed", "rounds", "llamacpp"])
def test_cut_files_name_path_and_size(tmp_path, name):
    """ComfyUI#3225."""
    path = every_format(tmp_path)[name]
    whole = path.read_bytes()
    for size in cut_lengths(len(whole)):
        path.write_bytes(whole[:size])
        message = refusal(path)
        assert message.startswith(str(path))
        if size != 7 or name != "llamacpp":  # seven bytes of its magic are no file of llama.cpp
            assert f"{size} bytes" in message, message


def test_numpy_scalars_in_meta(tmp_path):
    """fairseq#5603: torch.load(weights_only=True) refuses these, and they are only numbers."""
    value = pair(2, 3) | {"meta": {"loss": np.float64(0.25), "steps": np.int64(7), "name": np.str_("a")}}
    assert open_dump(saved(tmp_path / "x.pt", value)).meta == {"loss": 0.25, "steps": 7, "name": "a"}
    with pytest.raises(Exception, match="numpy"):
        torch.load(tmp_path / "x.pt", weights_only=True)
    message = refusal(legacy_saved(tmp_path / "old.pt", value))
    assert "torch.load refuses it" in message


def test_padded_and_reduced_vocabularies(tmp_path):
    """vllm#7252 and Automodel#2447."""
    wide = {"target_logits": torch.randn(2, 152), "draft_logits": torch.randn(2, 144)}
    path = saved(tmp_path / "x.pt", wide)
    assert "widths 152 and 144" in refusal(path, open_dump)
    assert "d2t" in refusal(path, open_dump)
    assert open_dump(path, pad_vocab=True).pad == (152, 144)
    offsets = torch.arange(144) % 2 * 0 + torch.arange(144) // 18  # leaves a hole every 18 tokens
    dump = open_dump(saved(path, wide | {"d2t": offsets}))
    assert dump.pad is None
    assert "144 draft tokens" in dump.notes[0]
    found = dump.batch(0, 2).draft
    ids = (torch.arange(144) + offsets).numpy()
    assert np.array_equal(found[:, ids], wide["draft_logits"].numpy())
    assert (np.delete(found, ids, axis=1) == -np.inf).all()


@pytest.mark.parametrize("name", ["x.pt", "x.safetensors", "x.npz"])
def test_one_bad_row_is_named(tmp_path, name):
    """vllm#53029."""
    value = pair(6, 5)
    value["draft_logits"][4, 1] = torch.nan
    dump = open_dump(WRITERS[name](tmp_path / name, value))
    with pytest.raises(InputError, match=r"draft_logits has NaN at position 4, token 1"):
        dump.batch(0, 6)
    assert len(dump.batch(0, 4).target) == 4


def test_the_same_tokens_forbidden_in_both(tmp_path):
    """heretic#348: readable; the divergences treat 0 log(0/0) as 0."""
    value = pair(3, 6, dtype=torch.float32)
    for key in ("target_logits", "draft_logits"):
        value[key][:, 4:] = -torch.inf
    batch = open_dump(saved(tmp_path / "x.pt", value)).batch(0, 3)
    assert (np.isneginf(batch.target) == np.isneginf(batch.draft)).all()


def test_probabilities_are_noticed_in_every_format(tmp_path):
    """vllm-ascend#6685."""
    rows = torch.randn(4, 6).softmax(-1)
    for name, write in WRITERS.items():
        dump = open_dump(write(tmp_path / name, {"target_logits": rows, "draft_logits": rows.flip(0)}))
        assert looks_like_probabilities(dump)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("name", ["x.safetensors", "x.npz"])
def test_memory_stays_below_the_file(tmp_path, name):
    """vllm#5907, smaller: the whole of a pass in a process of its own."""
    rows = torch.zeros(192, 131072, dtype=torch.float16)
    rows[:, 0] = 1
    path = WRITERS[name](tmp_path / name, {"target_logits": rows, "draft_logits": rows.clone()})
    code = (
        "import sys, resource; from resispec_verify.dumps import open_dump\n"
        "def peak(): return int(next(l for l in open('/proc/self/status') if "
        "l.startswith('VmHWM')).split()[1])\n"
        "before = peak(); dump = open_dump(sys.argv[1])\n"
        "for i in range(0, dump.positions, 2): dump.batch(i, i + 2)\n"
        "print((peak() - before) * 1024)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True, timeout=60
    )
    assert int(shown.stdout) < path.stat().st_size / 8


def test_labels_that_lie_about_their_size(tmp_path):
    """A few bytes may describe arrays of any size: nothing is built from them."""
    value = pair(2, 3) | {"candidates": torch.zeros(1, dtype=torch.int64).expand(2, 10**12)}
    assert "candidates is an expanded tensor" in refusal(saved(tmp_path / "x.pt", value), open_dump)
    value = pair(2, 3) | {"meta": {"sampling": {"temperature": torch.ones(1).expand(10**12)}}}
    assert "1000000000000 entries" in refusal(saved(tmp_path / "x.pt", value), open_dump)
    one = torch.zeros(1, 3).expand(10**12, 3)
    value = {"target_logits": one, "draft_logits": one}
    assert "expanded tensors" in refusal(saved(tmp_path / "x.pt", value), open_dump)
    wide = torch.zeros(1, 1).expand(2, 10**12)
    value = {"target_logits": torch.zeros(2, 3), "draft_logits": wide}
    assert "expanded tensor" in refusal(saved(tmp_path / "x.pt", value), open_dump, pad_vocab=True)
    assert "expanded tensor" in refusal(saved(tmp_path / "x.pt", {"target_logits": one}), open_target)
    value = pair(2, 3) | {"draft_logits": torch.randn(1, 3).expand(2, 3)}
    assert np.ptp(open_dump(saved(tmp_path / "x.pt", value)).batch(0, 2).draft, axis=0).max() == 0


@pytest.mark.parametrize("point", [0x110000, 0x8AEB007D, 0xFFFFFFFF])
def test_text_that_is_none(tmp_path, point):
    bad = np.frombuffer(struct.pack("<2I", point, 65), "<U1")
    path = tmp_path / "x.npz"
    np.savez(path, dataset=bad, **{key: value.numpy() for key, value in pair(2, 3).items()})
    assert "not Unicode" in refusal(path, open_dump)
    np.savez(path, meta=bad[:1].reshape(()))
    assert "not Unicode" in refusal(path)
    text = np.str_("abc")
    whole = saved(tmp_path / "x.pt", {"meta": {"a": text, "b": np.array(["abc"])}}).read_bytes()
    held = "abc".encode("utf-32-le")
    assert whole.count(held) >= 1
    (tmp_path / "x.pt").write_bytes(whole.replace(held, struct.pack("<I", point) + held[4:]))
    with contextlib.suppress(InputError):  # the text in the array is not looked at
        assert load_mapping(tmp_path / "x.pt")["meta"]["a"] == "abc"


def test_text_that_cannot_be_written(tmp_path):
    assert "cannot be written" in refusal(
        saved(tmp_path / "x.pt", pair(2, 3) | {"dataset": "\ud800"}), open_dump
    )


def test_stacked_rounds(tmp_path):
    """Formats without lists of dicts."""
    arrays = {
        "draft_tokens": torch.tensor([[1, 2], [0, 3]]),
        "draft_logits": torch.randn(2, 2, 5),
        "target_logits": torch.randn(2, 3, 5),
        "accepted": torch.tensor([1, 2]),
        "next_token": torch.tensor([4, 0]),
        "u": torch.tensor([[0.5, 0.25], [0.0, 0.75]], dtype=torch.float64),
    }
    for path in (
        saved_npz(tmp_path / "x.npz", arrays),
        saved_safetensors(tmp_path / "x.safetensors", arrays),
    ):
        dump = open_rounds(path)
        assert [one.accepted for one in dump.rounds] == [1, 2]
        assert [one.next_token for one in dump.rounds] == [4, 0]
        assert dump.rounds[1].u.tolist() == [0.0, 0.75]
        assert np.array_equal(dump.logits(1).target, arrays["target_logits"][1].numpy())
        assert "is a rounds dump" in refusal(path, open_dump)
    short = arrays | {"accepted": torch.tensor([1])}
    assert "one entry a round" in refusal(saved_npz(tmp_path / "x.npz", short))


def test_suffixes(tmp_path):
    buffer = io.BytesIO()
    torch.save(pair(2, 3), buffer)
    (tmp_path / "x.PT").write_bytes(buffer.getvalue())
    assert open_dump(tmp_path / "x.PT").positions == 2
    (tmp_path / "x.bin").write_bytes(b"_logit")
    assert "llama.cpp" in refusal(tmp_path / "x.bin")
