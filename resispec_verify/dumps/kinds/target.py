"""A target on its own: the target of a flat dump, or a file that holds nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from resispec_verify.dumps.checks.companions import check_companions
from resispec_verify.dumps.formats.llamacpp import LlamaRows
from resispec_verify.dumps.formats.mapped import refuse_repeats
from resispec_verify.dumps.kinds.keys import (
    DRAFT_KEYS,
    PROPOSAL_KEY,
    TARGET_KEYS,
    as_rows,
    elsewhere,
    find_key,
    kind,
    refuse_top,
)
from resispec_verify.dumps.kinds.positions import PositionsDump
from resispec_verify.dumps.rows import FLOATS, LazyRows, Rows
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TargetDump", "target_from_mapping"]


@dataclass(frozen=True, eq=False, repr=False)
class TargetDump(PositionsDump):
    """Target logits of consecutive positions; only `batch` reads them.

    Attributes
    ----------
    next_tokens : int64 array (positions,) or None
        The token that followed each position, if the dump says so.
    step : float or None
        Where values are stored as multiples of a step, the largest of them: no value is known better than
        to half of it.
    floor : float or None
        The largest log-probability at which a row was cut off (-inf if none was): tokens at the floor of
        their row may have any smaller value.

    The others are those of `FlatDump`.
    """

    _: KW_ONLY
    next_tokens: np.ndarray | None = None
    step: float | None = None
    floor: float | None = None

    @property
    def key(self) -> str:
        """Where the rows were found."""
        return self.keys[0]

    def checked(self) -> Self:
        """As in `PositionsDump`; a file of llama.cpp has the size of the vocabulary in its header."""
        return self if isinstance(self.target, LlamaRows) else super().checked()

    def batch(self, start: int, stop: int) -> np.ndarray:
        """Return positions ``start`` to ``stop - 1``, fresh, ``[n, vocab]``, float32 or float64, checked.

        Raises
        ------
        InputError
            If a row has NaN or +inf, or only -inf; names key and position.
        IndexError
            If no position is asked for.
        """
        return self._read(start, stop)[0]

    def _labels(self, mapping: Mapping, leading: tuple[int, ...]) -> dict[str, Any]:
        stated = mapping.get("next_tokens")
        if not isinstance(stated, np.ndarray):
            stated = _following(mapping.get("tokens"), self.target)
        good = (
            isinstance(stated, np.ndarray)
            and stated.dtype.kind in "iu"
            and stated.shape == (self.positions,)
            and bool(((stated >= 0) & (stated < self.vocab)).all())
        )
        return {"next_tokens": stated.astype(np.int64)} if good and stated is not None else {}


def target_from_mapping(path: str | os.PathLike[str], mapping: dict, *, part: bool = False) -> TargetDump:
    """Check what a file holds and return its target; no logits are read.

    Parameters
    ----------
    path : path
        Named in errors.
    mapping : dict
    part : bool
        The rows are known to be a part of a vocabulary.

    Raises
    ------
    InputError
        If it is a rounds or tree dump, or has no logits of a target, or several.
    """
    refuse_top(path, mapping, "whole rows (target_logits [N, V]) are")
    found = kind(mapping)
    if found in ("rounds", "tree"):
        raise InputError(
            f"{path}: is a {found} dump, and target logits [N, V] by position are needed; {elsewhere(found)}"
        )
    key = find_key(path, mapping, TARGET_KEYS, "target")
    target = as_rows(path, key, mapping[key])
    refuse_repeats(f"{path}: {key}", target)
    drafts = {
        name: value
        for name in (*DRAFT_KEYS, PROPOSAL_KEY)
        if isinstance(value := mapping.get(name), (np.ndarray, LazyRows))
        and value.dtype in FLOATS
        and value.ndim
    }
    check_companions(path, mapping, {key: target} | drafts, part=part)
    step, floor = target.quantisation() if isinstance(target, LlamaRows) else (None, None)
    return TargetDump(str(path), target, keys=(key,), step=step, floor=floor).described(mapping)


def _following(tokens: object, target: Rows) -> np.ndarray | None:
    """Return the token after each position, if `tokens` has one more than there are positions: row i of a
    dump follows ``tokens[i]`` and predicts ``tokens[i + 1]``.
    """
    leading = target.shape[:-1]
    if not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu" or not leading:
        return None
    if tokens.shape != (*leading[:-1], leading[-1] + 1):
        return None
    return tokens[..., 1:].reshape(-1)
