"""Residual drift: how well the draft still covers what is left, candidate by candidate.

Before candidate i (1-based) a rule stands at a residual R and a draft D; which ones depends, for most rules,
on what was rejected. For every i this takes expectations over the rejection paths that get there:

* acceptance: P(candidate i is accepted | it is looked at), Figure 1 of the ResiSpec paper;
* ``L1 = sum |R - D|``, ``KL(R || D)`` in nats, and the blind spot: mass of R outside the k best tokens of D;
* EAL: expected accepted length ``1 + P(one of i candidates is accepted)`` at depth 1 (Table 5 of the paper),
  beside ``1 + OT_i``, which no exact rule exceeds.

A rule that ignores the rejected token has one state a round and no gap. For others the states are visited
heaviest first, up to a budget. Of the paths that may get to candidate i, the gap is the share not seen there:
if a quantity in ``[0, b]`` has the mean m over the states seen, it has one in ``[(1 - gap) m, (1 - gap) m +
gap b]`` over all. Where a rule accepts with ``min(1, R/D)`` candidates drawn from D, ``P(reject) = sum (D -
R)_+ = L1 / 2``; if it also sums its own paths, acceptance and L1 come from there, with its far smaller gap.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resispec_verify.analysis.distinct import check_support
from resispec_verify.analysis.marginals import label
from resispec_verify.analysis.summary import plain
from resispec_verify.distributions import Pair
from resispec_verify.errors import InputError
from resispec_verify.evidence.enumeration import Budget, Expansion, operational_marginals
from resispec_verify.evidence.marginal import estimated_acceptance, summation_error
from resispec_verify.kernels.divergences import distances
from resispec_verify.kernels.ratio_order import ratio_order
from resispec_verify.kernels.transport import limit_of_prefix
from resispec_verify.rules import Iid, Proposal, Rule, State, TupleRule

__all__ = [
    "MOST_CANDIDATES",
    "QUANTILES",
    "DriftRow",
    "add_drift",
    "check_sequential",
    "drift_records",
    "mostly_seen",
]

MOST_CANDIDATES = 16
QUANTILES = (0.1, 0.5, 0.9)
MEASURES = ("acceptance_conditional", "l1", "kl", "blind_spot")
_GAP_OF = {"acceptance_conditional": "acceptance_gap", "l1": "l1_gap", "kl": "gap", "blind_spot": "gap"}

Floats = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class _Profile:
    """One position; arrays ``(n,)`` by candidate.

    ``looked``: estimate of the probability that candidate i is looked at. ``accepted``: that it is accepted,
    over the paths with a known fate there; ``known`` is their probability, and ``unknown`` that of those that
    may get there besides. ``seen`` and ``missed`` are the same for the states that were visited; ``l1``,
    ``kl`` and ``blind`` are means over these. ``total``: estimated acceptance with 1..n candidates, which may
    be off by ``total_gap``.
    """

    looked: Floats
    accepted: Floats
    known: Floats
    unknown: Floats
    seen: Floats
    missed: Floats
    l1: Floats
    kl: Floats
    blind: Floats
    total: Floats
    total_gap: Floats
    l1_from_acceptance: bool = False


@dataclass
class DriftRow:
    """A rule at a temperature over the positions seen so far; lists have one entry a position.

    Attributes
    ----------
    rule, temperature, dataset
        What it is about.
    candidates : int
        n of the run that the states belong to.
    top_k : int
        The blind spot is outside the ``top_k`` best tokens of the draft.
    profile : list of _Profile
    limit : list of float64 (n,) or None
        ``OT_1 .. OT_n``; None where a limit is not known.
    """

    rule: Rule
    temperature: float
    candidates: int
    top_k: int
    dataset: str | None = None
    source: list[str] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    profile: list[_Profile] = field(default_factory=list)
    limit: list[Floats | None] = field(default_factory=list)

    def extend(self, other: DriftRow) -> None:
        """Append the positions of the same row of another dump."""
        for name, values in vars(other).items():
            if isinstance(values, list):
                getattr(self, name).extend(values)

    def stacked(self, name: str) -> Floats:
        """One field of the profiles, ``(positions, n)``."""
        return np.asarray([getattr(profile, name) for profile in self.profile], np.float64)

    def limits(self) -> Floats | None:
        """Means of ``OT_1 .. OT_n`` over the positions, None unless all are known."""
        known = [limit for limit in self.limit if limit is not None]
        return np.mean(known, axis=0) if known and len(known) == len(self.limit) else None

    def measures(self) -> dict[str, Floats]:
        """The conditional means by position, ``(positions, n)`` each; NaN where nothing was seen."""
        accepted, known = self.stacked("accepted"), self.stacked("known")
        acceptance = _divide(accepted, known)
        l1 = self.stacked("l1")
        whole = np.asarray([profile.l1_from_acceptance for profile in self.profile], bool)
        l1 = np.where(whole[:, None] & ~np.isnan(acceptance), 2.0 * (1.0 - acceptance), l1)
        return {
            "acceptance_conditional": acceptance,
            "l1": l1,
            "kl": self.stacked("kl"),
            "blind_spot": self.stacked("blind"),
        }

    def gaps(self) -> dict[str, Floats]:
        """Share of what may get to a candidate that was not seen there, ``(positions, n)`` by measure."""
        acceptance = _share(self.stacked("unknown"), self.stacked("known"))
        states = _share(self.stacked("missed"), self.stacked("seen"))
        whole = np.asarray([profile.l1_from_acceptance for profile in self.profile], bool)
        return {
            "acceptance_conditional": acceptance,
            "l1": np.where(whole[:, None], acceptance, states),
            "kl": states,
            "blind_spot": states,
        }

    def results(self) -> list[dict[str, Any]]:
        """One object of ``"results"`` a candidate; None where no position gets there."""
        measures, gaps = self.measures(), self.gaps()
        accepted, known = self.stacked("accepted"), self.stacked("known")
        total, total_gap = self.stacked("total"), self.stacked("total_gap")
        eal = 1.0 + total.mean(axis=0)
        limits = self.limits()
        most = {"acceptance_conditional": 1.0, "l1": 2.0, "blind_spot": 1.0}
        rows = []
        for i in range(self.candidates):
            here = ~np.isnan(measures["acceptance_conditional"][:, i])
            row: dict[str, Any] = {
                "rule": self.rule.name,
                "options": self.rule.options(),
                "temperature": self.temperature,
                "candidates": self.candidates,
                "dataset": self.dataset,
                "index": i + 1,
                "positions": int(here.sum()),
                "looked_at": float(self.stacked("looked")[:, i].mean()),
            }
            quantiles: dict[str, Any] = {"levels": list(QUANTILES)}
            for name in MEASURES:
                column, gap = measures[name][:, i], gaps[name][:, i]
                inside = ~np.isnan(column)
                row[name] = _mean(column[inside])
                quantiles[name] = _quantiles(column[inside])
                if name in most:
                    row[f"{name}_bounds"] = _bounds(column, gap, most[name])
            row |= {
                "acceptance_pooled": _ratio(accepted[:, i].sum(), known[:, i].sum()),
                "acceptance_gap": _mean(gaps["acceptance_conditional"][here, i]),
                "l1_gap": _mean(gaps["l1"][here, i]),
                "kl_infinite": int(np.isinf(measures["kl"][:, i]).sum()),
                "top_k": self.top_k,
                "gap": _mean(gaps["kl"][here, i]),
                "unexpanded": float(self.stacked("missed")[:, i].mean()),
                "quantiles": quantiles,
                "eal": _or_none(eal[i]),
                "eal_bounds": [
                    _or_none(1.0 + (total - total_gap)[:, i].mean()),
                    _or_none(1.0 + (total + total_gap)[:, i].mean()),
                ],
                "gain": _or_none(eal[i] - (eal[i - 1] if i else 1.0)),
                "efficiency": _or_none((eal[i] - eal[i // 2]) / (i + 1 - (i + 1) // 2)) if i % 2 else None,
                "limit": None if limits is None else float(limits[i]),
                "limit_gain": None if limits is None else float(limits[i] - (limits[i - 1] if i else 0.0)),
                "limit_kind": self.rule.proposal.name,
            }
            rows.append(plain(row))
        return rows


def mostly_seen(result: dict[str, Any], measure: str) -> bool:
    """Whether a mean is one over at least half of the paths to its candidate; tables leave out the others."""
    gap = result[_GAP_OF[measure]]
    return result[measure] is not None and gap is not None and gap <= 0.5


def drift_records(rows: Iterable[DriftRow]) -> list[dict[str, Any]]:
    """The results, flat, as ``--csv`` writes them and the plot draws them; empty where there is nothing."""
    records = []
    for row in rows:
        for result in row.results():
            quantiles = result.pop("quantiles")
            result |= {"rule": label(row.rule), "dataset": row.dataset or ""}
            del result["options"]
            flat = dict(result)
            for name, value in result.items():
                if name.endswith("_bounds"):
                    del flat[name]
                    low, high = value if value is not None else (None, None)
                    flat |= {f"{name[:-7]}_low": low, f"{name[:-7]}_high": high}
            for name in MEASURES:
                for level, value in zip(QUANTILES, quantiles[name] or [None] * len(QUANTILES), strict=True):
                    flat[f"{name}_q{round(100 * level)}"] = value
            records.append({name: "" if value is None else value for name, value in flat.items()})
    return records


def check_sequential(rules: Iterable[Rule]) -> None:
    """Refuse rules that decide about all candidates at once: between candidates they have no residual."""
    for rule in rules:
        if isinstance(rule, TupleRule):
            raise InputError(
                f"rule {rule.name!r} decides about all its candidates at once and has no residual between "
                "them; leave it out"
            )


def add_drift(
    rows: dict[tuple[str, float, str | None], DriftRow],
    rules: Sequence[Rule],
    pair: Pair,
    candidates: int,
    *,
    positions: Sequence[int] | np.ndarray,
    top_k: int = 10,
    temperature: float = 1.0,
    dataset: str | None = None,
    source: str = "",
    budget: Budget | None = None,
) -> None:
    """Append the drift of one batch of positions to ``rows``, keyed by rule label, temperature and dataset.

    Parameters
    ----------
    rules : rules
        That look at candidates one after the other.
    pair : Pair
        NumPy arrays ``(B, V)``, float64.
    candidates : int
        ``1 <= n <= 16``; cut to the most that a rule can verify.
    top_k : int
        Tokens of the draft that are not its blind spot, ``>= 1``.
    budget : Budget, optional
        Of a position: states visited, paths summed, and the mass that may stay unvisited.

    Raises
    ------
    InputError
        A rule that decides about all candidates at once, or whose candidates must differ, at a position with
        fewer tokens to draw.
    """
    check_sequential(rules)
    check_support(rules, candidates, pair, positions, source)
    budget = budget or Budget(gap=1e-3, most_paths=1e6, most_states=100, until_decided=False)
    known: list[tuple[Proposal, int, list[Floats | None]]] = []
    for rule in rules:
        n = candidates if rule.most_candidates is None else min(candidates, rule.most_candidates)
        limits = next((found for other, m, found in known if m == n and other == rule.proposal), None)
        if limits is None:
            limits = _limits(rule.proposal, pair, n)
            known.append((rule.proposal, n, limits))
        key = (label(rule), temperature, dataset)
        row = rows.setdefault(key, DriftRow(rule, temperature, n, top_k, dataset))
        row.profile += _profiles(rule, pair, n, top_k, budget)
        row.limit += limits
        row.position += [int(i) for i in positions]
        row.source += [source] * len(positions)


def _limits(proposal: Proposal, pair: Pair, n: int) -> list[Floats | None]:
    """``OT_1 .. OT_n`` by position."""
    p, s = pair.target, pair.drawn_from
    if isinstance(proposal, Iid):  # one sort for all n
        prefixes = (ratio_order(*rows).prefix for rows in zip(p, s, strict=True))
        return [np.asarray([limit_of_prefix(prefix, i + 1) for i in range(n)]) for prefix in prefixes]
    by_count = [proposal.limit(p, s, i + 1) for i in range(n)]
    if any(limit is None for limit in by_count):
        return [None] * len(p)
    return list(np.stack([np.asarray(limit, np.float64) for limit in by_count], axis=-1))


def _profiles(rule: Rule, pair: Pair, n: int, top_k: int, budget: Budget) -> list[_Profile]:
    if rule.depends_on == "nothing" and isinstance(rule.proposal, Iid):
        found = _one_state_a_round(rule, pair, n, top_k)
    else:
        honest = pair.proposal is None and isinstance(rule.proposal, Iid)

        def position(i: int) -> _Profile:
            p, q, s = (np.array(rows[i, :]) for rows in (pair.target, pair.draft, pair.drawn_from))
            profile = _Walk(rule, p, q, n, s, rule.proposal, budget, honest, top_k).profile()
            return _summed(profile, rule, p, q, n, budget) if pair.proposal is None else profile

        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            found = list(pool.map(position, range(len(pair.target))))
    return _totals(found, rule, pair, n, budget)


class _Looks:
    """Means over the states before each candidate, of some rows at once."""

    def __init__(self, rows: int, n: int, top_k: int) -> None:
        self.seen, self.top_k = np.zeros((rows, n)), top_k
        self.l1, self.kl, self.blind = (np.zeros((rows, n)) for _ in range(3))
        self.draft: Any = None
        self.outside: Any = None

    def add(self, i: int, residual: Floats, draft: Floats, weight: Floats) -> None:
        """A state ``(rows, V)`` before candidate ``i``, reached with probability ``weight (rows,)``."""
        tv, kl = distances(np.ascontiguousarray(residual), np.ascontiguousarray(draft))
        if self.draft is None or not (draft is self.draft or np.array_equal(draft, self.draft)):
            self.draft, self.outside = draft, np.stack([_outside(row, self.top_k) for row in draft])
        self.seen[:, i] += weight
        self.l1[:, i] += weight * 2.0 * np.asarray(tv)
        self.kl[:, i] += np.where(weight > 0, weight * np.where(weight > 0, kl, 0.0), 0.0)
        self.blind[:, i] += weight * np.sum(residual * self.outside, axis=-1)

    def means(self) -> tuple[Floats, Floats, Floats]:
        """L1, KL, blind spot, ``(rows, n)``; NaN where no state was seen."""
        return _divide(self.l1, self.seen), _divide(self.kl, self.seen), _divide(self.blind, self.seen)


def _outside(draft: Floats, k: int) -> NDArray[np.bool_]:
    """Whether a token is outside the k best of a row ``(V,)``; ties go to the lowest index."""
    if k >= draft.size:
        return np.zeros(draft.shape, bool)
    least = np.partition(draft, draft.size - k)[draft.size - k]
    outside = draft < least
    tied = np.flatnonzero(draft == least)
    outside[tied[k - int((draft > least).sum()) :]] = True
    return outside


def _one_state_a_round(rule: Rule, pair: Pair, n: int, top_k: int) -> list[_Profile]:
    """All positions at once, O(n V) each; nothing is left unseen."""
    s = pair.drawn_from
    state = rule.start(np.array(pair.target), np.array(pair.draft), n)
    looks = _Looks(len(s), n, top_k)
    weight, accepted = np.ones(len(s)), np.zeros((len(s), n))
    for i in range(n):
        accept = rule.accept(state)
        looks.add(i, state.residual, state.draft, weight)
        emitted = s * accept
        accepted[:, i] = weight * emitted.sum(axis=-1)
        # As in the engine: the difference of what is proposed and accepted keeps its digits near 0.
        weight = weight * (s - emitted).sum(axis=-1)
        if i < n - 1:
            state = rule.reject(state, None)
    none, means = np.zeros(n), looks.means()
    rows = zip(accepted, looks.seen, *means, strict=True)
    total = accepted.cumsum(axis=-1)
    return [
        _beyond_rounding(
            _Profile(seen, a, seen, none, seen, none, l1, kl, blind, total[b], none), s.shape[-1]
        )
        for b, (a, seen, l1, kl, blind) in enumerate(rows)
    ]


class _Walk(Expansion):
    """Heaviest-first expansion that looks at the states; it ends at the last candidate."""

    def __init__(
        self, rule: Rule, target: Any, draft: Any, n: int, drawn_from: Any, proposal: Proposal,
        budget: Budget, honest: bool, top_k: int,
    ) -> None:  # fmt: skip
        super().__init__(rule, target, draft, n, drawn_from, proposal, budget, honest)
        self.looks = _Looks(1, n, top_k)

    def _enter(self, state: State, weight: float, rejected: tuple[int, ...]) -> None:
        residual, draft = state.residual[None, :], state.draft[None, :]
        self.looks.add(state.round, residual, draft, np.asarray([weight]))
        if state.round < self.n - 1:
            super()._enter(state, weight, rejected)
            return
        law = self.proposal.next(self.drawn_from, tuple(np.asarray(x) for x in rejected))
        self.acceptance[state.round] += weight * float(np.sum(law * self.rule.accept(state)))

    def profile(self) -> _Profile:
        """What was seen."""
        found = self.run()
        # Known to reject j candidates: may get to candidate j + 1 and all later ones.
        missed = np.cumsum(np.asarray(found.unexpanded, np.float64)[0])[: self.n]
        l1, kl, blind = (mean[0] for mean in self.looks.means())
        seen = self.looks.seen[0]
        placed, left = np.asarray([self.acceptance]), np.asarray(found.unexpanded, np.float64)
        total = estimated_acceptance(placed, left)[0].cumsum()
        return _beyond_rounding(
            _Profile(
                _looked(total), self.acceptance, seen, missed, seen, missed, l1, kl, blind, total, missed
            ),
            self.target.shape[-1],
        )


def _looked(total: Floats) -> Floats:
    """P(candidate i is looked at): none before was accepted."""
    return 1.0 - np.concatenate([[0.0], total[:-1]])


def _beyond_rounding(profile: _Profile, vocab: int) -> _Profile:
    """Forget states that only rounding gets to: their residual is nothing but rounding."""
    noise = len(profile.seen) * (2 * summation_error(vocab) + 8) * _EPS
    real = profile.seen + profile.missed > noise
    return replace(
        profile,
        **{name: np.where(real, getattr(profile, name), 0.0) for name in ("known", "seen")},
        **{name: np.where(real, getattr(profile, name), np.nan) for name in ("l1", "kl", "blind")},
    )


def _summed(profile: _Profile, rule: Rule, p: Floats, q: Floats, n: int, budget: Budget) -> _Profile:
    """The acceptance by the rule's own sum over paths, where it has one that leaves less out."""
    if not profile.missed.any():
        return profile
    found = rule.sum_paths(p, q, n, budget.gap, budget.most_paths)
    if found is None or found.unexpanded.sum() >= profile.missed[-1]:
        return profile
    accepted, unexpanded = np.asarray(found.acceptance), np.asarray(found.unexpanded)
    unknown = np.cumsum(unexpanded)[:n]
    known = np.clip(_looked(accepted.cumsum()) - unknown, 0.0, None)
    # A difference from 1: where it is no more than the roundings of what is subtracted it says nothing.
    noise = n * (3.0 * p.size + found.paths + 24) * _EPS
    total = estimated_acceptance(accepted[None, :], unexpanded[None, :])[0].cumsum()
    return replace(
        profile,
        looked=_looked(total),
        accepted=accepted,
        known=np.where(known > noise, known, 0.0),
        unknown=unknown,
        total=total,
        total_gap=unknown,
        l1_from_acceptance=type(rule).accept is Rule.accept,
    )


