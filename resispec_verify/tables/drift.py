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

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resispec_verify.distributions import Pair
from resispec_verify.errors import InputError
from resispec_verify.evidence.enumeration import Budget, Expansion, operational_marginals
from resispec_verify.evidence.marginal import estimated_acceptance, summation_error
from resispec_verify.kernels.elementwise.divergences import distances
from resispec_verify.kernels.elementwise.ratio_buckets import ratio_buckets
from resispec_verify.kernels.optimal.transport import limit_in_buckets
from resispec_verify.rules import Iid, Proposal, Rule, State
from resispec_verify.tables.distinct import check_support
from resispec_verify.tables.drift_summary import DriftRow, Profile, divide
from resispec_verify.tables.marginals import by_proposal
from resispec_verify.tables.reading import PairBatch
from resispec_verify.tables.row import label
from resispec_verify.threads import in_threads

__all__ = [
    "MOST_CANDIDATES",
    "add_drift",
    "check_sequential",
]

MOST_CANDIDATES = 16

Floats = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)


def check_sequential(rules: Iterable[Rule]) -> None:
    """Refuse rules that decide about all candidates at once: between candidates they have no residual."""
    for rule in rules:
        if rule.depends_on == "tuple":
            raise InputError(
                f"rule {rule.name!r} decides about all its candidates at once and has no residual between "
                "them; leave it out"
            )


def add_drift(
    rows: dict[tuple[str, float, str | None], DriftRow],
    rules: Sequence[Rule],
    batch: PairBatch,
    candidates: int,
    *,
    top_k: int = 10,
    budget: Budget | None = None,
) -> None:
    """Append the drift of one batch of positions to ``rows``, keyed by rule label, temperature and dataset.

    Parameters
    ----------
    rules : rules
        That look at candidates one after the other.
    batch : PairBatch
        Of NumPy arrays, float64.
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
    check_support(rules, candidates, batch)
    budget = budget or Budget(gap=1e-3, most_paths=1e6, most_states=100, until_decided=False)
    pair, t = batch.pair, batch.sampling.temperature
    limits = by_proposal(rules, candidates, lambda proposal, n: _limits(proposal, pair, n))
    for rule, limit in zip(rules, limits, strict=True):
        n = rule.verifiable(candidates)
        row = rows.setdefault((label(rule), t, batch.dataset), DriftRow(rule, t, n, top_k, batch.dataset))
        row.add(**batch.places(), profile=_profiles(rule, pair, n, top_k, budget), limit=limit)


def _limits(proposal: Proposal, pair: Pair, n: int) -> list[Floats | None]:
    """``OT_1 .. OT_n`` by position."""
    p, s = pair.target, pair.drawn_from
    if isinstance(proposal, Iid):  # the same buckets for all n
        positions = ((*rows, ratio_buckets(*rows, n)) for rows in zip(p, s, strict=True))
        return [np.asarray([limit_in_buckets(*found, i + 1) for i in range(n)]) for found in positions]
    by_count = [proposal.limit(p, s, i + 1) for i in range(n)]
    if any(limit is None for limit in by_count):
        return [None] * len(p)
    return list(np.stack([np.asarray(limit, np.float64) for limit in by_count], axis=-1))


def _profiles(rule: Rule, pair: Pair, n: int, top_k: int, budget: Budget) -> list[Profile]:
    if rule.depends_on == "nothing" and isinstance(rule.proposal, Iid):
        found = _one_state_a_round(rule, pair, n, top_k)
    else:
        declared = pair.proposal is None

        def position(i: int) -> Profile:
            p, q, s = (np.array(rows[i, :]) for rows in (pair.target, pair.draft, pair.drawn_from))
            profile = _DriftWalk(top_k, rule, p, q, n, s, rule.proposal, budget, declared).profile()
            return _summed(profile, rule, p, q, n, budget) if pair.proposal is None else profile

        found = in_threads(position, range(len(pair.target)))
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
        return divide(self.l1, self.seen), divide(self.kl, self.seen), divide(self.blind, self.seen)


def _outside(draft: Floats, k: int) -> NDArray[np.bool_]:
    """Whether a token is outside the k best of a row ``(V,)``; ties go to the lowest index."""
    if k >= draft.size:
        return np.zeros(draft.shape, bool)
    least = np.partition(draft, draft.size - k)[draft.size - k]
    outside = draft < least
    tied = np.flatnonzero(draft == least)
    outside[tied[k - int((draft > least).sum()) :]] = True
    return outside


def _one_state_a_round(rule: Rule, pair: Pair, n: int, top_k: int) -> list[Profile]:
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
        _beyond_rounding(Profile(seen, a, seen, none, seen, none, l1, kl, blind, total[b], none), s.shape[-1])
        for b, (a, seen, l1, kl, blind) in enumerate(rows)
    ]


class _DriftWalk(Expansion):
    """Heaviest-first expansion that looks at the states; it ends at the last candidate."""

    def __init__(self, top_k: int, *expansion: Any) -> None:
        """``expansion`` is what an `Expansion` takes."""
        super().__init__(*expansion)
        self.looks = _Looks(1, self.n, top_k)

    def _enter(self, state: State, weight: float, rejected: tuple[int, ...], condition: float) -> None:
        residual, draft = state.residual[None, :], state.draft[None, :]
        self.looks.add(state.round, residual, draft, np.asarray([weight]))
        if state.round < self.n - 1:
            super()._enter(state, weight, rejected, condition)
            return
        law = self.proposal.next(self.drawn_from, tuple(np.asarray(x) for x in rejected))
        self.acceptance[state.round] += weight * float(np.sum(law * self.rule.accept(state)))

    def profile(self) -> Profile:
        """What was seen."""
        found = self.run()
        # Known to reject j candidates: may get to candidate j + 1 and all later ones.
        missed = np.cumsum(np.asarray(found.unexpanded, np.float64)[0])[: self.n]
        l1, kl, blind = (mean[0] for mean in self.looks.means())
        seen = self.looks.seen[0]
        placed, left = np.asarray([self.acceptance]), np.asarray(found.unexpanded, np.float64)
        total = estimated_acceptance(placed, left)[0].cumsum()
        return _beyond_rounding(
            Profile(
                _looked(total), self.acceptance, seen, missed, seen, missed, l1, kl, blind, total, missed
            ),
            self.target.shape[-1],
        )


def _looked(total: Floats) -> Floats:
    """P(candidate i is looked at): none before was accepted."""
    return 1.0 - np.concatenate([[0.0], total[:-1]])


def _beyond_rounding(profile: Profile, vocab: int) -> Profile:
    """Forget states that only rounding gets to: their residual is nothing but rounding."""
    noise = len(profile.seen) * (2 * summation_error(vocab) + 8) * _EPS
    real = profile.seen + profile.missed > noise
    return replace(
        profile,
        **{name: np.where(real, getattr(profile, name), 0.0) for name in ("known", "seen")},
        **{name: np.where(real, getattr(profile, name), np.nan) for name in ("l1", "kl", "blind")},
    )


def _summed(profile: Profile, rule: Rule, p: Floats, q: Floats, n: int, budget: Budget) -> Profile:
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


def _totals(profiles: list[Profile], rule: Rule, pair: Pair, n: int, budget: Budget) -> list[Profile]:
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
