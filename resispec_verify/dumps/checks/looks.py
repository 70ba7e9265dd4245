"""What rows look like: probabilities, their logarithms, or values in the order of their size."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from resispec_verify.dumps.formats.mapped import release
from resispec_verify.dumps.rows import LazyRows, Rows, Scattered, rows_of, widened

__all__ = [
    "FALSE_ALARM",
    "SUM_TOLERANCE",
    "all_equal",
    "in_order",
    "like_probabilities",
    "log_probabilities",
    "norms",
    "plain_rows",
    "probabilities",
    "stored_precision",
    "sum_tolerance",
]

FALSE_ALARM = 1e-6
"""Chance below which rows that are in order are taken for sorted values, and not for a vocabulary."""
SUM_TOLERANCE = 1e-3
_FEW, _MANY, _MOST_ELEMENTS = 1, 16, 1 << 18
_CERTAIN = -1000.0
FEW_VALUES = 32
"""Fewer values than this may look rounded to two bytes by chance, or by hand."""


def plain_rows(rows: Rows) -> Rows:
    """Rows as they are stored: those of a reduced vocabulary without the tokens that it lacks."""
    return rows.inner if isinstance(rows, Scattered) else rows


def stored_precision(rows: np.ndarray, dtype: np.dtype) -> np.dtype:
    """The coarsest floating type that holds all of ``rows`` exactly, ``dtype`` at most.

    Float32 that went through bfloat16 has bfloat16's near-ties, and its rounding.
    """
    for coarse in (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)):
        finer = ml_dtypes.finfo(coarse).nmant < ml_dtypes.finfo(dtype).nmant
        finite = rows[np.isfinite(rows)]
        if finer and finite.size >= FEW_VALUES:
            with np.errstate(over="ignore"):
                if np.array_equal(finite.astype(coarse).astype(finite.dtype), finite):
                    return coarse
    return np.dtype(dtype)


def sum_tolerance(rows: np.ndarray, stored: np.dtype) -> float:
    """How far from 1 storing probabilities ``(n, V)`` may have moved their sum.

    Half a unit in the last place of each, ``p u`` or half the smallest number, so ``u`` and V halves of it;
    twice that, as in `norms`, and 1e-3.
    """
    info = ml_dtypes.finfo(stored_precision(rows, stored))
    return SUM_TOLERANCE + float(info.eps) + rows.shape[-1] * float(info.smallest_subnormal)


def like_probabilities(batch: np.ndarray, stored: np.dtype) -> np.ndarray:
    """Which rows ``(n, V)`` lie in [0, 1] and sum to 1, as far as the type of the rows can tell.

    -inf is no entry: a token that a reduced or padded vocabulary does not have.
    """
    there = np.where(np.isneginf(batch), 0.0, batch)
    inside = (there.min(axis=-1) >= 0) & (there.max(axis=-1) <= 1)
    if not inside.any():
        return inside
    return inside & (np.abs(there.sum(axis=-1, dtype=np.float64) - 1) <= sum_tolerance(batch, stored))


def all_equal(batch: np.ndarray) -> np.ndarray:
    """Which rows ``(n, V)`` have one value only, as padding has: they say nothing of the others."""
    flat = (batch[:, 0] == batch[:, -1]) & (batch.shape[-1] > 1)
    flat[flat] = (batch[flat] == batch[flat, :1]).all(axis=-1)
    return flat


def probabilities(rows: Rows) -> bool:
    """Return whether every row lies in [0, 1] and sums to 1, as far as the type of the rows can tell.

    Rows of equal values are padding, perhaps, and do not count. False where there is one token, or no row
    that counts.
    """

    def like(batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        good = like_probabilities(batch, rows.dtype)
        return good, good

    return _all_say(rows, like)


def log_probabilities(rows: Rows) -> bool:
    """Return whether the exponentials of every row sum to 1, as far as the type of the rows can tell.

    A row of one token (0, and -inf elsewhere) says nothing: no temperature changes it. Nor does one of equal
    values, which may be padding, or a dump of nothing else.
    """

    def like(batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        norm, tolerance, lone = norms(batch, rows.dtype)
        good = np.abs(norm) <= tolerance
        return good, good & ~lone

    return _all_say(plain_rows(rows), like)


def _all_say(rows: Rows, like: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]) -> bool:
    """Whether all rows but those of equal values are alike, and one at least says so.

    `like` returns which rows ``(n, V)`` are, and which of them say it.
    """
    said = False

    def passes(batch: np.ndarray) -> np.ndarray:
        nonlocal said
        good, telling = like(batch)
        said = said or bool(telling.any())
        return good | all_equal(batch)

    return rows.shape[-1] > 1 and _every(rows, passes) and said


def norms(batch: np.ndarray, stored: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logsumexp of rows ``(n, V)``, how far from 0 storing them may have moved it, and rows of one token.

    Storing x moves it by half a unit in the last place, ``|x| u`` at most, and so logsumexp by
    ``sum p |x| u``; twice that is allowed, since a softmax in the same type rounds as much again, and 1e-3.
    """
    values = batch.astype(np.float64)
    finite = np.isfinite(values)
    with np.errstate(
        invalid="ignore"
    ):  # rows that are no logits are told with their position when they are read
        highest = values.max(axis=-1, keepdims=True)
        weights = np.exp(values - highest)
        total = weights.sum(axis=-1)
        norm = highest[:, 0] + np.log(total)
        magnitude = (weights * np.abs(np.where(finite, values, 0.0))).sum(axis=-1) / total
    unit = float(ml_dtypes.finfo(stored_precision(batch, stored)).eps) / 2
    return norm, SUM_TOLERANCE + 2 * unit * magnitude, finite.sum(axis=-1) < 2


