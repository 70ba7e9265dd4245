"""Pairs of laws at the ends of float64, drawn by a seeded generator.

Rows are float64 as a softmax leaves them: non-negative, finite, summing to 1 up to rounding. The law that is
meant is the row divided by its exact sum, in fractions (`exact`).
"""

from __future__ import annotations

from fractions import Fraction as F

import numpy as np

__all__ = ["KINDS", "exact", "extreme_pair"]

Row = np.ndarray
LOWEST = -1074  # exponent of the smallest denormal, 5e-324


def exact(row: Row) -> tuple[F, ...]:
    """The row over its exact sum."""
    values = [F(float(x)) for x in row]
    total = sum(values)
    return tuple(x / total for x in values)


def _law(weights: Row) -> Row:
    """Normalised twice: the sum is 1 to a few units in the last place."""
    law = weights / weights.sum()
    return law / law.sum()


def _magnitudes(rng: np.random.Generator, size: int) -> Row:
    """Log-uniform from 5e-324 to 1, or over a narrower range, with zeros now and then."""
    lowest = int(rng.choice([-4, -20, -52, -110, -500, -1022, LOWEST]))
    weights = np.ldexp(rng.uniform(0.5, 1.0, size), rng.integers(lowest, 1, size))
    weights[rng.random(size) < rng.choice([0.0, 0.0, 0.2, 0.6])] = 0.0
    weights[rng.integers(size)] = 1.0
    return weights


def _magnitude_law(rng: np.random.Generator, size: int) -> Row:
    return _law(_magnitudes(rng, size))


def _ties(rng: np.random.Generator, size: int) -> tuple[Row, Row]:
    """Few values, some of them tiny: equal entries and equal ratios."""
    values = np.append(_magnitudes(rng, int(rng.integers(1, 4))), [0.0, 1.0])
    target, draft = rng.choice(values, size), rng.choice(values, size)
    target[rng.integers(size)] = draft[rng.integers(size)] = 1.0
    return _law(target), _law(draft)


def _nearly_equal(rng: np.random.Generator, size: int) -> tuple[Row, Row]:
    """Equal, but for an ulp or a relative 2^-50 to 2^-1 at some tokens."""
    target = _magnitude_law(rng, size)
    draft = target.copy()
    moved = rng.random(size) < rng.choice([0.2, 1.0])
    shift = np.ldexp(rng.choice([-1.0, 1.0], size), int(rng.integers(-53, 0)))
    if rng.random() < 0.5:  # by ulps, which keeps the sum
        draft[moved] = np.nextafter(draft, rng.choice([0.0, 2.0]))[moved]
        return target, draft
    draft[moved] = (draft * (1.0 + shift))[moved]
    return target, _law(draft)


def _disjoint(rng: np.random.Generator, size: int) -> tuple[Row, Row]:
    """Supports that share nothing but a trace."""
    inside = rng.random(size) < 0.5
    inside[rng.permutation(size)[:2]] = [True, False]
    trace = np.ldexp(rng.uniform(0.5, 1.0, (2, size)), rng.integers(LOWEST, -20, (2, size)))
    trace[rng.random((2, size)) < 0.5] = 0.0
    target = np.where(inside, _magnitudes(rng, size), trace[0])
    draft = np.where(inside, trace[1], _magnitudes(rng, size))
    target[np.argmax(inside)] = draft[np.argmin(inside)] = 1.0
    return _law(target), _law(draft)


def _one_hot(rng: np.random.Generator, size: int) -> tuple[Row, Row]:
    """A row with one token, or nearly so, against any other."""

    def peaked() -> Row:
        row = np.zeros(size) if rng.random() < 0.5 else np.ldexp(1.0, rng.integers(LOWEST, -30, size))
        row[rng.integers(size)] = 1.0
        return _law(row)

    other = peaked() if rng.random() < 0.5 else _magnitude_law(rng, size)
    return (peaked(), other) if rng.random() < 0.5 else (other, peaked())


def _concentrated(rng: np.random.Generator, size: int) -> tuple[Row, Row]:
    """A draft whose mass lies where the target has least."""
    target = _magnitude_law(rng, size)
    draft = np.sort(_magnitudes(rng, size))[::-1]
    place = np.argsort(target, kind="stable")
    row = np.empty(size)
    row[place] = draft
    return target, _law(row)


def _cold(rng: np.random.Generator, size: int) -> tuple[Row, Row]:
    """A softmax at temperature 0.01 to 1 of plain logits, rounded to 16 bits or not."""
    logits = rng.normal(0.0, 3.0, (2, size))
    if rng.random() < 0.5:
        logits[1] = logits[0] + rng.normal(0.0, 0.1, size)
    if rng.random() < 0.5:
        logits = logits.astype(np.float16).astype(np.float64)
    logits = logits / rng.choice([0.01, 0.03, 0.1, 1.0])
    rows = np.exp(logits - logits.max(axis=1, keepdims=True))
    return tuple(rows / rows.sum(axis=1, keepdims=True))


def _unrelated(rng: np.random.Generator, size: int) -> tuple[Row, Row]:
    return _magnitude_law(rng, size), _magnitude_law(rng, size)


def _two_scales(rng: np.random.Generator, size: int) -> tuple[Row, Row]:
    """Target and draft share their large tokens; what differs is far below."""
    target, draft = _unrelated(rng, size)
    top = rng.random(size) < 0.5
    scale = 2.0 ** -int(rng.integers(10, 300))
    top[0], shared = True, _magnitude_law(rng, size)
    shared[0] += 0.5
    return _law(np.where(top, shared, target * scale)), _law(np.where(top, shared, draft * scale))


KINDS = {
    "unrelated": _unrelated,
    "ties": _ties,
    "nearly-equal": _nearly_equal,
    "disjoint": _disjoint,
    "one-hot": _one_hot,
    "concentrated": _concentrated,
    "cold": _cold,
    "two-scales": _two_scales,
}


def extreme_pair(rng: np.random.Generator, size: int) -> tuple[str, Row, Row]:
    """A kind of `KINDS`, and a target and a draft ``(V,)`` of that kind over ``size`` tokens."""
    kind = str(rng.choice(list(KINDS)))
    target, draft = KINDS[kind](rng, size)
    return kind, target, draft
