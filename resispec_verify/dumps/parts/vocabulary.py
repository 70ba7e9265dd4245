"""Files that each hold a part of the vocabulary, as tensor parallelism leaves them.

Files of one folder are parts of the positions, or of the vocabulary, and both have the same shapes. Which it
is must be certain: stated, or plain from names and tokens. Where it is not, nothing is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from resispec_verify.dumps.checks.companions import tensor_part, vocabulary_part
from resispec_verify.dumps.checks.whole import stated_vocabulary
from resispec_verify.dumps.formats.mapped import repeats
from resispec_verify.dumps.kinds.flat import FlatDump
from resispec_verify.dumps.kinds.keys import CHUNKS_KEY, TARGET_KEYS, as_rows, find_key
from resispec_verify.dumps.kinds.labels import candidate_lists
from resispec_verify.dumps.kinds.positions import ROLES
from resispec_verify.dumps.parts.reduced import has_map
from resispec_verify.dumps.parts.shards import AnyDump, OpenParts, PartSource, facts
from resispec_verify.dumps.rows import Beside, Rows
from resispec_verify.errors import InputError

__all__ = ["Axis", "axis_of", "check_alone", "join_vocabulary"]

Axis = Literal["vocab", "positions"]

_JOINT = r"[-_.=]?(?:rank|shard|part)?[-_.=]?(\d+)"
# What only tensor parallelism is called.
_TENSOR = re.compile(r"(?:^|[^a-z])(?:tp|tensor[-_.]?parallel|vocab)" + _JOINT)
_DATA = re.compile(r"(?:^|[^a-z])(?:dp|data[-_.]?parallel)" + _JOINT)
# What parts of either kind are called.
_EITHER = re.compile(
    r"(?:^|[^a-z])(?:rank|gpu|cuda|device|worker|proc|process|mp|model|tensor|tp[-_.]?size)" + _JOINT
)
LEAST_TOKENS = 4
"""Fewer tokens than this may be the same in two files by chance."""


def axis_of(path: str | os.PathLike[str], parts: Sequence[PartSource], stated: Axis | None) -> Axis:
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
    try:
        first = _look(parts[0])
        if first.has_start and first.place is None:
            return "positions"  # the others must then have a start too
        looks = [first, *map(_look, parts[1:])]
    except InputError:
        return "positions"  # what is wrong with a part is told when it is opened
    places = [look.place for look in looks]
    if any(place is not None for place in places):
        if all(place is not None for place in places):
            return "vocab"
        raise _unsure(path, "some of its files, and not all, say which part of the vocabulary they have")
    widths, sizes = [look.width for look in looks], {look.vocabulary for look in looks}
    if len(sizes) == 1 and (size := sizes.pop()) is not None and size in (widths[0], sum(widths)):
        return "positions" if size == widths[0] else "vocab"
    return _axis_by_names(path, parts, looks)


def _axis_by_names(path: str | os.PathLike[str], parts: Sequence[PartSource], looks: Sequence[_Look]) -> Axis:
    """What parts are parts of, where no place and no size says it: by ranks, names, counts and tokens."""
    stems = [_stem(part.name) for part in parts]
    said = [look.rank for look in looks]
    ranks_said = [size is not None and size > 1 for _, size in said]
    if all(ranks_said) and _ranked(parts, said) is not None:
        return "vocab"
    tensor = [_TENSOR.search(stem) is not None for stem in stems]
    if all(tensor) and len({_TENSOR.sub("#", stem) for stem in stems}) == 1:
        return "vocab"
    if any(ranks_said):
        raise _unsure(path, "some of its files say that they are parts of a tensor-parallel run")
    if any(_DATA.search(stem) for stem in stems) and not any(tensor):
        return "positions"
    if len({look.rows for look in looks}) > 1:
        return "positions"
    by_rank = all(_TENSOR.search(stem) or _EITHER.search(stem) for stem in stems)
    known = [look.tokens for look in looks if look.tokens is not None]
    all_known = len(known) == len(looks)
    same = all_known and all(np.array_equal(ids, known[0]) for ids in known)
    if same and known[0].size >= LEAST_TOKENS:
        if by_rank:
            return "vocab"
        raise _unsure(path, "all of its files have the same tokens, so they are not different positions")
    if by_rank and not (all_known and not same):
        raise _unsure(path, "its files are named by rank, device or model, and hold as many rows each")
    return "positions"


def _unsure(path: str | os.PathLike[str], why: str) -> InputError:
    return InputError(
        f"{path}: {why}: parts of the vocabulary (tensor parallelism), or of the positions? Say --shards "
        'vocab or positions, or "axis": "vocab" or "positions" in its index.json'
    )


def check_alone(path: str | os.PathLike[str], mapping: Mapping, width: int, stated: Axis | None) -> None:
    """Refuse a file that is one of several parts of the vocabulary, and is given without the others.

    Raises
    ------
    InputError
        Its name or what it holds says it is of one rank of several, and nothing that its rows are whole.
    """
    if stated == "positions" or stated_vocabulary(mapping.get("meta")) == width:
        return
    rank, size = tensor_part(mapping)
    named = _TENSOR.search(_stem(os.fspath(path)))
    if named or (rank or 0) > 0 or (size or 1) > 1:
        why = "its name says" if named else "it says"
        raise InputError(
            f"{path}: {why} that it is of one rank of several, and then it has a part of the vocabulary; "
            f"give the folder of all parts (--shards vocab), or say --shards positions, or "
            f"meta['vocab_size'] = {width}, if its rows are whole"
        )


@dataclass(frozen=True)
class _Look:
    """What a part says of itself, before it is opened as a dump; None for what it does not say."""

    width: int = 0
    rows: int = 0
    tokens: np.ndarray | None = None
    place: tuple[int, int | None] | None = None
    has_start: bool = False
    vocabulary: int | None = None
    rank: tuple[int | None, int | None] = (None, None)


def _look(part: PartSource) -> _Look:
    mapping = part.load()
    if CHUNKS_KEY in mapping:
        return _Look()
    rows = _target_rows(part.name, mapping)
    tokens = mapping.get("tokens")
    good = isinstance(tokens, np.ndarray) and tokens.dtype.kind in "iu" and not repeats(tokens)
    return _Look(
        width=rows.shape[-1],
        rows=rows.shape[0] if rows.ndim > 1 else 1,
        tokens=tokens if good else None,
        place=vocabulary_part(mapping),
        has_start=mapping.get("start") is not None,
        vocabulary=stated_vocabulary(mapping.get("meta")),
        rank=tensor_part(mapping),
    )


def _target_rows(name: str, mapping: dict) -> Rows:
    key = find_key(name, mapping, TARGET_KEYS, "target")
    return as_rows(name, key, mapping[key])


def _stem(name: str) -> str:
    return os.path.basename(name).lower()


def _rank(name: str) -> int | None:
    found = _TENSOR.search(_stem(name)) or _EITHER.search(_stem(name))
    return None if found is None else int(found[1])


def _ranked(parts: Sequence[PartSource], said: Sequence[tuple[int | None, int | None]]) -> list[int] | None:
    """The rank of each part: as it says, or as it is named; None where neither does, for some."""
    ranks = [_rank(part.name) if rank is None else rank for part, (rank, _) in zip(parts, said, strict=True)]
    return None if any(rank is None for rank in ranks) else ranks  # type: ignore[return-value]


def join_vocabulary(
    path: str | os.PathLike[str],
    parts: Sequence[PartSource],
    read: Callable[[str, dict], AnyDump],
    *,
    ordered: bool = False,
) -> AnyDump:
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
    said = [tensor_part(part.load()) for part in parts]
    for part, (_, size) in zip(parts, said, strict=True):
        if size is not None and size > 1 and size != len(parts):
            raise InputError(
                f"{path}: {os.path.basename(part.name)} is of {size} ranks, and {len(parts)} are here; add "
                "the others, or say --shards positions if its rows are whole"
            )
    parts = list(parts) if ordered else _in_order(path, parts, said)
    candidates: list[Any] = []

    def opened_part(name: str, mapping: dict) -> AnyDump:
        if has_map(mapping):
            raise InputError(f"{name}: a reduced draft vocabulary is not joined from parts; save whole rows")
        candidates.append(mapping.get("candidates"))
        return read(name, {key: value for key, value in mapping.items() if key != "candidates"})

    opened = OpenParts(parts, opened_part)
    first = opened[0]
    tokens = _same_tokens(parts, opened)
    whole: dict[str, Any] = {
        role: _beside(opened, len(parts), role, like)
        for role in ROLES
        if (like := getattr(first, role, None)) is not None
    }
    if isinstance(first, FlatDump):
        stated = next((one for one in candidates if one is not None), None)
        leading, vocab = first.target.shape[:-1] or (1,), whole["target"].shape[-1]
        whole["candidates"] = candidate_lists(path, stated, leading, vocab)
    note = f"{len(parts)} parts of the vocabulary, side by side in the order of their ranks"
    return replace(  # type: ignore[return-value]
        first, **whole, path=str(path), tokens=tokens, notes=(*first.notes, note)
    )


def _same_tokens(parts: Sequence[PartSource], opened: OpenParts) -> np.ndarray | None:
    """The tokens of all parts, which are of the same positions and types."""
    first, tokens = opened[0], None
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
    return tokens


def _beside(opened: OpenParts, count: int, name: str, like: Rows) -> Beside:
    widths = [getattr(opened[i], name).shape[-1] for i in range(count)]
    return Beside(lambda i: getattr(opened[i], name), count, (*like.shape[:-1], sum(widths)), like.dtype)


def _check_like(name: str, one: Any, first: Any, other: str) -> None:
    if getattr(one, "step", None) is not None:
        raise InputError(f"{name}: files of llama.cpp are read one by one; name it itself")
    for role, a, b in zip(ROLES, facts(one), facts(first), strict=True):
        if (a is None) != (b is None) or (a and b and (a[0][:-1], a[1]) != (b[0][:-1], b[1])):
            raise InputError(
                f"{name}: its {role} has other positions or another type than that of {other}; parts of a "
                "vocabulary have the same"
            )
    for label in ("sampling", "dataset", "left_out"):
        if getattr(one, label, None) != getattr(first, label, None):
            raise InputError(f"{name}: its {label} is not that of {other}; record them again")


def _in_order(
    path: str | os.PathLike[str], parts: Sequence[PartSource], said: Sequence[tuple[int | None, int | None]]
) -> list[PartSource]:
    """Parts by their place in the vocabulary, or the ranks in their names; gaps are errors."""
    places = [vocabulary_part(part.load()) for part in parts]
    if all(place is not None for place in places):
        pairs = sorted(zip(places, parts, strict=True), key=lambda pair: pair[0][0])  # type: ignore[index]
        _check_places(pairs)
        return [part for _, part in pairs]
    ranks = _ranked(parts, said)
    if ranks is None or (all(rank is None for rank, _ in said) and len(set(ranks)) == 1):
        return list(parts)  # by name; the number of ranks is no rank
    if all(re.search(rf"of[-_]?0*{len(parts)}(\D|$)", _stem(part.name)) for part in parts):
        ranks = [rank - 1 for rank in ranks]  # 1-of-2 and 2-of-2
    if sorted(ranks) != list(range(len(parts))):
        missing = next(i for i in range(len(parts)) if i not in ranks or ranks.count(i) > 1)
        how = "twice" if missing in ranks else "missing"
        raise InputError(f"{path}: rank {missing} of {len(parts)} is {how}; add it, or keep one file a rank")
    return [part for _, part in sorted(zip(ranks, parts, strict=True), key=lambda pair: pair[0])]  # type: ignore


def _check_places(pairs: Sequence[tuple[Any, PartSource]]) -> None:
    at = 0
    for (start, stop), part in pairs:
        width = _target_rows(part.name, part.load()).shape[-1]
        if start != at or stop not in (None, start + width):
            raise InputError(
                f"{part.name}: begins at token {start}, and token {at} is next with {width} in each row; add "
                "the missing part, or record its place again"
            )
        at += width
