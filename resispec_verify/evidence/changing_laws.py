"""An anytime-valid test of draws from known laws that differ from draw to draw.

After each round of a decoder one token is drawn from a law that is known: a residual, or the target's last
row. No two of these laws are alike, and later ones depend on earlier draws, so counts prove nothing. Bets do:
with a law ``P_t`` that is fixed before draw t, and any ``g_t >= 0`` that depends on the past only and has
expectation at most 1 under ``P_t``, the product of ``g_t(y_t)`` is a non-negative supermartingale, and so is
an average of such products. It ever reaches ``1 / alpha`` with probability at most ``alpha`` (Ville).

The law is known up to rounding only: the mass of each token lies in an interval ``[low, high]``. A bet is
divided by a bound on its expectation over all laws in that box. With ``d = g - 1``,

    ``E[g] <= 1 + sum_y max(d high, d low)_+ / sum_y low``,

because ``sum m d`` over ``sum m`` is what has to be bounded, and the numerator is largest where m is high
exactly where d is positive. A bet that rounding could explain is not made.

Bets: the law at other temperatures and greedily; laws that the caller names; learned weights of equal cells
in order of probability; learned weights of tokens by their id.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from resispec_verify.evidence.eprocess import SHRINKAGE, detectable_tv

__all__ = ["ChangingLaws"]

# The law to this power is the same logits at the reciprocal temperature.
POWERS = (0.5, 0.8, 1.25, 2.0)
# Equal cells of the cumulative sum, most probable tokens first.
CELLS: tuple[int, ...] = (2, 4, 16)
# A fault in a share of the draws: a bet is made with all of the wealth, and with a quarter of it.
SHARES = (1.0, 0.25)
# Below this mass a token's place in the cumulative sum is not resolved, and it counts for one cell.
_RESOLVED = 1e-9
# Elements of one batch (draws x vocab).
_BATCH_ELEMENTS = 1 << 15


class ChangingLaws:
    """Are draws from the laws that are given with them?

    Parameters
    ----------
    names : sequence of str
        Of the laws that the caller bets on.

    """

    def __init__(self, names: Sequence[str]) -> None:
        temperatures = [f"temperature x {1 / power:g}" for power in POWERS]
        fixed = [*temperatures, "the most probable token", *names]
        self.names = [name for share in SHARES for name in fixed] + ["tokens by id"]
        self.names += [f"{cells} cells by probability" for cells in CELLS]
        self._impossible = self._used = 0
        self._fixed = len(fixed)
        self._wealth = np.zeros(len(self.names))
        self._path: list[np.ndarray] = []
        self._waiting: list[tuple[np.ndarray, np.ndarray, int, np.ndarray]] = []
        self._cells = {cells: np.zeros(cells) for cells in CELLS}
        self._allowance = dict.fromkeys(CELLS, 0.0)
        self._seen = self._expected = np.zeros(0)

    def add(self, low: np.ndarray, high: np.ndarray, token: int, others: Sequence[np.ndarray | None]) -> None:
        """Add one draw.

        Parameters
        ----------
        low, high : float64 array (V,)
            Bounds of the mass of each token, not normalised; ``high`` has a positive sum.
        token : int
        others : sequence of float64 arrays (V,), or None
            The laws to bet on, in the order of their names; None where there is none at this draw. They
            must not depend on the token.
        """
        total = high.sum()
        reference = high / total
        laws = np.array([reference if law is None else law for law in others]).reshape(-1, len(high))
        self._waiting.append((low / total, reference, token, laws))
        if len(self._waiting) * len(high) >= _BATCH_ELEMENTS:
            self._flush()

    @property
    def draws(self) -> int:
        """How many there were."""
        return len(self.trajectory)

    @property
    def impossible(self) -> int:
        """Draws of tokens that no law inside the rounding can give."""
        self._flush()
        return self._impossible

    @property
    def trajectory(self) -> np.ndarray:
        """Logarithm of the evidence after each draw, ``(draws,)``."""
        self._flush()
        return np.concatenate(self._path) if self._path else np.zeros(0)

    @property
    def log_evidence(self) -> float:
        """Logarithm of the largest evidence so far, which Ville's inequality bounds as well; at least 0."""
        return float(self.trajectory.max(initial=0.0))

    @property
    def leading(self) -> str:
        """The bet that has gained most: what the draws look like."""
        self._flush()
        return self.names[int(np.argmax(self._wealth))]

    def found_at(self, alpha: float) -> int | None:
        """The number of draws after which the evidence first reached ``1 / alpha``."""
        above = np.flatnonzero(self.trajectory >= -math.log(alpha))
        return int(above[0]) + 1 if above.size else None

    def detectable(self, alpha: float, power: float) -> float:
        """The total variation that is sure to be found with this power; see `detectable_tv`.

        Of the cells in order of probability, whose law is uniform: a token that lies in several counts for
        each by its share, and the regret of the mixture is the same for such counts (the Gamma function is
        log-convex). What rounding took from these bets is added to what must be reached. The bound is on the
        average over the draws of the law of the cell, so on faults that go the same way at every draw.
        """
        self._flush()
        return min(
            detectable_tv(
                self._used,
                cells,
                len(self.names),
                max(alpha * math.exp(-self._allowance[cells]), 5e-324),
                power,
            )
            for cells in CELLS
        )

    def _flush(self) -> None:
        """Bet on the draws that wait."""
        if not self._waiting:
            return
        low, reference, tokens, others = (np.array(part) for part in zip(*self._waiting, strict=True))
        self._waiting = []
        at = np.arange(len(tokens))
        sure = low.sum(axis=-1)
        logs = [self._bets(low, reference, tokens, law, sure) for law in _fixed(reference, others)]
        by_share = [np.stack([log[i] for log in logs], axis=-1) for i in range(len(SHARES))]
        by_id = self._bets(low, reference, tokens, self._by_id(reference, tokens), sure)[0][:, None]
        order = np.argsort(-reference, axis=-1, kind="stable")
        low, mass = (np.take_along_axis(rows, order, axis=-1) for rows in (low, reference))
        rank = np.argmax(order == tokens[:, None], axis=-1)
        by_cell = [self._by_cell(low, mass, rank, sure, cells)[:, None] for cells in CELLS]
        gains = np.concatenate([*by_share, by_id, *by_cell], axis=-1)
        wealth = self._wealth + np.cumsum(gains, axis=0)
        self._wealth = wealth[-1]
        path = np.logaddexp.reduce(wealth, axis=-1) - math.log(len(self.names))
        impossible = np.cumsum(reference[at, tokens] == 0)
        self._path.append(np.where(impossible + self._impossible > 0, np.inf, path))
        self._impossible += int(impossible[-1])
        self._used += int((sure >= 0.5).sum())

    def _bets(
        self, low: np.ndarray, reference: np.ndarray, tokens: np.ndarray, law: np.ndarray, sure: np.ndarray
    ) -> list[np.ndarray]:
        """Log gains ``(n,)`` of betting on ``law (n, V)``, by share; 0 where rounding may explain it."""
        g = np.divide(law, reference, out=np.ones_like(law), where=reference > 0)
        slack, variation = _moved(g, low, reference)
        with np.errstate(divide="ignore"):
            bound = np.divide(slack, sure, out=np.full_like(sure, np.inf), where=sure > 0)
            # By Pinsker the bet gains at least 2 TV^2 a draw where its law is true.
            made = np.log1p(bound) <= 2 * variation**2
            drawn = g[np.arange(len(tokens)), tokens]
            return [
                np.where(
                    made, np.log1p(share * (drawn - 1)) - np.log1p(share * np.where(made, bound, 0)), 0.0
                )
                for share in SHARES
            ]

    def _by_id(self, reference: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The law with each token weighted by how often it came so far, over how often it should have."""
        if not len(self._seen):
            self._seen, self._expected = np.zeros(reference.shape[-1]), np.zeros(reference.shape[-1])
        ones = np.zeros_like(reference)
        ones[np.arange(len(tokens)), tokens] = 1.0
        seen, expected = np.cumsum(ones, axis=0), np.cumsum(reference, axis=0)
        weight = (self._seen + seen - ones + SHRINKAGE) / (self._expected + expected - reference + SHRINKAGE)
        self._seen, self._expected = self._seen + seen[-1], self._expected + expected[-1]
        law = reference * weight
        return law / law.sum(axis=-1, keepdims=True)

    def _by_cell(
        self, low: np.ndarray, mass: np.ndarray, rank: np.ndarray, sure: np.ndarray, cells: int
    ) -> np.ndarray:
        """Log gains of the mixture over laws of equal cells, made where rounding moves less than half.

        Columns are in order of probability, and ``rank`` is the place of the token that was drawn.
        """
        end = np.minimum(np.cumsum(mass, axis=-1), 1.0)
        start = np.concatenate([np.zeros((len(mass), 1)), end[:, :-1]], axis=-1)
        at = np.arange(len(rank))
        share = _shares(start[at, rank], end[at, rank], cells)
        made = (sure >= 0.5) & (mass[at, rank] > 0)
        counted = share * made[:, None]
        before = self._cells[cells] + np.cumsum(counted, axis=0) - counted
        self._cells[cells] = self._cells[cells] + counted.sum(axis=0)
        weight = cells * (before + 0.5) / (before.sum(axis=-1, keepdims=True) + 0.5 * cells)
        under = np.concatenate([np.zeros((len(mass), 1)), np.cumsum(weight, axis=-1)], axis=-1) / cells

        def integral(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            cell = np.minimum((x * cells).astype(np.int64), cells - 1)
            height = np.take_along_axis(weight, cell, axis=-1)
            return np.take_along_axis(under, cell, axis=-1) + (x - cell / cells) * height, height

        above, _ = integral(end)
        below, height = integral(start)
        width = end - start
        g = np.divide(above - below, width, out=height, where=width > _RESOLVED)
        slack, _ = _moved(g, low, mass)
        bound = np.divide(slack, sure, out=np.zeros_like(sure), where=made)
        self._allowance[cells] += float(np.log1p(bound)[made].sum())
        return np.where(made, np.log(g[at, rank]) - np.log1p(bound), 0.0)


def _fixed(reference: np.ndarray, others: np.ndarray) -> list[np.ndarray]:
    """Laws ``(n, V)`` to bet on that are not learned."""
    laws = []
    scaled = reference / reference.max(axis=-1, keepdims=True)
    for power in POWERS:
        weights = scaled**power
        laws.append(weights / weights.sum(axis=-1, keepdims=True))
    greedy = np.zeros_like(reference)
    greedy[np.arange(len(greedy)), np.argmax(reference, axis=-1)] = 1.0
    return [*laws, greedy, *(others[:, i] for i in range(others.shape[1]))]


def _moved(g: np.ndarray, low: np.ndarray, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``sum max(d high, d low)_+`` of ``d = g - 1``, and ``sum reference |d| / 2``; rows ``(n,)``."""
    d = g - 1.0
    most, least = d * reference, d * low
    return np.maximum(np.maximum(most, least).sum(axis=-1), 0.0), 0.5 * np.abs(most).sum(axis=-1)


def _shares(start: np.ndarray, end: np.ndarray, cells: int) -> np.ndarray:
    """Share of the interval from ``start (n,)`` to ``end`` in each of the cells, ``(n, cells)``."""
    edge = np.arange(cells + 1) / cells
    width = end - start
    inside = np.minimum(end[:, None], edge[1:]) - np.maximum(start[:, None], edge[:-1])
    shares = np.maximum(inside, 0.0) / np.where(width > 0, width, 1.0)[:, None]
    middle = np.minimum((start * cells).astype(np.int64), cells - 1)
    whole = np.eye(cells)[middle]
    return np.where((width > _RESOLVED)[:, None], shares, whole)
