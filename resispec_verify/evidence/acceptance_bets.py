"""An anytime-valid test of accept and reject decisions whose probabilities are known, each by itself.

Decision t accepts with probability ``a_t``, fixed before its coin falls. A bet says that it is ``b_t``
instead, with a share s of the wealth: it gains ``g = 1 + s (b/a - 1)`` on an acceptance and ``1 + s
((1-b)/(1-a) - 1)`` on a rejection, whose mean is 1. The product of gains is a non-negative martingale, and
so is an average of such products: it ever reaches ``1 / alpha`` with probability at most ``alpha`` (Ville).

a is known up to rounding only, inside ``[low, high]``. The mean of g is linear in the true probability, so
its largest value over the interval is that at one of the ends; each gain is divided by it where it is above
1.
"""

from __future__ import annotations

import math

import numpy as np

from resispec_verify.evidence.eprocess import SHRINKAGE

__all__ = ["BETS", "AcceptanceBets", "Evidence", "gains"]

# A fault in a share of the decisions, down to one in 64.
_SHARES = (1.0, 0.25, 0.0625, 0.015625)
_FIXED = (
    "accepts more often",
    "accepts less often",
    "q/p instead of p/q",
    "the target's probability alone",
    "accepts where p is above q",
    "temperature x 2",
    "temperature x 0.5",
)
_LEARNED = ("learned by the acceptance", "learned by the acceptance, halved")
#: What is bet on, in the order of the gains.
BETS = tuple(name for name in _FIXED for _ in _SHARES) + _LEARNED
_PARTS = 16
# Of the learned bet: it does not stake all it has on what it has not seen.
_LEAST = 1e-3


class AcceptanceBets:
    """Gains of all bets, decision by decision; learned ones remember what they saw."""

    def __init__(self) -> None:
        self._excess, self._count = np.zeros(_PARTS), np.zeros(_PARTS)

    def gains(
        self, accepted: np.ndarray, p: np.ndarray, q: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log gains ``(n, bets)``, and which outcomes ``(n,)`` no probability in the interval can give."""
        impossible = (accepted & (high <= 0)) | (~accepted & (low >= 1))
        a = np.clip(0.5 * (low + high), 0.0, 1.0)
        open_ = (a > 0) & (a < 1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(q > 0, p / q, 1.0)
            bets = [
                np.ones_like(a), np.zeros_like(a), np.where(p > 0, np.minimum(q / p, 1.0), 1.0), p,
                (p > q).astype(np.float64), np.minimum(ratio**0.5, 1.0), np.minimum(ratio**2, 1.0),
            ]  # fmt: skip
            columns = [gains(accepted, a, low, high, b, share) for b in bets for share in _SHARES]
            learned = self._learn(accepted, a)
            columns += [gains(accepted, a, low, high, learned, share) for share in (1.0, 0.5)]
        return np.where(open_[:, None], np.stack(columns, axis=-1), 0.0), impossible

    def _learn(self, accepted: np.ndarray, a: np.ndarray) -> np.ndarray:
        """The acceptance with the mean excess seen so far where it is about as large added."""
        part = np.minimum((a * _PARTS).astype(np.int64), _PARTS - 1)
        here = np.eye(_PARTS)[part]
        excess = here * (accepted - a)[:, None]
        before = self._excess + np.cumsum(excess, axis=0) - excess
        count = self._count + np.cumsum(here, axis=0) - here
        self._excess, self._count = self._excess + excess.sum(axis=0), self._count + here.sum(axis=0)
        at = np.arange(len(a)), part
        return np.clip(a + before[at] / (count[at] + SHRINKAGE), _LEAST, 1 - _LEAST)


def gains(
    accepted: np.ndarray, a: np.ndarray, low: np.ndarray, high: np.ndarray, b: np.ndarray, share: float
) -> np.ndarray:
    """Log gain ``(n,)`` of one bet; ``-inf`` where it loses all."""
    yes, no = 1 + share * (b / a - 1), 1 + share * ((1 - b) / (1 - a) - 1)
    most = np.maximum(low * yes + (1 - low) * no, high * yes + (1 - high) * no)
    return np.log(np.where(accepted, yes, no)) - np.log(np.maximum(most, 1.0))


class Evidence:
    """The average of the products of gains, and the largest that it has been.

    Attributes
    ----------
    count : int
        Gains so far.
    log_evidence : float
        Logarithm of the largest average; infinite after something impossible.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.count = 0
        self.log_evidence = 0.0
        self.impossible = 0
        self._wealth = np.zeros(len(names))
        self._found: dict[float, int] = {}
        self._levels: tuple[float, ...] = ()

    def watch(self, alpha: float) -> Evidence:
        """Note when the evidence reaches ``1 / alpha``."""
        self._levels = (*self._levels, alpha)
        return self

    def add(self, logs: np.ndarray, impossible: np.ndarray | None = None) -> None:
        """Add log gains ``(n, bets)`` in order, and which of the n ``(n,)`` refute at once."""
        if not len(logs):
            return
        wealth = self._wealth + np.cumsum(logs, axis=0)
        self._wealth = wealth[-1]
        top = np.maximum(wealth.max(axis=-1), -1e300)
        path = top + np.log(np.exp(wealth - top[:, None]).mean(axis=-1))
        if impossible is not None and impossible.any():
            self.impossible += int(impossible.sum())
            path[int(np.argmax(impossible)) :] = math.inf
        for alpha in self._levels:
            if alpha not in self._found and (above := np.flatnonzero(path >= -math.log(alpha))).size:
                self._found[alpha] = self.count + int(above[0]) + 1
        self.count += len(logs)
        self.log_evidence = max(self.log_evidence, float(path.max()))

    def found_after(self, alpha: float) -> int | None:
        """After how many the evidence reached ``1 / alpha``; the level must have been watched."""
        return self._found.get(alpha)

    @property
    def leading(self) -> str:
        """The bet that has gained most."""
        return self.names[int(np.argmax(self._wealth))]

    @property
    def p_value(self) -> float:
        """The reciprocal of the largest evidence."""
        return math.exp(-self.log_evidence)