def in_order(rows: Rows, seen: set[bytes] | None = None, *, first: int = 0) -> float | None:
    """Return how likely it is by chance that every row is in descending (or every one in ascending) order.

    None where some row is not. The chance is that of one order among all that the tokens of a row can have,
    those of equal values counted once: ``prod(m_i!) / V!`` for multiplicities m_i, twice for two directions,
    multiplied over the rows that differ. A constant row says nothing, and neither does one that is there a
    second time, in ``seen`` from another matrix too. Columns before ``first`` are not looked at. It is a
    chance where tokens are numbered without regard to what the models think of them.
    """
    plain = plain_rows(rows)
    log_chance = {1: 0.0, -1: 0.0}
    seen = set() if seen is None else seen

    def sorted_(batch: np.ndarray) -> np.ndarray:
        batch = batch[:, first:]
        down, up = (batch[:, :-1] >= batch[:, 1:]), (batch[:, :-1] <= batch[:, 1:])
        alive = np.zeros(len(batch), bool)
        gained = 0.0
        if (down | up).any() and max(log_chance.values(), default=0.0) > _CERTAIN:
            for row in batch:
                digest = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
                gained += 0.0 if digest in seen else _log_chance(row)
                seen.add(digest)
        for direction, steps in ((1, down), (-1, up)):
            if direction in log_chance:
                good = steps.all(axis=-1)
                if good.all():
                    log_chance[direction] += gained
                    alive |= good
                else:
                    del log_chance[direction]
        return alive

    if plain.shape[-1] - first < 2 or not _every(plain, sorted_) or not log_chance:
        return None
    return min(1.0, 2 * math.exp(min(log_chance.values())))


def _log_chance(row: np.ndarray) -> float:
    """Logarithm of the share of a sorted row's orders that are sorted."""
    ends = np.flatnonzero(np.append(row[1:] != row[:-1], True)) + 1
    repeated = np.diff(ends, prepend=0)
    return float(sum(math.lgamma(m + 1) for m in repeated if m > 1)) - math.lgamma(len(row) + 1)


def _every(rows: Rows, like: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether `like` holds for every row; the first that fails ends it, so that others cost one row."""
    positions = math.prod(rows.shape[:-1])
    start = 0
    while start < positions:
        many = max(1, min(_MANY, _MOST_ELEMENTS // rows.shape[-1]))
        stop = min(positions, start + (many if start else _FEW))
        batch = widened(rows_of(rows, start, stop))
        if not isinstance(rows, LazyRows):
            release(rows)
        with np.errstate(invalid="ignore", over="ignore"):
            if not like(batch).all():
                return False
        start = stop
    return True
