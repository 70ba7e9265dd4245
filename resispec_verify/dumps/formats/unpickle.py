"""A pickle machine for data only: it knows no opcode and no name that runs code.

The C unpickler would do but for three things: its memo is an array that one opcode can make gigabytes
long, BUILD and NEWOBJ act on whatever they are given, and it builds real objects on the way. Here the
opcodes are an allow-list, a global is an inert `Global` that only this module can interpret, and tensors
stay descriptions until the pickle has ended, so there is nothing for a hostile pickle to call or alter.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from resispec_verify.dumps.formats.mapped import is_text
from resispec_verify.dumps.formats.torch_names import DTYPES, STORAGES, UNSUPPORTED
from resispec_verify.dumps.opening import Crumb, key_name, show
from resispec_verify.errors import InputError

__all__ = [
    "PLAIN",
    "SCALARS",
    "ArraySpec",
    "Foreign",
    "Global",
    "Storage",
    "TensorSpec",
    "load_pickle",
    "load_stream",
]

SCALARS = (str, int, float, bool, type(None), bytes, complex)
PLAIN = "save a dict of plain tensors, numbers and strings instead"


class _Damaged(Exception):
    """The pickle is not one that torch.save writes; the message completes "its pickle ..."."""


@dataclass(frozen=True, slots=True, eq=False)
class Global:
    """A name on the allow-list that the pickle refers to; inert."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Foreign:
    """Something that is not read: it stands where the object would, so that its key can be named."""

    what: str


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """A record of the archive: its key, element type and declared size in bytes."""

    key: str
    dtype: np.dtype
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class TensorSpec:
    """A tensor not yet built; offset, size and stride are in elements and not yet checked."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: np.dtype


@dataclass(slots=True, eq=False)
class ArraySpec:
    """A NumPy array not yet built; nothing in it is checked but its dtype."""

    shape: tuple[int, ...] = (0,)
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.uint8))
    fortran: bool = False
    data: bytes = b""


@dataclass(slots=True, eq=False)
class _NumpyType:
    code: str
    order: str = "="

    def dtype(self) -> np.dtype:
        return np.dtype(self.order + self.code)


def _need(condition: object, problem: str) -> None:
    if not condition:
        raise _Damaged(problem)


def _check_key(key: object) -> None:
    # Hashing a deeply nested tuple recurses in C without a limit, so keys must be shallow.
    shallow = key if type(key) is tuple else (key,)
    _need(all(type(item) in SCALARS for item in shallow), "has a key or set member that is not a plain value")


def _tensor(storage, offset, size, stride, dtype=None, metadata=None) -> TensorSpec | Foreign:
    _need(isinstance(storage, Storage), "builds a tensor on something that is not a storage")
    _need(type(size) is tuple and type(stride) is tuple, "builds a tensor without size or stride")
    if metadata:
        return Foreign("a conjugated or negated view; save tensor.resolve_conj().resolve_neg()")
    return TensorSpec(storage, offset, size, stride, dtype or storage.dtype)


def _tensor_v2(storage, offset, size, stride, requires_grad=False, hooks=None, metadata=None):
    return _tensor(storage, offset, size, stride, metadata=metadata)


def _tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, metadata=None):
    _need(isinstance(dtype, Global) and dtype.name in DTYPES, "builds a tensor without a dtype")
    known = DTYPES[dtype.name]
    if known is None:
        return Foreign(f"a tensor of {dtype.name}, which NumPy does not have")
    return _tensor(storage, offset, size, stride, known, metadata)


def _parameter(data, requires_grad=False, hooks=None) -> TensorSpec:
    _need(isinstance(data, TensorSpec), "has a parameter that is not a tensor")
    return data


def _ordered_dict(pairs=()) -> dict:
    built = {}
    for key, value in pairs:
        _check_key(key)
        built[key] = value
    return built


def _set(items=()) -> set:
    _need(type(items) in (list, tuple), "has a set that is not made from a list")
    for item in items:
        _check_key(item)
    return set(items)


def _size(sizes=()) -> tuple:
    _need(type(sizes) in (list, tuple), "has a torch.Size that is not made from a tuple")
    return tuple(sizes)


def _device(kind, index=None) -> str:
    _need(type(kind) is str and type(index) in (int, type(None)), "has an invalid torch.device")
    return kind if index is None else f"{kind}:{index}"


def _empty_bytes() -> bytes:
    return b""


def _encode(text, encoding) -> bytes:
    # How protocol 2 spells bytes.
    _need(type(text) is str and encoding == "latin1", "encodes text otherwise than as latin1 bytes")
    return text.encode("latin1")


def _complex(real, imag) -> complex:
    _need(type(real) is float and type(imag) is float, "has an invalid complex number")
    return complex(real, imag)


def _numpy_type(code, *_flags) -> _NumpyType | Foreign:
    _need(type(code) is str, "has a NumPy dtype without a name")
    if not re.fullmatch(r"b1|[iu][1248]|f[248]|c8|c16|[US]\d{1,8}", code):
        return Foreign(f"a NumPy value of dtype {show(code)}, which is not a plain number or string")
    return _NumpyType(code)


def _numpy_scalar(kind, data) -> object:
    _need(isinstance(kind, _NumpyType) and type(data) is bytes, "has an invalid NumPy scalar")
    dtype = kind.dtype()
    _need(len(data) == dtype.itemsize, f"has a NumPy scalar of {len(data)} bytes for dtype {dtype}")
    value = np.ndarray((), dtype, data or bytes(4))
    _need(is_text(value), "has a NumPy text that is not Unicode")
    return value.item()


def _numpy_array(*_ignored) -> ArraySpec:
    return ArraySpec()


_BUILDERS: dict[str, Callable[..., object]] = {
    "torch._utils._rebuild_tensor": _tensor_v2,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch.Size": _size,
    "torch.device": _device,
    "collections.OrderedDict": _ordered_dict,
    "builtins.set": _set,
    "builtins.frozenset": _set,
    "builtins.bytes": _empty_bytes,
    "builtins.complex": _complex,
    "_codecs.encode": _encode,
    "numpy.dtype": _numpy_type,
    "numpy._core.multiarray.scalar": _numpy_scalar,
    "numpy._core.multiarray._reconstruct": _numpy_array,
}
_ALLOWED = _BUILDERS.keys() | DTYPES.keys() | STORAGES.keys() | {"numpy.ndarray"}

_DATA_OPCODES = """
    PROTO FRAME STOP MARK POP POP_MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT
    BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 EMPTY_LIST EMPTY_TUPLE TUPLE1
    TUPLE2 TUPLE3 TUPLE EMPTY_DICT EMPTY_SET APPEND APPENDS SETITEM SETITEMS ADDITEMS FROZENSET BINPUT
    LONG_BINPUT MEMOIZE BINGET LONG_BINGET BINPERSID GLOBAL STACK_GLOBAL REDUCE NEWOBJ BUILD
