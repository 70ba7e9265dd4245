"""A draft with a reduced vocabulary, put at its places in the target's.

EAGLE-3 and kin save `d2t` ``[draft tokens]``, the offset of each draft token (target id minus draft id), and
`t2d` ``[vocabulary]``, which is true where the draft has a token. Files go wrong in `d2t`: ids where offsets
are meant, or what was never filled in. `t2d` leaves nothing to interpret, so it decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from resispec_verify.dumps.formats.mapped import refuse_repeats, repeats
from resispec_verify.dumps.kinds.keys import what
from resispec_verify.dumps.opening import PathLike
from resispec_verify.dumps.rows import Rows, Scattered
from resispec_verify.errors import InputError

__all__ = ["MAP_KEY", "MASK_KEY", "Placed", "differing_widths", "has_map", "placed", "token_map"]

MAP_KEY, MASK_KEY = "d2t", "t2d"

_RISING = 1e-3  # above the chance of other checks, because t2d can answer


def has_map(mapping: Mapping) -> bool:
    """Return whether a file says where the tokens of its draft are."""
    return any(mapping.get(key) is not None for key in (MAP_KEY, MASK_KEY))


def token_map(path: PathLike, mapping: Mapping, width: int, vocab: int) -> tuple[np.ndarray, int, str | None]:
    """Return the target's token id of each draft token, int64 ``(width,)``.

    A draft token without counterpart is marked by the offset that leads to -1 (or by -1 itself, where `t2d`
    says that it is no offset). It gets a place after the vocabulary, where the target has no mass: as a
    candidate it is rejected always, as the engine does.

    Parameters
    ----------
    path : path
        Named in errors.
    mapping : mapping
        With `MAP_KEY`, `MASK_KEY` or both.
    width, vocab : int
        Of the draft and the target.

    Returns
    -------
    tokens : int64 array (width,)
    total : int
        Width of the whole: `vocab`, and one for each token without counterpart.
    note : str or None
        Where the map was not read as offsets.

    Raises
    ------
    InputError
        If either has another shape or type, offsets leave the vocabulary or meet, they cannot be offsets, or
        the two contradict each other and `t2d` alone does not tell.
    """
    has = _has(path, mapping.get(MASK_KEY), width, vocab)
    if mapping.get(MAP_KEY) is None:
        assert has is not None  # the caller has looked
        tokens, note = _alone(path, has, width)
    else:
        value = _offsets(path, mapping[MAP_KEY], width)
        if has is not None:
            tokens, note = _decided(path, value, has, vocab)
        else:
            tokens, note = _checked(path, value, width, vocab), None
            _check_offsets(path, value, vocab)
    none = tokens == -1
    tokens[none] = vocab + np.arange(int(none.sum()))
    return tokens, vocab + int(none.sum()), note


def _has(path: PathLike, value: object, width: int, vocab: int) -> np.ndarray | None:
    """The target tokens that the draft has, ascending."""
    if value is None:
        return None
    name = f"{path}: {MASK_KEY}"
    if isinstance(value, (list, tuple)) and all(type(item) in (bool, int) for item in value):
        value = np.asarray([bool(item) if item in (0, 1) else -1 for item in value], np.int8)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biu" or value.shape != (vocab,):
        raise InputError(f"{name} is {what(value)}; save one truth value a target token [{vocab}]")
    if repeats(value) or not ((value == 0) | (value == 1)).all():
        raise InputError(f"{name} has other values than 0 and 1; save true where the draft has the token")
    ids = np.flatnonzero(value)
    if not 1 <= len(ids) <= width:
        raise InputError(f"{name} has {len(ids)} tokens, and the draft has {width}; record it again")
    return ids


def _alone(path: PathLike, has: np.ndarray, width: int) -> tuple[np.ndarray, str]:
    if len(has) != width:
        raise InputError(
            f"{path}: {MASK_KEY} has {len(has)} tokens for {width} draft tokens, and there is no {MAP_KEY} "
            f"to say which have none; save {MAP_KEY} too"
        )
    return has, f"{MASK_KEY}: draft tokens are the target's tokens that it marks, in their order"


def _decided(path: PathLike, value: np.ndarray, has: np.ndarray, vocab: int) -> tuple[np.ndarray, str | None]:
    """The reading of `d2t` that `t2d` allows, or the order of `t2d` where none is."""
    wide = value.astype(object) if value.dtype.kind == "u" else value.astype(np.int64)
    limit = len(value) + vocab
    wide = np.where((wide < -limit) | (wide > limit), limit, wide).astype(np.int64)
    offsets = wide + np.arange(len(value))
    readings = {
        "offsets": offsets,
        "offsets, and -1 for no token": np.where(wide == -1, -1, offsets),
        "token ids, not offsets": wide,
    }
    for name, tokens in readings.items():
        real = tokens[tokens != -1]
        if len(real) == len(has) and np.array_equal(np.sort(real), has):
            note = None if name == "offsets" else f"{MAP_KEY} holds {name}: {MASK_KEY} says so"
            return tokens, note
    if len(has) == len(value):
        note = (
            f"{MAP_KEY} is neither offsets nor ids of the tokens that {MASK_KEY} marks, whose order is used"
        )
        return has, note
    raise InputError(
        f"{path}: {MAP_KEY} and {MASK_KEY} contradict each other, and {MASK_KEY} has {len(has)} tokens for "
        f"{len(value)} draft tokens; save both from the same model"
    )


def _check_offsets(path: PathLike, value: np.ndarray, vocab: int) -> None:
    """Refuse ids in the place of offsets, where nothing but their look says so.

    Ascending ids that are all different, read as offsets, leave a hole after every token. A draft vocabulary
    of n among V tokens has no two neighbours by chance with probability C(V - n + 1, n) / C(V, n).
    """
    n = len(value)
    steps = np.diff(value.astype(np.int64))
    if not value.any() and n != vocab:
        raise InputError(
            f"{path}: {MAP_KEY} is 0 everywhere, as it is before it is filled in; save target id minus draft "
            f"id, or {MASK_KEY} beside it, which decides"
        )
    if n < 2 or not (steps > 0).all():
        return
    log_chance = _log_choose(vocab - n + 1, n) - _log_choose(vocab, n)
    if log_chance < math.log(_RISING) or np.array_equal(value, np.arange(n)):
        raise InputError(
            f"{path}: {MAP_KEY} rises from each draft token to the next: these are token ids (or a range), "
            f"not offsets; save target id minus draft id, or {MASK_KEY} beside it, which decides"
        )


def _log_choose(n: int, k: int) -> float:
    if k > n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _offsets(path: PathLike, value: object, width: int) -> np.ndarray:
    name = f"{path}: {MAP_KEY}"
    if isinstance(value, (list, tuple)) and all(type(item) is int for item in value):
        try:
            value = np.asarray(value, np.int64)
        except OverflowError:
            raise InputError(f"{name} holds an offset beyond 64 bits; record it again") from None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.ndim != 1:
        raise InputError(f"{name} is {what(value)}; save one integer offset a draft token [{width}]")
    if len(value) != width:
        raise InputError(
            f"{name} has {len(value)} offsets for {width} draft tokens; save one each, or leave it out if "
            "the draft has the target's vocabulary already"
        )
    refuse_repeats(name, value)
    return value


def _checked(path: PathLike, value: np.ndarray, width: int, vocab: int) -> np.ndarray:
    """Tokens by the offsets; -1 where there is none."""
    name = f"{path}: {MAP_KEY}"
    outside = (value > vocab) | (value < -width) if value.dtype.kind == "i" else value > vocab
    tokens = np.where(outside, 0, value).astype(np.int64) + np.arange(width)
    outside |= (tokens < -1) | (tokens >= vocab)
    if outside.any():
        i = int(np.argmax(outside))
        raise InputError(
            f"{name}: draft token {i} with offset {value[i]} is outside the target's vocabulary "
            f"0..{vocab - 1}; save offsets (target id minus draft id)"
        )
    order = np.argsort(tokens, kind="stable")
    again = np.flatnonzero((np.diff(tokens[order]) == 0) & (tokens[order][1:] >= 0))
    if again.size:
        one, other = order[again[0]], order[again[0] + 1]
        raise InputError(
            f"{name}: draft tokens {one} and {other} both become target token {tokens[one]}; save offsets "
            "(target id minus draft id; -1 - i marks a draft token i without counterpart)"
        )
    return tokens


class Placed(NamedTuple):
    """Draft and proposal at the target's tokens, whether the rows may differ in width, and what to say."""

    draft: Rows
    proposal: Rows | None
    pad_vocab: bool
    notes: tuple[str, ...]


