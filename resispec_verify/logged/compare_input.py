"""What `compare` reads: two targets of the same prefixes, whose vocabularies may differ and are then named.

Engines pad a vocabulary to different widths, and a reduced one has numbers of its own. Rows are compared over
the union of the tokens: a token that one does not have has probability 0 there. Padding is only taken for
padding where that was said; where a file has the map of its reduced vocabulary, the map says it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from resispec_verify.dumps import (
    Axis,
    TargetDump,
    files_of,
    find_shards,
    load_mapping,
    open_target,
    target_of,
)
from resispec_verify.dumps import kind as kind_of
from resispec_verify.dumps.checks.looks import probabilities
from resispec_verify.dumps.kinds.keys import TARGET_KEYS, as_rows, find_key
from resispec_verify.dumps.parts.reduced import MAP_KEY, MASK_KEY, has_map, token_map
from resispec_verify.dumps.rows import Scattered, kept_of
from resispec_verify.errors import InputError

__all__ = ["Sides", "next_tokens", "read_target", "same_prefixes", "two_sides"]


@dataclass(frozen=True, eq=False)
class Sides:
    """Which tokens two dumps have.

    Attributes
    ----------
    shared : int64 array
        Tokens that both have.
    only : tuple of int64 arrays
        Tokens that only A has, and those that only B has.
    """

    shared: np.ndarray
    only: tuple[np.ndarray, np.ndarray]


def two_sides(
    path_a: str | os.PathLike[str],
    path_b: str | os.PathLike[str],
    shards: Axis | None = None,
    said: str | None = None,
    pad_vocab: bool = False,
) -> tuple[tuple[TargetDump, Any], tuple[TargetDump, Any], Sides | None]:
    """Open two targets; with either its context tokens, and the tokens that either has where they differ.

    A file with a target only and `d2t` or `t2d` is one of a reduced vocabulary, whose rows are put at their
    places among those of the other (or of `t2d`, which has one entry a token).

    Parameters
    ----------
    said : {"logits", "probabilities", "log-probabilities"}, optional
        What the rows of both are.
    pad_vocab : bool
        Tokens beyond the narrower are padding.

    Raises
    ------
    InputError
        As `read_target`; other positions, or widths that differ where nothing allows it; a map that cannot be
        used.
    """
    paths = (path_a, path_b)
    loaded = [_single(path) for path in paths]
    reduced = [one is not None and kind_of(one) == "target" and has_map(one) for one in loaded]
    found: dict[int, tuple[TargetDump, Any]] = {}
    has: dict[int, np.ndarray] = {}
    extra = [False, False]
    for i in sorted((0, 1), key=reduced.__getitem__):
        mapping, notes = loaded[i], ()
        if mapping is not None and reduced[i]:
            vocab = _whole_vocabulary(paths[i], mapping, found.get(1 - i))
            mapping, has[i], notes = _at_places(paths[i], mapping, vocab)
            extra[i] = bool((has[i] >= vocab).any())
        dump, context = _read(paths[i], mapping, shards, said)
        found[i] = replace(dump, notes=(*dump.notes, *notes)), context
        has.setdefault(i, np.arange(dump.vocab))
    (a, _), (b, _) = found[0], found[1]
    if a.target.shape[:-1] != b.target.shape[:-1]:
        raise InputError(
            f"{a.path} has {a.key} {list(a.target.shape)} but {b.path} has {list(b.target.shape)}; "
            "compare dumps of the same positions and vocabulary"
        )
    if a.vocab != b.vocab and not (pad_vocab or any(extra)):
        raise InputError(
            f"{a.path} has vocabulary {a.vocab} but {b.path} has {b.vocab}; if the tokens beyond the "
            "narrower are padding, pass --pad-vocab (pad_vocab=True); a reduced vocabulary needs its map as "
            "d2t or t2d beside its rows"
        )
    has = {i: np.sort(tokens) for i, tokens in has.items()}
    if np.array_equal(has[0], has[1]):
        return found[0], found[1], None
    if all(extra):
        raise InputError(
            f"{a.path} and {b.path} both have tokens without counterpart, and different maps; nothing says "
            "whether those are the same tokens; save one map with both"
        )
    shared = np.intersect1d(has[0], has[1])
    if not shared.size:
        raise InputError(f"{a.path} and {b.path} have no token in common; compare dumps of one vocabulary")
    return found[0], found[1], Sides(shared, (np.setdiff1d(has[0], has[1]), np.setdiff1d(has[1], has[0])))


def _single(path: str | os.PathLike[str]) -> dict | None:
    """What a single file holds; None for a folder of shards, whose parts must not be of a reduced vocabulary.

    Raises
    ------
    InputError
        A part, or what lies beside the parts, has a map and no draft that the map could be of.
    """
    if files_of(path) == [Path(path)]:
        return load_mapping(path)
    shards = find_shards(path)
    assert shards is not None  # files_of has found them
    first = load_mapping(shards.files[0])
    whole = {**shards.beside, **first}
    if kind_of(first) == "target" and has_map(whole):
        raise InputError(
            f"{path}: a reduced vocabulary is not joined from parts; save its rows and {MAP_KEY} in one file"
        )
    return None


def _whole_vocabulary(
    path: str | os.PathLike[str], mapping: Mapping, other: tuple[TargetDump, Any] | None
) -> int:
    """How many tokens the vocabulary has that a map leads to: as the other dump, or as `t2d`."""
    mask = mapping.get(MASK_KEY)
    if isinstance(mask, (np.ndarray, list, tuple)) and np.ndim(mask) == 1:
        return len(mask)
    if other is None:
        raise InputError(
            f"{path}: has {MAP_KEY}, as the other has, and nothing says how wide the whole vocabulary is; "
            f"save {MASK_KEY} (one truth value a target token) beside it"
        )
    return other[0].vocab


def _at_places(
    path: str | os.PathLike[str], mapping: dict, vocab: int
) -> tuple[dict, np.ndarray, tuple[str, ...]]:
    """A file with its reduced rows put among the whole vocabulary, their tokens, and what to say."""
    key = find_key(path, mapping, TARGET_KEYS, "target")
    rows = as_rows(path, key, mapping[key])
    width = rows.shape[-1]
    tokens, total, note = token_map(path, mapping, width, vocab)
    said = f"{MAP_KEY}: the {width} tokens of {key} are placed among {vocab}; the others have no mass"
    whole = {name: value for name, value in mapping.items() if name not in (MAP_KEY, MASK_KEY)}
    return (
        whole | {key: Scattered(rows, tokens, total)},
        tokens,
        (said,) if note is None else (note, said),
    )


def read_target(
    path: str | os.PathLike[str], shards: Axis | None = None, kind: str | None = None
) -> tuple[TargetDump, Any]:
    """Open whatever `open_target` opens, and return the ``context_tokens`` of a single file beside it.

    Parameters
    ----------
    kind : {"logits", "probabilities", "log-probabilities"}, optional
        What the rows are said to be.

    Raises
    ------
    InputError
        As `open_target`, and if the rows look like probabilities.
    """
    mapping = load_mapping(path) if files_of(path) == [Path(path)] else None
    return _read(path, mapping, shards, kind)


def _read(
    path: str | os.PathLike[str], mapping: dict | None, shards: Axis | None, kind: str | None
) -> tuple[TargetDump, Any]:
    """As `read_target`, of what is loaded already: a compressed file is not read twice."""
    context = None if mapping is None else mapping.get("context_tokens")
    dump = open_target(path, shards=shards) if mapping is None else target_of(path, mapping, shards)
    if kind is None and probabilities(dump.target):
        raise InputError(
            f"{path}: every row of {dump.key} is in [0, 1] and sums to 1: these look like probabilities, "
            "not logits; say --input probabilities if those of the other are too, or save their logarithms"
        )
    return dump, context


def same_prefixes(a: TargetDump, b: TargetDump, one: Any, other: Any) -> None:
    """Refuse dumps of other prefixes; `one` and `other` are the context tokens."""
    if a.left_out or b.left_out:
        (kept, stored), (left, count) = kept_of(a.target), kept_of(b.target)
        if stored != count or not np.array_equal(kept, left):
            raise InputError(
                f"{a.path} and {b.path}: their masks leave different positions, which are not of the same "
                "prefixes; give both the same mask, or leave the masks out"
            )
    for key, values in (("context_tokens", (one, other)), ("tokens", (a.tokens, b.tokens))):
        x, y = (_token_ids(d.path, key, value) for d, value in zip((a, b), values, strict=True))
        if x is None or y is None:
            continue
        if x.shape != y.shape:
            raise InputError(f"{key} is {list(x.shape)} in {a.path} but {list(y.shape)} in {b.path}; compare "
                             "dumps of the same prefixes")  # fmt: skip
        if (x != y).any():
            i = tuple(int(k) for k in np.argwhere(x != y)[0])
            where = i[0] if len(i) == 1 else list(i)
            raise InputError(f"{key} differs first at index {where}: {x[i]} in {a.path}, {y[i]} in {b.path}; "
                             "compare dumps of the same prefixes")  # fmt: skip


def _token_ids(path: str, key: str, value: Any) -> np.ndarray | None:
    if value is None:
        return None
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty(0, object)
    if array.dtype.kind not in "iu" and (array.size or array.dtype.kind == "O"):
        raise InputError(f"{path}: {key} must be integer token ids, got {array.dtype}")
    return array


def next_tokens(dump: TargetDump) -> np.ndarray | None:
    """The token after each position: as the dump says, or as ``tokens`` of one entry more than positions."""
    if dump.next_tokens is not None and dump.next_tokens.shape == (dump.positions,):
        outside = (dump.next_tokens < 0) | (dump.next_tokens >= dump.vocab)
        if not outside.any():
            return dump.next_tokens.astype(np.int64)
    tokens = _token_ids(dump.path, "tokens", dump.tokens)
    if tokens is None or tokens.shape != (dump.positions + 1,):
        return None
    following = tokens[1:].astype(np.int64)
    outside = (following < 0) | (following >= dump.vocab)
    if outside.any():
        i = int(np.argmax(outside))
        raise InputError(f"{dump.path}: tokens[{i + 1}] is {following[i]}, outside 0..{dump.vocab - 1}")
    return following
