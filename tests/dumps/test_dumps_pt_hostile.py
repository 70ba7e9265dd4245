"""Damaged and malicious `.pt` files end in one line, with nothing executed."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch
from dump_helpers import crafted, rewritten, saved, tensor_pickle

from resispec_verify.dumps.formats import unpickle
from resispec_verify.dumps.formats.pt import read_pt
from resispec_verify.errors import InputError


def refusal(path) -> str:
    with pytest.raises(InputError) as caught:
        read_pt(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < 1000
    return message


class Call:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("nested", [False, True])
def test_calls_are_refused_and_named(tmp_path, protocol, nested):
    marker = tmp_path / "marker"
    call = Call(os.system, f"touch {marker}")
    value = {"target_logits": torch.ones(2), "meta": [call]} if nested else call
    message = refusal(saved(tmp_path / "x.pt", value, pickle_protocol=protocol))
    assert not marker.exists()
    assert "nothing was executed" in message
    if protocol:
        assert f"{os.name}.system" in message
        assert not nested or "key meta[0]" in message


EVAL = b"cbuiltins\neval\n(X\x03\x00\x00\x001+1tR"


@pytest.mark.parametrize(
    ("pickled", "words"),
    [
        (b"\x80\x02" + EVAL + b".", "builtins.eval"),
        (b"\x80\x02" + EVAL + b"0N.", "builtins.eval"),  # result thrown away
        (b"\x80\x02c__builtin__\neval\n0N.", "builtins.eval"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x031+1\x85R.", "builtins.eval"),
        (b"\x80\x04\x8c\x08builtins\x8c\x0deval.__call__\x93.", "builtins.eval.__call__"),
        (b"\x80\x02ctorch.storage\n_load_from_bytes\n.", "torch.storage._load_from_bytes"),
        (b"\x80\x02ctorch\nload\n.", "torch.load"),
        (b"\x80\x02cos\n\x1b[31m\n.", r"os.\x1b[31m"),
        (b"\x80\x02c" + b"a" * 100_000 + b"\nb\n.", "aaa..."),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n.", "neither a tensor nor a plain value"),
        (b"\x80\x02ctorch\nFloatStorage\n)R.", "cannot be called"),
        (b"\x80\x02X\x01\x00\x00\x00a)R.", "cannot be called"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R.", "latin1"),
        (b"\x80\x02ctorch\nSize\nN\x81.", "not a class"),
        (b"\x80\x02(i__builtin__\neval\n.", "opcode INST"),
        (b"\x80\x02\x82\x01.", "opcode EXT1"),
        (b"\x80\x02Pabc\n.", "opcode PERSID"),
        (b"\x80\x02\xfe.", "opcode 0xfe"),
        (b"\x80\x02N", "damaged"),
        (b"", "damaged"),
        (b"\x80\x02]a.", "damaged"),
        (b"\x80\x02NQ.", "invalid storage"),
    ],
)
def test_pickles_that_are_not_data(tmp_path, pickled, words):
    assert words in refusal(crafted(tmp_path / "x.pt", pickled))


@pytest.mark.parametrize(
    "target",
    [
        b"ctorch._utils\n_rebuild_tensor_v2\n",
        b"ctorch\nFloatStorage\n",
        b"ccollections\nOrderedDict\n",
        b"X\x01\x00\x00\x00a",
        b"]",
    ],
)
def test_build_changes_nothing(tmp_path, target):
    """BUILD sets attributes; on a shared callable that would poison every later load."""
    before = {name: (vars(f) if hasattr(f, "__dict__") else {}, getattr(f, "__defaults__", None))
              for name, f in unpickle._BUILDERS.items()}  # fmt: skip
    state = pickle.dumps({"__defaults__": (1, 2, 3), "name": "evil", "allowed": True}, 2)[2:-1]
    slots = b"N" + pickle.dumps({"name": "evil"}, 2)[2:-1] + b"\x86"
    for attack in (state, slots):
        message = refusal(crafted(tmp_path / "x.pt", b"\x80\x02" + target + attack + b"b."))
        assert "sets attributes" in message
    assert before == {name: (vars(f) if hasattr(f, "__dict__") else {}, getattr(f, "__defaults__", None))
                      for name, f in unpickle._BUILDERS.items()}  # fmt: skip
    assert read_pt(crafted(tmp_path / "y.pt", tensor_pickle(), s0=bytes(24)))["t"].shape == (2, 3)


def test_build_cannot_reach_a_tensor(tmp_path):
    state = b"(K\x01K\x09\x85cnumpy\ndtype\nX\x02\x00\x00\x00i1\x89\x88\x87R\x89X\x00\x00\x00\x00tb"
    pickled = tensor_pickle()[:-2] + state + b"s."
    assert "sets attributes" in refusal(crafted(tmp_path / "x.pt", pickled, s0=bytes(24)))


HUGE = 2**62


@pytest.mark.parametrize(
    "numbers",
    [
        {"offset": 1},
        {"offset": -1},
        {"size": (2, 4)},
        {"size": (-2, -3)},
        {"stride": (-3, 1)},
        {"stride": (4, 1)},
        {"stride": (3,)},
        {"size": (HUGE, HUGE), "stride": (0, 0)},
        {"size": (HUGE // 2, 8), "stride": (0, 1)},
        {"size": (HUGE // 2, 0, 2)},
        {"size": (2,), "stride": (HUGE // 4,)},
        {"offset": 2**64},
        {"offset": 1 << 30_000},
        {"size": (1,) * 65, "stride": (1,) * 65},
        {"numel": 7},
        {"numel": -1},
        {"numel": 5},
        {"numel": 2**70},
        {"storage": "DoubleStorage"},
        {"storage": "QInt8Storage"},
        {"key": "1"},
        {"key": "../data.pkl"},
        {"key": "\x1b[2J"},
    ],
    ids=lambda numbers: "-".join(numbers),
)
def test_tensors_outside_their_storage(tmp_path, numbers):
    path = crafted(tmp_path / "x.pt", tensor_pickle(**numbers), s0=bytes(24))
    message = refusal(path)
    assert message.isprintable()


def test_an_expanded_view_allocates_nothing(tmp_path):
    numbers = {"size": (10**12, 3), "stride": (0, 1)}
    path = crafted(tmp_path / "x.pt", tensor_pickle(**numbers), s0=bytes(24))
    tracemalloc.start()
    assert read_pt(path)["t"].shape == (10**12, 3)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # memo index 2^31
        b"\x80\x02B\xff\xff\xff\x7f.",  # 2 GiB of bytes
        b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".",
        b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"N.",
        b"\x80\x02\x8b\xff\xff\xff\x7f.",
        b"\x80\x02cnumpy\ndtype\nX\x09\x00\x00\x00S99999999\x89\x88\x87R0N.",
    ],
)
def test_lengths_in_a_pickle_allocate_nothing(tmp_path, pickled):
    path = crafted(tmp_path / "x.pt", pickled)
    tracemalloc.start()
    with contextlib.suppress(InputError):
        assert read_pt(path) in (None, b".")
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


def test_a_short_pickle_cannot_copy_a_long_text_often(tmp_path):
    text = b"X" + struct.pack("<I", 10**5) + b"a" * 10**5
    for copy in (b"c_codecs\nencode\nh\x00h\x01\x86R", b"c__builtin__\nset\nh\x02\x85R"):
        pickled = (
            b"\x80\x02" + text + b"q\x00X\x06\x00\x00\x00latin1q\x01](K\x01" + b"h\x00" * 10**5 + b"eq\x02]("
        )
        pickled += copy * 1000 + b"e."
        assert "copies more than it holds" in refusal(crafted(tmp_path / "x.pt", pickled))


def test_deep_and_circular_nesting(tmp_path):
    deep = 200_000
    cases = {
        "nested more than": b"\x80\x02" + b"]" * deep + b"a" * (deep - 1) + b".",
        "not a plain value": b"\x80\x02})" + b"\x85" * deep + b"Ns.",  # hashing it would overflow the stack
        "contains itself": b"\x80\x02]q\x00h\x00a.",
    }
    for words, pickled in cases.items():
        assert words in refusal(crafted(tmp_path / "x.pt", pickled))


def test_shared_containers_may_not_hide_depth(tmp_path):
    lists: list[list] = [[]]
    for _ in range(200):
        lists.append([lists[-1]])
    assert "nested more than" in refusal(saved(tmp_path / "x.pt", lists))


def test_exponential_sharing_is_linear(tmp_path):
    value: list = []
    for _ in range(50):
        value = [value, value]
    found = read_pt(saved(tmp_path / "x.pt", value))
    assert found[0] is found[1]


def test_truncated_files_name_path_and_size(tmp_path):
    whole = saved(tmp_path / "whole.pt", {"t": torch.arange(1000)}).read_bytes()
    for size in (0, 1, 3, 7, 100, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        path = tmp_path / "cut.pt"
        path.write_bytes(whole[:size])
        assert f"{size} bytes" in refusal(path)


def test_other_files(tmp_path):
    text = tmp_path / "x.pt"
    text.write_text("not a dump")
    assert "not a PyTorch zip file" in refusal(text)
    legacy = tmp_path / "legacy.pt"
    legacy.write_bytes(pickle.dumps(Call(os.system, "false")))
    assert "bare pickle" in refusal(legacy)
    with zipfile.ZipFile(tmp_path / "z.pt", "w") as archive:
        archive.writestr("a.txt", "a")
    assert "no single data.pkl" in refusal(tmp_path / "z.pt")
    assert "is a directory" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "absent.pt")
    os.mkfifo(tmp_path / "pipe.pt")
    assert "not a regular file" in refusal(tmp_path / "pipe.pt")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives_torch_does_not_write(tmp_path):
    source = saved(tmp_path / "x.pt", {"t": torch.arange(50)})
    path = tmp_path / "y.pt"

    def same(name, data):
        return data

    assert "compressed" in refusal(rewritten(path, source, same, zipfile.ZIP_DEFLATED))
    big = rewritten(path, source, lambda name, data: b"big" if "byteorder" in name else data)
    assert "big-endian" in refusal(big)
    no_data = rewritten(path, source, lambda name, data: None if name.endswith("/data/0") else data)
    assert "record data/0 is missing" in refusal(no_data)
    script = rewritten(path, source, same)
    with zipfile.ZipFile(script, "a") as archive:
        archive.writestr("x/constants.pkl", b"")
    assert "TorchScript" in refusal(script)
    with zipfile.ZipFile(path, "w") as archive:
        for _ in range(2):
            archive.writestr("x/data.pkl", tensor_pickle())
    assert "two records" in refusal(path)


def directory_field(data: bytes, record: bytes, offset: int, value: bytes) -> bytes:
    """Overwrite a field of a record's entry in the central directory."""
    at = data.rindex(record) - 46 + offset
    assert data[at - offset : at - offset + 4] == b"PK\x01\x02"
    return data[:at] + value + data[at + len(value) :]


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [
        (8, b"\x01\x00", "encrypted"),
        (10, b"\x08\x00", "compressed"),
        (20, struct.pack("<II", 10**9, 10**9), "has only"),
        (24, struct.pack("<I", 10**6), "compressed"),
        (42, struct.pack("<I", 5), "header"),
        (42, struct.pack("<I", 10**9), "header"),
    ],
)
def test_directories_that_lie(tmp_path, offset, value, words):
    data = crafted(tmp_path / "x.pt", tensor_pickle(), s0=bytes(24)).read_bytes()
    path = tmp_path / "y.pt"
    path.write_bytes(directory_field(data, b"x/data/0", offset, value))
    assert words in refusal(path)


def test_random_damage_is_an_input_error_or_a_read(tmp_path):
    meta = {"a": [1, 2.5, "text", None], "n": np.float64(2.0), "m": np.arange(3)}
    whole = saved(tmp_path / "x.pt", {"t": torch.arange(12).reshape(3, 4).T, "meta": meta}).read_bytes()
    rng = random.Random(1)
    path = tmp_path / "y.pt"
    refused = 0
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 8))):
            # most of a small file is alignment: aim at the pickle and the directory
            at = rng.choice(
                (rng.randrange(700), rng.randrange(len(whole)), len(whole) - rng.randrange(1, 700))
            )
            damaged[at] = rng.choice((0, 255, rng.randrange(256), damaged[at] ^ (1 << rng.randrange(8))))
        path.write_bytes(damaged)
        try:
            read_pt(path)
        except InputError:
            refused += 1
    assert 50 < refused < 400
