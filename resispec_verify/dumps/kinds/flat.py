"""Flat dumps: one row of target and one row of draft logits a position, checked as they are read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from resispec_verify.dumps.checks.companions import check_companions, kept_rows
from resispec_verify.dumps.checks.looks import probabilities
from resispec_verify.dumps.formats.mapped import repeats
from resispec_verify.dumps.kinds.keys import (
    DRAFT_KEYS,
    LOG_PROBABILITIES_KEY,
    PROPOSAL_KEY,
    ROUNDS_KEY,
    TARGET_KEYS,
    TREE_KEY,
    as_mapping,
    as_rows,
    find_key,
    kind,
)
from resispec_verify.dumps.kinds.labels import candidate_lists, datasets, samplings
from resispec_verify.dumps.parts.reduced import MAP_KEY, has_map, scattered
from resispec_verify.dumps.rows import FLOATS, Picked, Rows, Stacked, checked_rows
from resispec_verify.errors import InputError

__all__ = [
    "FLOATS",
    "Batch",
    "FlatDump",
    "check_once",
    "described",
    "flat_from_mapping",
    "looks_like_probabilities",
]


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
    target, draft : numpy.ndarray or LazyRows, shape (vocab,), (positions, vocab) or (..., vocab)
        As stored: float16, bfloat16, float32 or float64, perhaps on a memory map. Leading axes are
        positions in C order.
    proposal : numpy.ndarray, LazyRows or None
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
    notes : tuple of str
        How it was read, where that is not obvious; one line each.
    left_out : int
        Positions of the file that a mask leaves out; they are in no array here.
    """

    path: str
    target: Rows
    draft: Rows
    proposal: Rows | None = None
    tokens: Any = None
    candidates: np.ndarray | None = None
    dataset: str | tuple[str, ...] | None = None
    sampling: Mapping[str, Any] | tuple[Mapping[str, Any], ...] | None = None
    meta: Any = None
    pad: tuple[int, int] | None = None
    keys: tuple[str, str, str] = (TARGET_KEYS[0], DRAFT_KEYS[0], PROPOSAL_KEY)
    notes: tuple[str, ...] = ()
    left_out: int = 0

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

    def _arrays(self) -> list[Rows]:
        return [array for array in (self.target, self.draft, self.proposal) if array is not None]

    def _checked(self, array: Rows, key: str, start: int, stop: int) -> np.ndarray:
        rows = checked_rows(self.path, key, array, start, stop)
        if rows.shape[-1] == self.vocab:
            return rows
        padded = np.full((len(rows), self.vocab), -np.inf, rows.dtype)
        padded[:, : rows.shape[-1]] = rows
        return padded


def flat_from_mapping(
    path: str | os.PathLike[str], mapping: object, *, pad_vocab: bool = False, part: bool = False
) -> FlatDump:
    """Check what a file holds and return it as a flat dump; no logits are read.

    Parameters
    ----------
    path : path
        Named in errors.
    mapping : dict
        With target and draft logits ``[V]``, ``[N, V]`` or ``[..., V]`` under one of the known names, or
        lists of such arrays over steps, and perhaps `proposal_logits`, `d2t`, `t2d`, `tokens`, `candidates`,
        `dataset`, `meta` and a mask.
    pad_vocab : bool
        Allow widths to differ; the narrower rows are then padded with -inf.
    part : bool
        The rows are known to be a part of a vocabulary.

    Raises
    ------
    InputError
        If it is not a dict, of another kind, or if keys are missing or ambiguous, shapes or widths differ,
        there are no positions, or the values are not float16, bfloat16, float32 or float64.
    """
    mapping = as_mapping(path, mapping)
    _check_kind(path, mapping)
    keys = (
        find_key(path, mapping, TARGET_KEYS, "target"),
        find_key(path, mapping, DRAFT_KEYS, "draft"),
        PROPOSAL_KEY,
    )
    target, draft = (as_rows(path, key, mapping[key]) for key in keys[:2])
    proposal = mapping.get(PROPOSAL_KEY)
    if proposal is not None:
        proposal = as_rows(path, PROPOSAL_KEY, proposal)
    held = zip(keys, (target, draft, proposal), strict=True)
    check_companions(path, mapping, {key: rows for key, rows in held if rows is not None}, part=part)
    notes = [note for key, rows in zip(keys, (target, draft), strict=False) if (note := _steps(key, rows))]
    if has_map(mapping):
        width, vocab = draft.shape[-1], target.shape[-1]
        if proposal is not None and proposal.shape[-1] == width:
            proposal, _ = scattered(path, proposal, mapping, vocab)
        draft, note = scattered(path, draft, mapping, vocab)
        notes += [note] if note else []
        notes.append(f"{MAP_KEY}: the {width} draft tokens are placed among {vocab}; the others have no mass")
        pad_vocab = pad_vocab or draft.shape[-1] > vocab
    _check_shapes(path, keys, (target, draft, proposal), pad_vocab)
    widths = (target.shape[-1], draft.shape[-1])
    pad = widths if widths[0] != widths[1] else None
    return described(
        path, FlatDump(str(path), target, draft, proposal, pad=pad, keys=keys, notes=tuple(notes)), mapping
    )


