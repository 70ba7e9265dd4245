"""Reading dumps: `open_dump`, `open_target`, `target_of`, `open_rounds`, `open_tree`, `open_tree_rounds`,
`open_top_pairs`, `load_mapping`.

`formats`: one file format a module; `kinds`: one kind of dump a module; `parts`: many files or chunks as one
dump; `checks`: what would be read as something else, and what is odd; `rows`: rows that are read when they
are asked for; `opening`: opening a file, and printing names that came out of one; `fingerprint`.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from resispec_verify.dumps.checks.companions import check_companions
from resispec_verify.dumps.formats.jsons import with_meta
from resispec_verify.dumps.formats.readers import READERS, load_mapping
from resispec_verify.dumps.kinds.flat import (
    Batch,
    FlatDump,
    flat_from_mapping,
    looks_like_probabilities,
    turned,
)
from resispec_verify.dumps.kinds.keys import (
    CHUNKS_KEY,
    DRAFT_KEYS,
    PROPOSAL_KEY,
    TARGET_KEYS,
    as_mapping,
    kind,
)
from resispec_verify.dumps.kinds.rounds import Round, RoundLogits, RoundsDump, rounds_from_mapping
from resispec_verify.dumps.kinds.target import TargetDump, target_from_mapping
from resispec_verify.dumps.kinds.top_pairs import TopPairsDump, top_from_mapping
from resispec_verify.dumps.kinds.top_rows import TopPairs, TopRows
from resispec_verify.dumps.kinds.tree import TreeDump, TreeLogits, tree_from_mapping
from resispec_verify.dumps.kinds.tree_rounds import (
    TreeRound,
    TreeRoundsDump,
    has_trees,
    tree_rounds_from_mapping,
)
from resispec_verify.dumps.opening import PathLike, check_file
from resispec_verify.dumps.parts.reduced import MAP_KEY, MASK_KEY
from resispec_verify.dumps.parts.shard_files import find_shards
from resispec_verify.dumps.parts.shards import AnyDump, PartSource, join
from resispec_verify.dumps.parts.vocabulary import Axis, axis_of, check_alone, join_vocabulary
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
    "TopPairs",
    "TopPairsDump",
    "TopRows",
    "TreeDump",
    "TreeLogits",
    "TreeRound",
    "TreeRoundsDump",
    "files_of",
    "find_shards",
    "has_trees",
    "is_top",
    "kind",
    "load_mapping",
    "looks_like_probabilities",
    "open_dump",
    "open_rounds",
    "open_target",
    "open_top_pairs",
    "open_tree",
    "open_tree_rounds",
    "target_of",
    "turned",
]


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
        certain what they are parts of; rows that are not over a vocabulary.
    """
    read = partial(flat_from_mapping, pad_vocab=pad_vocab)
    return _opened(path, read, partial(flat_from_mapping, part=True), shards)


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
    return _opened(path, target_from_mapping, partial(target_from_mapping, part=True), shards)


def target_of(path: PathLike, mapping: dict, shards: Axis | None = None) -> TargetDump:
    """The target in what one file holds; raises as `open_target`."""
    return _of_one_file(path, mapping, target_from_mapping, shards)


def open_rounds(path: PathLike, *, pad_vocab: bool = False) -> RoundsDump:
    """Open a rounds dump; everything but the logits is checked, and they are when they are read.

    Raises
    ------
    InputError
        As `load_mapping` and `rounds_from_mapping`.
    """
    return rounds_from_mapping(path, load_mapping(path), pad_vocab=pad_vocab).checked()


def open_tree(path: PathLike, *, pad_vocab: bool = False) -> TreeDump:
    """Open a tree dump; everything but the logits is checked, and they are when they are read.

    Raises
    ------
    InputError
        As `load_mapping` and `tree_from_mapping`.
    """
    return tree_from_mapping(path, load_mapping(path), pad_vocab=pad_vocab).checked()


def open_top_pairs(path: PathLike) -> TopPairsDump:
    """Open a file of top-k pairs; its rows are checked when they are read.

    Raises
    ------
    InputError
        As `load_mapping` and `top_from_mapping`.
    """
    return top_from_mapping(path, load_mapping(path))


