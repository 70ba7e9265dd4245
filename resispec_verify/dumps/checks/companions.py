"""What lies beside logits and changes what they mean: ids of top-k values, masks, lengths, settings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

import numpy as np

from resispec_verify.dumps.formats.mapped import refuse_repeats, repeats
from resispec_verify.dumps.kinds.labels import neutral
from resispec_verify.dumps.opening import PathLike
from resispec_verify.dumps.rows import FLOATS, LazyRows, Rows, rows_of
from resispec_verify.errors import InputError

__all__ = [
    "LENGTHS",
    "MASKS",
    "check_companions",
    "check_round_companions",
    "kept_rows",
    "tensor_part",
    "vocabulary_part",
    "whole_number",
]

MASKS = ("attention_mask", "mask", "loss_mask", "valid_mask", "response_mask", "completion_mask")
"""Masks by position: 1 where a row counts, 0 where it is padding."""
LENGTHS = (
    "lengths", "length", "lens", "seq_lens", "seq_lengths", "sequence_lengths", "num_tokens", "n_tokens",
)  # fmt: skip
_SETTINGS = re.compile(
    r"(proposal_|draft_|target_)?(temperatures?|top_k|top_p|min_p|typical_p|sampling(_params)?|logits?_bias"
    r"|(repetition|presence|frequency)_penalty|generation_config|sampling_config)"
)
# Integers by position or token, which a row of one position may be as long as.
_KNOWN = {
    "tokens", "context_tokens", "output_tokens", "next_tokens", "prefix", "prefix_len", "parent", "depth",
    "d2t", "t2d", "history", "prompt_len",
}  # fmt: skip
_IDS = re.compile(r"(^|_)(ids?|ind|idx|indexes|indices|index|tokens?)($|_)")

_TOP_K = "these look like top-k values and their token ids, and such files are not read yet"


def check_companions(
    path: PathLike, mapping: Mapping, logits: Mapping[str, Rows], *, part: bool = False, tree: bool = False
) -> None:
    """Refuse what lies beside logits and says that they are something else than rows of a vocabulary.

    Parameters
    ----------
    path, mapping
        The file, or one round, and what it holds.
    logits : mapping
        The rows that are used, by their keys.
    part : bool
        Whether the rows are known to be a part of a vocabulary.
    tree : bool
        Whether nodes of a tree may have a mask of ancestors.

    Raises
    ------
    InputError
        Token ids of the shape of logits (top-k values), temperatures and filters outside of ``meta``, masks
        or lengths that nothing says how to read, or a place in a vocabulary that the rows do not fill.
    """
    others = {key: value for key, value in _named(mapping).items() if key not in logits}
    within = _named(meta_of(mapping))
    for key, value in (*others.items(), *within.items()):
        for name, rows in logits.items():
            if _are_ids(key, value, rows, tree):
                raise InputError(
                    f"{path}: {key} has an integer for each value of {name} {list(rows.shape)}: {_TOP_K}; "
                    "save logits of the whole vocabulary [N, V]"
                )
    for key, value in others.items():
        if _SETTINGS.fullmatch(key) and not neutral(key, value):
            raise InputError(
                f"{path}: {key} beside the logits is not read: it may be applied already, or not; state it "
                "in meta['sampling'] if the logits are raw, or rename it if they have it"
            )
        if "mask" in key.lower() and not (tree and _of_nodes(value)) and (tree or key not in MASKS):
            raise InputError(
                f"{path}: {key} is a mask that nothing says how to read; leave the rows out that it hides, "
                f"or save it as {MASKS[1]}: by position, 1 where a row counts"
            )
    for key, value in within.items():
        if "mask" in key.lower() and _shape(value) and not _all_ones(value):
            raise InputError(
                f"{path}: meta[{key!r}] is a mask, and is not read there; save it beside the logits as "
                f"{MASKS[1]}: by position, 1 where a row counts"
            )
    for leading in {rows.shape[:-1] for rows in logits.values()}:
        _check_lengths(path, [*others.items(), *within.items()], leading)
        _check_labels(path, [*others.items(), *within.items()], leading)
    _check_place(path, mapping, logits, part)


def _check_place(path: PathLike, mapping: Mapping, logits: Mapping[str, Rows], part: bool) -> None:
    """Refuse rows that are a part of the vocabulary, where they are not known to be one."""
    place = vocabulary_part(mapping)
    width = max((rows.shape[-1] for rows in logits.values()), default=0)
    if place is not None and not part and place not in ((0, width), (0, None)):
        raise InputError(
            f"{path}: says that its rows are a part of the vocabulary, from token {place[0]} on; read it "
            "with the other parts, as a folder, or save whole rows"
        )


_DRAFTED = ("num_draft_tokens", "num_drafted", "num_drafted_tokens", "draft_len", "draft_lens",
            "draft_lengths", "draft_length", "gamma", "gammas")  # fmt: skip


def check_round_companions(path: PathLike, mapping: Mapping, drafted: list[int], widths: set[int]) -> None:
    """Refuse what says that rounds, or tokens of them, do not count; -1s at the end of the drafts say it.

    Parameters
    ----------
    path, mapping
        A round, or what lies beside all of them.
    drafted : list of int
        How many tokens each round drafted, as it is read.
    widths : set of int
        Of the rows.

    Raises
    ------
    InputError
        A mask that leaves something out, fewer tokens than are read, or token ids of top-k values.
    """
    for key, value in (*_named(mapping).items(), *_named(meta_of(mapping)).items()):
        if key in ("rounds", "meta"):
            continue
        if "mask" in key.lower() and (_shape(value) or type(value) is bool) and not _all_ones(value):
            raise InputError(
                f"{path}: {key} is a mask, and rounds are read without one; end draft_tokens with -1 where "
                "nothing was drafted, and leave out rounds that do not count"
            )
        if key in (*LENGTHS, *_DRAFTED) and _integers(value):
            counts = _numbers(value)
            if counts is not None and counts.size in (1, len(drafted)):
                fewer = counts.reshape(-1) < np.asarray(drafted)
                if fewer.any():
                    i = int(np.argmax(fewer))
                    raise InputError(
                        f"{path}: {key} is {counts.reshape(-1)[min(i, counts.size - 1)]}, and {drafted[i]} "
                        "drafted tokens are there; end draft_tokens with -1 where nothing was drafted"
                    )
        shape = _shape(value)
        ids = (
            len(shape) > 1 and shape[-1] in widths and shape[-1] > 1 and key not in (*_KNOWN, "draft_tokens")
        )
        if ids and (_integers(value) or _distinct_whole(value)):
            raise InputError(
                f"{path}: {key} {list(shape)} has an integer for each logit of a row: {_TOP_K}; save whole "
                "rows"
            )


def meta_of(mapping: Mapping) -> Mapping:
    """What a file has as ``meta``; nothing where that is no dict."""
    meta = mapping.get("meta")
    return meta if isinstance(meta, Mapping) else {}


def _named(mapping: Mapping) -> dict[str, object]:
    """What a mapping has under names, without the Nones."""
    return {key: value for key, value in mapping.items() if isinstance(key, str) and value is not None}


def _all_ones(value: object) -> bool:
    numbers = None if isinstance(value, np.ndarray) and repeats(value) else _numbers(value)
    return numbers is not None and bool((numbers == 1).all())


def _check_labels(path: PathLike, others: Iterable[tuple[str, object]], leading: tuple[int, ...]) -> None:
    """Refuse labels of -100, by which training says that a position does not count."""
    for key, value in others:
        if "label" not in key.lower() or not _integers(value) or math.prod(_shape(value)) > 2**24:
            continue
        numbers = None if isinstance(value, np.ndarray) and repeats(value) else _numbers(value)
        if numbers is not None and (numbers == -100).any():
            raise InputError(
                f"{path}: {key} is -100 somewhere, which says that a position does not count; save "
                f"{MASKS[1]} {list(leading)}: 1 where a row counts, or leave {key} out"
            )


def _stated(mapping: Mapping, *names: str) -> int | None:
    """The first whole number under one of several names, beside the logits or in meta."""
    places = (mapping, meta_of(mapping))
    found = (whole_number(place[name]) for place in places for name in names if name in place)
    return next((value for value in found if value is not None), None)


def vocabulary_part(mapping: Mapping) -> tuple[int, int | None] | None:
    """Return the first token of a part of a vocabulary and the one after its last, if the file says so."""
    start = _stated(mapping, "vocab_start", "vocab_start_index", "vocab_offset")
    return None if start is None else (start, _stated(mapping, "vocab_end", "vocab_end_index"))


def tensor_part(mapping: Mapping) -> tuple[int | None, int | None]:
    """Rank and number of ranks of tensor parallelism, if the file says so, beside its logits or in meta.

    A rank and a world size that do not say of what count as well: they may be.
    """
    rank = _stated(mapping, "tp_rank", "tensor_parallel_rank", "tensor_model_parallel_rank")
    size = _stated(mapping, "tp_size", "tensor_parallel_size", "tensor_model_parallel_size", "tp_world_size")
    general = _stated(mapping, "rank"), _stated(mapping, "world_size")
    return general if rank is None and size is None and None not in general else (rank, size)


def kept_rows(
    path: PathLike, mapping: Mapping, leading: tuple[int, ...]
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Return the positions that masks leave, and what to say of it; None for all of them.

    Of two masks one must lie inside the other (the tokens of an answer inside those that are no padding),
    and it is used.

    Raises
    ------
    InputError
        A mask of another shape than the positions, of other values than 0 and 1, that leaves nothing, or
        that contradicts another.
    """
    used: tuple[str, np.ndarray] | None = None
    for key in (key for key in MASKS if mapping.get(key) is not None):
        mask = _mask(path, key, mapping[key], leading)
        if used is not None:
            both = used[1] & mask
            if not (np.array_equal(both, mask) or np.array_equal(both, used[1])):
                raise InputError(
                    f"{path}: {used[0]} and {key} contradict each other: each keeps positions that the other "
                    "leaves out; keep one of them"
                )
            key = key if np.array_equal(both, mask) else used[0]
            mask = both
        used = (key, mask)
    if used is None or used[1].all():
        return None, ()
    key, mask = used
    if not mask.any():
        raise InputError(f"{path}: {key} is 0 everywhere: no position is left; save 1 where a row counts")
    kept = np.flatnonzero(mask)
    return kept, (
        f"{key}: {mask.size - kept.size} of {mask.size} positions are left out; positions are counted "
        "without them",
    )


