"""What is odd about rows of logits: collected batch by batch, said in one line each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from resispec_verify.dumps.checks.looks import all_equal, like_probabilities, norms
from resispec_verify.dumps.formats.mapped import repeats
from resispec_verify.dumps.rows import Rows

__all__ = ["Oddity", "RowScan", "ShiftScan"]

FLOOR_SHARE = 0.01
"""Share of a row beyond which its smallest value, repeated, is a floor."""
SHIFT_NATS = 2.0
"""How much likelier, on average, the token before must be for rows to look shifted."""
SHIFT_ROWS = 4
LEAST_LOG_PROBABILITY = -30.0


@dataclass(frozen=True)
class Oddity:
    """One thing worth hearing.

    Attributes
    ----------
    kind : str
    key : str
        The key of the rows, or of two of them.
    count : int
        Rows it concerns.
    first_position : int
        The first of them, 0-based.
    text : str
        All of it in one line.
    """

    kind: str
    key: str
    count: int
    first_position: int
    text: str


@dataclass
class _Tally:
    """Rows of one kind: how many, the first, and the least and greatest of a number that comes with them."""

    count: int = 0
    first: int = -1
    low: float = np.inf
    high: float = -np.inf

    def add(self, rows: np.ndarray, start: int, numbers: np.ndarray | None = None) -> None:
        if not rows.any():
            return
        if not self.count:
            self.first = start + int(np.argmax(rows))
        self.count += int(rows.sum())
        if numbers is not None:
            self.low = min(self.low, float(numbers[rows].min()))
            self.high = max(self.high, float(numbers[rows].max()))

    @property
    def span(self) -> str:
        return f"{self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"


@dataclass
class RowScan:
    """Looks at the rows under one key as they stream by.

    Parameters
    ----------
    key : str
        Named in texts.
    dtype : numpy.dtype
        Storage type: near-ties are within one of its units in the last place.
    declared : int or None
        Vocabulary without padding, if it is known to be smaller than a row.
    unit : str
        What a row is called: position, round, prefix.
    """

    key: str
    dtype: np.dtype
    declared: int | None = None
    unit: str = "position"
    rows: int = 0
    _width: int = 0
    _tallies: dict[str, _Tally] = field(default_factory=dict)
    _mask: np.ndarray | None = None
    _same_mask: bool = True
    _last_support: int | None = None
    _tail: int | None = None
    _from_end: list[np.ndarray] = field(default_factory=list)
    _numbers: list[np.ndarray] = field(default_factory=list)

    def add(self, rows: np.ndarray, numbers: np.ndarray | None = None) -> None:
        """Look at rows ``[n, width]`` without NaN or +inf, the next in order.

        Parameters
        ----------
        numbers : int array (n,)
            What they are numbered in texts; by default from 0 on.
        """
        start, self._width = self.rows, rows.shape[-1]
        finite = np.isfinite(rows)
        support = finite.sum(axis=-1)
        highest = rows.max(axis=-1)
        winner = rows.argmax(axis=-1)
        self._support(finite, support, start)
        lowest = np.where(finite, rows, np.inf).min(axis=-1)
        self._shape(rows, support, highest, lowest, start)
        self._ties(rows, highest, start)
        self._padding(rows, winner, start)
        self._probabilities(rows, start)
        self._order(rows, start)
        self.rows += len(rows)
        if numbers is not None:
            self._numbers.append(np.asarray(numbers))

    def _tally(self, name: str) -> _Tally:
        return self._tallies.setdefault(name, _Tally())

    def _support(self, finite: np.ndarray, support: np.ndarray, start: int) -> None:
        self._tally("filtered").add(support < self._width, start, support)
        if self._mask is None:
            self._mask = finite[0].copy()
        self._same_mask = self._same_mask and bool((finite == self._mask).all())
        before = np.concatenate([[support[0] if self._last_support is None else self._last_support], support])
        grows = before[1:] > before[:-1]
        if grows.any() and not self._tally("grows").count:
            i = int(np.argmax(grows))
            self._tallies["grows"].low, self._tallies["grows"].high = float(before[i]), float(before[i + 1])
        self._tally("grows").add(grows, start)
        self._last_support = int(support[-1])

    def _shape(
        self, rows: np.ndarray, support: np.ndarray, highest: np.ndarray, lowest: np.ndarray, start: int
    ) -> None:
        floored = (rows == lowest[:, None]).sum(axis=-1)
        lone = (support == 1) | ((floored == support - 1) & (support == self._width))
        self._tally("one-hot").add(lone & (self._width > 2), start)
        flat = lowest == highest
        self._tally("constant").add(flat & (support == max(2, self._width)), start, highest)
        many = (floored > max(1, FLOOR_SHARE * self._width)) & (support > 1) & ~flat
        self._tally("floor").add(many, start, lowest)
        if many.any():
            self._tally("floored").add(many, start, floored)

    def _ties(self, rows: np.ndarray, highest: np.ndarray, start: int) -> None:
        if self._width < 2:
            return
        second = np.partition(rows, -2, axis=-1)[:, -2]
        with np.errstate(invalid="ignore"):
            gap = highest.astype(np.float64) - second
        self._tally("near-tie").add(gap <= _ulp(highest, self.dtype), start)
        self._tally("tie").add(gap == 0, start)

    def _padding(self, rows: np.ndarray, winner: np.ndarray, start: int) -> None:
        if self.declared is not None and self.declared < self._width:
            self._tally("padding").add(winner >= self.declared, start)
        differs = rows[:, ::-1] != rows[:, -1:]
        run = np.where(differs.any(axis=-1), differs.argmax(axis=-1), self._width)
        shortest = int(run.min())
        self._tail = shortest if self._tail is None else min(self._tail, shortest)
        self._from_end.append((self._width - winner).astype(np.int32))

    def _probabilities(self, rows: np.ndarray, start: int) -> None:
        if self._width < 2 or self._tally("logits").count:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            like = like_probabilities(rows, self.dtype)
        self._tally("probable").add(like, start)
        self._tally("logits").add(~(like | all_equal(rows)), start)

    def _order(self, rows: np.ndarray, start: int) -> None:
        """Tallies of what all rows must be for it to be said: normalised, or in descending order."""
        if self._width < 2:
            return
        if not self._tally("unnormalised").count:
            norm, tolerance, lone = norms(rows, self.dtype)
            self._tally("unnormalised").add((np.abs(norm) > tolerance) & ~all_equal(rows), start)
            self._tally("normalised").add(~lone & (np.abs(norm) <= tolerance), start)
        if not self._tally("unordered").count:
            self._tally("unordered").add(np.any(rows[:, :-1] < rows[:, 1:], axis=-1), start)

    def oddities(self) -> list[Oddity]:
        """What there is to say about the rows seen."""
        return [
            Oddity(
                kind, self.key, rows.count, self._number(rows.first), self._line(text, rows.count, rows.first)
            )
            for kind, rows, text in (self._said() if self.rows else ())
        ]

    def _said(self) -> Iterator[tuple[str, _Tally, str]]:
        """Kind, rows and text of each oddity."""
        constant, one_hot = self._tally("constant"), self._tally("one-hot")
        if constant.count:
            yield "constant", constant, f"all entries are equal ({constant.span}): padding?"
        if one_hot.count == self.rows:
            yield "one-hot", one_hot, "one entry stands out and all others are equal: tokens, not logits?"
        else:
            yield from self._filters()
            yield from self._values()
        yield from self._paddings()

    def _filters(self) -> Iterator[tuple[str, _Tally, str]]:
        tally, width = self._tally("filtered"), self._width
        if tally.count:
            whole = tally.count == self.rows
            if whole and self._same_mask and self.rows > 1:
                masked = width - int(tally.low)
                yield (
                    "masked",
                    tally,
                    f"the same {masked} of {width} tokens are -inf in every row: masked tokens",
                )
            else:
                exactly = whole and tally.low == tally.high
                how = f"exactly {tally.span}" if exactly else f"only {tally.span}"
                why = f"top-k {tally.span}?" if exactly else "top-p or min-p?"
                yield "filtered", tally, f"{how} of {width} entries are finite: already filtered ({why})"
        tally = self._tally("grows")
        if tally.count:
            before = f"first {tally.low:g}, then {tally.high:g}"
            yield "support-grows", tally, f"more finite entries than the row before ({before})"

    def _values(self) -> Iterator[tuple[str, _Tally, str]]:
        every = _Tally(self.rows, 0)
        floor, tie = self._tally("floor"), self._tally("near-tie")
        if floor.count:
            repeated = f"{self._tally('floored').span} times of {self._width}"
            text = f"({floor.span}) is repeated over more than 1 % of the row ({repeated}): a floor"
            yield "floor", floor, f"the smallest value {text}"
        if self._width > 1:
            if self._tally("normalised").count and not self._tally("unnormalised").count:
                text = "logsumexp 0: log-probabilities, which may have a temperature or filter already"
                yield "log-probabilities", every, text
            if self._tally("constant").count < self.rows and not self._tally("unordered").count:
                yield "sorted", every, "in descending order: top-k values?"
            if self._tally("probable").count and not self._tally("logits").count:
                text = "values in [0, 1] that sum to 1: probabilities in a field for logits?"
                yield "probabilities", every, text
        if tie.count:
            equal = self._tally("tie").count
            text = f"the top two are within one unit in the last place of {self.dtype.name} ({equal} equal)"
            yield "near-tie", tie, text

    def _paddings(self) -> Iterator[tuple[str, _Tally, str]]:
        beyond, tail = self._tally("padding"), self._tail or 0
        if beyond.count:
            text = f"the largest entry is beyond the {self.declared} tokens of the vocabulary: padding wins"
            yield "padding-wins", beyond, text
        elif 2 <= tail < self._width:
            wins = np.concatenate(self._from_end) <= tail
            if wins.any():
                text = f"among the last {tail}, which are all equal in every row: padding wins"
                tally = _Tally(int(wins.sum()), int(np.argmax(wins)))
                yield "padding-wins", tally, f"the largest entry is {text}"

    def _number(self, row: int) -> int:
        return int(np.concatenate(self._numbers)[row]) if self._numbers else row

    def _line(self, text: str, count: int, first: int) -> str:
        which = "every row" if count == self.rows else f"{count} of {self.rows} rows"
        where = "" if count == self.rows else f", first at {self.unit} {self._number(first)}"
        return f"{self.key}: {which}{where}: {text}"


def _ulp(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """One unit in the last place of a storage type, at values of that type."""
    info = ml_dtypes.finfo(dtype)
    exponent = np.frexp(np.abs(values.astype(np.float64)))[1] - 1
    return np.ldexp(1.0, np.maximum(exponent, info.minexp) - info.nmant)


class ShiftScan:
    """Whether rows predict the tokens they should: row i is expected to predict ``tokens[i + 1]``.

    Parameters
    ----------
    key : str
        Named in the text.
    tokens : object
        What the dump has under `tokens`.
    rows : Rows
        The logits; of their leading axes the last is the chain.
    """

    def __init__(self, key: str, tokens: object, rows: Rows) -> None:
        self.key = key
        self._here = self._next = np.empty(0, np.int64)
        leading, vocab = rows.shape[:-1], rows.shape[-1]
        self._sums, self._count = np.zeros(2), 0
        self._outside = np.empty(0, np.int64)
        if not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu" or not leading:
            return
        if repeats(tokens):
            return
        length = leading[-1]
        if tokens.shape not in ((*leading[:-1], length + 1), leading):
            return
        following = np.full(leading, -1, np.int64)
        known = tokens.shape[-1] - 1
        following[..., :known] = tokens[..., 1:]
        here, after = tokens[..., :length].reshape(-1).astype(np.int64), following.reshape(-1)
        self._outside = (after >= vocab).nonzero()[0]
        if here.min() >= 0 and max(here.max(), after.max()) < vocab:
            self._here, self._next = here, after

    def add(self, rows: np.ndarray, start: int) -> None:
        """Look at the rows of positions from `start` on."""
        here, after = (tokens[start : start + len(rows)] for tokens in (self._here, self._next))
        used = np.flatnonzero(after >= 0)
        if not used.size:
            return
        rows = rows[used].astype(np.float64)
        highest = rows.max(axis=-1, keepdims=True)
        norms = highest[:, 0] + np.log(np.exp(rows - highest).sum(axis=-1))
        for i, tokens in enumerate((here, after)):
            values = rows[np.arange(len(used)), tokens[used]] - norms
            self._sums[i] += np.maximum(values, LEAST_LOG_PROBABILITY).sum()
        self._count += len(used)

    def oddities(self) -> list[Oddity]:
        """Say so if the rows look shifted, or have no entry for the token that followed."""
        if self._outside.size:
            count, first = self._outside.size, int(self._outside[0])
            text = (
                f"{self.key}: {count} rows, first at position {first}: no entry for the token that followed"
            )
            return [Oddity("tokens-outside", self.key, count, first, text)]
        if self._count < SHIFT_ROWS:
            return []
        here, after = self._sums / self._count
        if here - after < SHIFT_NATS:
            return []
        text = (
            f"{self.key}: rows look shifted against tokens: row i should predict tokens[i+1] (mean "
            f"log-probability {after:.2f}), but tokens[i] is far likelier ({here:.2f})"
        )
        return [Oddity("shifted", self.key, self._count, 0, text)]
