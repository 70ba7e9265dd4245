"""Which files make one dump: those of a folder, of a glob, or of an index.json."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resispec_verify.dumps.formats.jsons import LONGEST, parse_json
from resispec_verify.dumps.formats.readers import READERS
from resispec_verify.dumps.kinds.values import integer
from resispec_verify.dumps.opening import as_path, open_file, show
from resispec_verify.errors import InputError

__all__ = ["INDEX", "ShardList", "find_shards"]

INDEX = "index.json"
AXES = ("vocab", "positions")


@dataclass(frozen=True)
class ShardList:
    """The files that make one dump, in order, and what the index says of all of them.

    Attributes
    ----------
    files : list of Path
    stated : list of (start, rows) or None
        As the index has them.
    beside : dict
        What the index says of all of them: ``meta``, and whatever else it holds.
    from_zero : bool
        Whether the first shard must start at 0: a folder is expected to be whole, a glob may choose.
    axis : {"vocab", "positions"} or None
        What the index says that they are parts of.
    indexed : bool
        Whether an index says their order.
    """

    files: list[Path]
    stated: list[tuple[int | None, int | None]]
    beside: dict
    from_zero: bool
    axis: Any = None
    indexed: bool = False


def find_shards(path: str | os.PathLike[str]) -> ShardList | None:
    """Return the files behind a folder, an index.json or a glob; None if `path` is none of these.

    A name that exists is never taken for a glob. Files in a folder without index are those of a known suffix
    that are not hidden, by name, numbers in names by value.

    Raises
    ------
    InputError
        If there are no such files, or the index is damaged or names files outside its folder.
    """
    path = as_path(path)
    name = os.fspath(path)
    if os.path.isdir(name):
        if (path / INDEX).is_file():
            return _indexed(path / INDEX)
        try:
            files = _sorted(entry for entry in path.iterdir() if entry.is_file())
        except OSError as error:
            raise InputError(f"{path}: cannot be listed ({error.strerror}); check its permissions") from None
        if not files:
            raise InputError(
                f"{path}: is a directory without dumps in it ({', '.join(READERS)}); name a dump file or a "
                "folder of shards"
            )
        _check_apart(path, files)
        return ShardList(files, [(None, None)] * len(files), {}, from_zero=True)
    if path.name == INDEX or (path.suffix == ".json" and os.path.isfile(name) and _lists_shards(path)):
        return _indexed(path)
    if os.path.lexists(name) or not glob.has_magic(name):
        return None
    try:
        found = _sorted(Path(entry) for entry in glob.glob(name) if os.path.isfile(entry))
    except (ValueError, OSError, re.error) as error:
        raise InputError(
            f"{path}: is not a pattern of file names ({show(str(error))}); give the folder"
        ) from None
    if not found:
        raise InputError(
            f"{path}: no file of a known format ({', '.join(READERS)}) matches; check the pattern"
        )
    _check_apart(path, found)
    return ShardList(found, [(None, None)] * len(found), {}, from_zero=False)


def _sorted(files: Any) -> list[Path]:
    def by_number(path: Path) -> list[tuple[int, str]]:
        parts = re.split(r"(\d{1,18})", path.name)
        return [(int(part), part) if i % 2 else (0, part) for i, part in enumerate(parts)]

    known = (path for path in files if path.suffix.lower() in READERS and path.name[0] != ".")
    return sorted(known, key=by_number)


def _check_apart(path: Path, files: list[Path]) -> None:
    """Refuse a file that is there twice, or in two formats: its positions would count twice."""
    seen: dict[str, Path] = {}
    for file in files:
        other = seen.setdefault(os.path.realpath(file), file)
        other = seen.setdefault(os.path.realpath(file.with_suffix("")), file) if other is file else other
        if other is not file:
            raise InputError(
                f"{path}: {other.name} and {file.name} are the same file, or one run in two formats, whose "
                "positions would count twice; keep one of them"
            )


def _lists_shards(path: Path) -> bool:
    """Whether a file of JSON under another name than an index's may be one."""
    with open_file(path) as file:
        return b'"shards"' in file.read(LONGEST)


def _indexed(path: Path) -> ShardList:
    with open_file(path) as file:
        size = min(os.fstat(file.fileno()).st_size, LONGEST + 1)  # what is asked for is allocated
        index = parse_json(file.read(size), os.fspath(path))
    shards = index.get("shards") if isinstance(index, dict) else None
    if not isinstance(index, dict) or not isinstance(shards, list) or not shards:
        raise InputError(
            f"{path}: has no list of shards; write {{'shards': [{{'file': ..., 'start': ...}}]}}, "
            "or give what an engine answered to the command convert"
        )
    files, stated = [], []
    for i, entry in enumerate(shards):
        entry = {"file": entry} if isinstance(entry, str) else entry
        name = entry.get("file") if isinstance(entry, dict) else None
        where = f"{path}: shard {i}"
        if not isinstance(name, str) or not name or "\0" in name:
            raise InputError(f"{where} names no file; write {{'file': ..., 'start': ...}}")
        if os.path.isabs(name) or ".." in Path(name).parts or Path(name).suffix.lower() not in READERS:
            raise InputError(
                f"{where} is {show(name)}: shards lie in the folder of the index and end in "
                f"{', '.join(READERS)}"
            )
        files.append(path.parent / name)
        stated.append(
            tuple(
                None if entry.get(key) is None else integer(f"{where}: {key}", entry[key], low, None)
                for key, low in (("start", 0), ("rows", 1))
            )
        )
    _check_apart(path, files)
    axis = index.get("axis")
    if axis not in (None, *AXES):
        raise InputError(f"{path}: axis is {show(axis)}; write one of {', '.join(AXES)}, or leave it out")
    beside = {key: value for key, value in index.items() if key not in ("shards", "axis")}
    return ShardList(files, stated, beside, from_zero=True, axis=axis, indexed=True)
