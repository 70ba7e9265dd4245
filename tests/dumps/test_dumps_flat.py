"""Flat dumps: keys, shapes, values, and what each fault says."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from dump_helpers import saved
from hypothesis import given
from hypothesis import strategies as st

from resispec_verify.dumps import Batch, FlatDump, kind, load_mapping, looks_like_probabilities, open_dump
from resispec_verify.dumps.formats.readers import READERS
from resispec_verify.dumps.kinds.flat import flat_from_mapping
from resispec_verify.errors import InputError

HERE = "dump.pt"
RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def same_numbers_whatever_ran_before():
    """Every test draws from the start of the generator, in any order and on any number of workers."""
    RNG.bit_generator.state = np.random.default_rng(3).bit_generator.state


def logits(*shape: int, dtype=np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def pair(*shape: int, dtype=np.float32, **others) -> dict:
    return {
        "target_logits": logits(*shape, dtype=dtype),
        "draft_logits": logits(*shape, dtype=dtype),
    } | others


def refusal(mapping: object, **options) -> str:
    with pytest.raises(InputError) as caught:
        flat_from_mapping(HERE, mapping, **options)
    assert str(caught.value).startswith("dump.pt: ")
    return str(caught.value)


def fault(mapping: dict, start: int = 0, stop: int = 100) -> str:
    with pytest.raises(InputError) as caught:
        flat_from_mapping(HERE, mapping).batch(start, stop)
    return str(caught.value)


def test_attributes():
    mapping = pair(3, 5, tokens=[1, 2, 3, 4], dataset="gsm8k", meta={"a": 1}, candidates=[[0], [1], [2]])
    dump = flat_from_mapping(HERE, mapping)
    assert isinstance(dump, FlatDump)
    assert (dump.path, dump.positions, dump.vocab, dump.shape, dump.dtype) == (HERE, 3, 5, (3, 5), "float32")
    assert (dump.tokens, dump.dataset, dump.meta) == ([1, 2, 3, 4], "gsm8k", {"a": 1})
    assert dump.candidates.tolist() == [[0], [1], [2]]
    assert dump.proposal is None
    assert dump.pad is None
    assert repr(dump) == "FlatDump('dump.pt', positions=3, vocab=5, dtype='float32')"


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, ">f2", ">f4", ">f8"]
)
@pytest.mark.parametrize("shape", [(6,), (4, 6), (2, 3, 6), (2, 1, 2, 6)])
def test_batch_is_exact(dtype, shape):
    mapping = pair(*shape, dtype=dtype, proposal_logits=logits(*shape, dtype=dtype))
    dump = flat_from_mapping(HERE, mapping)
    assert dump.positions == np.prod(shape[:-1], dtype=int)
    wide = np.float64 if np.dtype(dtype).itemsize == 8 else np.float32
    for start in range(dump.positions):
        batch = dump.batch(start, start + 2)
        assert isinstance(batch, Batch)
        for key, rows in zip(("target_logits", "draft_logits", "proposal_logits"), batch, strict=True):
            whole = mapping[key].reshape(-1, 6).astype(np.float64)
            assert rows is not None
            assert rows.dtype == wide
            assert rows.flags.c_contiguous
            assert rows.flags.writeable
            assert not np.shares_memory(rows, mapping[key])
            assert np.array_equal(rows, whole[start : start + 2])


def test_every_float16_widens_exactly():
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = halves[np.isfinite(halves)].reshape(-1, 1024)
    batch = flat_from_mapping(HERE, {"target_logits": finite, "draft_logits": finite[:, ::-1]}).batch(
        0, 10**9
    )
    assert np.array_equal(batch.target, finite.astype(np.float64))
    assert np.array_equal(np.signbit(batch.draft), np.signbit(finite[:, ::-1]))


@given(st.data())
def test_strided_leading_axes(data):
    """A [B, T, V] view that cannot be flattened without a copy gives the same rows."""
    sizes = data.draw(st.tuples(*[st.integers(1, 4)] * 3))
    axes = data.draw(st.permutations(range(3)))
    target = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes).transpose(axes)[:, ::-1]
    dump = flat_from_mapping(HERE, {"target_logits": target, "draft_logits": target})
    start = data.draw(st.integers(0, dump.positions - 1))
    stop = data.draw(st.integers(start + 1, dump.positions))
    assert np.array_equal(dump.batch(start, stop).target, target.reshape(dump.positions, -1)[start:stop])


def test_batches_touch_only_their_rows():
    broken = logits(2, 3, 4)
    broken[1, 2] = np.nan
    dump = flat_from_mapping(HERE, {"target_logits": broken, "draft_logits": logits(2, 3, 4)})
    dump.batch(0, 5)
    with pytest.raises(InputError, match=r"target_logits has NaN at position 5 \(index \[1, 2\]\), token 0"):
        dump.batch(5, 6)
    for start, stop in ((6, 7), (2, 2), (3, 1), (-1, 2)):
        with pytest.raises(IndexError):
            dump.batch(start, stop)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("key", ["target_logits", "draft_logits", "proposal_logits"])
@pytest.mark.parametrize("name", ["NaN", "-NaN", "+inf"])
def test_values_that_are_not_logits(dtype, key, name):
    mapping = pair(4, 7, dtype=dtype, proposal_logits=logits(4, 7, dtype=dtype))
    mapping[key][1, 3] = -np.inf  # one forbidden token is fine
    flat_from_mapping(HERE, mapping).batch(0, 4)
    mapping[key][2, 5] = {"NaN": np.nan, "-NaN": -np.nan, "+inf": np.inf}[name]
    expected = f"dump.pt: {key} has {name.lstrip('-')} at position 2, token 5"
    assert fault(mapping).startswith(expected)
    assert fault(mapping, 2, 3).startswith(expected)
    mapping[key][2] = -np.inf
    assert f"{key} at position 2 is -inf for every token" in fault(mapping)


def test_nan_beats_an_otherwise_empty_row():
    mapping = pair(2, 3)
    mapping["draft_logits"][1] = [-np.inf, np.nan, np.inf]
    assert "NaN at position 1, token 1" in fault(mapping)


@pytest.mark.parametrize(
    ("target", "draft"),
    [("target", "draft"), ("p_logits", "q_logits"), ("target_logits", "assistant_logits")],
)
def test_other_names(target, draft):
    mapping = {target: logits(2, 3), draft: logits(2, 3), "extra": 1}
    dump = flat_from_mapping(HERE, mapping)
    assert np.array_equal(dump.batch(0, 2).draft, mapping[draft])
    mapping[draft][1, 1] = np.nan
    assert f"{draft} has NaN at position 1" in fault(mapping)


def test_names_of_things_that_are_not_arrays_of_logits_do_not_make_keys_ambiguous():
    flat_from_mapping(HERE, pair(2, 3, target="a model", draft=np.array([1, 2])))


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        (logits(2, 3), "holds an array of shape [2, 3], not a dict"),
        ([logits(3), logits(3)], "holds a list of length 2 of ndarray, not a dict"),
        (None, "holds a NoneType"),
        ({}, "has no target_logits (keys: none)"),
        ({"a": 1, "b\n": 2}, r"has no target_logits (keys: a, b\n)"),
        ({str(i): i for i in range(99)}, "18, 19 and 79 more"),
        ({"target_logits": logits(2, 3), 7: 1}, "has no draft_logits (keys: target_logits, 7)"),
        (pair(2, 3, target=logits(2, 3)), "ambiguous: target_logits and target (keys: "),
        (
            {"target_logits": (logits(3), 1), "draft_logits": logits(1, 3)},
            "is a tuple of length 2 of ndarray",
        ),
        ({"target_logits": (), "draft_logits": logits(1, 3)}, "is a tuple of length 0"),
        ({"target_logits": [[0.0, 1.0]], "draft_logits": logits(1, 2)}, "is a list of length 1 of list"),
        (pair(2, 3, proposal_logits="x"), "proposal_logits is a str"),
        (pair(2, 3, rounds=[]), "is a rounds dump (key rounds)"),
        (pair(2, 3, parent=[]), "is a tree dump (key parent)"),
        (pair(0, 3), "target_logits is [0, 3]: no positions"),
        (pair(3, 0), "target_logits is [3, 0]: no positions or no tokens"),
        (pair(), "is a single number"),
        (pair(2, 3, dtype=np.int64), "target_logits has dtype int64: integers are not logits"),
        (pair(2, 3, dtype=np.bool_), "bool: integers are not logits"),
        (pair(2, 3, dtype=np.complex64), "complex64"),
        (pair(2, 3, dtype=object), "object"),
        (pair(2, 3, dtype=ml_dtypes.float8_e5m2), "float8_e5m2"),
        (
            {"target_logits": np.zeros((2, 3), "V2"), "draft_logits": logits(2, 3)},
            "two-byte values without a",
        ),
    ],
)
def test_what_is_not_a_flat_dump(mapping, words):
    assert words in refusal(mapping)


def test_shapes_that_differ():
    mapping = {"target_logits": logits(4, 100), "draft_logits": logits(3, 100)}
    assert "target_logits is [4, 100] but draft_logits is [3, 100]" in refusal(mapping)
    assert "target_logits is [4, 100] but draft_logits is [3, 100]" in refusal(mapping, pad_vocab=True)
    assert "[2, 6] but draft_logits is [3, 4, 6]" in refusal(
        {"target_logits": logits(2, 6), "draft_logits": logits(3, 4, 6)}
    )
    assert "proposal_logits is [1, 5]" in refusal(pair(2, 5, proposal_logits=logits(1, 5)))
    assert "widths 5 and 4" in refusal(pair(2, 5, proposal_logits=logits(2, 4)))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize(
    ("wide", "narrow"), [("target_logits", "draft_logits"), ("draft_logits", "target_logits")]
)
def test_padding(wide, narrow, dtype):
    mapping = {wide: logits(2, 3, 7, dtype=dtype), narrow: logits(2, 3, 5, dtype=dtype)}
    message = refusal(mapping)
    assert "7" in message
    assert "5" in message
    assert "--pad-vocab" in message
    dump = flat_from_mapping(HERE, mapping, pad_vocab=True)
    assert dump.pad == ((7, 5) if wide == "target_logits" else (5, 7))
    assert dump.vocab == 7
    batch = dump.batch(1, 4)._asdict()
    role, other = wide.removesuffix("_logits"), narrow.removesuffix("_logits")
    assert np.array_equal(batch[role], mapping[wide].reshape(6, 7)[1:4])
    assert np.array_equal(batch[other][:, :5], mapping[narrow].reshape(6, 5)[1:4])
    assert (batch[other][:, 5:] == -np.inf).all()
    mapping[narrow][1, 1] = -np.inf
    with pytest.raises(InputError, match="position 4"):
        dump.batch(0, 6)


def test_pad_vocab_without_need():
    assert flat_from_mapping(HERE, pair(2, 3), pad_vocab=True).pad is None


def test_dtypes_that_differ():
    mapping = {"target_logits": logits(2, 3, dtype=np.float16), "draft_logits": logits(2, 3)}
    assert flat_from_mapping(HERE, mapping).dtype == "float16/float32"


def test_kind():
    assert kind(pair(1, 2)) == "flat"
    assert kind({"rounds": []}) == "rounds"
    assert kind(pair(1, 2, parent=[])) == "tree"
    assert kind({"target_logits": 0}) == "target"
    assert kind({"draft_logits": 0}) == kind({}) == "unknown"
    assert kind({"chunks": []}) == "flat"
    assert kind({"target_log_probs": 0}) == "target"


def test_probabilities():
    rows = RNG.dirichlet(np.ones(50), size=40)
    assert looks_like_probabilities(flat_from_mapping(HERE, {"target_logits": rows, "draft_logits": rows}))
    half = rows.astype(np.float16)
    assert looks_like_probabilities(flat_from_mapping(HERE, {"target_logits": half, "draft_logits": rows}))
    for spoiled in (np.nan, -0.1, 0.2, -np.inf, np.inf):
        other = rows.copy()
        other[-1, 0] = spoiled
        assert not looks_like_probabilities(
            flat_from_mapping(HERE, {"target_logits": rows, "draft_logits": other})
        )
    one = np.ones((4, 1), np.float32)
    assert not looks_like_probabilities(flat_from_mapping(HERE, {"target_logits": one, "draft_logits": one}))


def test_probabilities_are_refuted_by_the_first_row():
    class Counting(np.ndarray):
        read = 0

        def __getitem__(self, item):
            if isinstance(item, slice):
                Counting.read += len(range(*item.indices(len(self))))
            return super().__getitem__(item)

    array = logits(1000, 8).view(Counting)
    assert not looks_like_probabilities(
        flat_from_mapping(HERE, {"target_logits": array, "draft_logits": array})
    )
    assert Counting.read == 1


def test_open_dump(tmp_path):
    target = torch.randn(2, 3, 8).to(torch.bfloat16)
    value = {"target_logits": target, "draft_logits": target.half(), "tokens": torch.arange(7), "meta": {}}
    for name in ("x.pt", "y.PTH"):
        dump = open_dump(saved(tmp_path / name, value))
        assert dump.dtype == "bfloat16/float16"
        assert dump.positions == 6
        assert np.array_equal(dump.batch(0, 6).target, target.reshape(6, 8).float().numpy())
        assert np.array_equal(dump.tokens, np.arange(7))
        assert set(load_mapping(tmp_path / name)) == set(value)
    with pytest.raises(InputError, match="--pad-vocab"):
        open_dump(saved(tmp_path / "w.pt", value | {"draft_logits": target[..., :5]}))
    assert open_dump(tmp_path / "w.pt", pad_vocab=True).pad == (8, 5)


def test_batches_outlive_the_dump_and_its_pages(tmp_path):
    value = torch.randn(64, 1024)
    path = saved(tmp_path / "x.pt", {"target_logits": value, "draft_logits": value})
    dump = open_dump(path)
    first = dump.batch(0, 32)
    again = dump.batch(0, 32)  # from pages given back in between
    del dump
    path.unlink()
    assert np.array_equal(first.target, value[:32].numpy())
    assert np.array_equal(again.target, first.draft)


def test_writable_maps_keep_what_was_written(tmp_path):
    logits(4, 2048).tofile(tmp_path / "x.bin")
    mine = np.memmap(tmp_path / "x.bin", np.float32, "c", shape=(4, 2048))
    mine[:] = 7
    dump = flat_from_mapping(HERE, {"target_logits": mine, "draft_logits": mine})
    dump.batch(0, 4)
    assert (mine == 7).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_positions(tmp_path):
    """Neither what is allocated nor what stays mapped."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    value = torch.zeros(256, 1, 65536, dtype=torch.float16).expand(256, 2, 65536).contiguous()
    path = saved(tmp_path / "x.pt", {"target_logits": value, "draft_logits": value})
    size = path.stat().st_size
    del value
    dump = open_dump(path)
    dump.batch(0, 4)
    before = resident()
    most = 0
    for start in range(0, dump.positions, 4):
        dump.batch(start, start + 4)
        most = max(most, resident() - before)
    assert most < size / 8


def test_files_that_are_not_dumps(tmp_path):
    def message(path) -> str:
        with pytest.raises(InputError) as caught:
            open_dump(path)
        return str(caught.value)

    assert "no such file" in message(tmp_path / "absent.pt")
    assert "is a directory" in message(tmp_path)
    (tmp_path / "empty.pt").touch()
    assert "is empty (0 bytes)" in message(tmp_path / "empty.pt")
    (tmp_path / "x.log").write_text("1,2")
    known = f"suffix .log is not a known format; give one of {', '.join(READERS)}, a folder"
    assert known in message(tmp_path / "x.log")
    (tmp_path / "nosuffix").write_text("1,2")
    assert "without suffix" in message(tmp_path / "nosuffix")
    assert "holds an array of shape [2], not a dict" in message(saved(tmp_path / "t.pt", torch.ones(2)))
    assert "cannot be read" in message("a\0b.pt")
