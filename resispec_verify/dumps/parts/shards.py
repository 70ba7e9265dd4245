"""Many parts as one dump: the files of a folder, glob or index.json, or the chunks of one file."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from resispec_verify.dumps.formats.mapped import are_tokens
from resispec_verify.dumps.kinds.flat import FlatDump
from resispec_verify.dumps.kinds.positions import ROLES
from resispec_verify.dumps.kinds.target import TargetDump
from resispec_verify.dumps.kinds.values import integer
from resispec_verify.dumps.rows import Rows, Stacked
from resispec_verify.errors import InputError

__all__ = ["AnyDump", "OpenParts", "PartSource", "facts", "join"]

MOST_OPEN = 8

AnyDump = TypeVar("AnyDump", FlatDump, TargetDump)


@dataclass(frozen=True)
class PartSource:
    """One shard or chunk: its name in errors and how to open it."""

    name: str
    load: Callable[[], dict]
    start: int | None = None
    rows: int | None = None


class OpenParts:
    """Parts that are opened again when they are needed, by any thread; the last few stay open."""

    def __init__(self, parts: Sequence[PartSource], read: Callable[[str, dict], Any]) -> None:
        self.parts, self._read = parts, read
        self._open: OrderedDict[int, Any] = OrderedDict()
        self._facts: dict[int, tuple] = {}
        self.starts: list[int | None] = []
        self._lock = threading.Lock()

    def __getitem__(self, i: int) -> Any:
        with self._lock:
            return self._get(i)

    def _get(self, i: int) -> Any:
        if i not in self._open:
            part = self.parts[i]
            mapping = part.load()
            opened = self._read(part.name, mapping)
            if self._facts.setdefault(i, facts(opened)) != facts(opened):
                raise InputError(f"{part.name}: changed while it was read; keep shards as they are")
            if i == len(self.starts):
                self.starts.append(_start(part, mapping))
            self._open[i] = opened
        self._open.move_to_end(i)
        while len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)
        return self._open[i]


def facts(opened: FlatDump | TargetDump) -> tuple:
    """Shape and type of target, draft and proposal; None for what there is not."""
    arrays = (getattr(opened, role, None) for role in ROLES)
    return tuple(None if a is None else (a.shape, a.dtype) for a in arrays)


def _start(part: PartSource, mapping: dict) -> int | None:
    own = mapping.get("start")
    own = None if own is None else integer(f"{part.name}: start", own, 0, None)
    if own is not None and part.start is not None and own != part.start:
        raise InputError(
            f"{part.name}: start is {own} but the index says {part.start}; write the index again"
        )
    return part.start if own is None else own


# What is kept of each part: everything but logits.
_TEXTS = ("history", "prompt_len", "allowed")
_KEPT = ("tokens", "candidates", "dataset", "sampling", "meta", "left_out", "prompt", *_TEXTS)
_Small = SimpleNamespace


def join(
    path: str | os.PathLike[str],
    parts: Sequence[PartSource],
    read: Callable[[str, dict], AnyDump],
    *,
    from_zero: bool = False,
) -> AnyDump:
    """Open many parts as one dump; each is opened once now, and again whenever its rows are read.

    Parameters
    ----------
    path : path
        Named in errors that concern no single part.
    parts : sequence of PartSource
    read : callable
        ``read(name, mapping)`` is the part as a flat dump or a target.
    from_zero : bool
        Whether the first part must start at position 0.

    Raises
    ------
    InputError
        If a part cannot be read, parts differ in keys, vocabularies or types, or their `start` leaves gaps,
        overlaps, or is there only in some.
    """
    opened = OpenParts(parts, read)
    small, order = _survey(opened, from_zero)
    first = opened[order[0]]
    rows = [one.rows for one in small]
    tokens = _join_tokens(small)
    whole: dict[str, Any] = {
        role: _stack(opened, order, rows, role, like)
        for role in ROLES
        if (like := getattr(first, role, None)) is not None
    }
    joined = ()
    if isinstance(first, FlatDump):
        whole["dataset"] = _labels(small, "dataset")
        whole["candidates"] = _join_candidates(path, [one.candidates for one in small])
        whole["prompt"] = _join_prompts([one.prompt for one in small])
        whole |= {name: _join_texts(path, name, [getattr(one, name) for one in small]) for name in _TEXTS}
        joined = (f"{len(parts)} parts, joined in the order of {_reason(opened.starts)}",)
    else:
        whole["next_tokens"] = tokens[1:] if tokens is not None and len(tokens) == sum(rows) + 1 else None
    return replace(  # type: ignore[return-value]
        first,
        **whole,
        path=str(path),
        tokens=tokens,
        sampling=_labels(small, "sampling"),
        meta=small[0].meta,
        notes=_notes(first, small, *joined),
        left_out=sum(one.left_out for one in small),
    )


def _notes(first: FlatDump | TargetDump, small: Sequence[_Small], *more: str) -> tuple[str, ...]:
    """What is said of the whole; what the mask of the first part left out is said of all parts."""
    left_out, rows = sum(one.left_out for one in small), sum(one.rows for one in small)
    said = [note for note in first.notes if not first.left_out or "positions are left out" not in note]
    if left_out:
        said.append(
            f"masks: {left_out} of {left_out + rows} positions are left out; positions are counted without "
            "them"
        )
    return (*said, *more)


def _survey(opened: OpenParts, from_zero: bool) -> tuple[list[_Small], list[int]]:
    """Open every part once; return what is kept of each, in order, and the order."""
    small = []
    for i, part in enumerate(opened.parts):
        one = opened[i]
        if getattr(one, "step", None) is not None:
            raise InputError(f"{part.name}: files of llama.cpp are read one by one; name it itself")
        small.append(_Small(rows=one.positions, **{name: getattr(one, name, None) for name in _KEPT}))
        _check_like(part.name, one, opened, one.positions + one.left_out, part.rows)
    stored = [one.rows + one.left_out for one in small]
    order = _order(opened.parts, opened.starts, stored, from_zero)
    return [small[i] for i in order], order


def _check_like(name: str, one: Any, opened: OpenParts, rows: int, stated: int | None) -> None:
    if stated is not None and rows != stated:
        raise InputError(f"{name}: has {rows} positions but the index says {stated}; write the index again")
    mine, other = facts(one), opened._facts[0]
    first = opened.parts[0].name
    for role, a, b in zip(ROLES, mine, other, strict=True):
        if (a is None) != (b is None):
            raise InputError(
                f"{name}: has {'no' if a is None else 'a'} {role}, unlike {first}; record it again"
            )
        if a is None or b is None:
            continue
        if a[0][-1] != b[0][-1]:
            raise InputError(
                f"{name}: its {role} has vocabulary {a[0][-1]} but {first} has {b[0][-1]}; keep apart"
            )
        if a[1] != b[1]:
            raise InputError(f"{name}: its {role} is {a[1].name} but {first} has {b[1].name}; save one type")


def _order(
    parts: Sequence[PartSource], starts: Sequence[int | None], rows: Sequence[int], from_zero: bool
) -> list[int]:
    """Parts by start, or as they are where none says it; gaps and overlaps are errors."""
    without = [i for i, start in enumerate(starts) if start is None]
    if len(without) == len(parts):
        return list(range(len(parts)))
    if without:
        raise InputError(f"{parts[without[0]].name}: has no start, unlike other parts; give all of them one")
    order = sorted(range(len(parts)), key=lambda i: starts[i])  # type: ignore[arg-type, return-value]
    at = 0 if from_zero else starts[order[0]]
    for i in order:
        if starts[i] != at:
            how = "overlaps the part before it" if starts[i] < at else "leaves a gap"  # type: ignore[operator]
            raise InputError(
                f"{parts[i].name}: start is {starts[i]} and {how}: position {at} is next; add the missing "
                "part or remove the extra one"
            )
        at += rows[i]  # type: ignore[operator]
    return order


def _reason(starts: Sequence[int | None]) -> str:
    if starts[0] is None:
        return "the index or their names"
    first = min(start for start in starts if start is not None)
    return f"their start; position 0 here is position {first} of the run" if first else "their start"


def _stack(opened: OpenParts, order: list[int], rows: list[int], name: str, like: Rows) -> Stacked:
    def where(i: int, row: int) -> str:
        return f"{os.path.basename(opened.parts[order[i]].name)}, row {row}"

    return Stacked(
        lambda i: getattr(opened[order[i]], name), rows, (sum(rows), like.shape[-1]), like.dtype, where
    )


def _join_tokens(small: Sequence[_Small]) -> np.ndarray | None:
    """One chain of tokens: each part has one a row, or one more, which the next part begins with."""
    chain: list[np.ndarray] = []
    for one in small:
        tokens = one.tokens
        if one.left_out or not are_tokens(tokens) or tokens.ndim != 1:
            return None
        if len(tokens) - one.rows != len(small[0].tokens) - small[0].rows:
            return None
        extra = len(tokens) - one.rows
        if extra not in (0, 1) or (extra and chain and chain[-1][-1] != tokens[0]):
            return None
        if extra and chain:
            chain[-1] = chain[-1][:-1]
        chain.append(tokens)
    return np.concatenate(chain)


def _join_candidates(path: Any, lists: list[np.ndarray | None]) -> np.ndarray | None:
    found = [one for one in lists if one is not None]
    if not found:
        return None
    if len(found) < len(lists) or len({one.shape[1] for one in found}) > 1:
        raise InputError(f"{path}: parts have different numbers of candidates; give every position as many")
    return np.concatenate(found)


def _join_prompts(parts: list[np.ndarray | None]) -> np.ndarray | None:
    """Positions of the whole are in the order of the parts, so that a part ends with a prompt."""
    joined, first = [], 0
    for one in parts:
        if one is None:
            return None
        joined.append(one + first)
        first += int(one.max()) + 1
    return np.concatenate(joined)


def _join_texts(path: Any, name: str, parts: list[Any]) -> Any:
    """What lies before each position, or may follow it, of all parts."""
    found = [one for one in parts if one is not None]
    if not found:
        return None
    if len(found) < len(parts):
        key = "allowed_tokens" if name == "allowed" else name
        raise InputError(f"{path}: some parts have {key} and others do not; save it in all of them, or none")
    return sum(found, ()) if isinstance(found[0], tuple) else np.concatenate(found)


def _labels(small: Sequence[_Small], name: str) -> Any:
    """One label for all parts if they agree; else one a position."""
    labels = [getattr(one, name) for one in small]
    if all(label == labels[0] for label in labels) and not isinstance(labels[0], tuple):
        return labels[0]
    missing: Any = {} if name == "sampling" else ""
    joined: list[Any] = []
    for label, one in zip(labels, small, strict=True):
        joined += label if isinstance(label, tuple) else [missing if label is None else label] * one.rows
    return tuple(joined)
