"""Recording flat dumps: rows are written as they come, in memory that does not grow with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from resispec_verify.dumps.opening import as_path
from resispec_verify.errors import InputError
from resispec_verify.record.arrays import DTYPES, as_array, integers, logits, plain
from resispec_verify.record.pt_file import Column, PtFile
from resispec_verify.record.top import listed, sampling_of

__all__ = ["Recorder", "Recording", "check_path"]

PARTIAL = "partial"


def check_path(path: Path) -> None:
    """Raise `InputError` unless a recording can go there."""
    if path.suffix not in (".pt", ".pth"):
        raise InputError(f"{path}: recordings are .pt files; end the name with .pt")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; make it first")


class Recording:
    """What the three recorders share: a file that appears whole at the end, or not at all."""

    #: What is added, for messages.
    unit = "row"

    def __init__(
        self,
        path: str | os.PathLike[str],
        dtype: str = "float16",
        meta: Mapping[str, Any] | None = None,
        *,
        keep_partial: bool = False,
    ) -> None:
        self.path = as_path(path)
        if dtype not in DTYPES:
            raise InputError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
        check_path(self.path)
        self.dtype = DTYPES[dtype]
        self.count = 0
        self._meta = plain("meta", dict(meta or {}))
        self._keep_partial = keep_partial
        self._notes: dict[str, Any] = {}
        self._columns: dict[str, Column] = {}
        self._entries: list[dict[str, Any]] = []
        self._closed = False
        self._file = PtFile(self.path)

    def __enter__(self):
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif not self._closed:
            self._closed = True
            if not self._keep_partial or self.count == 0:
                self._file.discard()
                return
            self._meta[PARTIAL] = f"ended by {kind.__name__} after {self.count} {self.unit}s"
            self._finish()

    def note(self, **values: Any) -> None:
        """Keep more with the dump, under keys of their own: numbers, strings, lists, dicts, arrays."""
        self._check_open()
        for key, value in values.items():
            self._notes[key] = plain(key, value)

    def close(self) -> None:
        """Put the file in place; without a `with` block this must be called.

        Raises
        ------
        InputError
            If nothing was recorded; no file is written then.
        OSError
            If the disk is full; no file is written then.
        """
        if self._closed:
            return
        self._closed = True
        if self.count == 0:
            self._file.discard()
            raise InputError(f"{self.path}: nothing was recorded, so no file was written; add {self.unit}s")
        self._finish()

    def discard(self) -> None:
        """Give the recording up; no file is written."""
        self._closed = True
        self._file.discard()

    def _finish(self) -> None:
        try:
            content = {**self._content(), **self._notes, "meta": self._meta}
            self._file.finish({key: self._written(value) for key, value in content.items()})
        except BaseException:
            self._file.discard()
            raise

    def _written(self, value: Any) -> Any:
        """Plain data with its arrays written into the file."""
        if isinstance(value, np.ndarray):
            return self._file.tensor(value)
        if isinstance(value, dict):
            return {key: self._written(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self._written(entry) for entry in value]
        return value

    def _check_open(self) -> None:
        if self._closed:
            raise InputError(f"{self.path}: the recording is closed; begin a new one")

    def _append(self, rows: dict[str, np.ndarray]) -> None:
        """Append entries to the columns of the file; the first begin them."""
        if not self._columns:
            self._columns = {
                key: self._file.column(array.dtype, array.shape[1:]) for key, array in rows.items()
            }
        for key, array in rows.items():
            self._file.append(self._columns[key], array)

    def _content(self) -> dict[str, Any]:
        for column in self._columns.values():
            column.length = self.count  # after a full disk, one may have got further than another
        return dict(self._columns)


class Recorder(Recording):
    """Writes a flat dump from a decoding loop: target and draft logits of one position after the other.

    Rows go to disk as they come. The file appears under its name when the `with` block ends, and not at all
    if it ends by an exception. torch is not needed; its tensors are accepted, from any device.

    Parameters
    ----------
    path : path
        The `.pt` file. ``torch.load(path, weights_only=True)`` and `open_dump` read it.
    dtype : {"float16", "bfloat16", "float32", "float64"}
        Type of the logits in the file.
    meta : mapping, optional
        Plain values to keep with the dump. ``meta["sampling"]`` may state how tokens are drawn from the
        logits: a dict of `temperature`, `top_k`, `top_p` and `min_p`, each a number or one number a row.
    keep_partial : bool
        Write what there is if an exception ends the block; ``meta["partial"]`` then says so.
    top_k : int, optional
        Write top-k pairs instead of whole rows: of each law, as ``meta["sampling"]`` makes it of the logits,
        the most probable tokens and what all others have together. `open_top_pairs` reads the file; what was
        applied is in ``meta["applied"]``. Log-probabilities are float32, or float64 if `dtype` is.

    Raises
    ------
    InputError
        A path that cannot be, or (from `add`) rows that are not valid logits.

    Examples
    --------
    >>> with Recorder("run.pt", meta={"sampling": {"temperature": 0.6}}) as rec:  # doctest: +SKIP
    ...     for target_row, draft_row in my_loop():
    ...         rec.add(target_logits=target_row, draft_logits=draft_row)
    """

    _leading: tuple[int, ...] | None = None
    _vocab = 0

    def __init__(
        self,
        path: str | os.PathLike[str],
        dtype: str = "float16",
        meta: Mapping[str, Any] | None = None,
        *,
        keep_partial: bool = False,
        top_k: int | None = None,
    ) -> None:
        if top_k is not None and (type(top_k) is not int or top_k < 1):
            raise InputError(f"top_k must be a whole number from 1 on, or None for whole rows; got {top_k!r}")
        sampling = sampling_of(meta or {}) if top_k is not None else None
        super().__init__(path, dtype, meta, keep_partial=keep_partial)
        self._top_k, self._sampling = top_k, sampling
        if sampling is not None:
            self._meta["applied"] = self._meta.pop("sampling", {})

    def add(
        self,
        *,
        target_logits: Any,
        draft_logits: Any,
        proposal_logits: Any = None,
        candidates: Any = None,
        tokens: Any = None,
    ) -> None:
        """Add one row or several: everything about one position after the same prefix.

        Nothing is added if anything is wrong with any of it.

        Parameters
        ----------
        target_logits, draft_logits : array [V] or [n, V]
            Raw logits, before temperature and filters.
        proposal_logits : array, optional
            What the candidates were really drawn from, where that is not the draft.
        candidates : int array [k] or [n, k], optional
            Draft tokens tried at the position, in the order they were tried.
        tokens : int or int array [n], optional
            The last token of each row's prefix, the one the model was fed: row i predicts ``tokens[i + 1]``.

        Raises
        ------
        InputError
            Shapes that do not agree, a vocabulary other than before, an optional argument that is there only
            sometimes, NaN or +inf (the row is named, counted from 0), or values that `dtype` cannot hold.
        """
        self._check_open()
        given = {"target_logits": target_logits, "draft_logits": draft_logits}
        if proposal_logits is not None:
            given["proposal_logits"] = proposal_logits
        rows = {
            key: logits(f"{self.path}: {key}", value, self.dtype, self.count) for key, value in given.items()
        }
        n, vocab = rows["target_logits"].shape
        for key, array in rows.items():
            if len(array) != n:
                raise self._error(f"target_logits has {n} rows but {key} has {len(array)}; give the same")
        if candidates is not None:
            ids = np.atleast_2d(as_array("candidates", candidates))
            rows["candidates"] = integers(f"{self.path}: candidates", ids, (n, None), vocab)
        if tokens is not None:
            ids = np.atleast_1d(as_array("tokens", tokens))
            rows["tokens"] = integers(f"{self.path}: tokens", ids, (n,), vocab)
        if self._top_k is not None:
            rows = self._listed(rows, vocab)
        if self._columns:
            self._check_same(rows)
        self._append(rows)
        self._vocab = vocab
        self.count += n

    def _listed(self, rows: dict[str, np.ndarray], vocab: int) -> dict[str, np.ndarray]:
        """Columns of a file of top-k pairs in place of those of logits."""
        assert self._top_k is not None
        assert self._sampling is not None
        if "proposal_logits" in rows:
            raise self._error(
                "proposal_logits are not kept with top_k; list what was drawn from as the draft"
            )
        if len(rows["draft_logits"][0]) != vocab or self._vocab not in (0, vocab):
            raise self._error(f"row {self.count} has another vocabulary; target and draft need one, always")
        found = {key: value for key, value in rows.items() if not key.endswith("_logits")}
        dtype = np.dtype(np.float64 if self.dtype.itemsize == 8 else np.float32)
        for role in ("target", "draft"):
            top = listed(rows[f"{role}_logits"], self._top_k, self._sampling, dtype)
            found |= {f"{role}_{key}": value for key, value in top.items()}
        return found

    def shape_as(self, *leading: int) -> None:
        """Give the positions these axes in the file, such as ``(sequences, rows a sequence)``."""
        self._leading = leading

    def _check_same(self, rows: dict[str, np.ndarray]) -> None:
        """Compare rows with the first ones."""
        for key in self._columns.keys() - rows.keys():
            raise self._error(f"row {self.count} has no {key}, but earlier rows do; give it always or never")
        for key, array in rows.items():
            column = self._columns.get(key)
            if column is None:
                raise self._error(
                    f"row {self.count} has {key}, but earlier rows do not; give it always or never"
                )
            if array.shape[1:] != column.row and array.ndim > 1:
                what = "candidates" if key == "candidates" else "tokens of vocabulary"
                raise self._error(
                    f"{key} of row {self.count} has {array.shape[1]} {what}, but earlier rows have "
                    f"{column.row[0]}; record each kind to a file of its own"
                )

    def _error(self, message: str) -> InputError:
        return InputError(f"{self.path}: {message}")

    def _content(self) -> dict[str, Any]:
        content = super()._content()
        if self._top_k is not None:
            k = min(self._top_k, self._vocab)
            content |= {"target_ranked": k, "draft_ranked": k, "vocab": self._vocab}
        if self._leading is not None and np.prod(self._leading) == self.count:
            for column in self._columns.values():
                column.leading = self._leading
        return content
