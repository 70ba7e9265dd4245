"""Marginals of rules over the positions of a dump, against the target: what ``kl`` and ``limits`` show.

Only numbers by position are kept, so memory does not grow with a dump beyond a few floats a position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.evidence.enumeration import Budget, operational_marginals
from resispec_verify.evidence.marginal import Marginals, estimated_acceptance, tv_interval
from resispec_verify.evidence.path_identity import draw_candidates, identity_of, path_identity
from resispec_verify.kernels.elementwise.divergences import (
    distances,
    divergence_bounds,
    emitted_beside,
    printed_kl,
)
from resispec_verify.kernels.optimal.sequential import levels, overlap
from resispec_verify.rules import Iid, Proposal, Rule
from resispec_verify.tables.distinct import check_support
from resispec_verify.tables.reading import Clock, PairBatch
from resispec_verify.tables.row import Row, label
from resispec_verify.verdict import judge_all, resolution

__all__ = ["Evaluation", "by_proposal", "evaluate"]

T = TypeVar("T")


@dataclass(frozen=True)
class Evaluation:
    """What to compute at every position.

    Attributes
    ----------
    rules : tuple of Rule
    candidates : int
        ``n >= 1``.
    operational, identity : bool
        Which marginals.
    budget : Budget
    seed : int
        For the candidate lists of the path identity, where none are given.
    candidate_list : tuple of int or None
        Candidates of the path identity, the same at every position.
    sequential_limit : bool
        Whether to compute what no sequential exact rule exceeds, too.
    """

    rules: tuple[Rule, ...]
    candidates: int = 3
    operational: bool = True
    identity: bool = True
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    candidate_list: tuple[int, ...] | None = None
    sequential_limit: bool = False


def evaluate(
    batch: PairBatch, evaluation: Evaluation, rows: dict[tuple[str, str], Row], *, clock: Clock
) -> None:
    """Evaluate one batch of positions and append to ``rows``, keyed by rule label and kind of marginal.

    Raises
    ------
    InputError
        A rule whose candidates must differ, at a position with fewer tokens to draw.
    """
    pair, rules, places = batch.pair, evaluation.rules, batch.places()
    check_support(rules, evaluation.candidates, batch)
    with clock("limit"):
        limits = by_proposal(
            rules, evaluation.candidates, lambda proposal, n: _limits(proposal, n, batch, evaluation)
        )
    for rule, limit in zip(rules, limits, strict=True):
        n = rule.verifiable(evaluation.candidates)

        def row(marginal: str, rule: Rule = rule, n: int = n) -> Row:
            new = Row(rule, marginal, batch.sampling.temperature, n, batch.dataset)
            if marginal == "operational" and evaluation.budget.until_verdict:
                new.until = "verdict"
            found = rows.setdefault((label(rule), marginal), new)
            found.samplings[batch.sampling] = None
            return found

        if evaluation.operational:
            with clock("rounds"):
                marginals = operational_marginals(
                    rule, pair.target, pair.draft, n, drawn_from=pair.proposal, budget=evaluation.budget
                )
            with clock("divergences"):
                found = _operational(marginals, pair.target, rule.stays_in_support)
                row("operational").add(**places, **limit, **found)
        if evaluation.identity:
            with clock("rounds"):
                emitted, noted = _path_identity(rule, batch, n, evaluation)
            if emitted is not None:
                with clock("divergences"):
                    mine = row("path-identity")
                    mine.add(**places, **limit, **_identity(emitted, pair.target))
                    mine.note(**noted)


def by_proposal(rules: Iterable[Rule], candidates: int, find: Callable[[Proposal, int], T]) -> list[T]:
    """``find(proposal, n)`` for each rule, once for equal proposals: two of a user's may have one name."""
    known: list[tuple[Proposal, int, T]] = []
    found = []
    for rule in rules:
        n = rule.verifiable(candidates)
        same = [value for other, m, value in known if m == n and other == rule.proposal]
        if not same:
            same = [find(rule.proposal, n)]
            known.append((rule.proposal, n, same[0]))
        found.append(same[0])
    return found


