"""PyTorch `.pt` files, memory-mapped and without PyTorch: plain containers and tensors, never code."""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import numpy as np

from resispec_verify.dumps.formats.archive import Archive
from resispec_verify.dumps.formats.legacy import LegacyFile, is_legacy
from resispec_verify.dumps.formats.mapped import view
from resispec_verify.dumps.formats.torch_names import DTYPES
from resispec_verify.dumps.formats.unpickle import PLAIN, SCALARS, ArraySpec, Global, TensorSpec, load_pickle
from resispec_verify.dumps.opening import Crumb, key_name, show
from resispec_verify.errors import InputError

__all__ = ["read_pt"]

DEEPEST = 64


def read_pt(path: str | os.PathLike[str]) -> object:
    """Read what `torch.save` wrote, in its zip format or that before 1.6, executing nothing.

    Equal to ``torch.load(path, map_location="cpu",
    weights_only=True)`` with tensors as NumPy arrays, and with a few harmless NumPy values allowed that it
    refuses.

    Parameters
    ----------
    path : path
        The file. It must not be truncated while its arrays are in use: the system would end the process.

    Returns
    -------
    object
        Dicts (also for OrderedDict), lists, tuples (also for torch.Size), sets, str, int, float, complex,
        bool, bytes and None; a torch.dtype or torch.device is its name; NumPy scalars are Python
        numbers or strings. Every tensor and array is a read-only view of the memory-mapped file with the
        strides it was saved with; bfloat16 and float8 have the dtypes of `ml_dtypes`.

    Raises
    ------
    InputError
        If the file is missing, truncated, damaged, compressed, encrypted, of another byte order or kind,
        or needs anything but tensors and plain values. The message names the file, what it needs and the
        key it was found under.
    """
    if is_legacy(path):
        old = LegacyFile(path)
        return _Builder(old).value(old.content, None, 0)
    archive = Archive(path)
    order = archive.read("byteorder").decode("ascii", "replace") if "byteorder" in archive else "little"
    if order != sys.byteorder:
        raise InputError(
            f"{archive.path}: was saved on a {show(order)}-endian machine and this one is "
            f"{sys.byteorder}-endian; load it with torch.load and save it here"
        )
    return _Builder(archive).value(load_pickle(archive.read("data.pkl"), archive.path), None, 0)


class _Builder:
    """Copies the containers of a loaded pickle, with the descriptions in them replaced by arrays."""

    def __init__(self, archive: Archive | LegacyFile) -> None:
        self._archive = archive
        self._done: dict[int, tuple[object, int]] = {}  # id -> (copy, height)
        self._open: set[int] = set()

    def value(self, item: object, crumb: Crumb, depth: int) -> object:
        """Return the copy of `item`, which lies at `crumb`, under `depth` containers."""
        if type(item) in SCALARS:
            return item
        if isinstance(item, TensorSpec):
            return self._tensor(item, crumb)
        if isinstance(item, ArraySpec):
            return self._array(item, crumb)
        if isinstance(item, Global) and item.name in DTYPES:
            return item.name
        if type(item) in (dict, list, tuple, set):
            return self._container(item, crumb, depth)
        name = item.name if isinstance(item, Global) else f"torch.{type(item).__name__}"
        raise self._error(crumb, f"is {show(name)}, which is neither a tensor nor a plain value; {PLAIN}")

    def _container(self, item: Any, crumb: Crumb, depth: int) -> object:
        known = id(item)
        if known in self._open:
            raise self._error(crumb, f"contains itself; {PLAIN}")
        copy, height = self._done.get(known, (None, 0))
        if depth + height > DEEPEST:
            raise self._error(crumb, f"is nested more than {DEEPEST} deep; {PLAIN}")
        if height:
            return copy
        self._open.add(known)
        children = list(item.items() if type(item) is dict else enumerate(item))
        values = [self.value(child, (crumb, key), depth + 1) for key, child in children]
        if type(item) is dict:
            copy = dict(zip((key for key, _ in children), values, strict=True))
        else:
            copy = {list: list, tuple: tuple, set: set}[type(item)](values)
        self._open.discard(known)
        height = 1 + max((self._done.get(id(child), (None, 0))[1] for _, child in children), default=0)
        self._done[known] = (copy, height)
        return copy

    def _tensor(self, spec: TensorSpec, crumb: Crumb) -> np.ndarray:
        start, end = self._archive.span(f"data/{spec.storage.key}")
        if spec.storage.nbytes > end - start:
            declared = spec.storage.nbytes
            raise self._error(
                crumb, f"has a storage of {declared} bytes, of which {end - start} are there; record it again"
            )
        end = start + spec.storage.nbytes
        try:
            return view(self._archive.buffer, spec.dtype, spec.size, spec.stride, start, spec.offset, end)
        except (ValueError, OverflowError) as error:
            raise self._error(crumb, f"is a damaged tensor ({show(str(error))}); record it again") from None

    def _array(self, spec: ArraySpec, crumb: Crumb) -> np.ndarray:
        try:
            if math.prod(spec.shape) * spec.dtype.itemsize != len(spec.data):
                raise ValueError(f"{len(spec.data)} bytes for shape {spec.shape}")
            order = "F" if spec.fortran else "C"
            strides = np.ndarray(spec.shape, spec.dtype, spec.data, order=order).strides
            steps = tuple(stride // max(1, spec.dtype.itemsize) for stride in strides)
            return view(spec.data, spec.dtype, spec.shape, steps, 0, 0, len(spec.data))
        except (TypeError, ValueError, OverflowError) as error:
            raise self._error(crumb, f"is a damaged array ({show(str(error))}); record it again") from None

    def _error(self, crumb: Crumb, problem: str) -> InputError:
        what = f"key {key_name(crumb)}" if crumb else "its content"
        return InputError(f"{self._archive.path}: {what} {problem}")
