"""Files that each hold a part of the vocabulary, as tensor parallelism leaves them.

Files of one folder are parts of the positions, or of the vocabulary, and both have the same shapes. Which it
is must be certain: stated, or plain from names and tokens. Where it is not, nothing is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

import numpy as np

from resispec_verify.dumps.companions import vocabulary_part
from resispec_verify.dumps.flat import FlatDump
from resispec_verify.dumps.keys import CHUNKS_KEY, TARGET_KEYS, as_rows, find_key
from resispec_verify.dumps.labels import candidate_lists
from resispec_verify.dumps.mapped import repeats
from resispec_verify.dumps.reduced import has_map
from resispec_verify.dumps.rows import Beside, Rows
from resispec_verify.dumps.shards import Part, Parts, facts
from resispec_verify.dumps.target import TargetDump
from resispec_verify.dumps.whole import stated_vocabulary
from resispec_verify.errors import InputError

__all__ = ["Axis", "axis_of", "join_vocabulary"]

Axis = Literal["vocab", "positions"]
Opened = TypeVar("Opened", FlatDump, TargetDump)

_TENSOR = re.compile(
    r"(?:^|[^a-z])(?:tp|mp|tensor|model|vocab)[-_.]?(?:parallel)?[-_.]?(?:rank|shard|part)?[-_.]?(\d+)"
)
_DATA = re.compile(r"(?:^|[^a-z])dp[-_.]?(?:rank)?[-_.]?\d+")
_RANK = re.compile(r"(?:^|[^a-z])rank[-_.]?(\d+)")
LEAST_TOKENS = 4
"""Fewer tokens than this may be the same in two files by chance."""


def axis_of(path: str | os.PathLike[str], parts: Sequence[Part], stated: Axis | None) -> Axis:
    """Return what parts are parts of.

    Parameters
    ----------
    stated : {"vocab", "positions"} or None
        What an option or an index says.

    Raises
    ------
    InputError
        It is not certain: files named by rank, or with the same tokens, and nothing else that tells.
    """
    if stated is not None or len(parts) < 2:
        return stated or "positions"
    if all(part.start is not None for part in parts):
        return "positions"
    ranks = [_rank(part.name) for part in parts]
    try:
        first = _look(parts[0])
        if first[1] and first[0] is None:
            return "positions"  # it has a start, and the others must then have one too
        looked = [first, *map(_look, parts[1:])]
    except InputError:
        return "positions"  # what is wrong with a part is told when it is opened
    places = [place for place, *_ in looked]
    if any(place is not None for place in places):
        if all(place is not None for place in places):
            return "vocab"
        raise _unsure(path, "some of its files, and not all, say which part of the vocabulary they have")
    widths, sizes = [width for *_, width, _ in looked], [size for *_, size in looked]
    if sizes[0] is not None and len(set(sizes)) == 1 and sizes[0] in (widths[0], sum(widths)):
        return "positions" if sizes[0] == widths[0] else "vocab"
    if all(_TENSOR.search(_stem(part.name)) for part in parts):
        return "vocab"
    if any(_DATA.search(_stem(part.name)) for part in parts):
        return "positions"
    counts, tokens = [rows for _, _, rows, *_ in looked], [ids for _, _, _, ids, *_ in looked]
    if len(set(counts)) > 1:
        return "positions"
    by_rank = all(rank is not None for rank in ranks)
    known = [ids for ids in tokens if ids is not None]
    same = len(known) == len(tokens) and all(np.array_equal(ids, known[0]) for ids in known)
    if known and same and known[0].size >= LEAST_TOKENS:
        if by_rank:
            return "vocab"
        raise _unsure(path, "all of its files have the same tokens, so they are not different positions")
    if by_rank and not (len(known) == len(tokens) and not same):
        raise _unsure(path, "its files are named by rank, and hold as many rows each")
    return "positions"


def _unsure(path: str | os.PathLike[str], why: str) -> InputError:
    return InputError(
        f"{path}: {why}: parts of the vocabulary (tensor parallelism), or of the positions? Say --shards "
        'vocab or positions, or "axis": "vocab" or "positions" in its index.json'
    )


def _look(part: Part) -> tuple[Any, bool, int, np.ndarray | None, int, int | None]:
    """Place in the vocabulary, whether it has a start, rows, tokens, width, stated vocabulary."""
    mapping = part.load()
    if CHUNKS_KEY in mapping:
        return None, False, 0, None, 0, None
    key = find_key(part.name, mapping, TARGET_KEYS, "target")
    rows = as_rows(part.name, key, mapping[key])
    tokens = mapping.get("tokens")
    good = isinstance(tokens, np.ndarray) and tokens.dtype.kind in "iu" and not repeats(tokens)
    size = stated_vocabulary(mapping.get("meta"))
    count = rows.shape[0] if rows.ndim > 1 else 1
    place = vocabulary_part(mapping)
    return place, mapping.get("start") is not None, count, tokens if good else None, rows.shape[-1], size


def _stem(name: str) -> str:
    return os.path.basename(name).lower()


def _rank(name: str) -> int | None:
    found = _TENSOR.search(_stem(name)) or _RANK.search(_stem(name))
    return None if found is None else int(found[1])


def join_vocabulary(
    path: str | os.PathLike[str],
    parts: Sequence[Part],
    read: Callable[[str, dict], Opened],
    *,
    ordered: bool = False,
) -> Opened:
    """Open files that each have a part of the vocabulary as one dump; rows are read when they are needed.

    Parameters
    ----------
    read : callable
        ``read(name, mapping)`` is a part as a dump.
    ordered : bool
        An index says in which order the parts are; else they say it, or the numbers in their names.

    Raises
    ------
    InputError
        Parts of other positions, types or tokens, a rank that is missing, or a draft of a reduced vocabulary.
    """
    parts = list(parts) if ordered else _in_order(path, parts)
    candidates: list[Any] = []

    def opened_part(name: str, mapping: dict) -> Opened:
        if has_map(mapping):
            raise InputError(f"{name}: a reduced draft vocabulary is not joined from parts; save whole rows")
        candidates.append(mapping.get("candidates"))
        return read(name, {key: value for key, value in mapping.items() if key != "candidates"})

    opened = Parts(parts, opened_part)
    first = opened[0]
    tokens = None
    for i, part in enumerate(parts):
        one = opened[i]
        _check_like(part.name, one, first, parts[0].name)
        if isinstance(one.tokens, np.ndarray):
            if tokens is not None and not np.array_equal(tokens, one.tokens):
                raise InputError(
                    f"{part.name}: its tokens are not those of {parts[0].name}, so it has other positions, "
                    "and is no part of the same vocabulary; say --shards positions"
                )
            tokens = one.tokens if tokens is None else tokens
    whole: dict[str, Any] = {}
    for name in ("target", "draft", "proposal"):
        like = getattr(first, name, None)
        if like is not None:
            whole[name] = _beside(opened, len(parts), name, like)
    vocab = whole["target"].shape[-1]
    note = f"{len(parts)} parts of the vocabulary, side by side in the order of their ranks"
    changed: dict[str, Any] = {"path": str(path), "tokens": tokens, "notes": (*first.notes, note)}
    if isinstance(first, FlatDump):
        stated = next((one for one in candidates if one is not None), None)
        changed["candidates"] = candidate_lists(path, stated, first.target.shape[:-1] or (1,), vocab)
    return replace(first, **whole, **changed)  # type: ignore[return-value]


def _beside(opened: Parts, count: int, name: str, like: Rows) -> Beside:
    widths = [getattr(opened[i], name).shape[-1] for i in range(count)]
    return Beside(lambda i: getattr(opened[i], name), count, (*like.shape[:-1], sum(widths)), like.dtype)


def _check_like(name: str, one: Any, first: Any, other: str) -> None:
    if getattr(one, "step", None) is not None:
        raise InputError(f"{name}: files of llama.cpp are read one by one; name it itself")
    for role, a, b in zip(("target", "draft", "proposal"), facts(one), facts(first), strict=True):
        if (a is None) != (b is None) or (a and b and (a[0][:-1], a[1]) != (b[0][:-1], b[1])):
            raise InputError(
                f"{name}: its {role} has other positions or another type than that of {other}; parts of a "
                "vocabulary have the same"
            )
    for label in ("sampling", "dataset", "left_out"):
        if getattr(one, label, None) != getattr(first, label, None):
            raise InputError(f"{name}: its {label} is not that of {other}; record them again")


def _in_order(path: str | os.PathLike[str], parts: Sequence[Part]) -> list[Part]:
    """Parts by their place in the vocabulary, or the ranks in their names; gaps are errors."""
    places = [vocabulary_part(part.load()) for part in parts]
    if all(place is not None for place in places):
        pairs = sorted(zip(places, parts, strict=True), key=lambda pair: pair[0][0])  # type: ignore[index]
        _check_places(pairs)
        return [part for _, part in pairs]
    ranks = [_rank(part.name) for part in parts]
    if any(rank is None for rank in ranks):
        return list(parts)
    if sorted(ranks) != list(range(len(parts))):  # type: ignore[type-var]
        missing = next(i for i in range(len(parts)) if i not in ranks or ranks.count(i) > 1)
        how = "twice" if missing in ranks else "missing"
        raise InputError(f"{path}: rank {missing} of {len(parts)} is {how}; add it, or keep one file a rank")
    return [part for _, part in sorted(zip(ranks, parts, strict=True), key=lambda pair: pair[0])]  # type: ignore


def _check_places(pairs: Sequence[tuple[Any, Part]]) -> None:
    at = 0
    for (start, stop), part in pairs:
        mapping = part.load()
        key = find_key(part.name, mapping, TARGET_KEYS, "target")
        width = as_rows(part.name, key, mapping[key]).shape[-1]
        if start != at or stop not in (None, start + width):
            raise InputError(
                f"{part.name}: begins at token {start}, and token {at} is next with {width} in each row; add "
                "the missing part, or record its place again"
            )
        at += width