def _limits(proposal: Proposal, n: int, batch: PairBatch, evaluation: Evaluation) -> dict[str, list[Any]]:
    """Columns: the limit of a proposal, and, where it is asked for, that of sequential rules."""
    target, drawn_from = batch.pair.target, batch.pair.drawn_from
    # In float64: rounded to less, a limit could lie below what an exact rule accepts.
    limit = proposal.limit(_double(target), _double(drawn_from), n)
    found = {"limit": _listed(limit, len(batch.positions))}
    if evaluation.sequential_limit:
        sequential = None
        if isinstance(proposal, Iid):
            xp = array_namespace(target)
            first = xp.astype(levels(target, drawn_from, n)[..., 0], target.dtype)
            sequential = overlap(target, drawn_from, first)
        found["sequential_limit"] = _listed(sequential, len(batch.positions))
    return found


def _listed(values: Array, count: int) -> list[Any]:
    return [None] * count if values is None else to_numpy(values).astype(np.float64).tolist()


def _path_identity(
    rule: Rule, batch: PairBatch, n: int, evaluation: Evaluation
) -> tuple[Any, dict[str, Any]]:
    """Path identity of one candidate list a position, and what `_watched` noted; None without a proxy."""
    target, draft = batch.pair.target, batch.pair.draft
    xp = array_namespace(target)
    if evaluation.candidate_list is not None:
        lists = np.tile(np.asarray(evaluation.candidate_list[:n], np.int64), (len(batch.positions), 1))
        chosen = xp.asarray(lists, device=target.device)
    elif batch.candidates is not None:
        lists = np.ascontiguousarray(batch.candidates[:, :n], np.int64)
        chosen = xp.asarray(lists, device=target.device)
    else:
        # One stream a position, so that neither the batch size nor --positions changes the draws.
        streams = (np.random.default_rng((evaluation.seed, i)) for i in batch.positions.tolist())
        chosen = draw_candidates(draft, n, np.stack([stream.random(n) for stream in streams]))
    noted: dict[str, Any] = {"capped": 0, "proxy_excess": 0.0}
    watched = _watched(rule, noted)
    if watched is None:
        return identity_of(rule, target, draft, chosen, n), noted
    return path_identity(target, draft, watched, chosen, n), noted


def _watched(rule: Rule, noted: dict[str, Any]) -> Callable[[Any, Any, Any], Any] | None:
    """The rule's proxy, noting capped budgets and proxies that miss the sum 1; None where none does."""
    if rule.budget_holds() is not False:
        return None

    def proxy(current: Array, draft: Array, token: Array) -> Any:
        parts = rule.proxy_parts(current, draft, token)
        assert parts is not None
        xp = array_namespace(current)
        noted["capped"] += int(xp.sum(xp.astype(parts.capped, xp.int64)))
        excess = float(xp.max(xp.abs(xp.sum(parts.k, axis=-1) - 1.0)))
        noted["proxy_excess"] = max(noted["proxy_excess"], excess)
        return parts.k

    return proxy


def _operational(marginals: Marginals, target: Array, stays_in_support: bool) -> dict[str, list[Any]]:
    """All columns that only the operational marginal has, and its distances, bounds and verdicts."""
    xp = array_namespace(target)
    gap, rounding = _host(marginals.gap), np.minimum(_host(marginals.rounding), 1.0)
    seen = emitted_beside(marginals.placed, target)
    found = _as_bounds(seen.tv, seen.kl)
    silent, never = to_numpy(seen.silent), np.where(gap == 0, _host(seen.never_emitted), 0.0)
    if gap.any():
        found |= _with_gap(marginals, target, stays_in_support, found)
    low, high = (np.asarray(found[name]) for name in ("tv_low", "tv_high"))
    acceptance, unexpanded = _host(marginals.acceptance), _host(marginals.unexpanded)
    # What rounding puts above 1 in all is 1.
    reached = np.clip(np.cumsum(estimated_acceptance(acceptance, unexpanded), axis=-1), None, 1.0)
    accepted = acceptance.sum(axis=-1)
    error = acceptance.shape[-1] * np.asarray(marginals.acceptance_error or 0.0)
    columns = {
        "gap": gap,
        "rounding": rounding,
        "acceptance": np.diff(reached, axis=-1, prepend=0.0),
        "accepted_low": np.clip(accepted - error, 0.0, 1.0),
        "accepted_high": np.clip(accepted + gap + error, 0.0, 1.0),
        "off_support": _host(seen.off_support),
        "off_support_token": to_numpy(seen.off_support_token),
        "never_emitted": never,
    }
    return {
        **found,
        **{name: values.tolist() for name, values in columns.items()},
        "never_emitted_tokens": [
            [] if more > 0 else row[row >= 0].tolist() for more, row in zip(gap, silent, strict=True)
        ],
        "verdict": judge_all(low, high, rounding, resolution(float(xp.finfo(target.dtype).eps))),
        "expansions": marginals.expansions,
        "exhausted": marginals.exhausted,
    }