def _mask(path: PathLike, key: str, value: object, leading: tuple[int, ...]) -> np.ndarray:
    shape = _shape(value)
    if shape not in (leading, (math.prod(leading),)):
        raise InputError(
            f"{path}: {key} is {list(shape)}, and the logits have the positions {list(leading)}; save one "
            "number a position, 1 where a row counts, or leave it out"
        )
    refuse_repeats(f"{path}: {key}", value)
    mask = _numbers(value)
    if mask is None or not ((mask == 0) | (mask == 1)).all():
        raise InputError(
            f"{path}: {key} has other values than 0 and 1; save 1 where a row counts and 0 where it does not"
        )
    return mask.reshape(-1) == 1


def _check_lengths(path: PathLike, others: Iterable[tuple[str, object]], leading: tuple[int, ...]) -> None:
    """Refuse numbers of tokens that are fewer than there are rows: the others are padding, but which?"""
    for key, value in others:
        shape = _shape(value)
        if key.startswith(("cu_seqlens", "cu_seq_lens")) and _integers(value):
            ends = _numbers(value)
            if ends is not None and ends.size and len(leading) == 1 and ends.max() < leading[0]:
                raise InputError(
                    f"{path}: {key} ends at {ends.max()}, before the {leading[0]} rows do: the others are "
                    "padding; leave them out"
                )
        if key not in LENGTHS or not _integers(value) or math.prod(shape) > max(1, math.prod(leading)):
            continue
        refuse_repeats(f"{path}: {key}", value)
        counts, rows = _numbers(value), leading[-1] if leading else 1
        if counts is None:
            continue
        by_row = len(leading) == 1 and counts.size > 1
        if by_row and counts.shape == leading:
            continue  # a number a position, not a number of positions
        fewer = int(counts.sum()) < rows if by_row else bool((counts < rows).any())
        if fewer:
            raise InputError(
                f"{path}: {key} says that there are fewer tokens than the {rows} rows, and not which rows "
                f"are padding; save {MASKS[0]} {list(leading)}: 1 where a row counts"
            )


