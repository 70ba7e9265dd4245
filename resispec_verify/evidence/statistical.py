"""The statistical tier: which groups of tokens are looked at, and what a run without rejection has excluded.

The tests themselves are in `eprocess`. With many tokens and few draws most tokens are seen once or never;
merging them makes a fault visible that moves mass between groups. The groups depend on target and draft
only and are fixed before the first draw.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from resispec_verify.evidence.eprocess import FitTest, Grouping, SwapTest, detectable_tv, regret

__all__ = ["Detectable", "detectable", "detectable_tail", "fit_test", "groupings", "swap_test"]

# A vocabulary up to this size is tested token by token and nothing else.
SMALL = 16
TOP = 64
BANDS = 16
# Where the tail begins, in two cells, the tail and the rest: after this much mass, or so many tokens.
DEPTHS = (0.5, 0.8, 0.9, 0.95, 0.97, 0.99, 0.999)
RANKS = (20, 50, 1000)
# Cells of the swap test: its table of pairs has the square of this.
SWAP_CELLS = 6


def groupings(target: np.ndarray, draft: np.ndarray | None = None) -> tuple[Grouping, ...]:
    """Groups of tokens in which faults of speculative samplers show.

    Every token by itself; and, for more than 16 tokens, the 64 most probable tokens with the tail in bands,
    bands of target probability, bands of the ratio of target to draft, on which all acceptance tests
    depend, and the tail against the rest, at several depths: what is never emitted of it shows within
    thousands of draws, where finer groups would take millions.

    Parameters
    ----------
    target, draft : float64 array (V,)
    """
    law = np.asarray(target, np.float64) / np.sum(target, dtype=np.float64)
    found = [Grouping.of("tokens", np.arange(len(law)), law)]
    if found[0].cells <= SMALL:
        return (found[0],)
    by_target = _bands(law, law)
    top = np.argsort(-law, kind="stable")[:TOP]
    mixed = BANDS * 2 + by_target
    mixed[top] = np.arange(len(top)) - len(law)  # apart from all bands
    found.append(Grouping.of("most probable tokens", mixed, law))
    found.append(Grouping.of("bands of target probability", by_target, law))
    if draft is not None:
        with np.errstate(divide="ignore"):
            ratio = np.where(draft > 0, law / np.where(draft > 0, draft, 1.0), np.inf)
        found.append(Grouping.of("bands of target over draft", _bands(ratio, law), law))
    found += _tails(law)
    # A single group of several tokens shows nothing, and nothing must be claimed about it.
    return (found[0], *(grouping for grouping in found[1:] if grouping.cells > 1))


def _tails(law: np.ndarray) -> list[Grouping]:
    """The least probable tokens against the others; cuts that fall together once."""
    order = np.argsort(-law, kind="stable")
    mass, possible = np.cumsum(law[order]), int(np.count_nonzero(law))
    cuts = {int(np.searchsorted(mass, depth)) + 1: f"tail beyond mass {depth:g}" for depth in DEPTHS}
    cuts |= {rank: f"tail beyond the {rank} most probable" for rank in RANKS if rank not in cuts}
    rank_of = np.empty(len(law), dtype=np.int64)
    rank_of[order] = np.arange(len(law))
    return [
        Grouping(name, (rank_of >= cut).astype(np.int8), np.array([law[order[:cut]].sum(), tail]), tail=True)
        for cut, name in sorted(cuts.items())
        if cut < possible and (tail := float(law[order[cut:]].sum())) > 0
    ]


def _bands(value: np.ndarray, law: np.ndarray) -> np.ndarray:
    """Cells of about equal mass along ``value``; equal values share one."""
    order = np.argsort(value, kind="stable")
    mass = np.cumsum(law[order])
    band = np.minimum((mass - 0.5 * law[order]) * BANDS, BANDS - 1).astype(np.int64)
    ordered = value[order]
    distinct = np.concatenate(([True], ordered[1:] != ordered[:-1]))  # ties at infinity are one band too
    first = np.maximum.accumulate(np.where(distinct, np.arange(len(value)), 0))
    cell = np.empty(len(value), dtype=np.int64)
    cell[order] = band[first]
    return cell


def fit_test(target: np.ndarray, draft: np.ndarray | None = None) -> FitTest:
    """A test of draws against the target, over its `groupings`."""
    return FitTest(target, groupings(target, draft))


def swap_test(law: np.ndarray) -> SwapTest:
    """A test of independence; tokens are merged into the most probable ones and bands of the others."""
    cell = np.full(len(law), SWAP_CELLS - 1, dtype=np.int64)
    top = np.argsort(-np.asarray(law), kind="stable")[: SWAP_CELLS - 1]
    cell[top] = np.arange(len(top))
    return SwapTest(cell)


class Detectable(NamedTuple):
    """A total variation ``tv`` between the ``cells`` groups of tokens in which it is smallest, and the same
    between single tokens, ``tv_tokens``; and in each grouping, ``by_grouping``.
    """

    tv: float
    cells: int
    tv_tokens: float
    by_grouping: tuple[float, ...]


def detectable(test: FitTest, alpha: float, power: float, draws: int | None = None) -> Detectable:
    """The smallest total variation that this test is sure to have found with this power, by `detectable_tv`.

    Parameters
    ----------
    draws : int, optional
        As if it had seen so many.

    Returns
    -------
    Detectable
        The best over groupings: the bound is on the difference between *cells*. The tails are left out: what
        two cells show is too little to be called the law. For single tokens (the first grouping) it is 1
        where there are too few draws to exclude anything.
    """
    n = test.draws if draws is None else draws
    bounds = [detectable_tv(n, one.cells, test.bets, alpha, power) for one in test.groupings]
    tv, cells = min((tv, one.cells) for tv, one in zip(bounds, test.groupings, strict=True) if not one.tail)
    return Detectable(tv, cells, bounds[0], tuple(bounds))


def detectable_tail(test: FitTest, alpha: float) -> float | None:
    """A mass x: had the least probable tokens, x of the target or more, never come, it would be found.

    Then one of the tails, of mass t, was never seen: the frequencies of its two cells are 0 and 1, and the
    evidence is at least ``-n log(1 - t) - regret(n, 2) - log(bets)``, for sure. x is the least t of those for
    which that is ``log(1 / alpha)``; None where there is none.
    """
    if test.draws == 0:
        return None
    threshold = -math.log(alpha) + math.log(test.bets) + regret(test.draws, 2)
    found = [float(g.law[1]) for g in test.groupings if g.tail]
    return min((t for t in found if -test.draws * math.log1p(-t) >= threshold), default=None)