def _identity(emitted: Array, target: Array) -> dict[str, list[Any]]:
    """All columns of the path identity."""
    found = {**_distances(emitted, target), "gap": [0.0] * target.shape[0]}
    if emitted.dtype != array_namespace(emitted).float64:  # shows the noise of the working precision
        found["kl_printed"] = _host(printed_kl(emitted, target)).tolist()
    return found


def _distances(emitted: Array, target: Array) -> dict[str, list[Any]]:
    """Columns of what is emitted whole: its bounds are its distances."""
    # Divergences are summed in float64 whatever the working precision of the rounds.
    return _as_bounds(*distances(_double(emitted), _double(target)))


def _as_bounds(tv: Array, kl: Array) -> dict[str, list[Any]]:
    """Columns of distances that are their own bounds."""
    tv, kl = (_host(v).tolist() for v in (tv, kl))
    return {f"{name}{end}": v for name, v in (("tv", tv), ("kl", kl)) for end in ("", "_low", "_high")}


def _with_gap(
    marginals: Marginals, target: Array, stays_in_support: bool, whole: dict[str, list[Any]]
) -> dict[str, list[Any]]:
    """Distances of the completed mass, and their bounds; ``whole`` has them where a row has no gap.

    Those are taken as they are: no row depends on those that it shares a batch with.
    """
    xp = array_namespace(target)
    placed, goal, gap = _double(marginals.placed), _double(target), _host(marginals.gap)
    anywhere = xp.ones(goal.shape, dtype=xp.bool, device=goal.device)
    allowed = goal > 0 if stays_in_support else anywhere
    bounds = divergence_bounds(placed, goal, _double(marginals.gap), allowed)
    ends = {"tv": tv_interval(marginals, target), "kl": (bounds.kl_low, bounds.kl_high)}
    estimate = distances(_estimate(marginals, placed, goal, allowed), goal)
    columns = {}
    for name, value in zip(("tv", "kl"), estimate, strict=True):
        low, high = (np.where(gap > 0, _host(end), whole[name]) for end in ends[name])
        columns |= {f"{name}_low": low, f"{name}_high": high, name: np.clip(_host(value), low, high)}
    return {name: values.tolist() for name, values in columns.items()}


def _estimate(marginals: Marginals, placed: Array, target: Array, allowed: Array) -> Any:
    """Complete the placed mass: the rest is spread like what was placed after a first rejection."""
    xp = array_namespace(placed)
    later = xp.where(allowed, xp.clip(placed - _double(marginals.first), 0.0, None), 0.0)
    total = xp.sum(later, axis=-1, keepdims=True)
    shape = xp.where(total > 0, later / xp.where(total > 0, total, 1.0), target)
    return placed + _double(marginals.gap)[:, None] * shape


def _double(values: Array) -> Any:
    """The array in float64, where it is."""
    xp = array_namespace(values)
    return xp.astype(values, xp.float64, copy=False)


def _host(values: Array) -> np.ndarray:
    """The array in float64, in NumPy."""
    return to_numpy(values).astype(np.float64)