def placed(
    path: PathLike, mapping: Mapping, target: Rows, draft: Rows, proposal: Rows | None, pad_vocab: bool
) -> Placed:
    """Put a reduced draft at its places in the target's vocabulary; without a map everything stays.

    Rows are -inf on tokens that the draft does not have. A proposal over the target's vocabulary stays.

    Raises
    ------
    InputError
        As `token_map`.
    """
    if not has_map(mapping):
        return Placed(draft, proposal, pad_vocab, ())
    width, vocab = draft.shape[-1], target.shape[-1]
    tokens, total, note = token_map(path, mapping, width, vocab)
    if proposal is not None and proposal.shape[-1] == width:
        proposal = Scattered(proposal, tokens, total)
    said = f"{MAP_KEY}: the {width} draft tokens are placed among {vocab}; the others have no mass"
    notes = (said,) if note is None else (note, said)
    return Placed(Scattered(draft, tokens, total), proposal, pad_vocab or total > vocab, notes)


def differing_widths(where: PathLike, target: Rows, other: Rows, shapes: str = "") -> InputError:
    """What is wrong with rows of another width than the target's, where nothing allows it."""
    return InputError(
        f"{where}: vocabulary widths {target.shape[-1]} and {other.shape[-1]} differ{shapes}; if the tokens "
        "beyond the narrower are padding, pass --pad-vocab (pad_vocab=True); a reduced draft vocabulary "
        "needs its map as d2t"
    )
