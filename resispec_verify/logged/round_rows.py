"""The rows of one round: laws of target and draft, and how far rounding may have moved them.

Logits were rounded when they were stored, and the engine's softmax was rounded too. What an engine worked
with lies in a box around what the log says; everything here is a bound over that box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from resispec_verify.arrays import Array
from resispec_verify.distributions import Sampling
from resispec_verify.dumps.formats.mapped import release
from resispec_verify.dumps.rows import rows_of
from resispec_verify.errors import InputError
from resispec_verify.logged.rounds_input import half_ulp
from resispec_verify.logged.texts import rows_texts
from resispec_verify.sampling.draws import set_steps
from resispec_verify.sampling.orders import Order, order_of
from resispec_verify.sampling.text import adjusted, adjusts
from resispec_verify.tables.reading import logits_of

__all__ = ["UNIT", "Box", "RoundRows", "read_rows", "tv_slack"]

#: Unit roundoff of float32, the precision an engine's own softmax has at best.
UNIT = 2.0**-24
# e^600 is finite, and a bound from a slack of 300 says nothing.
_MOST_SLACK = 300.0
# A probability stored as 0 in two bytes may be anything below half the smallest number: from e^-80 of it on.
_VANISHED = 40.0


class Box(NamedTuple):
    """Bounds of masses or probabilities, ``(..., V)``."""

    low: np.ndarray
    high: np.ndarray

    def normalised(self) -> Box:
        """Bounds of each probability, all others free: from bounds of masses."""
        low, high = self
        most, least = high.sum(axis=-1, keepdims=True) - high, low.sum(axis=-1, keepdims=True) - low
        below, above = low + np.maximum(most, 0.0), high + np.maximum(least, 0.0)
        return Box(
            np.divide(low, below, out=np.zeros_like(low), where=below > 0),
            np.divide(high, above, out=np.zeros_like(high), where=above > 0),
        )


@dataclass(frozen=True)
class RoundRows:
    """Logits ``(m, V)`` of target and draft in float64, how far each may be from the engine's own, and the
    laws ``p`` and ``q`` of the logits as stored.
    """

    target: np.ndarray
    draft: np.ndarray
    target_slack: np.ndarray
    draft_slack: np.ndarray
    sampling: Sampling
    p: np.ndarray
    q: np.ndarray

    def moved(self, up: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Laws of target and draft where the tokens ``up`` are as likely as can be in the target and as
        unlikely as can be in the draft, and all others the other way round.
        """
        p = self.target + np.where(up, self.target_slack, -self.target_slack)
        q = self.draft - np.where(up, self.draft_slack, -self.draft_slack)
        return _laws(p, q, self.sampling)

    def at(self, rows: slice) -> RoundRows:
        """Some of the rows; of the draft those that there are."""
        return RoundRows(
            self.target[rows], self.draft[rows], self.target_slack[rows], self.draft_slack[rows],
            self.sampling, self.p[rows], self.q[rows],
        )  # fmt: skip

    def target_box(self) -> Box:
        """Bounds of the target's masses, not normalised."""
        return _box(self.target, self.target_slack, self.sampling)

    def draft_box(self) -> Box:
        """Bounds of the draft's masses, not normalised."""
        return _box(self.draft, self.draft_slack, self.sampling.draft_sampling)

    @property
    def rounding(self) -> float:
        """Relative float32 rounding of exp (4 roundoffs), the sum (log2 V + 4) and the quotient, of a law."""
        return UNIT * (math.log2(self.target.shape[-1]) + 10)


def read_rows(
    where: str, entry: Mapping[str, Any], rows: slice, sampling: Sampling, kind: str = "logits"
) -> RoundRows:
    """Rows of one round, from what is stored.

    Parameters
    ----------
    where : str
        Begins errors.
    rows : slice
        Of target and draft; of the draft those that there are.
    kind : str
        "logits", "probabilities" or "log-probabilities".

    Raises
    ------
    InputError
        Rows that are not finite, or no distributions where they should be.
    """
    arrays = []
    samplings = sampling, sampling.draft_sampling
    for key, more, one in (("target_logits", 1, samplings[0]), ("draft_logits", 0, samplings[1])):
        start, stop = rows.start or 0, min(rows.stop, len(entry["draft_tokens"]) + more)
        stored = rows_of(entry[key], start, max(start, stop))
        values, slack = _as_logits(f"{where}: {key}", stored, kind, start)
        release(entry[key])
        if adjusts(one):
            values, slack = _adjusted(f"{where}: {key}", entry, values, slack, one, start)
        highest = values.max(axis=-1, keepdims=True, initial=-np.inf)
        if not np.isfinite(highest).all():
            i = int(np.argmax(~np.isfinite(highest[:, 0])))
            raise InputError(f"{where}: {key}, row {i + start} has NaN or +inf, or only -inf; "
                             "log finite logits")  # fmt: skip
        arrays.append(values)
        # An engine's softmax in float32 rounds the shift and the division: 2 roundoffs of the distance.
        distance = np.where(np.isfinite(values), highest - values, 0.0)
        arrays.append(slack + 2 * UNIT * distance)
    values, slack, draft_values, draft_slack = arrays
    return RoundRows(
        values, draft_values, slack, draft_slack, sampling, *_laws(values, draft_values, sampling)
    )


