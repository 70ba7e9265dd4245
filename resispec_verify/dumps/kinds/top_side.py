"""The listed tokens of one model at each position, as a file holds them, and what they say of the others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from resispec_verify.dumps.formats.mapped import release
from resispec_verify.dumps.kinds.top_rows import TopRows
from resispec_verify.dumps.opening import show
from resispec_verify.dumps.rows import Rows, rows_of, widened
from resispec_verify.errors import InputError

__all__ = ["LARGEST_VOCABULARY", "TopSide", "float32_rounding"]

LARGEST_VOCABULARY = 2**31 - 1
UNIT = {2: 2.0**-8, 4: 2.0**-24, 8: 2.0**-53}
"""Relative rounding of a stored number, by its bytes; float16 has a smaller one than bfloat16, 2^-11."""
SMALLEST_FLOAT16 = 2.0**-14
"""Of the normal numbers."""
FLOAT64 = 2.0**-40
"""What summing a row in float64 and exp of it can be off, with room to spare: 2^-53 times k + 4 operations
of k up to 4,096, and more for longer lists."""


def float32_rounding(terms: int) -> float:
    """How far log-probabilities are off that float32 arithmetic normalised, where `terms` are added serially.

    A sum of positive terms has a relative error of at most ``terms`` units; eight more are for exp, the
    logarithm and the two subtractions.
    """
    return (terms + 8) * 2.0**-24


@dataclass(frozen=True, eq=False, repr=False)
class TopSide:
    """The listed tokens of one of the two models, as they are stored; `rows` reads and checks them.

    Attributes
    ----------
    path, role : str
        Named in errors: "target" or "draft".
    ids : integer array [..., k]
        -1 where a row lists fewer.
    values : float array [..., k]
        Log-probabilities, or logits where `logsumexp` is there.
    logsumexp : float array [...] or None
        Of all logits of a row.
    tail : float array [...] or [..., 2] or None
        Probability of all other tokens, or the least and the greatest it can be.
    ranked : int or integer array [...] or None
        How many of the listed are the most probable tokens of the vocabulary; None where nothing says it.
    rounding : float
        How far all log-probabilities may be off besides the rounding of their type.
    """

    path: str
    role: str
    ids: np.ndarray
    values: Rows
    logsumexp: np.ndarray | None
    tail: np.ndarray | None
    ranked: int | np.ndarray | None
    rounding: float
    vocab: int | None

    @property
    def k(self) -> int:
        """Tokens listed at most."""
        return self.ids.shape[-1]

    @property
    def positions(self) -> int:
        """Positions, leading axes flattened."""
        return math.prod(self.ids.shape[:-1])

    def rows(self, start: int, stop: int) -> TopRows:
        """Return positions ``start`` to ``stop - 1``; raises as `TopPairsDump.pairs`."""
        ids = self._tokens(start, stop)
        listed = ids >= 0
        logs, error = self._logs(start, stop, listed)
        with np.errstate(under="ignore"):
            p = np.exp(logs)
        np.minimum(p, 1.0, out=p)
        slack = p * error
        total, off = p.sum(axis=-1), slack.sum(axis=-1)
        slack = off + FLOAT64
        over = np.flatnonzero(total > 1 + slack)
        if over.size:
            i = int(over[0])
            self._refuse(
                start + i,
                f"its probabilities add up to {total[i]:.9g}, which rounding (at most {slack[i]:.2g}) does "
                "not explain; log log-probabilities that are normalised over the vocabulary",
            )
        tail = self._tails(start, stop, total, slack)
        most = self._most(start, stop, p, listed, error)
        others = LARGEST_VOCABULARY if self.vocab is None else self.vocab - listed.sum(axis=-1)
        short = np.flatnonzero(tail[:, 0] > others * most * (1 + FLOAT64))
        if short.size:
            i = int(short[0])
            self._refuse(
                start + i,
                f"no other token can have more than {most[i]:.3g}, and all others have {tail[i, 0]:.6g} at "
                f"least; {self.role}_ranked, or a probability, is wrong",
            )
        return TopRows(ids, p, tail, most, self.vocab, off)

    def _tokens(self, start: int, stop: int) -> np.ndarray:
        stored = rows_of(self.ids, start, stop)
        if stored.dtype.kind == "u":
            stored = stored.astype(np.int64)
        highest = LARGEST_VOCABULARY if self.vocab is None else self.vocab
        low, high = (int(stored.min()), int(stored.max())) if stored.size else (0, 0)
        if low < -1 or high >= highest:
            i, j = (int(x) for x in np.argwhere((stored < -1) | (stored >= highest))[0])
            of = "" if self.vocab is None else f" of {self.vocab} tokens"
            self._refuse(start + i, f"token {stored[i, j]} is outside the vocabulary{of}; record it again")
        ids = stored.astype(np.int32)
        release(self.ids)
        order = np.sort(ids, axis=-1)
        twice = order[:, 1:] == order[:, :-1]
        if low < 0:
            twice &= order[:, 1:] >= 0
        if twice.any():
            i, j = (int(x) for x in np.argwhere(twice)[0])
            self._refuse(start + i, f"token {order[i, j]} is listed twice; list it once")
        if low < 0 and (bare := np.flatnonzero((ids < 0).all(axis=-1))).size:
            self._refuse(start + int(bare[0]), "no token is listed; leave the position out")
        return ids

    def _logs(self, start: int, stop: int, listed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities in float64, -inf where none is listed; by what factor e^x may be off, less 1."""
        stored = rows_of(self.values, start, stop)
        unit = UNIT[stored.dtype.itemsize] if stored.dtype != np.float16 else 2.0**-11
        with np.errstate(invalid="ignore"):  # signalling NaNs; they are refused below
            values = widened(stored).astype(np.float64, copy=False)
        release(self.values)
        np.copyto(values, -np.inf, where=~listed)
        wrong = ~(values < np.inf)  # NaN too
        if wrong.any():
            i, j = (int(x) for x in np.argwhere(wrong)[0])
            name = "NaN" if np.isnan(values[i, j]) else "+inf"
            self._refuse(start + i, f"entry {j} is {name}; log finite log-probabilities")
        size = np.abs(np.where(np.isfinite(values), values, 0.0))
        if stored.dtype == np.float16:  # below its normal numbers what is lost is no share of them
            size = np.maximum(size, SMALLEST_FLOAT16)
        error = unit * size + self.rounding
        if self.logsumexp is not None:
            norm = _float64(self.logsumexp.reshape(-1)[start:stop])
            if not np.isfinite(norm).all():
                i = int(np.argmin(np.isfinite(norm)))
                self._refuse(start + i, f"its logsumexp is {norm[i]}; save that of all logits")
            values -= norm[:, None]
            error += UNIT[self.logsumexp.dtype.itemsize] * np.abs(norm)[:, None]
        above = values > error
        if above.any():
            i, j = (int(x) for x in np.argwhere(above)[0])
            self._refuse(
                start + i,
                f"entry {j} has the log-probability {values[i, j]:.6g}, above 0; log log-probabilities, or "
                f"raw logits as {self.role}_top_logits with {self.role}_logsumexp",
            )
        # By which factor a probability may be off: e^x - 1, which is at most x + x^2 up to 1.
        return values, np.expm1(np.minimum(error, 50.0)) if error.max() > 1 else error * (1.0 + error)

    def _tails(self, start: int, stop: int, total: np.ndarray, slack: np.ndarray) -> np.ndarray:
        """The interval of the mass of all others, ``(n, 2)``."""
        rest = 1.0 - total
        if self.tail is None:
            tail = np.stack([rest - slack, rest + slack], axis=-1)
            if self.vocab is not None and self.k >= self.vocab:
                tail[(self._count(start, stop) >= self.vocab)] = 0.0
            return np.clip(tail, 0.0, 1.0)
        unit = UNIT[self.tail.dtype.itemsize]
        stated = _float64(self.tail.reshape(self.positions, -1)[start:stop])
        inside = (stated >= 0) & (stated <= 1 + unit)
        if not inside.all():
            i = int(np.argmin(inside.all(axis=-1)))
            self._refuse(start + i, f"its tail {show(stated[i].tolist())} is no probability; record it again")
        # Of its type, and of the sums behind it: 1 minus the listed is not the sum of the others.
        off = np.where(stated > 0, stated * max(unit, FLOAT64) + 2.0**-52, 0.0)
        if self.tail.dtype == np.float16:  # a 0 may be what was left of less
            off += 2.0**-11 * SMALLEST_FLOAT16
        tail = np.stack([stated[:, 0] - off[:, 0], stated[:, -1] + off[:, -1]], axis=-1)
        wrong = (tail[:, 0] > rest + slack) | (tail[:, 1] < rest - slack) | (tail[:, 0] > tail[:, 1])
        if wrong.any():
            i = int(np.argmax(wrong))
            self._refuse(
                start + i,
                f"its tail is {show(stated[i].tolist())}, and the listed leave {rest[i]:.9g}; log it again",
            )
        return np.clip(tail, 0.0, 1.0)

    def _count(self, start: int, stop: int) -> np.ndarray:
        return (rows_of(self.ids, start, stop) >= 0).sum(axis=-1)

    def _most(
        self, start: int, stop: int, p: np.ndarray, listed: np.ndarray, error: np.ndarray
    ) -> np.ndarray:
        """The greatest probability of one other token: that of the last ranked one, rounding included."""
        if self.ranked is None:
            return np.ones(len(p))
        ranked = self.ranked if isinstance(self.ranked, int) else self.ranked.reshape(-1)[start:stop]
        ranked = np.broadcast_to(np.asarray(ranked, np.int64), len(p))
        count = listed.sum(axis=-1)
        wrong = (ranked < 0) | (ranked > self.k) if isinstance(self.ranked, int) else (
            (ranked < 0) | (ranked > count)
        )  # fmt: skip
        if wrong.any():
            i = int(np.argmax(wrong))
            self._refuse(
                start + i,
                f"{self.role}_ranked is {ranked[i]}, and {count[i]} tokens are listed; record it again",
            )
        ranked = np.minimum(ranked, count)
        high = np.where(listed, np.minimum(p * (1.0 + error), 1.0), -1.0)
        if (ranked == self.k).all():
            return high.min(axis=-1)
        order = np.sort(high, axis=-1)
        nth = np.take_along_axis(order, np.minimum(self.k - ranked, self.k - 1)[:, None], axis=-1)[:, 0]
        return np.where(ranked > 0, nth, 1.0)

    def _refuse(self, position: int, message: str) -> None:
        raise InputError(f"{self.path}: {self.role} at position {position}: {message}")


def _float64(values: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return values.astype(np.float64)
