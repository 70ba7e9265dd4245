"""`.safetensors` files, memory-mapped: a JSON header and the bytes of the tensors, nothing else."""

from __future__ import annotations

import math
import mmap
import os
import struct
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from resispec_verify.dumps.formats.jsons import LONGEST, parse_json
from resispec_verify.dumps.formats.mapped import view
from resispec_verify.dumps.opening import open_file, show
from resispec_verify.errors import InputError

__all__ = ["read_safetensors"]

LENGTH = struct.Struct("<Q")
METADATA = "__metadata__"
RECORD = "copy or record it again"

_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
    "BOOL": "bool", "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
DTYPES = {name: np.dtype(getattr(ml_dtypes, known, None) or known) for name, known in _NAMES.items()}


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a `.safetensors` file as a dict of read-only arrays on the memory-mapped file.

    Its metadata, which can only be strings, become `meta`; a `sampling` that is JSON is parsed, and a
    `dataset` is also put beside the arrays. bfloat16 and float8 have the dtypes of `ml_dtypes`.

    Raises
    ------
    InputError
        If the file is missing, truncated or damaged, or its tensors overlap, leave holes, reach beyond the
        file, or are of a type that is not known.
    """
    path = Path(path)
    if sys.byteorder != "little":
        raise InputError(f"{path}: .safetensors files are little-endian and this machine is not")
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        header, begin = _header(path, file.read(LENGTH.size), size, file)
        try:
            buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be memory-mapped ({error}); copy it to a local disk") from None
    metadata = header.pop(METADATA, None)
    spans: list[tuple[int, int, str]] = []
    arrays = {key: _tensor(path, buffer, begin, size, key, entry, spans) for key, entry in header.items()}
    _check_cover(path, sorted(spans), size - begin)
    return _with_metadata(path, arrays, metadata)


def _header(path: Path, start: bytes, size: int, file: Any) -> tuple[dict[str, Any], int]:
    length = LENGTH.unpack(start)[0] if len(start) == LENGTH.size else -1
    end = LENGTH.size + length
    if length < 0 or end > size:
        says = f"says its header has {length} bytes, but " if length >= 0 else ""
        raise InputError(
            f"{path}: truncated, or not a .safetensors file: {says}the file has {size} bytes; {RECORD}"
        )
    if length > LONGEST:
        raise InputError(f"{path}: its header of {length} bytes is too long; keep it below {LONGEST}")
    header = parse_json(file.read(length), f"{path}: the header")
    if not isinstance(header, dict):
        raise InputError(f"{path}: its header is a {type(header).__name__}, not a dict; {RECORD}")
    return header, end


def _tensor(
    path: Path,
    buffer: mmap.mmap,
    begin: int,
    size: int,
    key: str,
    entry: Any,
    spans: list[tuple[int, int, str]],
) -> np.ndarray:
    name = f"{path}: tensor {show(key)}"
    shape, offsets, code = _fields(entry)
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise InputError(f"{name} has no valid dtype, shape and data_offsets in the header; {RECORD}")
    dtype = DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise InputError(f"{name} has type {show(code)}, which is not read; known: {', '.join(DTYPES)}")
    first, last = offsets
    needed = math.prod(shape) * dtype.itemsize
    if last - first != needed:
        raise InputError(f"{name} is {code} {shape}, {needed} bytes, but has {last - first}; {RECORD}")
    if begin + last > size:
        raise InputError(
            f"{name} says it ends at byte {begin + last}, but the file has only {size} bytes; {RECORD}"
        )
    spans.append((first, last, key))
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    try:
        return view(buffer, dtype, tuple(shape), strides, begin + first, 0, begin + last)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name} is damaged ({show(str(error))}); {RECORD}") from None


def _fields(entry: Any) -> tuple[Any, Any, Any]:
    if not isinstance(entry, dict):
        return None, None, None
    return entry.get("shape"), entry.get("data_offsets"), entry.get("dtype")


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_cover(path: Path, spans: list[tuple[int, int, str]], data: int) -> None:
    at = 0
    for first, last, key in spans:
        if first != at:
            how = "overlaps the one before it" if first < at else "leaves a hole before it"
            raise InputError(
                f"{path}: tensor {show(key)} begins at byte {first} of the data and {how}, which ends at "
                f"{at}; "
                f"{RECORD}"
            )
        at = last
    if at != data:
        raise InputError(
            f"{path}: has {data} bytes of data but its tensors need {at}: truncated or damaged; {RECORD}"
        )


def _with_metadata(path: Path, arrays: dict[str, Any], metadata: Any) -> dict[str, Any]:
    if metadata is None:
        return arrays
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InputError(f"{path}: its metadata are not strings by name; write them as strings")
    meta: dict[str, Any] = dict(metadata)
    if "sampling" in meta:
        meta["sampling"] = parse_json(meta["sampling"], f"{path}: the metadata 'sampling'")
    if "meta" not in arrays:
        arrays["meta"] = meta
    if "dataset" in meta and "dataset" not in arrays:
        arrays["dataset"] = meta["dataset"]
    return arrays
