"""Every format gives the same arrays; `.npz` and `.safetensors` in detail."""

from __future__ import annotations

import json
import mmap
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from dump_helpers import (
    WITHOUT_BFLOAT16,
    WRITERS,
    logit_pair,
    raw_bytes,
    refused,
    saved,
    saved_npz,
    saved_safetensors,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.dumps import load_mapping, looks_like_probabilities, open_dump
from resispec_verify.dumps.formats import jsons, npz
from resispec_verify.dumps.formats import safetensors as safetensors_module
from resispec_verify.errors import InputError

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def same_numbers_whatever_ran_before():
    """Every test draws from the start of the generator, in any order and on any number of workers."""
    RNG.bit_generator.state = np.random.default_rng(11).bit_generator.state


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, dtype) for n in WRITERS for dtype in FLOATS if dtype != torch.bfloat16 or n not in WITHOUT_BFLOAT16],
)
def test_formats_agree(name, dtype, tmp_path):
    value = logit_pair(5, 9, dtype=dtype)
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
    value = logit_pair(4, 8)
    for path in (saved_safetensors(tmp_path / "x.safetensors", value), saved_npz(tmp_path / "x.npz", value)):
        assert isinstance(load_mapping(path)["target_logits"].base, mmap.mmap)


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
    assert open_dump(saved_npz(path, {"dataset": np.array("one"), **logit_pair(3, 4)})).dataset == "one"


def test_npz_without_pickles_and_types(tmp_path):
    good = {"draft_logits": RNG.normal(size=(2, 3))}
    path = tmp_path / "x.npz"
    np.savez(path, target_logits=np.array([[1, 2], [3]], dtype=object), **good)
    assert "Python objects" in refused(path)
    assert "target_logits" in refused(path)
    np.savez(path, target_logits=np.zeros((2, 3), ml_dtypes.bfloat16), **good)
    assert "bfloat16" in refused(path, open_dump)
    assert "float32" in refused(path, open_dump)
    np.savez(path, target_logits=np.zeros(2, [("a", "f4")]), **good)
    assert "with fields" in refused(path)
    np.savez(path, target_logits=np.zeros(2, "M8[s]"), **good)
    assert "M8" in refused(path)
    np.savez(path, **good, meta=np.array("{not json"))
    assert "meta is not valid JSON" in refused(path)
    np.savez(path, **good, meta=np.array("[" * 100_000))
    assert "meta is not valid JSON" in refused(path)


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
        assert words in refused(path)
        assert "target_logits" in refused(path)