def is_top(path: PathLike) -> bool:
    """Whether a file, or the first of a folder or glob, is one of top-k pairs.

    False for what cannot be read: opening it says why.
    """
    try:
        path = files_of(path)[0]
        if Path(path).suffix.lower() == ".npz":  # its names are enough: arrays may be compressed
            with zipfile.ZipFile(check_file(path)) as archive:
                return kind({name.removesuffix(".npy"): None for name in archive.namelist()}) == "top"
        return kind(load_mapping(path)) == "top"
    except (InputError, OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return False


def open_tree_rounds(path: PathLike, *, pad_vocab: bool = False) -> TreeRoundsDump:
    """Open rounds over trees; everything but the logits is checked, and they are when they are read.

    Raises
    ------
    InputError
        As `load_mapping` and `tree_rounds_from_mapping`.
    """
    return tree_rounds_from_mapping(path, load_mapping(path), pad_vocab=pad_vocab).checked()


def files_of(path: PathLike) -> list[Path]:
    """Return the files that are read for a path: itself, or the shards behind a folder, glob or index.

    Raises
    ------
    InputError
        As `open_dump`, of the folder, glob or index; files are not opened.
    """
    shards = find_shards(path)
    return [Path(path)] if shards is None else shards.files


def _opened(
    path: PathLike,
    read: Callable[[str, dict], AnyDump],
    read_part: Callable[[str, dict], AnyDump],
    shards: Axis | None,
) -> AnyDump:
    """One file as `read` has it, or many as one dump; `read_part` reads a part of a vocabulary."""
    if shards not in (None, "vocab", "positions"):
        raise InputError(f"shards must be 'vocab' or 'positions', or None, got {shards!r}")
    found = find_shards(path)
    if found is None:
        if shards == "vocab":
            raise InputError(
                f"{path}: is one file, and --shards vocab is for a folder of several; give that, or leave it "
                "out"
            )
        return _of_one_file(path, load_mapping(path), read, shards)
    parts = [
        PartSource(os.fspath(file), partial(_with_map, partial(load_mapping, file), found.beside), *stated)
        for file, stated in zip(found.files, found.stated, strict=True)
    ]
    if axis_of(path, parts, shards or found.axis) == "vocab":
        whole = join_vocabulary(path, parts, read_part, ordered=found.indexed)
    else:
        whole = join(path, parts, partial(_joined, read), from_zero=found.from_zero)
    return _described(whole, found.beside).checked()


def _of_one_file(
    path: PathLike, mapping: dict, read: Callable[[str, dict], AnyDump], shards: Axis | None
) -> AnyDump:
    dump = _joined(read, os.fspath(path), mapping)
    check_alone(path, mapping, dump.target.shape[-1], shards)
    return dump.checked()


def _joined(read: Callable[[str, dict], AnyDump], name: str, mapping: dict) -> AnyDump:
    """What one file holds, its chunks joined if it has some."""
    if kind(mapping) != "flat" or CHUNKS_KEY not in mapping:
        return read(name, mapping)
    chunks, beside = _chunks(name, mapping)
    return _described(join(name, chunks, partial(_plain_chunk, read)), beside)


def _described(dump: AnyDump, beside: dict) -> AnyDump:
    """Parts joined, with what lies beside them: honoured or refused as beside the logits of one file."""
    check_companions(dump.path, beside, dump.held)
    return dump.described(beside)


def _with_map(load: Callable[[], dict], beside: dict) -> dict:
    """A part with the map of a reduced vocabulary that lies beside all parts."""
    maps = {key: beside[key] for key in (MAP_KEY, MASK_KEY) if beside.get(key) is not None}
    return {**maps, **load()}


def _chunks(path: str, mapping: dict) -> tuple[list[PartSource], dict]:
    """The chunks of a file, and what lies beside them."""
    chunks = mapping[CHUNKS_KEY]
    beside = {key: value for key, value in mapping.items() if key != CHUNKS_KEY}
    if twice := [key for key in (*TARGET_KEYS, *DRAFT_KEYS, PROPOSAL_KEY) if key in beside]:
        raise InputError(f"{path}: has {twice[0]} beside {CHUNKS_KEY}; keep one of them")
    if not isinstance(chunks, (list, tuple)) or not chunks:
        raise InputError(f"{path}: {CHUNKS_KEY} is not a list of dicts; save one dict with logits a chunk")
    # A part that is no dict is named when it is opened.
    parts = [
        PartSource(f"{path}: {CHUNKS_KEY}[{i}]", partial(_with_map, partial(_chunk, path, i, chunk), beside))
        for i, chunk in enumerate(chunks)
    ]
    return parts, beside


def _chunk(path: str, index: int, chunk: Any) -> dict:
    name = f"{path}: {CHUNKS_KEY}[{index}]"
    return with_meta(name, as_mapping(name, chunk))


def _plain_chunk(read: Callable[[str, dict], Any], name: str, mapping: dict) -> Any:
    if CHUNKS_KEY in mapping and kind(mapping) == "flat":
        raise InputError(f"{name}: has chunks itself; save a flat list of chunks")
    return read(name, mapping)
