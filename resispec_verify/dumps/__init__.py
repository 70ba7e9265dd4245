"""Reading dumps of logits. A new format is one file with a `read` function and one line in `READERS`."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from resispec_verify.dumps.flat import Batch, FlatDump, flat_from_mapping, looks_like_probabilities
from resispec_verify.dumps.keys import CHUNKS_KEY, as_mapping, kind
from resispec_verify.dumps.readers import READERS, load_mapping
from resispec_verify.dumps.rounds import Round, RoundLogits, RoundsDump, rounds_from_mapping
from resispec_verify.dumps.shard_files import ShardList, find_shards
from resispec_verify.dumps.shards import Part, join, join_targets
from resispec_verify.dumps.target import TargetDump, target_from_mapping
from resispec_verify.dumps.tree import TreeDump, TreeLogits, tree_from_mapping
from resispec_verify.dumps.vocabulary import Axis, axis_of, join_vocabulary
from resispec_verify.dumps.whole import check_flat, check_rounds, check_target, check_tree
from resispec_verify.errors import InputError

__all__ = [
    "READERS",
    "Axis",
    "Batch",
    "FlatDump",
    "Round",
    "RoundLogits",
    "RoundsDump",
    "TargetDump",
    "TreeDump",
    "TreeLogits",
    "files_of",
    "find_shards",
    "kind",
    "load_mapping",
    "looks_like_probabilities",
    "open_dump",
    "open_rounds",
    "open_target",
    "open_tree",
]

PathLike = str | os.PathLike[str]


def open_dump(path: PathLike, *, pad_vocab: bool = False, shards: Axis | None = None) -> FlatDump:
    """Open a flat dump: target and draft logits of the same positions.

    Parameters
    ----------
    path : path
        A file with one of the suffixes in `READERS`; or a folder or glob of such files or the index.json of
        a folder, opened as one dump.
    pad_vocab : bool
        Pad the narrower rows with -inf if the widths differ, instead of refusing them.
    shards : {"vocab", "positions"} or None
        What the files of a folder are parts of, where they do not say it themselves.

    Raises
    ------
    InputError
        As `load_mapping` and `flat_from_mapping`; for shards also if they do not fit together, or it is not
        certain what they are parts of; rows that are not over a vocabulary (`dumps.whole`).
    """
    found = find_shards(path)
    if found is None:
        _no_shards(path, shards)
        return check_flat(_flat(os.fspath(path), load_mapping(path), pad_vocab=pad_vocab))
    parts = _files(found)
    if axis_of(path, parts, shards or found.axis) == "vocab":
        read = partial(flat_from_mapping, part=True)
        return check_flat(join_vocabulary(path, parts, read, meta=found.meta, ordered=found.indexed))
    read = partial(_flat, pad_vocab=pad_vocab)
    return check_flat(join(path, parts, read, meta=found.meta, from_zero=found.from_zero))


def open_target(path: PathLike, *, shards: Axis | None = None) -> TargetDump:
    """Open the target of a flat dump, or of a file that holds a target only.

    Parameters
    ----------
    path : path
        As `open_dump`; or a base file of llama.cpp, whose log-probabilities are quantised: `step` and `floor`
        say how well they are known.
    shards : {"vocab", "positions"} or None
        As in `open_dump`.

    Raises
    ------
    InputError
        As `open_dump`.
    """
    found = find_shards(path)
    if found is None:
        _no_shards(path, shards)
        return check_target(_target(os.fspath(path), load_mapping(path)))
    parts = _files(found)
    if axis_of(path, parts, shards or found.axis) == "vocab":
        read = partial(target_from_mapping, part=True)
        return check_target(join_vocabulary(path, parts, read, meta=found.meta, ordered=found.indexed))
    return check_target(join_targets(path, parts, _target, meta=found.meta, from_zero=found.from_zero))


def open_rounds(path: PathLike, *, pad_vocab: bool = False) -> RoundsDump:
    """Open a rounds dump; everything but the logits is checked, and they are when they are read.

    Raises
    ------
    InputError
        As `load_mapping` and `rounds_from_mapping`.
    """
    return check_rounds(rounds_from_mapping(path, load_mapping(path), pad_vocab=pad_vocab))


def open_tree(path: PathLike, *, pad_vocab: bool = False) -> TreeDump:
    """Open a tree dump; everything but the logits is checked, and they are when they are read.

    Raises
    ------
    InputError
        As `load_mapping` and `tree_from_mapping`.
    """
    return check_tree(tree_from_mapping(path, load_mapping(path), pad_vocab=pad_vocab))


def files_of(path: PathLike) -> list[Path]:
    """Return the files that are read for a path: itself, or the shards behind a folder, glob or index.

    Raises
    ------
    InputError
        As `open_dump`, of the folder, glob or index; files are not opened.
    """
    shards = find_shards(path)
    return [Path(path)] if shards is None else shards.files


def _no_shards(path: PathLike, shards: Axis | None) -> None:
    if shards is not None:
        raise InputError(f"{path}: is one file, and --shards says what several are; leave it out")


def _flat(name: str, mapping: dict, *, pad_vocab: bool = False) -> FlatDump:
    if kind(mapping) == "flat" and CHUNKS_KEY in mapping:
        read = partial(_plain_chunk, partial(flat_from_mapping, pad_vocab=pad_vocab))
        return join(name, _chunks(name, mapping[CHUNKS_KEY]), read, meta=mapping.get("meta"))
    return flat_from_mapping(name, mapping, pad_vocab=pad_vocab)


def _target(name: str, mapping: dict) -> TargetDump:
    if kind(mapping) == "flat" and CHUNKS_KEY in mapping:
        read = partial(_plain_chunk, target_from_mapping)
        return join_targets(name, _chunks(name, mapping[CHUNKS_KEY]), read, meta=mapping.get("meta"))
    return target_from_mapping(name, mapping)


def _files(shards: ShardList) -> list[Part]:
    return [
        Part(os.fspath(file), partial(load_mapping, file), start, rows)
        for file, (start, rows) in zip(shards.files, shards.stated, strict=True)
    ]


def _chunks(path: str, chunks: Any) -> list[Part]:
    if not isinstance(chunks, (list, tuple)) or not chunks:
        raise InputError(f"{path}: {CHUNKS_KEY} is not a list of dicts; save one dict with logits a chunk")
    # A part that is no dict is named when it is opened.
    return [
        Part(f"{path}: {CHUNKS_KEY}[{i}]", partial(_chunk, path, i, chunk)) for i, chunk in enumerate(chunks)
    ]


def _chunk(path: str, index: int, chunk: Any) -> dict:
    return as_mapping(f"{path}: {CHUNKS_KEY}[{index}]", chunk)


def _plain_chunk(read: Callable[[str, dict], Any], name: str, mapping: dict) -> Any:
    if CHUNKS_KEY in mapping and kind(mapping) == "flat":
        raise InputError(f"{name}: has chunks itself; save a flat list of chunks")
    return read(name, mapping)
