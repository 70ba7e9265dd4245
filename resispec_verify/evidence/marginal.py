"""What an evidence engine hands to the verdict: placed mass, what is missing, and how sure the digits are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.verdict import Verdict, judge, resolution

# Relative errors above it are no errors of first order: they can decide which tokens are accepted.
_FIRST_ORDER = 2.0**-20

__all__ = [
    "Marginals",
    "bound_of_sums",
    "estimated_acceptance",
    "magnified",
    "number",
    "of_path_sum",
    "rounding_bound",
    "stacked",
    "summation_error",
    "tv_interval",
    "underflow",
    "verdict_on",
]


@dataclass(frozen=True)
class Marginals:
    """Marginals of one rule at some positions.

    Attributes
    ----------
    placed : array (B, V)
        Mass that the evaluated paths emit; with the gap it sums to 1 up to rounding.
    first : array (B, V) or (B, 1)
        The part of it emitted by accepting the first candidate; 0 where there is no gap to estimate.
    unexpanded : array (B, n + 1)
        Probability of the paths not followed to their end, by how many candidates they are known to reject;
        their sum is the gap.
    acceptance : array (B, n)
        Placed probability that candidate ``i + 1`` is the one emitted.
    rounding : array (B,)
        Bound on the rounding error of ``placed`` in total variation.
    expansions : list of int
        Paths evaluated, by position (1 a round where rejections need not be told apart).
    exhausted : list of bool
        Whether the budget of expansions ended the work before the gap was reached.
    acceptance_error : list of float
        Certified bound on what each entry of ``acceptance`` errs by besides rounding and the gap, by
        position; empty where nothing does.
    """

    placed: Any
    first: Any
    unexpanded: Any
    acceptance: Any
    rounding: Any
    expansions: list[int]
    exhausted: list[bool]
    acceptance_error: list[float] = field(default_factory=list)

    @property
    def gap(self) -> Array:
        """Mass not placed, ``(B,)``."""
        return array_namespace(self.unexpanded).sum(self.unexpanded, axis=-1)

    def mapped(self, function: Callable[[Any], Any]) -> Marginals:
        """The same with a function applied to each of its arrays."""
        return replace(self, **{name: function(getattr(self, name)) for name in _ARRAYS})

    def row(self, k: int) -> Marginals:
        """One position by itself."""
        lists = ("expansions", "exhausted", "acceptance_error")
        alone = self.mapped(lambda values: values[k : k + 1, ...])
        return replace(alone, **{name: getattr(self, name)[k : k + 1] for name in lists})


_ARRAYS = ("placed", "first", "unexpanded", "acceptance", "rounding")


def stacked(rows: Sequence[Marginals]) -> Marginals:
    """Marginals of the same rule and number of candidates, one after the other."""
    xp = array_namespace(rows[0].placed)
    return Marginals(
        *(xp.concat([getattr(row, name) for row in rows], axis=0) for name in _ARRAYS),
        expansions=[e for row in rows for e in row.expansions],
        exhausted=[e for row in rows for e in row.exhausted],
        acceptance_error=[e for row in rows for e in row.acceptance_error or [0.0]],
    )


def of_path_sum(found: PathSum, target: Array, draft: Array, candidates: int, gap: float) -> Marginals:
    """The marginals that a path sum is, with the bound on its rounding.

    Parameters
    ----------
    found : PathSum
        Of a batch, or of a batch of one without that axis.
    target, draft : float64 array (B, V)
        What was summed over; on the device of the sum.
    candidates : int
    gap : float
        Mass that was allowed to stay unexpanded.
    """
    xp, rows = array_namespace(target), target.shape[0]
    paths = [found.paths] if isinstance(found.paths, int) else to_numpy(found.paths).tolist()
    # Prefix sums are sequential (V roundings, two of them and the pass that collects them), or shorter, and
    # each of the evaluated paths is one more addition somewhere.
    roundings = 3.0 * target.shape[-1] + found.paths + 24
    eps = float(np.finfo(np.float64).eps)
    unexpanded = xp.reshape(found.unexpanded, (rows, candidates + 1))
    return Marginals(
        xp.reshape(found.mass, target.shape),
        xp.minimum(target, draft),
        unexpanded=unexpanded,
        acceptance=xp.reshape(found.acceptance, (rows, candidates)),
        rounding=rounding_bound(target, draft, candidates, roundings, eps) + found.rounding,
        expansions=[int(count) for count in paths],
        exhausted=(to_numpy(unexpanded).sum(axis=-1) > gap).tolist(),
        acceptance_error=[found.acceptance_error] * rows,
    )


def summation_error(vocab: int) -> int:
    """Roundings on the way of one term of a row sum over ``vocab`` entries.

    The compiled kernels add blocks of 128, then the blocks pairwise. NumPy and torch do better on contiguous
    rows: blocks of 128 go through several accumulators.
    """
    return 128 + math.ceil(math.log2(max(vocab, 2)))


def rounding_bound(target: Array, draft: Array, rounds: int, roundings: float, eps: float) -> Array:
    """Bound, by row, on the total variation that rounding can put between a computed marginal and its law.

    Every token's mass is a sum of products of non-negative terms (differences only enter as ``(a - b)_+`` of
    stored numbers, which rounds once), so each of the ``rounds + 1`` contributions carries a relative error
    of at most ``roundings`` units in the last place; their masses add up to 1. A target or draft whose row
    sum misses 1 moves mass by that much a round, measured here rather than bounded.

    Parameters
    ----------
    target, draft : array (B, V)
    rounds : int
        Number of candidates.
    roundings : float
        Roundings on the way of one term.
    eps : float
        Machine epsilon of the working precision; one rounding errs by at most ``eps / 2``.
    """
    xp = array_namespace(target, draft)
    return bound_of_sums(xp.sum(target, axis=-1), xp.sum(draft, axis=-1), rounds, roundings, eps)


def bound_of_sums(target: Array, draft: Array, rounds: int, roundings: float, eps: float) -> Array:
    """`rounding_bound` of rows with these sums ``(B,)``."""
    xp = array_namespace(target, draft)
    return xp.abs(1.0 - target) + rounds * xp.abs(1.0 - draft) + 0.5 * eps * (rounds + 1) * roundings


def magnified(weight: Array, condition: Array, bound: Array) -> Array:
    """What a division adds to a bound on rounding: of the shape of its arguments, broadcast.

    ``weight`` is the probability of the path on which it is made, ``condition`` how much it and those before
    it magnify relative errors (`Rule.condition`). No more can go wrong than the path weighs.
    """
    error = bound * condition
    xp = np if isinstance(error, (float, np.ndarray)) else array_namespace(error)
    return weight * xp.where(error < _FIRST_ORDER, error, 1.0)


def underflow(draft: Array, drawn_from: Array) -> Array:
    """What a residual that underflows can do to the test of a token, by row ``(B,)``.

    The least positive number, over the least draft of a token that can be drawn. Where candidates are drawn
    from the draft itself, a token weighs too little for that to count.
    """
    xp = array_namespace(draft, drawn_from)
    info = xp.finfo(draft.dtype)
    least = xp.min(xp.where((drawn_from > 0) & (draft > 0), draft, 1.0), axis=-1)
    smallest = float(info.smallest_normal) * float(info.eps)
    return xp.where(least * 0.5 > smallest, smallest / least, 1.0)


def number(values: Array) -> float:
    """One number, whether it comes as a float or as an array with one entry."""
    return float(values) if isinstance(values, float) else float(to_numpy(values).reshape(()))


def estimated_acceptance(placed: np.ndarray, unexpanded: np.ndarray) -> np.ndarray:
    """Best estimate of the acceptance by candidate, ``(B, n)``, when some paths were not followed.

    Mass known to reject ``j`` candidates is shared out like the placed mass that got as far: among the
    candidates after the ``j``-th and the final draw.
    """
    n = placed.shape[-1]
    final = np.clip(1.0 - placed.sum(axis=-1) - unexpanded.sum(axis=-1), 0.0, None)
    outcomes = np.concatenate([placed, final[:, None]], axis=-1)
    estimate = placed.copy()
    for j in range(1, n):
        reached = outcomes[:, j:].sum(axis=-1)
        share = np.divide(unexpanded[:, j], reached, out=np.zeros_like(reached), where=reached > 0)
        estimate[:, j:] += share[:, None] * outcomes[:, j:n]
    return estimate


def tv_interval(marginals: Marginals, target: Array) -> tuple[Array, Array]:
    """Bounds ``(B,)`` on the total variation ``1/2 sum |marginal - target|``, in float64, before rounding.

    From below: the excess over the target stays, and the gap can fill at most that much of what is missing.
    From above: the gap lands on tokens that have enough already. Without a gap both are the total variation.
    """
    xp = array_namespace(target)
    gap = xp.astype(marginals.gap, xp.float64)
    difference = xp.astype(marginals.placed, xp.float64) - xp.astype(target, xp.float64)
    excess = xp.sum(xp.clip(difference, 0.0, None), axis=-1)
    missing = xp.sum(xp.clip(-difference, 0.0, None), axis=-1)
    return 0.5 * (excess + xp.clip(missing - gap, 0.0, None)), 0.5 * (excess + gap + missing)


def verdict_on(marginals: Marginals, target: Array) -> Verdict:
    """The verdict on one position ``(1, V)``."""
    eps = float(array_namespace(target).finfo(target.dtype).eps)
    low, high = tv_interval(marginals, target)
    return judge(float(low[0]), float(high[0]), float(marginals.rounding[0]), resolution(eps))
