"""PyTorch files from before 1.6, which are pickles one after the other: checked here, built by PyTorch."""

from __future__ import annotations

import mmap
import os
import re
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from resispec_verify.dumps.formats.torch_names import DTYPES
from resispec_verify.dumps.formats.unpickle import Storage, load_stream
from resispec_verify.dumps.opening import open_file, show
from resispec_verify.errors import InputError

__all__ = ["OLDEST_TORCH", "is_legacy", "read_legacy"]

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
COUNT = struct.Struct("<q")
OLDEST_TORCH = (2, 6)
RESAVE = "re-save it with torch.save(torch.load(path, weights_only=True), path)"


def is_legacy(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins like a pickle, as those before PyTorch 1.6 do."""
    with open_file(path) as file:
        return file.read(1) == b"\x80"


def read_legacy(path: str | os.PathLike[str]) -> object:
    """Read a file of `torch.save` before 1.6; it is held in memory.

    The file is walked first with the same machine as zip files: it must need nothing but plain data, and
    its storages must be as long as it says. Only then `torch.load` sees it, with ``weights_only=True``, and
    only a torch that is not open to CVE-2025-32434.

    Raises
    ------
    InputError
        If it is a pickle of another kind, is damaged, needs anything but tensors and plain values, or torch
        is missing or older than 2.6.
    """
    path = Path(path)
    _walk(path)
    torch = _torch(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        return _arrays(torch, loaded)
    except Exception as error:  # whatever torch finds wrong with a file, it is the file
        reason = show(" ".join(str(error).split()))
        raise InputError(f"{path}: torch.load refuses it ({reason}); {RESAVE}") from None


def _torch(path: Path) -> Any:
    problem = f"{path}: is a PyTorch file from before 1.6 (not a zip file), and reading it needs torch"
    remedy = f"pip install 'resispec-verify[torch]', or {RESAVE}"
    try:
        import torch
    except ImportError:
        raise InputError(f"{problem}, which is not installed; {remedy}") from None
    version = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if version is None or tuple(map(int, version.groups())) < OLDEST_TORCH:
        raise InputError(
            f"{problem} 2.6 or later: weights_only in {torch.__version__} is unsafe (CVE-2025-32434); "
            f"{remedy}"
        )
    return torch


def _walk(path: Path) -> None:
    """Refuse a file that needs more than plain data, or whose storages are not as long as it says."""
    with open_file(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as stream:

        def following(what: str) -> tuple[object, dict[str, Storage]]:
            try:
                return load_stream(stream, len(stream), path)
            except InputError as error:
                raise InputError(f"{error} ({what}; {len(stream)} bytes in all)") from None

        if following("a bare pickle, not a file of torch.save, or a truncated one")[0] != MAGIC:
            raise InputError(
                f"{path}: is a bare pickle, not a file of torch.save, and is not opened; save a dict of "
                "tensors with torch.save"
            )
        before = "a PyTorch file from before 1.6, perhaps truncated"
        protocol, system = following(before)[0], following(before)[0]
        if protocol != PROTOCOL or not isinstance(system, dict) or system.get("little_endian") is not True:
            raise InputError(f"{path}: is not a little-endian PyTorch file of protocol {PROTOCOL}; {RESAVE}")
        storages = following(before)[1]
        _check_storages(path, stream, storages, following(before)[0])


def _check_storages(path: Path, stream: mmap.mmap, storages: dict[str, Storage], keys: object) -> None:
    if not isinstance(keys, list) or not all(type(key) is str for key in keys):
        raise InputError(f"{path}: truncated or damaged: its list of storages is not one; record it again")
    if sorted(keys) != sorted(storages):
        raise InputError(f"{path}: truncated or damaged: its storages are not those it uses; record it again")
    at, size = stream.tell(), len(stream)
    for key in keys:
        storage = storages[key]
        if at + COUNT.size + storage.nbytes > size:
            raise InputError(
                f"{path}: truncated: storage {show(key)} says {storage.nbytes} bytes from byte {at} on, but "
                f"the file has only {size} bytes; copy or record it again"
            )
        if COUNT.unpack_from(stream, at)[0] * storage.dtype.itemsize != storage.nbytes:
            raise InputError(f"{path}: damaged: storage {show(key)} has two lengths; record it again")
        at += COUNT.size + storage.nbytes


def _arrays(torch: Any, item: Any) -> Any:
    """Containers with arrays for tensors, read-only as those of zip files are."""
    if isinstance(item, torch.Tensor):
        dtype = DTYPES[str(item.dtype)]
        if dtype is None:
            raise TypeError(f"{item.dtype} is not a type NumPy has")
        item = item.detach()
        raw = np.empty(item.shape, dtype) if not item.numel() else _bits(torch, item, dtype)
        raw.flags.writeable = False
        return raw
    if isinstance(item, dict):
        return {key: _arrays(torch, value) for key, value in item.items()}
    if isinstance(item, (list, tuple, set, frozenset)):
        shape = {list: list, set: set, frozenset: set}.get(type(item), tuple)
        return shape(_arrays(torch, value) for value in item)
    return str(item) if isinstance(item, (torch.dtype, torch.device)) else item


def _bits(torch: Any, tensor: Any, dtype: np.dtype) -> np.ndarray:
    storage = tensor.untyped_storage()
    whole = torch.tensor([], dtype=torch.uint8).set_(storage).numpy()
    usable = whole[: whole.size // dtype.itemsize * dtype.itemsize].view(dtype)
    steps = tuple(step * dtype.itemsize for step in tensor.stride())
    return np.lib.stride_tricks.as_strided(usable[tensor.storage_offset() :], tensor.shape, steps)
