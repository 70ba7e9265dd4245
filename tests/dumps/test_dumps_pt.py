"""What `read_pt` returns is what ``torch.load(weights_only=True)`` returns."""

from __future__ import annotations

import collections
import mmap
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from dump_helpers import assert_same, crafted, rewritten, saved, tensor_pickle
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.dumps.formats import unpickle
from resispec_verify.dumps.formats.pt import read_pt
from resispec_verify.errors import InputError

DTYPES = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32,
    torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64,
    torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
)  # fmt: skip


def bits(dtype: torch.dtype, count: int, seed: int = 0) -> torch.Tensor:
    """Random bit patterns, NaNs and infinities among them."""
    data = np.random.default_rng(seed).integers(0, 256, count * dtype.itemsize, np.uint8)
    return torch.from_numpy(data % 2 if dtype is torch.bool else data).view(dtype)


def agrees(path) -> object:
    expected = torch.load(path, map_location="cpu", weights_only=True)
    found = read_pt(path)
    assert_same(expected, found)
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype, tmp_path):
    base = bits(dtype, 24)
    views = {
        "whole": base,
        "matrix": base.reshape(4, 6),
        "transposed": base.reshape(4, 6).T,
        "offset": base[5:9],
        "steps": base[1::3],
        "expanded": base[:6].expand(1000, 6),
        "scalar": base[3],
        "empty": base[:0],
        "empty matrix": base[:0].reshape(0, 7),
    }
    found = agrees(saved(tmp_path / "x.pt", views))
    assert isinstance(found["matrix"].base, mmap.mmap)
    assert found["expanded"].strides[0] == 0
    assert np.shares_memory(found["matrix"], found["offset"])


@st.composite
def strided(draw):
    """A tensor with random size and stride (0 and overlapping ones too) somewhere in its storage."""
    dtype = draw(st.sampled_from(DTYPES))
    size = draw(st.lists(st.integers(0, 4), max_size=4))
    stride = draw(st.lists(st.integers(0, 5), min_size=len(size), max_size=len(size)))
    offset = draw(st.integers(0, 7))
    last = offset + sum(max(n - 1, 0) * s for n, s in zip(size, stride, strict=True))
    return bits(dtype, last + 1 + draw(st.integers(0, 3)), last).as_strided(size, stride, offset)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(min_size=1)