def _laws(target: np.ndarray, draft: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Of logits that `read_rows` has checked, all at once: rows are many and short."""
    if sampling.draft is not None:
        of_draft = sampling.draft_sampling
        return sampling.law_of(target, dtype=np.float64), of_draft.law_of(draft, dtype=np.float64)
    laws = sampling.law_of(np.concatenate([target, draft]), dtype=np.float64)
    return laws[: len(target)], laws[len(target) :]


def _adjusted(
    where: str,
    entry: Mapping[str, Any],
    values: np.ndarray,
    slack: np.ndarray,
    sampling: Sampling,
    start: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Logits with penalties, bias and bans, and their slack: each maps a logit upwards, so ends go to ends.

    On top comes the float32 rounding of at most three operations on each.
    """
    texts = rows_texts(
        entry["text"], entry["draft_tokens"], start, len(values), sampling.reads_history, entry.get("allowed")
    )
    try:
        middle, low, high = (adjusted(v, sampling, texts) for v in (values, values - slack, values + slack))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    with np.errstate(invalid="ignore"):
        apart = np.maximum(high - middle, middle - low)
        moved = 3 * UNIT * np.maximum(np.abs(values), np.abs(middle))
    return middle, np.where(np.isfinite(middle), apart + moved, 0.0)


def _as_logits(name: str, stored: np.ndarray, kind: str, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows as float64 logits, and how far storing has moved each."""
    values = logits_of(kind, stored.astype(np.float64), name, first)
    if kind != "probabilities":
        return values, half_ulp(values, stored.dtype)
    plain = stored.astype(np.float64)
    half = half_ulp(plain, stored.dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        slack = np.where(plain > 0, np.log1p(half / plain), 0.0)
        # Only two-byte types round to 0 what might be drawn in practice.
        vanished = (plain == 0) & (stored.dtype.itemsize == 2)
        values = np.where(vanished, np.log(half) - _VANISHED, values)
    return values, np.where(vanished, _VANISHED, slack)


def _box(logits: np.ndarray, slack: np.ndarray, sampling: Sampling) -> Box:
    """Bounds of the masses that the sampling gives to tokens, relative to the largest as stored."""
    if sampling.temperature == 0:
        maybe = logits + slack >= (logits - slack).max(axis=-1, keepdims=True, initial=-np.inf)
        alone = maybe.sum(axis=-1, keepdims=True) == 1
        return Box((maybe & alone).astype(np.float64), maybe.astype(np.float64))
    order, steps = order_of(sampling.order), set_steps(sampling)
    scale = sampling.temperature if steps[:1] == ("temperature",) else 1.0
    z = (logits - logits.max(axis=-1, keepdims=True, initial=-np.inf)) / scale
    h = np.minimum(slack / scale, _MOST_SLACK)
    rounding = UNIT * (math.log2(logits.shape[-1]) + 10)
    low, high = np.exp(z - h) * (1 - rounding), np.exp(np.minimum(z + h, _MOST_SLACK)) * (1 + rounding)
    filters = steps[1:] if steps[:1] == ("temperature",) else steps
    for i in range(len(z)):
        for step in filters:
            if step == "top_n_sigma":
                low[i], high[i] = _within_deviations(
                    low[i], high[i], sampling.top_n_sigma or 0.0, z[i], h[i], filters[0] == step
                )
                continue
            low[i], high[i] = _filtered(low[i], high[i], step, sampling, order)
    return Box(low, high)


def _filtered(
    low: np.ndarray, high: np.ndarray, step: str, sampling: Sampling, order: Order
) -> tuple[np.ndarray, np.ndarray]:
    """Set to 0 the lower bounds of tokens that a filter may drop, and the upper ones of those it drops.

    A filter keeps the tokens of largest mass, ties included or not; which are kept may change with rounding.
    """
    if step == "temperature":  # after filters: a power of the masses, rounded again
        with np.errstate(over="ignore"):
            power = 1.0 / sampling.temperature
            return low**power * (1 - 4 * UNIT), np.minimum(high**power * (1 + 4 * UNIT), 1e300)
    k, nucleus, floor = sampling.top_k, sampling.top_p, sampling.min_p
    before = low, high
    if step in ("top_k", "top_k_top_p") and k is not None and k < len(low):
        sorted_high, sorted_low = np.sort(high)[::-1], np.sort(low)[::-1]
        # Of tokens tied at the end none is sure to stay where ties are cut.
        surely = low >= sorted_high[k] if order.ties == "kept" else low > sorted_high[k]
        low, high = np.where(surely, low, 0.0), np.where(high >= sorted_low[k - 1], high, 0.0)
    if step in ("top_p", "top_k_top_p") and nucleus is not None and nucleus < 1:
        sure, may = _nucleus(*before, nucleus)
        low, high = np.where(sure > 0, low, 0.0), np.where(may > 0, high, 0.0)
    if step == "min_p" and floor is not None and floor > 0:
        surely, perhaps = low >= floor * high.max(), high >= floor * low.max()
        low, high = np.where(surely, low, 0.0), np.where(perhaps, high, 0.0)
    return low, high


def _within_deviations(
    low: np.ndarray, high: np.ndarray, n: float, z: np.ndarray, h: np.ndarray, first: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Top-n-sigma: the deviation of logits moves by no more than the largest of their moves.

    Logits ``z``, each off by ``h``, count also where their masses are below what floats hold, such as -1e9
    for a token that is barred. Which of those a filter before has left is not known: after filters (not
    ``first``), and with such tokens, all may stay and only the best is sure to.
    """
    finite = np.isfinite(z)
    if first:
        there, bottom, top = finite, (z - h)[finite], (z + h)[finite]
    elif (finite & (np.exp(z + h) == 0)).any():
        return np.where(low >= high.max(), low, 0.0), high
    else:
        there = high > 0
        bottom, top = np.log(np.where(low > 0, low, np.finfo(float).tiny)[there]), np.log(high[there])
    middle, moved = (bottom + top) / 2, float(np.max(top - bottom)) / 2
    end = middle.max() - n * middle.std()
    reach = (2 + abs(n)) * moved + 1e-12 * max(1.0, float(np.abs(middle).max()))
    surely, perhaps = np.zeros_like(there), np.zeros_like(there)
    surely[there], perhaps[there] = bottom >= end + reach, top >= end - reach
    return np.where(surely, low, 0.0), np.where(perhaps, high, 0.0)


def _nucleus(low: np.ndarray, high: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Top-p: a token stays while what is above it has less than the share of the mass."""
    slack = len(low) * np.finfo(np.float64).eps + 1e-14
    by_high, by_low = np.argsort(-high, kind="stable"), np.argsort(-low, kind="stable")

    def above(order: np.ndarray, key: np.ndarray, limit: np.ndarray, side: Array) -> tuple[np.ndarray, ...]:
        """Of the tokens whose ``key`` exceeds each limit: their sums of low and of high."""
        count = len(key) - np.searchsorted(key[order][::-1], limit, side=side)
        sums = [np.concatenate([[0.0], np.cumsum(values[order])]) for values in (low, high)]
        return tuple(total[count] for total in sums)

    # At most above y: every token whose high reaches y's low, but y itself, as heavy as can be.
    least, most = above(by_high, high, low, "left")
    most = np.maximum(most - high, 0.0)
    rest = np.maximum(low.sum() - (least - low), 0.0)
    surely = most < (share - slack) * (most + rest)
    least, most = above(by_low, low, high, "right")
    rest = np.maximum(high.sum() - most, 0.0)
    perhaps = least < (share + slack) * (least + rest)
    first = np.argmax(high)
    perhaps[first] = True
    return np.where(surely, low, 0.0), np.where(perhaps, high, 0.0)


def tv_slack(law: np.ndarray, logits: np.ndarray, slack: np.ndarray, sampling: Sampling) -> float:
    """How far in total variation a law ``(V,)`` may be from the engine's.

    With ``p'_j = p_j e^d_j / E_p[e^d]`` and ``|d_j| <= h_j``, TV(p, p') is at most
    ``E_p[e^h - 1] / E_p[e^-h]``. At temperature 0 it is 0 where the best token is certain, and else 1.
    """
    if sampling.temperature == 0:
        return 1.0 - float(_box(logits[None], slack[None], sampling).low.sum())
    h = np.minimum(slack / sampling.temperature, _MOST_SLACK)
    # Sums, not dot products: those are split over threads, which on rows this short only wait for each other.
    return min(1.0, float((law * np.expm1(h)).sum() / (law * np.exp(-h)).sum()))
