"""Flat dumps: one row of target and one row of draft logits a position, checked as they are read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np

from resispec_verify.dumps.labels import candidate_lists, datasets, samplings
from resispec_verify.dumps.mapped import release
from resispec_verify.dumps.paths import listing, show
from resispec_verify.errors import InputError

__all__ = ["Batch", "FlatDump", "as_mapping", "flat_from_mapping", "kind", "looks_like_probabilities"]

TARGET_KEYS = ("target_logits", "target", "p_logits", "logits_target", "verifier_logits", "main_logits")
DRAFT_KEYS = ("draft_logits", "draft", "q_logits", "logits_draft", "drafter_logits", "assistant_logits")
PROPOSAL_KEY = "proposal_logits"
FLOATS = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.float64))
SUM_TOLERANCE = 1e-3
PROBABILITY_ROWS = 16


class Batch(NamedTuple):
    """Logits of consecutive positions, each ``[n, vocab]``, fresh, contiguous, float32 or float64.

    float16 and bfloat16 are widened exactly to float32; padded tokens are -inf. `proposal` is None if the
    dump has none.
    """

    target: np.ndarray
    draft: np.ndarray
    proposal: np.ndarray | None


@dataclass(frozen=True, eq=False, repr=False)
class FlatDump:
    """A flat dump, opened but not read: only `batch` touches logits, and only those of its rows.

    Attributes
    ----------
    path : str
        Named in errors.
    target, draft : numpy.ndarray, shape (vocab,), (positions, vocab) or (..., vocab)
        As stored: float16, bfloat16, float32 or float64, perhaps on a memory map. Leading axes are
        positions in C order.
    proposal : numpy.ndarray or None
        Like `draft`: what the candidates were really drawn from, if the dump says so.
    tokens, meta : object
        As stored, or None.
    candidates : int64 array (positions, n) or None
        Token ids, inside the vocabulary.
    dataset : str, tuple of str or None
        One name, or one a position.
    sampling : mapping, tuple of mappings or None
        What ``meta["sampling"]`` states (temperature, top_k, top_p, min_p), at once or by position.
    pad : tuple of int or None
        ``(target width, draft width)`` if they differ and padding was asked for; else None.
    keys : tuple of str
        The keys under which target, draft and proposal were found.
    """

    path: str
    target: np.ndarray
    draft: np.ndarray
    proposal: np.ndarray | None = None
    tokens: Any = None
    candidates: np.ndarray | None = None
    dataset: str | tuple[str, ...] | None = None
    sampling: Mapping[str, Any] | tuple[Mapping[str, Any], ...] | None = None
    meta: Any = None
    pad: tuple[int, int] | None = None
    keys: tuple[str, str, str] = (TARGET_KEYS[0], DRAFT_KEYS[0], PROPOSAL_KEY)

    def __repr__(self) -> str:
        return (
            f"FlatDump({self.path!r}, positions={self.positions}, vocab={self.vocab}, dtype={self.dtype!r})"
        )

    @property
    def positions(self) -> int:
        """Number of positions: the product of the leading axes, 1 for a single row."""
        return math.prod(self.target.shape[:-1])

    @property
    def vocab(self) -> int:
        """Width of a row of `batch`: the wider of the two if they are padded."""
        return max(array.shape[-1] for array in self._arrays())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the target logits as stored."""
        return self.target.shape

    @property
    def dtype(self) -> str:
        """Stored type, such as ``float16``, or ``float16/float32`` if target and draft differ."""
        return "/".join(dict.fromkeys((self.target.dtype.name, self.draft.dtype.name)))

    def batch(self, start: int, stop: int) -> Batch:
        """Return the logits of positions ``start`` to ``stop - 1``, checked.

        Parameters
        ----------
        start, stop : int
            0-based; `stop` may exceed the number of positions.

        Raises
        ------
        InputError
            If a row has NaN or +inf, or only -inf; names key and position.
        IndexError
            If no position is asked for.
        """
        stop = min(stop, self.positions)
        if not 0 <= start < stop:
            raise IndexError(f"positions {start} to {stop} of {self.positions}")
        target = self._checked(self.target, self.keys[0], start, stop)
        draft = self._checked(self.draft, self.keys[1], start, stop)
        if self.proposal is None:
            return Batch(target, draft, None)
        return Batch(target, draft, self._checked(self.proposal, self.keys[2], start, stop))

    def _arrays(self) -> list[np.ndarray]:
        return [array for array in (self.target, self.draft, self.proposal) if array is not None]

    def _checked(self, array: np.ndarray, key: str, start: int, stop: int) -> np.ndarray:
        rows = _widened(_rows(array, start, stop))
        # What was copied need not stay resident: else a pass over a dump counts all of it as memory in use.
        release(array)
        # One reduction finds all three faults, because NaN propagates through max.
        highest = rows.max(axis=-1)
        bad = np.flatnonzero(~np.isfinite(highest))
        if bad.size:
            raise InputError(f"{self.path}: {self._fault(array, key, start, rows, highest, int(bad[0]))}")
        if rows.shape[-1] == self.vocab:
            return rows
        padded = np.full((len(rows), self.vocab), -np.inf, rows.dtype)
        padded[:, : rows.shape[-1]] = rows
        return padded

    def _fault(
        self, array: np.ndarray, key: str, start: int, rows: np.ndarray, highest: np.ndarray, row: int
    ) -> str:
        where = f"position {start + row}"
        if array.ndim > 2:
            index = np.unravel_index(start + row, array.shape[:-1])
            where += f" (index {[int(i) for i in index]})"
        if highest[row] == -np.inf:
            return f"{key} at {where} is -inf for every token; log logits that allow at least one token"
        value, faulty = ("NaN", np.isnan) if np.isnan(highest[row]) else ("+inf", np.isposinf)
        token = int(np.argmax(faulty(rows[row])))
        return f"{key} has {value} at {where}, token {token}; log finite logits, or leave the position out"