tensors = strided()
trees = st.recursive(
    plain | tensors | st.sampled_from([torch.float16, torch.Size([2, 3]), torch.device("cpu")]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.booleans(), inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3).map(collections.OrderedDict)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(trees)
def test_containers_and_strides(tmp_path_factory, tree):
    agrees(saved(tmp_path_factory.mktemp("tree") / "x.pt", tree))


@settings(max_examples=25, deadline=None)
@given(tree=trees, protocol=st.sampled_from([3, 4, 5]))
def test_later_protocols(tmp_path_factory, tree, protocol):
    path = saved(tmp_path_factory.mktemp("tree") / "x.pt", tree, pickle_protocol=protocol)
    assert_same(torch.load(path, weights_only=False), read_pt(path))  # ours: torch is lenient only so


def test_shared_storage_and_shared_containers(tmp_path):
    base = torch.arange(12.0)
    inner = [base, base[2:]]
    found = agrees(saved(tmp_path / "x.pt", {"a": inner, "b": inner, "c": base.reshape(3, 4)}))
    assert found["a"] is found["b"]
    assert np.shares_memory(found["a"][0], found["c"])


def test_parameters_state_dicts_and_gradients(tmp_path):
    module = torch.nn.Linear(3, 2)
    found = agrees(saved(tmp_path / "x.pt", {"p": module.weight, "s": module.state_dict()}))
    assert list(found["s"]) == ["weight", "bias"]


def test_ten_rows_of_a_huge_tensor(tmp_path):
    huge = torch.zeros(100_000, 8, dtype=torch.float16)
    huge[500:510] = 1
    found = agrees(saved(tmp_path / "x.pt", {"rows": huge[500:510]}))
    assert found["rows"].shape == (10, 8)
    assert found["rows"].base is not None


def test_numpy_values(tmp_path):
    scalars = {
        "f8": np.float64(0.1), "f4": np.float32(0.1), "f2": np.float16(0.1), "i": np.int64(-7),
        "u": np.uint8(200), "b": np.bool_(True), "c": np.complex64(1 + 2j), "s": np.str_("naïve"),
        "empty": np.str_(""), "y": np.bytes_(b"ab"), "big": np.array(3.5, ">f8")[()],
    }  # fmt: skip
    arrays = {
        "m": np.arange(6.0).reshape(2, 3), "t": np.arange(6, dtype=np.int16).reshape(2, 3).T,
        "z": np.zeros((0, 4)), "s": np.array(["a", "bcd"]), "0": np.array(2.5),
        "big": np.arange(3, dtype=">i4"),
    }  # fmt: skip
    for protocol in (2, 4):
        path = saved(tmp_path / "x.pt", {"meta": scalars, "arrays": arrays}, pickle_protocol=protocol)
        found = read_pt(path)
        assert found["meta"] == {key: value.item() for key, value in scalars.items()}
        assert {type(value) for value in found["meta"].values()} <= {float, int, bool, complex, str, bytes}
        for key, array in arrays.items():
            assert found["arrays"][key].dtype == array.dtype
            assert np.array_equal(found["arrays"][key], array)
            assert not found["arrays"][key].flags.writeable


def test_sets_and_complex_numbers(tmp_path):
    value = {"set": {1, "a"}, "frozen": frozenset({2.5}), "c": 1 + 2j}
    for protocol in (2, 4):
        assert read_pt(saved(tmp_path / "x.pt", value, pickle_protocol=protocol)) == value


def test_storages_of_other_devices_load_on_the_cpu(tmp_path):
    values = np.arange(6, dtype=np.float32)
    path = crafted(tmp_path / "x.pt", tensor_pickle(location="cuda:0"), s0=values.tobytes())
    assert np.array_equal(agrees(path)["t"], values.reshape(2, 3))
    half = saved(tmp_path / "half.pt", {"t": bits(torch.bfloat16, 8)})
    tagged = rewritten(
        tmp_path / "tagged.pt", half, lambda name, data: data.replace(b"X\3\0\0\0cpu", b"X\6\0\0\0cuda:0")
    )
    assert b"cuda:0" in tagged.read_bytes()
    agrees(tagged)


def test_files_without_a_byte_order_are_little_endian(tmp_path):
    source = saved(tmp_path / "x.pt", {"t": torch.arange(5)})
    agrees(rewritten(tmp_path / "y.pt", source, lambda name, data: None if "byteorder" in name else data))


def test_unaligned_storages(tmp_path):
    for extra in range(4):
        path = tmp_path / f"{extra}.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a" * extra + "x/data.pkl", tensor_pickle())
            archive.writestr("a" * extra + "x/data/0", np.arange(6, dtype=np.float32).tobytes())
        assert np.array_equal(read_pt(path)["t"], [[0, 1, 2], [3, 4, 5]])


def test_reading_does_not_import_torch(tmp_path):
    path = saved(tmp_path / "x.pt", {"t": torch.ones(2)})
    code = (
        "import sys; from resispec_verify.dumps import load_mapping; "
        "assert load_mapping(sys.argv[1])['t'].sum() == 2; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.eye(2).to_sparse(), "sparse tensor"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8), "quantised tensor"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj(), "conjugated"),
        (lambda: torch.empty(2, device="meta"), "meta device"),
        (lambda: torch.zeros(2, dtype=torch.bits16), "torch.bits16"),
        (lambda: torch.ones(2).untyped_storage(), "torch.Storage"),
        (lambda: np.datetime64("2020-01-01"), "dtype M8"),
        (lambda: np.array([None]), "dtype O8"),
        (lambda: np.zeros(2, [("a", "f4")]), "dtype V4"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_not_read_is_named_with_its_key(make, words, tmp_path):
    path = saved(tmp_path / "x.pt", {"ok": torch.ones(1), "meta": {"odd": [0, make()]}})
    with pytest.raises(InputError) as caught:
        read_pt(path)
    assert words in str(caught.value)
    assert "key meta['odd'][1]" in str(caught.value)
    assert str(path) in str(caught.value)


def test_dtypes_that_numpy_lacks(tmp_path, monkeypatch):
    monkeypatch.setitem(unpickle.DTYPES, "torch.uint16", None)
    path = saved(tmp_path / "x.pt", {"t": torch.zeros(2, dtype=torch.uint16), "dtype": torch.uint16})
    with pytest.raises(InputError, match=r"key t needs a tensor of torch\.uint16, which NumPy does not have"):
        read_pt(path)


class Buffer(torch.nn.Module):
    pass


def test_objects_are_named_with_their_key(tmp_path):
    for value in (Buffer(), collections.Counter("a"), collections.defaultdict(list), slice(1), Buffer):
        with pytest.raises(InputError, match=r"key meta\['x'\] needs [\w.]+") as caught:
            read_pt(saved(tmp_path / "x.pt", {"meta": {"a": "b", "x": value, "c": "d"}}))
        assert getattr(value, "__name__", type(value).__name__) in str(caught.value)
        assert "nothing was executed" in str(caught.value)
