"""Two listings, of the target and of the draft, joined by position."""

from __future__ import annotations

from typing import Any

import numpy as np

from resispec_verify.dumps.importers.listing import Listing
from resispec_verify.errors import InputError

__all__ = ["joined"]


def joined(target: Listing, draft: Listing) -> tuple[dict[str, Any], list[str]]:
    """The positions that both have, as arrays by key, and what to say of the others.

    Where every row of both says at which position of which sequence it is, rows of the same one belong
    together, and the rest is left out. Else rows are taken in order, and there must be as many of each.

    Raises
    ------
    InputError
        No position in common, other numbers of rows, or texts or next tokens that differ: the laws are then
        not after the same text.
    """
    for one in (target, draft):
        if not len(one):
            raise InputError(f"{one.name}: holds no position with a law; ask for log-probabilities")
    notes = []
    if target.placed and draft.placed:
        here, there = _matched(target, draft)
        for one, chosen in ((target, here), (draft, there)):
            if left := len(one) - len(chosen):
                notes.append(
                    f"{one.name}: {left} of {len(one)} positions are not in the other file; left out"
                )
    elif len(target) != len(draft):
        raise InputError(
            f"{target.name} has {len(target)} positions and {draft.name} {len(draft)}, and not all say where "
            "they lie; log token ids or positions, or as many of each"
        )
    else:
        here = there = np.arange(len(target))
        notes.append("positions are joined in the order of the files")
    _check_texts(target, draft, here)
    following = _following(target, draft, here, there)
    arrays = target.arrays("target", here) | draft.arrays("draft", there)
    places = target.places[here]
    if target.placed and draft.placed:
        arrays |= {"sequence": places[:, 0].copy(), "position": places[:, 1].copy()}
    if (following >= 0).any():
        arrays["next_tokens"] = following
    return arrays, notes


def _matched(target: Listing, draft: Listing) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of the one belong to which of the other, in the order of the target."""
    where: dict[tuple[int, int], int] = {}
    for one in (draft, target):
        where = {}
        for i, (sequence, position) in enumerate(one.places[:, :2].tolist()):
            if (sequence, position) in where:
                raise InputError(f"{one.name}: sequence {sequence} has position {position} twice; keep one")
            where[sequence, position] = i
        if one is draft:
            drafted = where
    pairs = [(i, drafted[key]) for key, i in where.items() if key in drafted]
    if not pairs:
        raise InputError(
            f"{target.name} and {draft.name} have no position in common; score the same text with both models"
        )
    here, there = np.asarray(pairs, np.int64).T
    return here, there


def _check_texts(target: Listing, draft: Listing, here: np.ndarray) -> None:
    """Refuse texts that differ before a position that is joined."""
    last: dict[int, int] = {}
    for sequence, position in target.places[here, :2].tolist():
        last[sequence] = max(last.get(sequence, -1), position)
    for sequence, position in last.items():
        one, other = (listing.texts.get(sequence, []) for listing in (target, draft))
        for at in range(min(len(one), len(other), position + 1)):
            if one[at] != other[at]:
                raise _different(target, draft, f"sequence {sequence}, token {at}", one[at], other[at])


def _following(target: Listing, draft: Listing, here: np.ndarray, there: np.ndarray) -> np.ndarray:
    one, other = target.places[here, 2], draft.places[there, 2]
    wrong = (one >= 0) & (other >= 0) & (one != other)
    if wrong.any():
        i = int(np.argmax(wrong))
        sequence, position = target.places[here[i], :2].tolist()
        where = f"sequence {sequence}, position {position}" if position >= 0 else f"position {i}"
        raise _different(target, draft, f"the token after {where}", one[i], other[i])
    return np.where(one >= 0, one, other)


def _different(target: Listing, draft: Listing, where: str, one: int, other: int) -> InputError:
    return InputError(
        f"{where} is {one} in {target.name} and {other} in {draft.name}: the laws are not after the same "
        "text; score one text with both models"
    )
