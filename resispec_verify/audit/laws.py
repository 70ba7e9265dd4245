"""A law of which the most probable tokens are known and of all others only what is left for them.

`coarse_law` makes one from what an engine reports (`RawLaw`, at temperature 1 and without filters) for the
sampling that was asked for. Where that leaves the mass of a token open, it is an interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from resispec_verify.audit.interface import EngineError, RawLaw, Sampling, Token

__all__ = ["MOST_TOKENS", "BeyondReported", "CoarseLaw", "coarse_law", "distance"]

# Reported log-probabilities are float32: the logarithm of the sum over V <= 2**20 tokens, pairwise or in
# blocks, and the difference are right to some 2**-20 of the value, and the value of what matters is below 16.
ROUNDING = 2.0**-16
# A sum in float32 over a whole vocabulary, one after the other, was seen to miss 1 by 2.6e-4.
SUM = 2.0**-10
# So a sum up to top-p that is nearer to it than this may be told to have reached it, or not.
NEAR = 3e-4
# Probabilities below this are 0, as where an engine writes -9999 for the logarithm of 0.
LEAST = 1e-300
# Two weights, or a weight and the least that min-p keeps, that are this close may be told apart otherwise.
CLOSE = 2.0**-12
#: Where the vocabulary is not known: more than any engine has.
MOST_TOKENS = 1 << 20


class BeyondReported(EngineError):
    """What is drawn from is not known: a filter may keep tokens that were not reported, or none were."""


@dataclass(frozen=True)
class CoarseLaw:
    """Masses of the most probable tokens and of all others together.

    Attributes
    ----------
    tokens : tuple of Token (k,)
        Most probable first.
    low, high : float64 array (k + 1,)
        Bounds of the mass of each of them, and, last, of all others together. Some law in between sums to 1.
    """

    tokens: tuple[Token, ...]
    low: np.ndarray
    high: np.ndarray

    def cell(self, token: Token) -> int:
        """Where a token is: its rank, or k for the others."""
        try:
            return self.tokens.index(token)
        except ValueError:
            return len(self.tokens)

    @property
    def law(self) -> np.ndarray:
        """The middle of the bounds, normalised, ``(k + 1,)``."""
        middle = 0.5 * (self.low + self.high)
        return middle / middle.sum()


def coarse_law(raw: RawLaw, sampling: Sampling, vocab: int | None = None) -> CoarseLaw:
    """What the next token is drawn from, of what an engine reports at temperature 1 and without filters.

    Temperature comes first, then top-k, then top-p of what that left, then min-p of what that left: what an
    engine does in another order shows in the audit of the reference. With ``a = 1 / temperature`` a token of
    probability p weighs ``p**a``. The others, of mass m and each at most the least reported probability b,
    are at most N = V - k, so that their weights sum to between ``m**a N**(1 - a)`` (all alike) and
    ``m b**(a - 1)`` (as few as possible, each b) for a >= 1, and the other way round for a < 1.

    Where a filter ends between tokens that are equally probable, or so close to a token that the engine's
    rounding decides, what it keeps is not known, as little as where it keeps tokens that were not reported.

    Parameters
    ----------
    raw : RawLaw
    sampling : Sampling
    vocab : int, optional
        Size of the vocabulary. Default: only a bound on it is used.

    Raises
    ------
    EngineError
        These are no log-probabilities.
    BeyondReported
        What a filter keeps is not known.
    """
    logs = np.asarray(raw.logprobs, np.float64)
    if not len(logs):
        raise BeyondReported("reports no law after some texts")
    if not np.all(logs <= ROUNDING) or np.any(np.diff(logs) > 0):
        raise EngineError("reports log-probabilities that are positive, not a number or not in order")
    p = np.exp(logs)
    if p.sum() > 1.0 + SUM:
        raise EngineError(f"reports probabilities that sum to {p.sum():.6g}, more than 1")
    known = p >= LEAST
    complete = raw.complete and bool(known.all())
    logs, p = logs[known], p[known]
    if not len(p):
        raise EngineError("reports probabilities that are all 0")
    left = 0.0 if complete else max(0.0, 1.0 - float(p.sum()))
    slack = ROUNDING * float(p.sum())
    a = min(1.0 / sampling.temperature, 1e300)
    weights = np.exp(a * (logs - logs[0]))
    # Weights are relative to that of the most probable token.
    low, high = max(0.0, left - slack) / p[0], (left + slack) / p[0]
    least, most = _others(low, high, p[-1] / p[0], a, (vocab or MOST_TOKENS) - len(p))
    if complete:
        least = most = 0.0
    kept, least, most = _filtered(weights, least, most, sampling)
    total = float(kept.sum())
    low = np.append(kept / (total + most), least / (total + least))
    high = np.append(kept / (total + least), most / (total + most))
    return CoarseLaw(
        tuple(raw.tokens[: len(kept)]), low * (1 - ROUNDING), np.minimum(high * (1 + ROUNDING), 1.0)
    )


def _others(low: float, high: float, last: float, a: float, count: int) -> tuple[float, float]:
    """Bounds of the sum of ``p**a`` over the tokens that were not reported, each at most ``last``."""
    if count <= 0:
        return 0.0, 0.0

    if low > count * float(last) * (1 + ROUNDING):  # more than they can have: lost by rounding
        low = 0.0

    def alike(mass: float) -> float:
        return math.exp(min(math.log(mass) + (a - 1.0) * math.log(mass / count), 700.0)) if mass > 0 else 0.0

    def few(mass: float) -> float:
        return mass * float(last) ** (a - 1.0) if mass > 0 else 0.0

    return (alike(low), few(high)) if a >= 1.0 else (few(low), alike(high))


def _filtered(
    weights: np.ndarray, least: float, most: float, sampling: Sampling
) -> tuple[np.ndarray, float, float]:
    """Weights that top-k, top-p and min-p keep, and bounds of those of the tokens not reported."""
    k = sampling.top_k
    if 0 < k <= len(weights):
        _apart(weights, k, most, f"top-k {k}")
        weights, least, most = weights[:k], 0.0, 0.0
    elif k and most > 0:
        raise BeyondReported(
            f"reports {len(weights)} tokens, fewer than top-k {k}; ask for as many with --top"
        )
    if sampling.top_p < 1.0:
        sums, name = np.cumsum(weights), f"top-p {sampling.top_p:g}"
        first = int(np.searchsorted(sums, sampling.top_p * (sums[-1] + least) * (1 - NEAR)))
        last = int(np.searchsorted(sums, sampling.top_p * (sums[-1] + most) * (1 + NEAR)))
        if most > 0 and last == len(sums):
            raise BeyondReported(_too_few(len(sums), name))
        last = min(last, len(sums) - 1)
        if first < last:
            raise BeyondReported(f"reports a law of which rounding decides what {name} keeps")
        _apart(weights, last + 1, most, name)
        weights, least, most = weights[: last + 1], 0.0, 0.0
    if sampling.min_p > 0.0:
        bound, name = sampling.min_p * weights[0], f"min-p {sampling.min_p:g}"
        kept = int(np.count_nonzero(weights >= bound * (1 - CLOSE)))
        if kept == len(weights) and most > 0:
            raise BeyondReported(_too_few(kept, name))
        if kept > np.count_nonzero(weights >= bound * (1 + CLOSE)):
            raise BeyondReported(f"reports a law of which rounding decides what {name} keeps")
        weights, least, most = weights[:kept], 0.0, 0.0
    return weights, least, most


def _apart(weights: np.ndarray, kept: int, most: float, name: str) -> None:
    """Refuse a filter that keeps so many tokens where the next may be as probable as the last."""
    if kept < len(weights):
        if weights[kept] >= weights[kept - 1] * (1 - CLOSE):
            raise BeyondReported(f"reports a law of which {name} parts tokens that are equally probable")
    elif min(most, weights[-1]) >= weights[-1] * (1 - CLOSE):
        raise BeyondReported(_too_few(len(weights), name))


def _too_few(count: int, name: str) -> str:
    return f"reports {count} tokens, too few to tell what {name} keeps; ask for more with --top"


def distance(one: CoarseLaw, other: CoarseLaw) -> float:
    """Total variation between two laws, over the tokens that both report and all others together.

    Never more than that of the whole laws, up to the width of the bounds.
    """
    both = [token for token in one.tokens if token in set(other.tokens)]
    x, y = (np.array([law.law[law.cell(token)] for token in both]) for law in (one, other))
    return float(0.5 * (np.abs(x - y).sum() + abs(x.sum() - y.sum())))
