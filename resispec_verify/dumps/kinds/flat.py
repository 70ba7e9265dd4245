"""Flat dumps: one row of target and one row of draft logits a position, checked as they are read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from resispec_verify.dumps.checks.companions import check_companions
from resispec_verify.dumps.checks.looks import probabilities
from resispec_verify.dumps.checks.whole import stated_vocabulary
from resispec_verify.dumps.formats.foreign import unnamed
from resispec_verify.dumps.formats.mapped import repeats
from resispec_verify.dumps.kinds.keys import (
    DRAFT_KEYS,
    LOG_PROBABILITIES_KEY,
    PROPOSAL_KEY,
    ROUNDS_KEY,
    TARGET_KEYS,
    TREE_KEY,
    as_mapping,
    as_rows,
    elsewhere,
    find_key,
    kind,
    refuse_top,
)
from resispec_verify.dumps.kinds.labels import candidate_lists, datasets
from resispec_verify.dumps.kinds.positions import PositionsDump
from resispec_verify.dumps.kinds.texts import texts_before
from resispec_verify.dumps.parts.reduced import differing_widths, placed
from resispec_verify.dumps.rows import Rows, Stacked
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Batch", "FlatDump", "flat_from_mapping", "looks_like_probabilities", "turned"]


LIKE_A_VOCABULARY = 1_000
"""Hardly a tokenizer has fewer tokens: so many positions of fewer are perhaps the other way round."""


class Batch(NamedTuple):
    """Logits of consecutive positions, each ``[n, vocab]``, fresh, contiguous, float32 or float64.

    float16 and bfloat16 are widened exactly to float32; padded tokens are -inf. `proposal` is None if the
    dump has none.
    """

    target: np.ndarray
    draft: np.ndarray
    proposal: np.ndarray | None


@dataclass(frozen=True, eq=False, repr=False)
class FlatDump(PositionsDump):
    """A flat dump, opened but not read: only `batch` touches logits, and only those of its rows.

    Attributes
    ----------
    path : str
        Named in errors.
    target, draft : numpy.ndarray or LazyRows, shape (vocab,), (positions, vocab) or (..., vocab)
        As stored: float16, bfloat16, float32 or float64, perhaps on a memory map. Leading axes are
        positions in C order.
    proposal : numpy.ndarray, LazyRows or None
        Like `draft`: what the candidates were really drawn from, if the dump says so.
    tokens, meta : object
        As stored, or None.
    candidates : int64 array (positions, n) or None
        Token ids, inside the vocabulary.
    dataset : str, tuple of str or None
        One name, or one a position.
    sampling : mapping, tuple of mappings or None
        What ``meta["sampling"]`` states, at once or by position.
    history : tuple of int arrays or None
        The tokens before each position: prompt and output.
    prompt_len : int array (positions,) or None
        How many of those are the prompt.
    allowed : bool array (positions, vocab) or None
        The tokens that a grammar allows, as stored under ``allowed_tokens``.
    prompt : int array (positions,) or None
        Of which prompt each is, where rows ``[prompts, positions, vocab]`` or steps of a batch say it.
    pad : tuple of int or None
        ``(target width, draft width)`` if they differ and padding was asked for; else None.
    keys : tuple of str
        The keys under which target, draft and proposal were found.
    notes : tuple of str
        How it was read, where that is not obvious; one line each.
    left_out : int
        Positions of the file that a mask leaves out; they are in no array here.
    """

    draft: Rows
    proposal: Rows | None = None
    _: KW_ONLY
    candidates: np.ndarray | None = None
    dataset: str | tuple[str, ...] | None = None
    history: tuple[np.ndarray, ...] | None = None
    prompt_len: np.ndarray | None = None
    allowed: np.ndarray | None = None
    prompt: np.ndarray | None = None
    pad: tuple[int, int] | None = None
    keys: tuple[str, ...] = (TARGET_KEYS[0], DRAFT_KEYS[0], PROPOSAL_KEY)

    def checked(self) -> Self:
        """As in `PositionsDump`; a narrower vocabulary than the rows is noted, and axes that look turned."""
        super().checked()
        stated, width = stated_vocabulary(self.meta), self.target.shape[-1]
        if stated is None:
            note = turned(self.target.shape)
            return self if note is None else replace(self, notes=(*self.notes, note))
        if stated >= width:
            return self
        wider = (
            f"rows have {width} entries and meta states a vocabulary of {stated}: the others count as tokens"
        )
        return replace(self, notes=(*self.notes, wider))

    def batch(self, start: int, stop: int) -> Batch:
        """Return the logits of positions ``start`` to ``stop - 1``, checked.

        Parameters
        ----------
        start, stop : int
            0-based; `stop` may exceed the number of positions.

        Raises
        ------
        InputError
            If a row has NaN or +inf, or only -inf; names key and position.
        IndexError
            If no position is asked for.
        """
        target, draft, *proposal = self._read(start, stop)
        return Batch(target, draft, proposal[0] if proposal else None)

    def _labels(self, mapping: Mapping, leading: tuple[int, ...]) -> dict[str, Any]:
        return {
            "candidates": candidate_lists(self.path, mapping.get("candidates"), leading, self.vocab),
            "dataset": datasets(self.path, mapping.get("dataset"), self.positions),
            **texts_before(self.path, mapping, leading, self.vocab),
        }


def flat_from_mapping(
    path: str | os.PathLike[str], mapping: object, *, pad_vocab: bool = False, part: bool = False
) -> FlatDump:
    """Check what a file holds and return it as a flat dump; no logits are read.

    Parameters
    ----------
    path : path
        Named in errors.
    mapping : dict
        With target and draft logits ``[V]``, ``[N, V]`` or ``[..., V]`` under one of the known names, or
        lists of such arrays over steps, and perhaps `proposal_logits`, `d2t`, `t2d`, `tokens`, `candidates`,
        `dataset`, `meta` and a mask.
    pad_vocab : bool
        Allow widths to differ; the narrower rows are then padded with -inf.
    part : bool
        The rows are known to be a part of a vocabulary.

    Raises
    ------
    InputError
        If it is not a dict, of another kind, or if keys are missing or ambiguous, shapes or widths differ,
        there are no positions, or the values are not float16, bfloat16, float32 or float64.
    """
    mapping = as_mapping(path, mapping)
    _check_kind(path, mapping)
    named = any(key in mapping for key in (*TARGET_KEYS, *DRAFT_KEYS))
    if not named and (line := unnamed(Path(path), mapping)) is not None:
        raise InputError(f"{path}: {line}")
    keys = (
        find_key(path, mapping, TARGET_KEYS, "target"),
        find_key(path, mapping, DRAFT_KEYS, "draft"),
        PROPOSAL_KEY,
    )
    target, draft = (as_rows(path, key, mapping[key]) for key in keys[:2])
    proposal = mapping.get(PROPOSAL_KEY)
    if proposal is not None:
        proposal = as_rows(path, PROPOSAL_KEY, proposal)
    stored = FlatDump(str(path), target, draft, proposal, keys=keys, prompt=_prompts(target))
    check_companions(path, mapping, stored.held, part=part)
    draft, proposal, pad_vocab, notes = placed(path, mapping, target, draft, proposal, pad_vocab)
    steps = [note for key in keys[:2] if (note := _steps(key, stored.held[key]))]
    whole = replace(stored, draft=draft, proposal=proposal, notes=(*steps, *notes))
    _check_shapes(whole, pad_vocab)
    widths = (target.shape[-1], draft.shape[-1])
    return replace(whole, pad=widths if widths[0] != widths[1] else None).described(mapping)


def looks_like_probabilities(dump: FlatDump) -> bool:
    """Return whether every row of target and draft lies in [0, 1] and sums to 1 within 1e-3.

    Stops at the first row that does not, so that logits cost one row. A vocabulary of one token never
    looks like probabilities.
    """
    return probabilities(dump.target) and probabilities(dump.draft)


def _check_kind(path: str | os.PathLike[str], mapping: Mapping) -> None:
    refuse_top(path, mapping, "whole rows (target_logits and draft_logits [N, V]) are")
    found = kind(mapping)
    if found in ("rounds", "tree"):
        key = ROUNDS_KEY if found == "rounds" else TREE_KEY
        raise InputError(
            f"{path}: is a {found} dump (key {key}), and a flat one is needed: target_logits and "
            f"draft_logits [N, V]; {elsewhere(found)}"
        )
    if LOG_PROBABILITIES_KEY in mapping and found == "target":
        raise InputError(
            f"{path}: holds only a target (log-probabilities of llama.cpp), and draft logits of the same "
            "positions are needed too; record target_logits and draft_logits [N, V]"
        )


def _steps(key: str, rows: Rows) -> str | None:
    """Say in which order positions were made of a list over steps."""
    if not isinstance(rows, Stacked) or rows.ndim < 3:
        return None
    steps, *batch = rows.shape[:-1]
    return (
        f"{key}: {steps} steps of a batch of {math.prod(batch)}; position = step x batch + row of the batch"
    )


def _prompts(rows: Rows) -> np.ndarray | None:
    """Of which prompt each position is: axis -2 goes through one, or, in a list over steps, axis 0."""
    leading = rows.shape[:-1]
    if len(leading) < 2:
        return None
    if isinstance(rows, Stacked):
        return np.tile(np.arange(math.prod(leading[1:])), leading[0])
    return np.repeat(np.arange(math.prod(leading[:-1])), leading[-1])


def _remedy(key: str, target: tuple[int, ...], other: tuple[int, ...]) -> str:
    """What to save instead, of rows whose leading axes are not those of the target."""
    if len(target) == len(other) == 2 and other == target[::-1]:
        return "one of them has its axes the wrong way round; save that one as .T, so that both are [N, V]"
    if target[-1] == other[-1] and math.prod(target) == math.prod(other):
        if len(target) == len(other) == 3:
            return f"if axes 0 and 1 are swapped, save {key}.swapaxes(0, 1)"
        return f"if its rows are the same positions in the same order, save {key}.reshape{target}"
    return "log a row of both after each prefix, [N, V], or [B, T, V] for both"


def turned(shape: tuple[int, ...]) -> str | None:
    """Say that rows ``(..., V)`` look like columns: as many as a vocabulary has tokens, and shorter."""
    *leading, vocab = shape
    positions = math.prod(leading)
    if positions < LIKE_A_VOCABULARY or vocab >= LIKE_A_VOCABULARY:
        return None
    remedy = "x.T" if len(leading) == 1 else f"np.moveaxis(x, {int(np.argmax(leading))}, -1)"
    return (
        f"{positions} positions of a vocabulary of {vocab} tokens: each row is taken as {vocab} tokens; if "
        f"it is transposed, save {remedy} of both"
    )


def _check_shapes(dump: FlatDump, pad_vocab: bool) -> None:
    (name, target), *others = dump.held.items()
    if all(isinstance(rows, np.ndarray) and repeats(rows) for rows in dump.held.values()):
        raise InputError(f"{dump.path}: {name} and {others[0][0]} are expanded tensors; save .contiguous()")
    for key, rows in others:
        shapes = f"{name} is {list(target.shape)} but {key} is {list(rows.shape)}"
        if rows.shape[:-1] != target.shape[:-1]:
            raise InputError(
                f"{dump.path}: {shapes}; both need the same positions: "
                f"{_remedy(key, target.shape, rows.shape)}"
            )
        if rows.shape[-1] != target.shape[-1] and not pad_vocab:
            raise differing_widths(dump.path, target, rows, f": {shapes}")