def test_compressed_npz_streams(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "LARGE", 1000)
    monkeypatch.setattr(npz, "PIECE", 512)
    value = logit_pair(40, 33, dtype=torch.float32)
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
    assert "array t" in refused(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.npy", npy(HEADER.format("'<f4'", False, "(1000,)"), bytes(4000)))
    data = bytearray(path.read_bytes())
    for at in (14, data.rindex(b"PK\x01\x02") + 16):
        data[at] ^= 0xFF  # the checksum
    path.write_bytes(data)
    assert "checksum" in refused(path)
    monkeypatch.setattr(npz, "MOST_COMPRESSED", 5000)
    monkeypatch.setattr(npz, "LARGE", 1000)
    saved_npz(path, {"a": np.zeros((2, 1000))}, compressed=True)
    assert "array a needs 8000 bytes" in refused(path)
    saved_npz(path, {"a": np.zeros(500), "b": np.zeros(500)}, compressed=True)
    assert "array b needs 4000 bytes" in refused(path)
    lie = npz_of(path, npy(HEADER.format("'<f4'", False, f"({2**38},)"), bytes(4)), zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    refused(lie)
    assert tracemalloc.get_traced_memory()[1] < 2e6
    tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zip_files_that_are_no_npz(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(saved(tmp_path / "x.pt", {"t": torch.ones(2)}).read_bytes())
    assert "not one of numpy.savez" in refused(path)
    path.write_bytes(b"\x93NUMPY")
    assert "is not an .npz file" in refused(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("t.npy", b"abc")
    assert "is compressed" in refused(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("t.npy", npy(HEADER.format("'<f4'", False, "(0,)")))
        archive.writestr("t.npy", npy(HEADER.format("'<f4'", False, "(0,)")))
    assert "two records" in refused(path)


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
        ({"t": entry()}, bytes(4), "not fully covered"),
        ({"t": entry()}, bytes(12), "not fully covered"),
        ({"t": entry(offsets=(4, 12))}, bytes(12), "invalid offset for tensor `t`"),
        ({"t": entry(), "s": entry()}, bytes(8), "invalid offset"),
        ({"t": entry(), "s": entry(offsets=(4, 12))}, bytes(12), "invalid offset for tensor `s`"),
        ({"t": entry(offsets=(8, 0))}, bytes(8), "invalid offset"),
        ({"t": entry(offsets=(-8, 0))}, bytes(8), "invalid value"),
        ({"t": entry(offsets=(0, 2**70))}, bytes(8), "invalid type"),
        ({"t": entry(offsets=(0, True))}, bytes(8), "invalid type"),
        ({"t": entry(offsets=(0.0, 8))}, bytes(8), "invalid type"),
        ({"t": entry(shape=(3,))}, bytes(8), "invalid shape, data type, or offset"),
        ({"t": entry(shape=(2**40, 2**40))}, bytes(8), "overflow"),
        ({"t": entry(shape=(0, 2**80), offsets=(0, 0))}, b"", "damaged"),
        ({"t": entry(shape=(0, 2**62), offsets=(0, 0))}, b"", "damaged"),
        ({"t": entry(shape=[1] * 40, offsets=(0, 4))}, bytes(4), "damaged"),
        ({"t": entry(shape="ab")}, bytes(8), "invalid type"),
        ({"t": entry("F4", shape=(16,))}, bytes(8), "type F4"),
        ({"t": entry("BOO\u001b[31m")}, bytes(8), r"\x1b[31m"),
        ({"t\u001b[31m": entry(offsets=(4, 12))}, bytes(12), r"\x1b[31m"),
        ({"t": {}}, b"", "missing field"),
        ({"t": [1]}, b"", "invalid type"),
        ({"t": ["F32", [2], [0, 8]]}, bytes(8), "no valid dtype"),
        ({"t": entry() | {"path": 1, "buffer": 2}}, bytes(8), ""),
        ([1], b"", "not a dict"),
        (b'{"t": 1, "t": 2}', b"", "two keys"),
        (b'{"t": %(t)s, "t": %(t)s}' % {b"t": json.dumps(entry()).encode()}, bytes(8), "two keys"),
        (b"{", b"", "not valid JSON"),
        (b"\xff", b"", "not valid JSON"),
        (b"[" * 200_000, b"", "not valid JSON"),
        (b"9" * 10_000, b"", "not valid JSON"),
        ({"__metadata__": {"a": 1}}, b"", "expected a string"),
        ({"__metadata__": "a"}, b"", "damaged"),
        ({"__metadata__": {"sampling": "{"}}, b"", "sampling"),
    ],
)  # fmt: skip
def test_safetensors_headers(tmp_path, header, data, words):
    path = safetensors(tmp_path / "x.safetensors", header, data)
    if not words:
        assert load_mapping(path)["t"].tolist() == [0, 0]
        return
    assert words in refused(path)


def test_headers_are_not_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors_module, "LONGEST", 100)
    monkeypatch.setattr(jsons, "LONGEST", 100)
    assert "too long" in refused(safetensors(tmp_path / "x.safetensors", {"__metadata__": {"a": "b" * 100}}))
    np.savez(tmp_path / "x.npz", meta=np.array(json.dumps("a" * 100)))
    assert "too long" in refused(tmp_path / "x.npz")


@pytest.mark.parametrize("length", [10**6, 2**63, 2**64 - 1])
def test_safetensors_header_longer_than_the_file(tmp_path, length):
    path = safetensors(tmp_path / "x.safetensors", {}, length=length)
    tracemalloc.start()
    assert "10 bytes" in refused(path)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


def test_safetensors_metadata(tmp_path):
    metadata = {"sampling": '{"top_k": [1, 2, 3]}', "dataset": "gsm8k", "model": "m"}
    dump = open_dump(saved_safetensors(tmp_path / "x.safetensors", logit_pair(3, 4), metadata))
    assert dump.meta == {"sampling": {"top_k": [1, 2, 3]}, "dataset": "gsm8k", "model": "m"}
    assert dump.dataset == "gsm8k"
    assert [one["top_k"] for one in dump.sampling] == [1, 2, 3]


def test_a_type_that_is_an_object_is_one_line(tmp_path):
    header = b'{"target_logits":{"dtype":{"F32":null},"shape":[1,1],"data_offsets":[0,4]}}'
    path = tmp_path / "dump.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(InputError, match="dtype"):
        load_mapping(path)
