"""Files to read: whole ones, crafted ones, and the comparison with PyTorch."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import torch


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """The values of a tensor in C order, as bits."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def assert_same(expected: object, found: object) -> None:
    """Assert that `found` is what torch.load returned, with arrays for tensors, bit for bit."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(found, np.ndarray)
        assert found.dtype.name == str(expected.dtype).removeprefix("torch.")
        assert found.shape == tuple(expected.shape)
        assert found.tobytes() == raw_bytes(expected)
        assert not found.flags.writeable
    elif isinstance(expected, dict):
        assert type(found) is dict
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_same(value, found[key])
    elif isinstance(expected, (list, tuple)):
        assert type(found) is (list if isinstance(expected, list) else tuple)
        assert len(found) == len(expected)
        for one, other in zip(expected, found, strict=True):
            assert_same(one, other)
    elif isinstance(expected, (torch.dtype, torch.device)):
        assert found == str(expected)
    else:
        assert type(found) is type(expected)
        assert found == expected or expected != expected


def saved(path: Path, value: object, **options) -> Path:
    """Save a value as torch does."""
    torch.save(value, path, **options)
    return path


def crafted(path: Path, pickled: bytes, **records: bytes) -> Path:
    """A `.pt` zip file with this data.pkl; ``s0=...`` is the storage ``data/0``."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", pickled)
        archive.writestr("x/version", b"3\n")
        archive.writestr("x/byteorder", b"little")
        for name, data in records.items():
            archive.writestr(f"x/data/{name[1:]}", data)
    return path


def rewritten(path: Path, source: Path, change, compression: int = zipfile.ZIP_STORED) -> Path:
    """Copy a zip file with ``change(name, data)`` applied to each record (None drops it)."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", compression) as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return path


def tensor_pickle(
    offset: int = 0,
    size: tuple = (2, 3),
    stride: tuple = (3, 1),
    numel: int = 6,
    storage: str = "FloatStorage",
    location: str = "cpu",
    key: str = "0",
) -> bytes:
    """The pickle of ``{"t": tensor}`` with these numbers, however absurd."""

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def integer(value: int) -> bytes:
        if -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)  # the form that torch's own reader knows
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8b" + struct.pack("<i", len(data)) + data

    def integers(values: tuple) -> bytes:
        return b"(" + b"".join(integer(value) for value in values) + b"t"

    out = io.BytesIO()
    out.write(b"\x80\x02}" + text("t") + b"ctorch._utils\n_rebuild_tensor_v2\n((")
    out.write(text("storage") + f"ctorch\n{storage}\n".encode() + text(key) + text(location) + integer(numel))
    out.write(b"tQ" + integer(offset) + integers(size) + integers(stride) + b"\x89)tRs.")
    return out.getvalue()
