"""An anytime-valid test that draws are independent of those shortly before: equal seeds give equal draws.

Neighbours ``(z_1, z_2), (z_3, z_4), ...`` are pairs ``(x, y)``; n of them are a block. So are n draws and the
n after them, where a batch has the seeds of the batch before. If the draws are
i.i.d., from whatever law, all n! ways of giving the y to the x are equally likely. With M the number of pairs
with ``x = y`` and a weight ``b > 1`` fixed before,

    ``b^M / E[b^M]``, the expectation over all n! ways,

has expectation 1 given what the x and the y are, and products over blocks are non-negative martingales. Where
a_i of the x and c_i of the y have value i, rook numbers give the expectation exactly:

    ``E[b^M] = sum_k r_k (b - 1)^k (n - k)! / n!``,
    ``sum_k r_k z^k = prod_i sum_j C(a_i, j) C(c_i, j) j! z^j``.

Where x and y are equal in each pair a block gains nearly ``log n!``. It is `SwapTest` of `eprocess` with n!
arrangements in place of two. Draws that are all equal gain nothing: they may be from a law with one token.

References
----------
Kaplansky and Riordan 1946, "The problem of the rooks and its applications" (matches with repeated values).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

__all__ = ["RepeatTest", "log_expected_matches"]

# Pairs of a block: 12 draws of one source, and log 6! = 6.6 nats where each is drawn twice.
PAIRS = 6
WEIGHTS = (4.0, 64.0)
# Draws left out at the start, and how far apart x and y are. Neighbours begin with the first draw, and with
# the second: a repetition lies within the pairs of one of the two. The others: batches of 2, 4, ..., 32.
LAGS = ((0, 1), (1, 1), (0, 8), (0, 32))


class RepeatTest:
    """Are draws of each source, a prompt, independent and alike?

    Attributes
    ----------
    draws : int
    equal, neighbours : int
        Draws that equal the one before of their source, and all that have one before.
    """

    def __init__(self) -> None:
        self.draws = self.equal = self.neighbours = 0
        self._seen: set[tuple[Hashable, Hashable]] = set()
        self._waiting: dict[Hashable, list[list[Hashable]]] = {}
        self._last: dict[Hashable, Hashable] = {}
        self._wealth = np.zeros((len(LAGS), len(WEIGHTS)))
        self._path: list[float] = []

    def update(self, source: Hashable, draw: Hashable) -> None:
        """Add a draw of a source."""
        self.draws += 1
        if source in self._last:
            self.neighbours += 1
            self.equal += self._last[source] == draw
        for i, ((skipped, lag), waiting) in enumerate(
            zip(LAGS, self._waiting.setdefault(source, [[] for _ in LAGS]), strict=True)
        ):
            if skipped and source not in self._last:
                continue
            waiting.append(draw)
            n = PAIRS if lag == 1 else lag
            if len(waiting) == 2 * n:
                x, y = (waiting[0::2], waiting[1::2]) if lag == 1 else (waiting[:n], waiting[n:])
                self._wealth[i] += _evidence(x, y)
                waiting.clear()
        self._last[source] = draw
        self._seen.add((source, draw))
        self._path.append(float(np.logaddexp.reduce(self._wealth.ravel())) - math.log(self._wealth.size))

    @property
    def distinct(self) -> int:
        """Different draws of a source, summed over sources."""
        return len(self._seen)

    @property
    def trajectory(self) -> np.ndarray:
        """Logarithm of the evidence after each draw, ``(draws,)``."""
        return np.array(self._path)

    @property
    def log_evidence(self) -> float:
        """Logarithm of the largest evidence so far; at least 0."""
        return max(0.0, max(self._path, default=0.0))

    def found_at(self, alpha: float) -> int | None:
        """The number of draws after which the evidence first reached ``1 / alpha``."""
        return next((i for i, log in enumerate(self._path, 1) if log >= -math.log(alpha)), None)


def _evidence(x: Sequence[Hashable], y: Sequence[Hashable]) -> list[float]:
    """Log evidence of one block, for each weight."""
    matches = sum(one == other for one, other in zip(x, y, strict=True))
    if not matches and not set(x) & set(y):
        return [0.0] * len(WEIGHTS)
    return [matches * math.log(b) - log_expected_matches(x, y, b) for b in WEIGHTS]


def log_expected_matches(x: Sequence[Hashable], y: Sequence[Hashable], weight: float) -> float:
    """Logarithm of the mean of ``weight^M`` over all ways to give the y to the x, n of each.

    Whole numbers: the rook numbers are exact.
    """
    n = len(x)
    rooks = [1] + [0] * n
    in_x, in_y = Counter(x), Counter(y)
    for value in in_x.keys() & in_y.keys():
        a, c = in_x[value], in_y[value]
        own = [math.comb(a, j) * math.comb(c, j) * math.factorial(j) for j in range(min(a, c) + 1)]
        rooks = [sum(own[j] * rooks[k - j] for j in range(min(k, len(own) - 1) + 1)) for k in range(n + 1)]
    terms = (rooks[k] * math.factorial(n - k) * (weight - 1.0) ** k for k in range(n + 1))
    return math.log(sum(terms)) - math.lgamma(n + 1)