def kind(mapping: Mapping) -> Literal["flat", "rounds", "tree", "unknown"]:
    """Return what kind of dump the keys of a mapping make it."""
    if "rounds" in mapping:
        return "rounds"
    if "parent" in mapping:
        return "tree"
    if all(any(name in mapping for name in names) for names in (TARGET_KEYS, DRAFT_KEYS)):
        return "flat"
    return "unknown"


def as_mapping(path: str | os.PathLike[str], loaded: object) -> dict:
    """Return `loaded` if it is a dict, else say what the file holds instead.

    Raises
    ------
    InputError
        If it is anything but a dict.
    """
    if isinstance(loaded, dict):
        return loaded
    raise InputError(
        f"{path}: holds {_what(loaded)}, not a dict; save a dict with the keys target_logits and draft_logits"
    )


def flat_from_mapping(path: str | os.PathLike[str], mapping: object, *, pad_vocab: bool = False) -> FlatDump:
    """Check what a file holds and return it as a flat dump; no logits are read.

    Parameters
    ----------
    path : path
        Named in errors.
    mapping : dict
        With target and draft logits ``[V]``, ``[N, V]`` or ``[..., V]`` under one of the known names, and
        perhaps `proposal_logits`, `tokens`, `candidates`, `dataset` and `meta`.
    pad_vocab : bool
        Allow widths to differ; the narrower rows are then padded with -inf.

    Raises
    ------
    InputError
        If it is not a dict, of another kind, or if keys are missing or ambiguous, shapes or widths differ,
        there are no positions, or the values are not float16, bfloat16, float32 or float64.
    """
    mapping = as_mapping(path, mapping)
    found = kind(mapping)
    if found in ("rounds", "tree"):
        key = "rounds" if found == "rounds" else "parent"
        raise InputError(
            f"{path}: is a {found} dump (key {key}), and a flat one is needed: target_logits and "
            "draft_logits [N, V]"
        )
    target_key = _find(path, mapping, TARGET_KEYS, "target")
    draft_key = _find(path, mapping, DRAFT_KEYS, "draft")
    keys = (target_key, draft_key, PROPOSAL_KEY)
    target, draft = (_logits(path, key, mapping[key]) for key in keys[:2])
    proposal = mapping.get(PROPOSAL_KEY)
    if proposal is not None:
        proposal = _logits(path, PROPOSAL_KEY, proposal)
    _check_shapes(path, keys, (target, draft, proposal), pad_vocab)
    widths = (target.shape[-1], draft.shape[-1])
    leading = target.shape[:-1] or (1,)
    positions = math.prod(leading)
    meta = mapping.get("meta")
    return FlatDump(
        str(path),
        target,
        draft,
        proposal,
        tokens=mapping.get("tokens"),
        candidates=candidate_lists(path, mapping.get("candidates"), leading, max(widths)),
        dataset=datasets(path, mapping.get("dataset"), positions),
        sampling=samplings(path, meta, positions),
        meta=meta,
        pad=widths if widths[0] != widths[1] else None,
        keys=keys,
    )


