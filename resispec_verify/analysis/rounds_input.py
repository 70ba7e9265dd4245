"""Rounds dumps for `replay`: checked as they are opened, logits unread."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # type: ignore[import]
import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.dumps import kind, load_mapping
from resispec_verify.dumps.flat import FLOATS
from resispec_verify.dumps.labels import samplings
from resispec_verify.errors import InputError

__all__ = ["Rounds", "half_ulp", "read_rounds"]

_KEYS = ("draft_tokens", "draft_logits", "target_logits", "accepted")


@dataclass(frozen=True)
class Rounds:
    """A rounds dump, opened but not read.

    Attributes
    ----------
    path : str
    rounds : sequence of mappings
        Each with ``draft_tokens [g]``, ``draft_logits [g, V]``, ``target_logits [g + 1, V]``, ``accepted``,
        and perhaps ``u [g]``, ``next_token``, and ``u_next``: the uniform with which the next token was drawn
        by inverting the cumulative sum in token order.
    stated : mapping or tuple of mappings
        The sampling that ``meta`` states, for all rounds or each.
    output : array or None
        ``output_tokens``, if the dump has them.
    """

    path: str
    rounds: Sequence[Mapping[str, Any]]
    stated: Mapping[str, Any] | tuple[Mapping[str, Any], ...]
    output: Any = None

    @property
    def dtype(self) -> str:
        """Storage type of the logits."""
        first = self.rounds[0]
        return "/".join(dict.fromkeys(first[key].dtype.name for key in ("target_logits", "draft_logits")))

    def sampling(self, index: int, options: Mapping[str, Any]) -> Sampling:
        """Sampling of one round: what the dump states, with the given options in its place."""
        stated = self.stated[index] if isinstance(self.stated, tuple) else self.stated
        return Sampling(**{**stated, **options})


def read_rounds(path: str | os.PathLike[str]) -> Rounds:
    """Open a rounds dump; shapes and tokens are checked, logits are not read.

    Raises
    ------
    InputError
        Not a rounds dump, or a round that does not hold together (file, round and key are named).
    """
    mapping = load_mapping(path)
    found = kind(mapping)
    if found != "rounds":
        raise InputError(f"{path}: is a {found} dump; replay needs rounds (key rounds)")
    rounds = mapping["rounds"]
    if not isinstance(rounds, (list, tuple)) or not rounds:
        raise InputError(f"{path}: rounds must be a list of at least one round, each a dict")
    checked = [_checked(f"{path}: round {i}", entry) for i, entry in enumerate(rounds)]
    meta = mapping.get("meta")
    stated = samplings(path, meta, len(rounds))
    if stated is None and isinstance(meta, Mapping) and isinstance(meta.get("temperature"), (int, float)):
        stated = {"temperature": float(meta["temperature"])}
    result = Rounds(str(path), checked, stated or {}, mapping.get("output_tokens"))
    for i in range(len(rounds)):
        try:
            result.sampling(i, {})
        except InputError as error:
            raise InputError(f"{path}: meta, sampling of round {i}: {error}") from None
    return result


def _checked(where: str, entry: Any) -> dict[str, Any]:
    """The round with plain integers and float64 coins."""
    if not isinstance(entry, Mapping):
        raise InputError(f"{where} is a {type(entry).__name__}, not a dict with {', '.join(_KEYS)}")
    missing = [key for key in _KEYS if key not in entry]
    if missing:
        raise InputError(f"{where} has no {missing[0]}; a round needs {', '.join(_KEYS)}")
    target, draft = (_matrix(where, key, entry[key]) for key in ("target_logits", "draft_logits"))
    g, vocab = draft.shape
    if target.shape != (g + 1, vocab):
        raise InputError(f"{where}: draft_logits is {[g, vocab]}, so target_logits must be {[g + 1, vocab]}, "
                         f"one row more; it is {list(target.shape)}")  # fmt: skip
    result: dict[str, Any] = {"target_logits": target, "draft_logits": draft}
    result["draft_tokens"] = _integers(where, "draft_tokens", entry["draft_tokens"], g, vocab - 1)
    result["accepted"] = int(_integers(where, "accepted", entry["accepted"], 1, g)[0])
    token = entry.get("next_token")
    result["next_token"] = (
        None if token is None else int(_integers(where, "next_token", token, 1, vocab - 1)[0])
    )
    for key, count in (("u", g), ("u_next", 1)):
        stored = entry.get(key)
        result[key] = None if stored is None else _uniforms(where, key, stored, count)
    # A coin logged in two bytes was rounded; float32 and wider hold what the engine drew.
    coins = np.asarray(entry.get("u"))
    result["u_slack"] = half_ulp(np.ones(1), coins.dtype)[0] if coins.dtype.itemsize == 2 else 0.0
    return result


def _matrix(where: str, key: str, value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.newbyteorder("=") not in FLOATS:
        shown = (
            f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        )
        raise InputError(f"{where}: {key} must be a floating-point matrix of logits, got {shown}")
    if value.shape[1] == 0:
        raise InputError(f"{where}: {key} has no tokens; record at least one")
    return value


def _integers(where: str, key: str, value: Any, count: int, most: int) -> np.ndarray:
    try:
        array = np.asarray(value).reshape(-1)
    except ValueError:  # rows of different lengths
        array = np.empty(0, object)
    if (array.dtype.kind not in "iu" and array.size) or len(array) != count:
        raise InputError(f"{where}: {key} must be {count} integer(s), got {array.dtype} {list(array.shape)}")
    bad = (array < 0) | (array > most)
    if bad.any():
        raise InputError(f"{where}: {key} holds {array[bad][0]}, outside 0..{most}")
    return array.astype(np.int64)


def _uniforms(where: str, key: str, value: Any, count: int) -> np.ndarray:
    try:
        array = np.asarray(value).reshape(-1)
    except ValueError:  # rows of different lengths
        array = np.empty(0, object)
    if array.dtype.kind in "cOSUMm":
        raise InputError(f"{where}: {key} must be {count} number(s) in [0, 1], got {array.dtype}")
    array = array.astype(np.float64)
    if len(array) != count or not ((array >= 0) & (array <= 1)).all():
        raise InputError(f"{where}: {key} must be {count} number(s) in [0, 1]")
    return array


def half_ulp(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Half a unit in the last place of ``dtype`` at ``values``: the most that storing them has rounded."""
    info = ml_dtypes.finfo(dtype)
    _, exponent = np.frexp(values)
    exponent = np.where(values == 0, info.minexp + 1, np.maximum(exponent, info.minexp + 1))
    return np.where(np.isfinite(values), np.ldexp(1.0, exponent - (info.nmant + 2)), 0.0)
