"""An anytime-valid test that draws come from known laws, from the interval of the cumulative sum that each
hit.

A token y drawn from a discrete law has the interval ``[F(y-), F(y-) + p(y)]`` of the cumulative sum, and
with V uniform in [0, 1] the randomised transform ``F(y-) + V p(y)`` is uniform. No V has to be drawn: take
any density h on [0, 1] that is fixed before the draw, and bet its *average over the interval*,

    ``g(y) = (1 / p(y)) int_(F(y-))^(F(y-) + p(y)) h``,   ``E[g] = sum_y p(y) g(y) = int_0^1 h = 1``.

It is the expectation over V of the randomised bet, so it is fair, and by Jensen's inequality its mean log
gain is no less. The mid form ``F + p/2`` is not uniform, and is not used. Densities here are constant on
equal cells and learned from the draws before (Krichevsky and Trofimov), for all draws alike or for each
value of a context that is known before the draw.

Rounding. The logged interval J may differ from the true one I by ``d`` at either end. Where both lie in one
cell the bet is exact. Otherwise I meets ``[c - d, c + d]`` for an edge c. The tokens wholly inside that have
mass 2d at most, and the bets on them are off by no more than ``r = max h - min h``. Two more may cross its
ends; uniform laws on I and J differ by at most ``2d / max(|I|, |J|)`` in total variation, which times ``|I|
r`` is ``2 d r`` each. So ``E[g] <= 1 + 6 (K - 1) d r`` for K cells, and each gain is divided by that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resispec_verify.evidence.acceptance_bets import Evidence

__all__ = ["UniformIntervals"]

_CELLS = (2, 4, 16)
# Cells of each context's own density.
_WITHIN = 4


class UniformIntervals:
    """Learned densities over all draws, and over those of each value of some contexts.

    Parameters
    ----------
    contexts : mapping of str to int
        Names of contexts, and how many values each has.

    Attributes
    ----------
    evidence : Evidence
    """

    def __init__(self, contexts: dict[str, int] | None = None, alpha: float = 0.05) -> None:
        contexts = contexts or {}
        self._tables = [(1, cells, np.zeros((1, cells))) for cells in _CELLS]
        self._tables += [(size, _WITHIN, np.zeros((size, _WITHIN))) for size in contexts.values()]
        names = tuple(f"{cells} cells" for cells in _CELLS) + tuple(f"depends on {name}" for name in contexts)
        self.evidence = Evidence(names).watch(alpha)

    def add(
        self, start: np.ndarray, width: np.ndarray, slack: np.ndarray, contexts: Sequence[np.ndarray] = ()
    ) -> None:
        """Add draws ``(n,)``: where intervals begin, how wide they are, how far each end may be off.

        ``contexts`` are arrays of integers ``(n,)``, in the order of their names.
        """
        if not len(start):
            return
        start = np.clip(start, 0.0, 1.0)
        end = np.clip(start + width, start, 1.0)
        alike = np.zeros(len(start), np.int64)
        columns = [
            _gains(counts, cells, start, end, slack, context)
            for (_, cells, counts), context in zip(
                self._tables, [*[alike] * len(_CELLS), *contexts], strict=True
            )
        ]
        self.evidence.add(np.stack(columns, axis=-1))


def _gains(
    counts: np.ndarray, cells: int, start: np.ndarray, end: np.ndarray, slack: np.ndarray, context: np.ndarray
) -> np.ndarray:
    """Log gains ``(n,)`` of the mixture of one table; its ``counts (values, cells)`` are added to."""
    share = _shares(start, end, cells)
    logs = np.zeros(len(start))
    for value in range(len(counts)):
        here = np.flatnonzero(context == value)
        if not len(here):
            continue
        own = share[here]
        before = counts[value] + np.cumsum(own, axis=0) - own
        counts[value] += own.sum(axis=0)
        weight = cells * (before + 0.5) / (before.sum(axis=-1, keepdims=True) + 0.5 * cells)
        spread = weight.max(axis=-1) - weight.min(axis=-1)
        logs[here] = np.log((own * weight).sum(axis=-1)) - np.log1p(6 * (cells - 1) * slack[here] * spread)
    return logs


def _shares(start: np.ndarray, end: np.ndarray, cells: int) -> np.ndarray:
    """Share ``(n, cells)`` of each interval in each cell; all of it in one where it has no width."""
    edge = np.arange(cells + 1) / cells
    inside = np.minimum(end[:, None], edge[1:]) - np.maximum(start[:, None], edge[:-1])
    inside = np.maximum(inside, 0.0)
    whole = inside.sum(axis=-1, keepdims=True)
    alone = np.eye(cells)[np.minimum((start * cells).astype(np.int64), cells - 1)]
    return np.where(whole > 1e-300, inside / np.where(whole > 1e-300, whole, 1.0), alone)
