"""Files to read: whole ones, crafted ones, and the comparison with PyTorch."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from resispec_verify.dumps import load_mapping
from resispec_verify.errors import InputError


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


def saved_safetensors(path: Path, value: dict, metadata: dict | None = None) -> Path:
    """Save tensors as the library does."""
    from safetensors.torch import save_file

    save_file({key: tensor.contiguous() for key, tensor in value.items()}, path, metadata)
    return path


def saved_npz(path: Path, value: dict, *, compressed: bool = False) -> Path:
    """Save arrays as NumPy does."""
    save = np.savez_compressed if compressed else np.savez
    save(
        path, **{key: item.numpy() if isinstance(item, torch.Tensor) else item for key, item in value.items()}
    )
    return path


def saved_llamacpp(path: Path, logits: np.ndarray, tokens: np.ndarray) -> Path:
    """Write a base file of llama.cpp from float32 logits ``[chunks, n_ctx, vocab]``, by its description."""
    chunks, contexts, vocab = logits.shape
    pieces = [b"_logits_", struct.pack("<3i", contexts, vocab, chunks), tokens.astype("<i4").tobytes()]
    for chunk in logits:
        for row in chunk[contexts // 2 : contexts - 1].astype(np.float32):
            highest = row.max()
            lowest = max(row.min(), highest - np.float32(16))
            norm = np.float32(np.log(np.exp((row - highest).astype(np.float64)).sum()))
            step = np.float32((highest - lowest) / np.float32(65535))
            levels = np.rint((row.astype(np.float64) - lowest) / step) if step else np.zeros(vocab)
            pieces.append(np.asarray([step, lowest - highest - norm], "<f4").tobytes())
            pieces.append(np.clip(levels, 0, 65535).astype("<u2").tobytes() + bytes(2 * (vocab % 2)))
    path.write_bytes(b"".join(pieces))
    return path


def legacy_saved(path: Path, value: object) -> Path:
    """Save as PyTorch did before 1.6."""
    return saved(path, value, _use_new_zipfile_serialization=False)


def cut_lengths(size: int) -> tuple[int, ...]:
    """How long a file is after the cuts that downloads suffer."""
    return (0, min(7, size - 1), size // 2, size - 1)


#: One file of each format that holds any dict of arrays; a new one is tested by its line here.
WRITERS = {
    "x.pt": saved,
    "x.safetensors": saved_safetensors,
    "x.npz": saved_npz,
    "old.pt": legacy_saved,
}
#: Those of them that have no bfloat16.
WITHOUT_BFLOAT16 = {"x.npz"}


def logit_pair(*shape: int, dtype: torch.dtype = torch.float16) -> dict:
    """Target and draft logits, the same at every call, and a token more than rows."""
    generator = torch.Generator().manual_seed(5)
    return {
        key: torch.randn(shape, generator=generator).to(dtype) for key in ("target_logits", "draft_logits")
    } | {"tokens": torch.arange(shape[0] + 1) % shape[-1]}


def refused(path: object, read: Callable = load_mapping, **options) -> str:
    """The one line that refuses a file."""
    with pytest.raises(InputError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


#: Tokens of the rounds and trees below.
V = 6


def one_round(gamma: int = 3, accepted: int = 1, **others) -> dict:
    return {
        "draft_tokens": torch.arange(gamma) % V,
        "draft_logits": torch.randn(gamma, V),
        "target_logits": torch.randn(gamma + 1, V),
        "u": torch.linspace(0, 0.9, gamma, dtype=torch.float64),
        "accepted": accepted,
        "next_token": 2,
        "context_len": 10,
    } | others


def tree(parent, prefixes: int = 2, rows: int | None = None, **others) -> dict:
    inner = len({p for p in parent if p >= 0})
    count = rows or max(1, inner)
    return {
        "target_logits": torch.randn(prefixes, count, V),
        "draft_logits": torch.randn(prefixes, count, V),
        "tokens": torch.randint(0, V, (prefixes, len(parent))),
        "parent": torch.tensor(parent),
    } | others


UNEVEN = [-1, 0, 0, 1, 2, 2, 2, 4]