def described(path: str | os.PathLike[str], dump: FlatDump, mapping: Mapping) -> FlatDump:
    """The dump with what lies beside its logits, or beside the parts that it was joined from.

    Parameters
    ----------
    mapping : mapping
        Of a file, or what a file of chunks or an index says of all parts.

    Raises
    ------
    InputError
        Labels that do not fit the positions, or that parts have already.
    """
    leading = dump.target.shape[:-1] or (1,)
    meta = mapping.get("meta")
    stated: dict[str, Any] = {
        "tokens": mapping.get("tokens"),
        "candidates": candidate_lists(path, mapping.get("candidates"), leading, dump.vocab),
        "dataset": datasets(path, mapping.get("dataset"), dump.positions),
        "sampling": samplings(path, meta, dump.positions),
        "meta": meta,
    }
    stated = {name: value for name, value in stated.items() if value is not None}
    check_once(path, dump, stated)
    dump = replace(dump, **stated)
    kept, said = kept_rows(path, mapping, leading)
    return dump if kept is None else _masked(dump, kept, said)


def check_once(path: str | os.PathLike[str], dump: Any, stated: Mapping[str, Any]) -> None:
    """Refuse labels of a whole that its parts have already, unless they are the same."""
    for name in ("candidates", "dataset", "sampling"):
        before = getattr(dump, name, None)
        if name in stated and before is not None and not np.array_equal(before, stated[name]):  # type: ignore
            raise InputError(
                f"{path}: states a {name} of all parts, and the parts state another; keep one of them"
            )


def _masked(dump: FlatDump, kept: np.ndarray, notes: tuple[str, ...]) -> FlatDump:
    """The dump at some of its positions."""

    def picked(value: Any) -> Any:
        return tuple(value[i] for i in kept) if isinstance(value, tuple) else value

    return replace(
        dump,
        target=Picked(dump.target, kept),
        draft=Picked(dump.draft, kept),
        proposal=None if dump.proposal is None else Picked(dump.proposal, kept),
        candidates=None if dump.candidates is None else dump.candidates[kept],
        dataset=picked(dump.dataset),
        sampling=picked(dump.sampling),
        notes=(*dump.notes, *notes),
        left_out=dump.left_out + dump.positions - len(kept),
    )


def looks_like_probabilities(dump: FlatDump) -> bool:
    """Return whether every row of target and draft lies in [0, 1] and sums to 1 within 1e-3.

    Stops at the first row that does not, so that logits cost one row. A vocabulary of one token never
    looks like probabilities.
    """
    return probabilities(dump.target) and probabilities(dump.draft)


def _check_kind(path: str | os.PathLike[str], mapping: Mapping) -> None:
    found = kind(mapping)
    if found in ("rounds", "tree"):
        key = ROUNDS_KEY if found == "rounds" else TREE_KEY
        raise InputError(
            f"{path}: is a {found} dump (key {key}), and a flat one is needed: target_logits and "
            "draft_logits [N, V]"
        )
    if LOG_PROBABILITIES_KEY in mapping and found == "target":
        raise InputError(
            f"{path}: holds only a target (log-probabilities of llama.cpp), and draft logits of the same "
            "positions are needed too; record target_logits and draft_logits [N, V]"
        )


def _steps(key: str, rows: Rows) -> str | None:
    """Say in which order positions were made of a list over steps."""
    if not isinstance(rows, Stacked) or rows.ndim < 3:
        return None
    steps, *batch = rows.shape[:-1]
    return (
        f"{key}: {steps} steps of a batch of {math.prod(batch)}; position = step x batch + row of the batch"
    )


def _check_shapes(
    path: str | os.PathLike[str],
    keys: tuple[str, str, str],
    arrays: tuple[Rows, Rows, Rows | None],
    pad_vocab: bool,
) -> None:
    first, *others = ((key, array) for key, array in zip(keys, arrays, strict=True) if array is not None)
    if all(isinstance(array, np.ndarray) and repeats(array) for _, array in (first, *others)):
        raise InputError(f"{path}: {first[0]} and {others[0][0]} are expanded tensors; save .contiguous()")
    for key, array in others:
        shapes = f"{first[0]} is {list(first[1].shape)} but {key} is {list(array.shape)}"
        if array.shape[:-1] != first[1].shape[:-1]:
            raise InputError(f"{path}: {shapes}; both need the same positions")
        if array.shape[-1] != first[1].shape[-1] and not pad_vocab:
            raise InputError(
                f"{path}: vocabulary widths {first[1].shape[-1]} and {array.shape[-1]} differ: {shapes}; if "
                "the tokens beyond the narrower are padding, pass --pad-vocab (pad_vocab=True); a reduced "
                "draft "
                "vocabulary needs its map as d2t"
            )
