"""Files of top-k pairs: at each position the listed tokens of target and draft, and their tails."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resispec_verify.dumps.checks.whole import stated_vocabulary
from resispec_verify.dumps.formats.mapped import refuse_repeats
from resispec_verify.dumps.kinds.keys import TOP_IDS_KEYS, kind, what
from resispec_verify.dumps.kinds.top_rows import TopPairs
from resispec_verify.dumps.kinds.top_side import LARGEST_VOCABULARY, TopSide
from resispec_verify.dumps.opening import show
from resispec_verify.dumps.rows import FLOATS, LazyRows
from resispec_verify.errors import InputError

__all__ = ["BLOCK", "TopPairsDump", "top_from_mapping"]

BLOCK = 2048
"""Positions that are read at once where a whole file is gone through."""


@dataclass(frozen=True, eq=False, repr=False)
class TopPairsDump:
    """A file of top-k pairs, opened; only `pairs` reads rows.

    Attributes
    ----------
    path : str
    target, draft : TopSide
    vocab : int or None
        V, where the file says it.
    next_tokens : int64 array (positions,) or None
        The token that followed each position, -1 where that is not known.
    meta : mapping
    mapping : mapping
        What was read, by key.
    ignored, notes : tuple of str
        Keys that nothing uses, and what to say of the file.
    """

    path: str
    target: TopSide
    draft: TopSide
    vocab: int | None
    next_tokens: np.ndarray | None
    meta: Mapping[str, Any]
    mapping: Mapping[str, Any] = field(repr=False)
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def positions(self) -> int:
        """Positions, leading axes flattened."""
        return self.target.positions

    @property
    def k(self) -> int:
        """Tokens listed at most, of target or draft."""
        return max(self.target.k, self.draft.k)

    def __len__(self) -> int:
        return self.positions

    def __repr__(self) -> str:
        return f"TopPairsDump({self.path!r}, positions={self.positions}, k={self.k}, vocab={self.vocab})"

    def pairs(self, start: int, stop: int) -> TopPairs:
        """Return positions ``start`` to ``stop - 1``, fresh and checked.

        Raises
        ------
        InputError
            A token twice or outside the vocabulary, NaN, +inf, a log-probability above 0, probabilities that
            add up to more than 1, or a tail that is not what they leave; names the position.
        IndexError
            If no position is asked for.
        """
        if not 0 <= start < stop <= self.positions:
            raise IndexError(f"positions {start}:{stop} of {self.positions}")
        return TopPairs(self.target.rows(start, stop), self.draft.rows(start, stop))

    def blocks(self, size: int = BLOCK) -> Iterator[TopPairs]:
        """All positions in order, `size` at a time; raises as `pairs`."""
        for start in range(0, self.positions, size):
            yield self.pairs(start, min(start + size, self.positions))


def top_from_mapping(path: str | os.PathLike[str], mapping: dict) -> TopPairsDump:
    """Check what a file holds and return its top-k pairs; no rows are read.

    Parameters
    ----------
    path : path
        Named in errors.
    mapping : dict
        With the keys of docs/howto/log-top-k.md.

    Raises
    ------
    InputError
        Another kind of dump, one model only, shapes that do not fit, or sampling that is still to be applied:
        that cannot be done to laws with unseen tails.
    """
    found = kind(mapping)
    if found != "top":
        raise InputError(
            f"{path}: is a {found} dump, and the top k of each position are needed ({TOP_IDS_KEYS[0]}, ...); "
            "kl, limits and the others take it as --logits"
        )
    for key in TOP_IDS_KEYS:
        if key not in mapping:
            raise InputError(f"{path}: has no {key}: one model only; convert joins a file of each")
    meta = mapping.get("meta")
    meta = meta if isinstance(meta, Mapping) else {}
    _check_sampling(path, meta)
    vocab = _vocabulary(path, mapping, meta)
    used = {*_BESIDE}
    target, draft = (_side(path, mapping, role, vocab, used) for role in ("target", "draft"))
    if target.ids.shape[:-1] != draft.ids.shape[:-1]:
        raise InputError(
            f"{path}: target_top_ids is {list(target.ids.shape)} but draft_top_ids is "
            f"{list(draft.ids.shape)}; both need the same positions"
        )
    notes = tuple(
        f"{side.role}: nothing says that the listed tokens are the most probable ({side.role}_ranked)"
        for side in (target, draft)
        if side.ranked is None
    )
    said = meta.get("notes")
    if isinstance(said, list):
        notes += tuple(note for note in said if isinstance(note, str))
    ignored = tuple(key for key in mapping if key not in used)
    followed = _following(path, mapping, target.positions)
    return TopPairsDump(str(path), target, draft, vocab, followed, meta, mapping, ignored, notes)


_BESIDE = ("vocab", "next_tokens", "tokens", "context_tokens", "sequence", "position", "meta")
"""What is read beside the lists, or says of what text they are."""


def _check_sampling(path: object, meta: Mapping) -> None:
    stated = meta.get("sampling")
    if stated is not None and stated != {}:
        raise InputError(
            f"{path}: meta['sampling'] says what is still to be applied, which cannot be done where tails "
            "are unseen; list the laws after it, and say so as meta['applied']"
        )


def _vocabulary(path: object, mapping: Mapping, meta: Mapping) -> int | None:
    value = mapping.get("vocab")
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iu":
        value = int(value.reshape(-1)[0])
    if value is None:
        return stated_vocabulary(meta)
    if type(value) is not int or not 0 < value <= LARGEST_VOCABULARY:
        raise InputError(f"{path}: vocab is {show(value)}; save the number of tokens")
    return value


def _side(path: object, mapping: Mapping, role: str, vocab: int | None, used: set[str]) -> TopSide:
    names = {
        name: f"{role}_{name}"
        for name in ("top_ids", "top_logprobs", "top_logits", "logsumexp", "tail", "ranked", "rounding")
    }
    used |= {key for key in names.values() if key in mapping}
    given = {name: mapping.get(key) for name, key in names.items()}
    ids = _array(path, names["top_ids"], given["top_ids"], "iu")
    if ids.ndim < 2 or 0 in ids.shape:
        raise InputError(
            f"{path}: {names['top_ids']} is {list(ids.shape)}; save [N, k], at least one of each"
        )
    if vocab is not None and ids.shape[-1] > vocab:
        raise InputError(f"{path}: {names['top_ids']} lists {ids.shape[-1]} of {vocab} tokens; save [N, k]")
    if (given["top_logprobs"] is None) == (given["top_logits"] is None):
        raise InputError(f"{path}: give one of {names['top_logprobs']} and {names['top_logits']}")
    raw = given["top_logits"] is not None
    if raw != (given["logsumexp"] is not None):
        raise InputError(
            f"{path}: {names['top_logits']} and {names['logsumexp']} belong together: logits alone say no "
            "probability"
        )
    key = names["top_logits" if raw else "top_logprobs"]
    values = _floats(path, key, mapping[key])
    _fits(path, key, values.shape, ids.shape)
    leading = ids.shape[:-1]
    norm = _floats(path, names["logsumexp"], given["logsumexp"], leading) if raw else None
    tail = given["tail"]
    if tail is not None:
        pair = isinstance(tail, np.ndarray) and tail.ndim > len(leading)
        tail = _floats(path, names["tail"], tail, (*leading, 2) if pair else leading)
    return TopSide(
        str(path), role, ids, values, norm, tail,
        _ranked(path, names["ranked"], given["ranked"], leading),
        _rounding(path, names["rounding"], given["rounding"]), vocab,
    )  # fmt: skip


def _array(path: object, key: str, value: object, kinds: str) -> np.ndarray:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        shown = value.dtype.name if isinstance(value, (np.ndarray, LazyRows)) else what(value)
        raise InputError(f"{path}: {key} is {show(shown)}; save an array of integers")
    refuse_repeats(f"{path}: {key}", value)
    return value


def _floats(path: object, key: str, value: object, shape: tuple[int, ...] | None = None) -> Any:
    if not isinstance(value, (np.ndarray, LazyRows)) or value.dtype.newbyteorder("=") not in FLOATS:
        shown = value.dtype.name if isinstance(value, (np.ndarray, LazyRows)) else what(value)
        raise InputError(f"{path}: {key} is {show(shown)}; save an array of floating-point numbers")
    refuse_repeats(f"{path}: {key}", value)
    if shape is not None:
        _fits(path, key, value.shape, shape)
        return np.asarray(value)
    return value


def _fits(path: object, key: str, shape: tuple[int, ...], needed: tuple[int, ...]) -> None:
    if tuple(shape) != tuple(needed):
        raise InputError(f"{path}: {key} is {list(shape)}, but must be {list(needed)}, as the ids are")


def _ranked(path: object, key: str, value: object, leading: tuple[int, ...]) -> int | np.ndarray | None:
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iu" and leading != (1,):
        value = int(value.reshape(-1)[0])
    if value is None:
        return None
    if type(value) is int:
        if not 0 <= value <= LARGEST_VOCABULARY:
            raise InputError(
                f"{path}: {key} is {show(value)}; say how many of the listed are the most probable"
            )
        return value
    array = _array(path, key, value, "iu")
    _fits(path, key, array.shape, leading)
    return array


def _rounding(path: object, key: str, value: object) -> float:
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind == "f":
        value = float(value.reshape(-1)[0])
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 0.25:
        raise InputError(
            f"{path}: {key} is {show(value)}; save a number from 0 to 0.25, in units of a logarithm"
        )
    return float(value)


def _following(path: object, mapping: Mapping, positions: int) -> np.ndarray | None:
    value = mapping.get("next_tokens")
    if value is None:
        return None
    array = _array(path, "next_tokens", value, "iu")
    if array.size != positions:
        raise InputError(
            f"{path}: next_tokens has {array.size} entries for {positions} positions; save one each"
        )
    return array.reshape(-1).astype(np.int64)