def _are_ids(key: str, value: object, rows: Rows, tree: bool) -> bool:
    """Whether a value has one token id for each logit."""
    shape = _shape(value)
    if not shape or math.prod(shape) != math.prod(rows.shape) or key == "meta":
        return False
    width = rows.shape[len(rows.shape) - 1]
    if len(shape) == 1 and len(rows.shape) > 1 and math.prod(rows.shape[:-1]) > 1:  # flattened
        known = key in _KNOWN or not _integers(value) or width < 2
        return not known and _distinct_whole(value, width)
    if shape[-1] != width:
        return False
    if key == "allowed_tokens" and getattr(value, "dtype", None) == np.bool_:
        return False
    if shape[-1] < 2 or key in ("candidates", "history") or (key in _KNOWN and (tree or len(shape) == 1)):
        return False
    named = _IDS.search(key.lower()) is not None and _first(value) is not None
    return _integers(value) or named or _distinct_whole(value)


def _distinct_whole(value: object, width: int | None = None) -> bool:
    """Whether the first entries, a row of them, are different whole numbers, as token ids are."""
    if isinstance(value, LazyRows):
        row = rows_of(value, 0, 1)
    elif isinstance(value, (list, tuple)) and isinstance(value[0], LazyRows):
        row = rows_of(value[0], 0, 1)
    elif isinstance(value, np.ndarray):
        row = value[:width] if value.ndim < 2 else value[(0,) * (value.ndim - 1)]
    else:
        row = value
        while isinstance(row, (list, tuple)) and row and isinstance(row[0], (list, tuple, np.ndarray)):
            row = row[0]
    numbers = _numbers(row)
    if numbers is None or numbers.dtype.kind == "b":
        return False
    numbers = numbers.reshape(-1)[:width]
    whole = bool((np.isfinite(numbers) & (numbers == np.floor(numbers)) & (numbers >= -1)).all())
    return whole and len(np.unique(numbers)) == len(numbers) > 1


