"""What flat dumps and targets share: rows by position, and what the file says of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from resispec_verify.dumps.checks.companions import kept_rows
from resispec_verify.dumps.checks.whole import check_rows, check_tokens
from resispec_verify.dumps.kinds.keys import TARGET_KEYS
from resispec_verify.dumps.kinds.labels import samplings
from resispec_verify.dumps.rows import Picked, Rows, checked_rows, dtype_names, padded
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ROLES", "PositionsDump"]

ROLES = ("target", "draft", "proposal")
_BY_POSITION = (
    "candidates",
    "next_tokens",
    "dataset",
    "sampling",
    "history",
    "prompt_len",
    "allowed",
    "prompt",
)


@dataclass(frozen=True, eq=False, repr=False)
class PositionsDump:
    """Rows by position, opened but not read; the attributes are described with `FlatDump`."""

    path: str
    target: Rows
    _: KW_ONLY
    tokens: Any = None
    meta: Any = None
    sampling: Mapping[str, Any] | tuple[Mapping[str, Any], ...] | None = None
    notes: tuple[str, ...] = ()
    left_out: int = 0
    keys: tuple[str, ...] = (TARGET_KEYS[0],)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({self.path!r}, positions={self.positions}, vocab={self.vocab}, dtype={self.dtype!r})"

    @property
    def positions(self) -> int:
        """Number of positions: the product of the leading axes, 1 for a single row."""
        return math.prod(self.target.shape[:-1])

    @property
    def vocab(self) -> int:
        """Width of a row of `batch`: the widest of the rows, if narrower ones are padded."""
        return max(rows.shape[-1] for rows in self.held.values())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the target logits as stored."""
        return self.target.shape

    @property
    def dtype(self) -> str:
        """Stored type, such as ``float16``, or ``float16/float32`` if target and draft differ."""
        return dtype_names(*list(self.held.values())[:2])

    @property
    def held(self) -> dict[str, Rows]:
        """The rows that are there, by their keys in the file; the target's come first."""
        rows = (getattr(self, role) for role in ROLES[: len(self.keys)])
        return {key: array for key, array in zip(self.keys, rows, strict=True) if array is not None}

    def checked(self) -> Self:
        """The dump itself, unless its rows are not over a vocabulary.

        Raises
        ------
        InputError
            Rows narrower than the vocabulary that ``meta["vocab_size"]`` states, or that hold no entry for
            most of the tokens that followed; axes the wrong way round; all rows in the order of their values.
        """
        check_rows(self.path, self.held, self.meta)
        check_tokens(self.path, next(iter(self.held)), self.target, self.tokens)
        return self

    def described(self, mapping: Mapping) -> Self:
        """The dump with what lies beside its logits, or beside the parts that it was joined from.

        Parameters
        ----------
        mapping : mapping
            Of a file, or what a file of chunks or an index says of all parts.

        Raises
        ------
        InputError
            Labels that do not fit the positions, or that parts have already and otherwise.
        """
        leading, meta = self.target.shape[:-1] or (1,), mapping.get("meta")
        stated = self._labels(mapping, leading)
        stated |= {"tokens": mapping.get("tokens"), "meta": meta}
        stated["sampling"] = samplings(self.path, meta, self.positions)
        stated = {name: value for name, value in stated.items() if value is not None}
        for name in ("candidates", "dataset", "sampling"):
            before = getattr(self, name, None)
            if name in stated and before is not None and not np.array_equal(before, stated[name]):
                raise InputError(
                    f"{self.path}: states a {name} of all parts, and the parts state another; keep one of "
                    "them"
                )
        dump = replace(self, **stated)
        kept, notes = kept_rows(self.path, mapping, leading)
        return dump if kept is None else dump._at(kept, notes)

    def _labels(self, mapping: Mapping, leading: tuple[int, ...]) -> dict[str, Any]:
        """What only this kind has beside its logits, checked."""
        raise NotImplementedError

    def _at(self, kept: np.ndarray, notes: tuple[str, ...]) -> Self:
        """The dump at some of its positions."""
        changed: dict[str, Any] = {}
        for name in (*ROLES, *_BY_POSITION):
            value = getattr(self, name, None)
            if value is not None and name in ROLES:
                changed[name] = Picked(value, kept)
            elif isinstance(value, np.ndarray):
                changed[name] = value[kept]
            elif isinstance(value, tuple):
                changed[name] = tuple(value[i] for i in kept)
        left_out = self.left_out + self.positions - len(kept)
        return replace(self, **changed, notes=(*self.notes, *notes), left_out=left_out)

    def _read(self, start: int, stop: int) -> list[np.ndarray]:
        """Positions ``start`` to ``stop - 1`` of all rows that are held, checked, of one width."""
        stop = min(stop, self.positions)
        if not 0 <= start < stop:
            raise IndexError(f"positions {start} to {stop} of {self.positions}")
        return [
            padded(checked_rows(self.path, key, rows, start, stop), self.vocab)
            for key, rows in self.held.items()
        ]