""".split()  # noqa: SIM905


class _Opcodes(dict):
    def __missing__(self, opcode: int) -> None:
        known = pickletools.code2op.get(chr(opcode))  # type: ignore[attr-defined]
        raise _Damaged(f"uses opcode {known.name if known else hex(opcode)}, which plain data does not need")


# Not the C unpickler, because of its memo; the Python one has a dict, and its opcodes in a table.
class _Unpickler(pickle._Unpickler):  # type: ignore[name-defined, misc]
    stack: list
    metastack: list[list]
    append: Callable[[object], None]
    pop_mark: Callable[[], list]

    def __init__(self, stream: Any, size: int) -> None:
        super().__init__(stream)
        self.foreign: list[Foreign] = []
        self.storages: dict[str, Storage] = {}
        self._may_copy = 2 * size + 1000

    def find_class(self, module: str, name: str) -> Global | Foreign:  # type: ignore[override]
        full = re.sub(r"^__builtin__\.", "builtins.", f"{module}.{name}")
        full = re.sub(r"^numpy\.core\.", "numpy._core.", full)
        if full in _ALLOWED:
            return Global(full)
        return self._note(Foreign(UNSUPPORTED.get(full) or show(full)))

    def _note(self, built):
        if isinstance(built, Foreign):
            self.foreign.append(built)
        return built

    def persistent_load(self, pid: object) -> Storage | Foreign:
        if type(pid) is tuple and len(pid) == 6 and pid[5] is None:
            pid = pid[:5]  # the format before 1.6 ends with a view of the storage, or None
        kind, storage, key, _location, numel = pid if type(pid) is tuple and len(pid) == 5 else (None,) * 5
        if isinstance(storage, Foreign):
            return storage
        dtype = STORAGES.get(storage.name) if isinstance(storage, Global) else None
        if kind != "storage" or dtype is None or type(key) is not str or type(numel) is not int or numel < 0:
            raise _Damaged("refers to an invalid storage")
        return self.storages.setdefault(key, Storage(key, dtype, numel * dtype.itemsize))

    def load_reduce(self) -> None:
        args = self.stack.pop()
        called = self.stack[-1]
        foreign = [item for item in (called, *args) if isinstance(item, Foreign)]
        if foreign:
            self.stack[-1] = foreign[0]  # it stays in the place of what it would have made
            return
        builder = _BUILDERS.get(called.name) if isinstance(called, Global) else None
        if builder is None or type(args) is not tuple:
            raise _Damaged(f"calls something that cannot be called ({type(called).__name__})")
        # A long text in the memo can be copied by a few bytes of pickle any number of times; a real file
        # spells out whatever it copies.
        self._may_copy -= sum(len(item) for item in args if isinstance(item, (str, bytes, list, tuple)))
        _need(self._may_copy >= 0, "copies more than it holds")
        self.stack[-1] = self._note(builder(*args))

    def load_newobj(self) -> None:
        self.stack.pop()
        _need(isinstance(self.stack[-1], Foreign), "makes an object of something that is not a class")

    def load_build(self) -> None:
        state = self.stack.pop()
        built = self.stack[-1]
        if isinstance(built, _NumpyType):
            _need(state[1] in ("<", ">", "|", "="), "has a NumPy dtype without a byte order")
            built.order = state[1]
        elif isinstance(built, ArraySpec):
            _version, shape, kind, fortran, data = state
            if isinstance(kind, Foreign):
                self.stack[-1] = kind
                return
            _need(isinstance(kind, _NumpyType) and type(data) is bytes, "has an invalid NumPy array")
            built.shape, built.dtype, built.fortran, built.data = shape, kind.dtype(), bool(fortran), data
        elif type(built) is not dict and not isinstance(built, Foreign):
            # The attributes of a dict (a module's state_dict has some) are not data and are left out.
            raise _Damaged(f"sets attributes of something that has none ({type(built).__name__})")

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def load_setitems(self) -> None:
        self._update(self.pop_mark())

    def _update(self, items: list) -> None:
        built = self.stack[-1]
        _need(type(built) is dict and len(items) % 2 == 0, "sets items of something that is not a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            _check_key(key)
            built[key] = value

    def load_additems(self) -> None:
        items = self.pop_mark()
        _need(type(self.stack[-1]) is set, "adds members to something that is not a set")
        self.stack[-1].update(_set(items))

    def load_frozenset(self) -> None:
        items = self.pop_mark()
        self.append(_set(items))

    dispatch = _Opcodes()
    for _name in _DATA_OPCODES:
        _code = getattr(pickle, _name)[0]
        dispatch[_code] = locals().get(f"load_{_name.lower()}") or pickle._Unpickler.dispatch[_code]  # type: ignore


def _locate(root: object) -> str:
    """Return the key under which the first `Foreign` lies, or an empty string."""
    seen: set[int] = set()
    stack: list[tuple[object, Crumb]] = [(root, None)]
    while stack:
        item, crumb = stack.pop()
        if isinstance(item, Foreign):
            return key_name(crumb)
        if isinstance(item, (dict, list, tuple)) and id(item) not in seen:
            seen.add(id(item))
            children = item.items() if isinstance(item, dict) else enumerate(item)
            stack.extend([(child, (crumb, key)) for key, child in children][::-1])
    return ""


def load_pickle(data: bytes, path: Path) -> object:
    """Return what a pickle describes, with `TensorSpec`, `ArraySpec`, `Global` and `Storage` left in it.

    Parameters
    ----------
    data : bytes
        The pickle, of any protocol from 2 on.
    path : Path
        Named in errors.

    Raises
    ------
    InputError
        If the pickle is damaged or needs anything but tensors and plain values; nothing was executed.
    """
    return load_stream(io.BytesIO(data), len(data), path)[0]


def load_stream(stream: Any, size: int, path: Path) -> tuple[object, dict[str, Storage]]:
    """Return what the next pickle of a stream describes, and the storages it refers to; see `load_pickle`.

    Parameters
    ----------
    stream : file-like
        With `read` and `readline`; left behind the pickle.
    size : int
        Bytes in it, a bound on what the pickle may copy.
    """
    machine = _Unpickler(stream, size)
    try:
        loaded, problem = machine.load(), ""
    except _Damaged as damage:
        loaded, problem = None, f"{damage}; nothing was executed; {PLAIN}"
    except Exception as error:  # a damaged pickle can raise anything a Python expression can
        loaded = None
        problem = f"is damaged ({type(error).__name__}: {show(str(error))}); copy or record it again"
    if machine.foreign:
        where = _locate(loaded)
        needs = f"key {where} needs" if where else "its pickle needs"
        what = machine.foreign[0].what
        raise InputError(f"{path}: {needs} {what}, which is not plain data; nothing was executed; {PLAIN}")
    if problem:
        raise InputError(f"{path}: its pickle {problem}")
    return loaded, machine.storages
