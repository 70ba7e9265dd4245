"""A target on its own: the target of a flat dump, or a file that holds nothing else."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resispec_verify.dumps.checks.companions import check_companions, kept_rows
from resispec_verify.dumps.formats.llamacpp import LlamaRows
from resispec_verify.dumps.formats.mapped import repeats
from resispec_verify.dumps.kinds.flat import check_once
from resispec_verify.dumps.kinds.keys import DRAFT_KEYS, PROPOSAL_KEY, TARGET_KEYS, as_rows, find_key, kind
from resispec_verify.dumps.kinds.labels import samplings
from resispec_verify.dumps.rows import FLOATS, LazyRows, Picked, Rows, checked_rows
from resispec_verify.errors import InputError

__all__ = ["TargetDump", "described_target", "following", "target_from_mapping"]


@dataclass(frozen=True, eq=False, repr=False)
class TargetDump:
    """Target logits of consecutive positions; only `batch` reads them.

    Attributes
    ----------
    path : str
        Named in errors.
    target : Rows
        As stored.
    key : str
        Where they were found.
    tokens : object
        As stored, or None.
    next_tokens : int64 array (positions,) or None
        The token that followed each position, if the dump says so.
    step : float or None
        Where values are stored as multiples of a step, the largest of them: no value is known better than
        to half of it.
    floor : float or None
        The largest log-probability at which a row was cut off (-inf if none was): tokens at the floor of
        their row may have any smaller value.
    meta : object
        As stored, or None.
    sampling : mapping, tuple of mappings or None
        What ``meta`` states, at once or by position.
    notes : tuple of str
        How it was read, where that is not obvious; one line each.
    left_out : int
        Positions of the file that a mask leaves out; they are in no array here.
    """

    path: str
    target: Rows
    key: str = TARGET_KEYS[0]
    tokens: Any = None
    next_tokens: np.ndarray | None = None
    step: float | None = None
    floor: float | None = None
    meta: Any = None
    sampling: Mapping[str, Any] | tuple[Mapping[str, Any], ...] | None = None
    notes: tuple[str, ...] = ()
    left_out: int = 0

    def __repr__(self) -> str:
        return (
            f"TargetDump({self.path!r}, positions={self.positions}, vocab={self.vocab}, dtype={self.dtype!r})"
        )

    @property
    def positions(self) -> int:
        """Number of positions."""
        return math.prod(self.target.shape[:-1])

    @property
    def vocab(self) -> int:
        """Width of a row."""
        return self.target.shape[-1]

    @property
    def dtype(self) -> str:
        """Stored type, such as ``float16``; ``uint16`` for quantised log-probabilities."""
        return getattr(self.target, "stored", self.target.dtype.name)

    def batch(self, start: int, stop: int) -> np.ndarray:
        """Return positions ``start`` to ``stop - 1``, fresh, ``[n, vocab]``, float32 or float64, checked.

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
        return checked_rows(self.path, self.key, self.target, start, stop)


def target_from_mapping(path: str | os.PathLike[str], mapping: dict, *, part: bool = False) -> TargetDump:
    """Check what a file holds and return its target; no logits are read.

    Parameters
    ----------
    path : path
        Named in errors.
    mapping : dict
    part : bool
        The rows are known to be a part of a vocabulary.

    Raises
    ------
    InputError
        If it is a rounds or tree dump, or has no logits of a target, or several.
    """
    found = kind(mapping)
    if found in ("rounds", "tree"):
        raise InputError(f"{path}: is a {found} dump, and target logits [N, V] by position are needed")
    key = find_key(path, mapping, TARGET_KEYS, "target")
    target = as_rows(path, key, mapping[key])
    if isinstance(target, np.ndarray) and repeats(target):
        raise InputError(f"{path}: {key} is an expanded tensor; save .contiguous()")
    drafts = {
        name: value
        for name in (*DRAFT_KEYS, PROPOSAL_KEY)
        if isinstance(value := mapping.get(name), (np.ndarray, LazyRows))
        and value.dtype in FLOATS
        and value.ndim
    }
    check_companions(path, mapping, {key: target} | drafts, part=part)
    step, floor = target.quantisation() if isinstance(target, LlamaRows) else (None, None)
    return described_target(path, TargetDump(str(path), target, key, step=step, floor=floor), mapping)


def described_target(path: str | os.PathLike[str], dump: TargetDump, mapping: Mapping) -> TargetDump:
    """The target with what lies beside it, or beside the parts that it was joined from; see `described`."""
    target = dump.target
    leading = target.shape[:-1] or (1,)
    tokens = mapping.get("tokens")
    stated = mapping.get("next_tokens")
    if not isinstance(stated, np.ndarray):
        stated = following(tokens, target)
    vocab = target.shape[-1]
    good = (
        isinstance(stated, np.ndarray)
        and stated.dtype.kind in "iu"
        and stated.shape == (math.prod(target.shape[:-1]),)
        and bool(((stated >= 0) & (stated < vocab)).all())
    )
    given: dict[str, Any] = {
        "tokens": tokens,
        "next_tokens": stated.astype(np.int64) if good and isinstance(stated, np.ndarray) else None,
        "meta": mapping.get("meta"),
        "sampling": samplings(path, mapping.get("meta"), dump.positions),
    }
    given = {name: value for name, value in given.items() if value is not None}
    check_once(path, dump, given)
    dump = replace(dump, **given)
    kept, notes = kept_rows(path, mapping, leading)
    if kept is None:
        return dump
    follow, sampling = dump.next_tokens, dump.sampling
    return replace(
        dump,
        target=Picked(target, kept),
        next_tokens=None if follow is None else follow[kept],
        sampling=tuple(sampling[i] for i in kept) if isinstance(sampling, tuple) else sampling,
        notes=(*dump.notes, *notes),
        left_out=dump.left_out + dump.positions - len(kept),
    )


def following(tokens: object, target: Rows | LazyRows) -> np.ndarray | None:
    """Return the token after each position, if `tokens` has one more than there are positions: row i of a
    dump follows ``tokens[i]`` and predicts ``tokens[i + 1]``.
    """
    leading = target.shape[:-1]
    if not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu" or not leading:
        return None
    if tokens.shape != (*leading[:-1], leading[-1] + 1):
        return None
    return tokens[..., 1:].reshape(-1)