def _totals(profiles: list[_Profile], rule: Rule, pair: Pair, n: int, budget: Budget) -> list[_Profile]:
    """The acceptance with 1..n candidates: that of the first candidates of n, unless n itself matters.

    The number of candidates reaches a rule only through `Rule.start`.
    """
    least = max(rule.least_candidates, 1)
    p, q = np.array(pair.target), np.array(pair.draft)
    if all(_same(rule.start(p, q, n), rule.start(p, q, i)) for i in range(least, n)):
        return profiles
    totals, gaps = np.full((len(profiles), n), np.nan), np.full((len(profiles), n), np.nan)
    for i in range(least, n + 1):
        found = operational_marginals(
            rule, pair.target, pair.draft, i, drawn_from=pair.proposal, budget=budget
        )
        placed, left = np.asarray(found.acceptance, np.float64), np.asarray(found.unexpanded, np.float64)
        totals[:, i - 1] = estimated_acceptance(placed, left).sum(axis=-1)
        gaps[:, i - 1] = left[:, :i].sum(axis=-1)
    return [
        replace(profile, total=total, total_gap=gap)
        for profile, total, gap in zip(profiles, totals, gaps, strict=True)
    ]


def _same(state: State, other: State) -> bool:
    values = [(state.residual, other.residual), (state.draft, other.draft)]
    if state.extra.keys() != other.extra.keys():
        return False
    values += [(state.extra[name], other.extra[name]) for name in state.extra]
    return all(a is b or np.array_equal(a, b) for a, b in values)


def _divide(numerator: Floats, denominator: Floats) -> Floats:
    safe = np.where(denominator > 0, denominator, 1.0)
    return np.where(denominator > 0, numerator / safe, np.nan)


def _share(missed: Floats, seen: Floats) -> Floats:
    """Share of the unseen; NaN where nothing gets to the candidate."""
    return _divide(missed, missed + seen)


def _mean(values: Floats) -> float | None:
    return float(np.mean(values)) if values.size else None


def _quantiles(values: Floats) -> list[float] | None:
    """Values that occur, no interpolation: it would make NaN of infinities."""
    if not values.size:
        return None
    return np.quantile(values, QUANTILES, method="inverted_cdf").tolist()


def _bounds(means: Floats, gap: Floats, most: float) -> list[float] | None:
    """Certified bounds on the mean over positions; those where nothing was seen may have any value."""
    here = ~np.isnan(gap)
    if not here.any():
        return None
    mean, gap = np.where(np.isnan(means[here]), 0.0, means[here]), gap[here]
    low = (1.0 - gap) * mean
    return [float(low.mean()), float(min((low + gap * most).mean(), most))]


def _ratio(numerator: float, denominator: float) -> float | None:
    return float(numerator / denominator) if denominator > 0 else None


def _or_none(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)
