"""`.safetensors` files, memory-mapped: the package checks the header, and the arrays are views of the file.

The package's own arrays are copies, and it has none of bfloat16 for NumPy. It takes a name that is
there twice once, in silence, and headers of a hundred megabytes; so the header is parsed here first.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from resispec_verify.dumps.formats.jsons import LONGEST, parse_json
from resispec_verify.dumps.formats.mapped import c_strides, view
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
        header, begin = _header(path, file)
        try:
            safe_open(path, framework="numpy")  # type: ignore[call-arg]
            buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except SafetensorError as error:
            why = show(str(error).split("header: ", 1)[-1])
            size = os.fstat(file.fileno()).st_size
            raise InputError(f"{path}: truncated or damaged, {size} bytes ({why}); {RECORD}") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be memory-mapped ({error}); copy it to a local disk") from None
    metadata = header.pop(METADATA, None)
    arrays = {key: _tensor(path, key, buffer, begin, entry) for key, entry in header.items()}
    return arrays if metadata is None else _with_metadata(path, arrays, metadata)


def _header(path: Path, file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The header, and where the data begin; that it is short, is JSON and names nothing twice is certain."""
    start, size = file.read(LENGTH.size), os.fstat(file.fileno()).st_size
    length = LENGTH.unpack(start)[0] if len(start) == LENGTH.size else size
    if LENGTH.size + length > size:
        raise InputError(f"{path}: truncated, or not a .safetensors file: it has {size} bytes; {RECORD}")
    if length > LONGEST:
        raise InputError(f"{path}: its header of {length} bytes is too long; keep it below {LONGEST}")
    header = parse_json(file.read(length), f"{path}: the header")
    if not isinstance(header, dict):
        raise InputError(f"{path}: its header is a {type(header).__name__}, not a dict; {RECORD}")
    return header, LENGTH.size + length


def _tensor(path: Path, key: str, buffer: mmap.mmap, begin: int, entry: Any) -> np.ndarray:
    name = f"{path}: tensor {show(key)}"
    # The package takes a list of the three, too, and a type as an object.
    if not isinstance(entry, dict) or not isinstance(entry["dtype"], str):
        raise InputError(f"{name} has no valid dtype, shape and data_offsets in the header; {RECORD}")
    dtype, shape = DTYPES.get(entry["dtype"]), tuple(entry["shape"])
    if dtype is None:
        raise InputError(
            f"{name} has type {show(entry['dtype'])}, which is not read; known: {', '.join(DTYPES)}"
        )
    first, last = (begin + offset for offset in entry["data_offsets"])
    try:
        return view(buffer, dtype, shape, c_strides(shape), first, 0, last)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name} is damaged ({show(str(error))}); {RECORD}") from None


def _with_metadata(path: Path, arrays: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    if "sampling" in meta:
        meta["sampling"] = parse_json(meta["sampling"], f"{path}: the metadata 'sampling'")
    if "dataset" in meta:
        arrays.setdefault("dataset", meta["dataset"])
    arrays.setdefault("meta", meta)
    return arrays
