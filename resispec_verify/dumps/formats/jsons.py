"""JSON from a file that nobody vouches for."""

from __future__ import annotations

import json

import numpy as np

from resispec_verify.dumps.opening import show
from resispec_verify.errors import InputError

__all__ = ["LONGEST", "parse_json"]

LONGEST = 1 << 23
"""Parsed JSON may take tens of times the memory of its text."""


def parse_json(data: bytes | str, what: str, longest: int | None = None) -> object:
    """Parse JSON text.

    Parameters
    ----------
    data : bytes or str
        UTF-8.
    what : str
        Named in errors.
    longest : int, optional
        Bytes or characters that are parsed at most; `LONGEST` if not said.

    Raises
    ------
    InputError
        If it is too long or not JSON, names a key twice, or is nested too deep.
    """
    longest = LONGEST if longest is None else longest
    if len(data) > longest:
        raise InputError(f"{what} is too long ({len(data)} characters of at most {longest}); shorten it")
    try:
        return json.loads(data, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not valid JSON ({show(str(error))}); write it again") from None


def with_meta(path: object, mapping: dict) -> dict:
    """The mapping with its ``meta`` as a dict, where it is JSON: a text, an array of one, or within.

    Formats that hold arrays, or texts by name, have no other place for it; so it is in ``metadata`` as well.

    Raises
    ------
    InputError
        Text that begins as JSON and is none, or a key that it and what lies beside it state differently.
    """
    key = "metadata" if mapping.get("meta") is None else "meta"
    meta = _dict_of(mapping.get(key), f"{path}: {key}")
    if not isinstance(meta, dict):
        return mapping
    inner = _dict_of(meta.get("meta"), f"{path}: {key}['meta']")
    if isinstance(inner, dict):
        rest = {name: value for name, value in meta.items() if name != "meta"}
        for name in rest.keys() & inner.keys():
            raise InputError(f"{path}: {key} states {show(name)} twice; keep one of them")
        meta = rest | inner
    if isinstance(meta.get("sampling"), str) and meta["sampling"].lstrip()[:1] in ("{", "["):
        meta = meta | {"sampling": parse_json(meta["sampling"], f"{path}: {key}['sampling']")}
    return mapping | {"meta": meta}


def _dict_of(value: object, what: str) -> object:
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind == "U":
        value = str(value.reshape(-1)[0])
    return parse_json(value, what) if isinstance(value, str) and value.lstrip()[:1] == "{" else value


def _unique(pairs: list[tuple[str, object]]) -> dict:
    built = dict(pairs)
    if len(built) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise ValueError(f"two keys {twice}")
    return built