def looks_like_probabilities(dump: FlatDump) -> bool:
    """Return whether every row of target and draft lies in [0, 1] and sums to 1 within 1e-3.

    Stops at the first row that does not, so that logits cost one row. A vocabulary of one token never
    looks like probabilities.
    """
    if min(dump.target.shape[-1], dump.draft.shape[-1]) < 2:
        return False
    start = 0
    while start < dump.positions:
        stop = min(dump.positions, start + (PROBABILITY_ROWS if start else 1))
        for array in (dump.target, dump.draft):
            rows = _widened(_rows(array, start, stop))
            release(array)
            with np.errstate(invalid="ignore", over="ignore"):
                sums = rows.sum(axis=-1, dtype=np.float64)
                inside = (rows.min(axis=-1) >= 0) & (rows.max(axis=-1) <= 1)
                if not (inside & (np.abs(sums - 1) <= SUM_TOLERANCE)).all():
                    return False
        start = stop
    return True


def _rows(array: np.ndarray, start: int, stop: int) -> np.ndarray:
    # Flattening the leading axes of a strided array would copy all of it; this copies the rows asked for.
    if array.ndim == 1:
        return array[None]
    if array.ndim == 2:
        return array[start:stop]
    return array[np.unravel_index(np.arange(start, stop), array.shape[:-1])]


def _widened(rows: np.ndarray) -> np.ndarray:
    """Return a fresh, contiguous, native float32 or float64 copy; float16 and bfloat16 widen exactly."""
    if rows.dtype == np.float16 and rows.dtype.isnative:
        # NumPy's own conversion takes two to three times as long where it does not use the processor's.
        return np.take(_HALVES, rows.view(np.uint16))
    wide = np.float64 if rows.dtype.itemsize == 8 else np.float32
    with np.errstate(invalid="ignore"):  # signalling NaNs; they are reported with their position
        return rows.astype(wide, order="C", copy=True)


def _halves() -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        table = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    table.flags.writeable = False
    return table


_HALVES = _halves()


def _find(path: str | os.PathLike[str], mapping: dict, names: tuple[str, ...], role: str) -> str:
    present = [name for name in names if name in mapping]
    arrays = [name for name in present if isinstance(mapping[name], np.ndarray)]
    arrays = [name for name in arrays if mapping[name].dtype.kind not in "iub"] or arrays  # not token ids
    if len(arrays) == 1:
        return arrays[0]
    if arrays:
        raise InputError(
            f"{path}: its {role} logits are ambiguous: {' and '.join(arrays)} (keys: {listing(mapping)}); "
            f"keep one of them, as {names[0]}"
        )
    if present:
        raise InputError(
            f"{path}: {present[0]} is {_what(mapping[present[0]])}, not an array of logits [N, V]; save one "
            "tensor (torch.stack joins a list of rows)"
        )
    raise InputError(
        f"{path}: has no {names[0]} (keys: {listing(mapping)}); save the {role} logits as {names[0]}"
    )


def _logits(path: str | os.PathLike[str], key: str, value: object) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise InputError(f"{path}: {key} is {_what(value)}, not an array of logits [N, V]; save one tensor")
    dtype = value.dtype
    name = f"{path}: {key} has dtype {dtype.name}"
    if dtype.kind in "iub":
        raise InputError(f"{name}: integers are not logits; save the model's floating-point output")
    if dtype.kind == "V" and dtype.names is None and dtype.itemsize == 2 and dtype not in FLOATS:
        raise InputError(
            f"{name}: two-byte values without a type (bfloat16 that went through NumPy?); save float32, or "
            "bfloat16 as .pt or .safetensors"
        )
    if dtype.newbyteorder("=") not in FLOATS:
        raise InputError(f"{name}; save logits as float16, bfloat16, float32 or float64")
    if value.ndim == 0:
        raise InputError(f"{path}: {key} is a single number; save logits as [N, V]")
    if 0 in value.shape:
        raise InputError(
            f"{path}: {key} is {list(value.shape)}: no positions or no tokens; record at least one"
        )
    return value


def _check_shapes(
    path: str | os.PathLike[str],
    keys: tuple[str, str, str],
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray | None],
    pad_vocab: bool,
) -> None:
    first, *others = ((key, array) for key, array in zip(keys, arrays, strict=True) if array is not None)
    for key, array in others:
        shapes = f"{first[0]} is {list(first[1].shape)} but {key} is {list(array.shape)}"
        if array.shape[:-1] != first[1].shape[:-1]:
            raise InputError(f"{path}: {shapes}; both need the same positions")
        if array.shape[-1] != first[1].shape[-1] and not pad_vocab:
            raise InputError(
                f"{path}: vocabulary widths {first[1].shape[-1]} and {array.shape[-1]} differ: {shapes}; if "
                "the tokens beyond the narrower are padding, pass --pad-vocab (pad_vocab=True)"
            )


def _what(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {list(value.shape)}"
    if isinstance(value, (list, tuple)):
        inner = f" of {show(type(value[0]).__name__)}" if value else ""
        return f"a {type(value).__name__} of length {len(value)}{inner}"
    return f"a {type(value).__name__}"