def _of_nodes(value: object) -> bool:
    shape = _shape(value)
    return len(shape) >= 2 and shape[-1] == shape[-2]


def _integers(value: object) -> bool:
    first = _first(value)
    if isinstance(first, (np.ndarray, LazyRows)):
        return first.dtype.kind in "iu"
    return type(first) is int


def _numbers(value: object) -> np.ndarray | None:
    """The numbers of an array or of lists of one shape; None where it holds something else."""
    try:
        numbers = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    numbers = numbers.astype(np.float64) if numbers.dtype in FLOATS else numbers
    return numbers if numbers.dtype.kind in "biuf" else None


def _first(value: object) -> object:
    while isinstance(value, (list, tuple)):
        value = value[0] if value else None
    return value


def _shape(value: object) -> tuple[int, ...]:
    """The shape of an array, or of lists that hold numbers or arrays of one shape."""
    if isinstance(value, (np.ndarray, LazyRows)):
        return tuple(value.shape)
    if isinstance(value, (list, tuple)) and value:
        shapes = {_shape(item) for item in value}
        return (len(value), *shapes.pop()) if len(shapes) == 1 else (len(value),)
    return (0,) if isinstance(value, (list, tuple)) else ()


def whole_number(value: object) -> int | None:
    """A number that is not negative, as an int, an array of one, or the text that metadata hold; or None."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size == 1:
        return int(value.reshape(-1)[0])
    if isinstance(value, str) and value.isdigit() and len(value) < 18:
        return int(value)
    return value if type(value) is int and 0 <= value < 2**62 else None
