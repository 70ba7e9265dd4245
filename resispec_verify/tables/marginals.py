"""Marginals of rules over the positions of a dump, against the target: the table behind ``kl``.

Only numbers by position are kept, so memory does not grow with a dump beyond a few floats a position.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.backends import Backend, to_numpy
from resispec_verify.distributions import Pair
from resispec_verify.errors import InputError
from resispec_verify.evidence.enumeration import Budget, operational_marginals
from resispec_verify.evidence.marginal import Marginals, estimated_acceptance, tv_interval
from resispec_verify.evidence.path_identity import draw_candidates, path_identity
from resispec_verify.kernels.elementwise.divergences import distances, divergence_bounds, printed_kl
from resispec_verify.rules import Rule
from resispec_verify.tables.distinct import check_support
from resispec_verify.verdict import Verdict, judge_all, overall, resolution

__all__ = ["Clock", "Evaluation", "Row", "double", "evaluate"]

_UNDECIDABLE = resolution(float(np.finfo(np.float32).eps))

PHASES = ("load", "softmax", "rounds", "divergences", "limit")


class Clock:
    """Seconds spent by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time of a ``with`` block to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - start


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
    """

    rules: tuple[Rule, ...]
    candidates: int = 3
    operational: bool = True
    identity: bool = True
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    candidate_list: tuple[int, ...] | None = None


@dataclass
class Row:
    """One line of the table: a rule, a kind of marginal and a temperature, over positions seen so far.

    Every list has one entry a position: numbers in the order of the dump.
    """

    rule: Rule
    marginal: str
    temperature: float
    candidates: int
    dataset: str | None = None
    source: list[str] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    kl_printed: list[float] = field(default_factory=list)
    kl_low: list[float] = field(default_factory=list)
    kl_high: list[float] = field(default_factory=list)
    tv: list[float] = field(default_factory=list)
    tv_low: list[float] = field(default_factory=list)
    tv_high: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    rounding: list[float] = field(default_factory=list)
    acceptance: list[list[float]] = field(default_factory=list)
    accepted_low: list[float] = field(default_factory=list)
    accepted_high: list[float] = field(default_factory=list)
    limit: list[float | None] = field(default_factory=list)
    verdict: list[Verdict] = field(default_factory=list)
    expansions: list[int] = field(default_factory=list)
    exhausted: list[bool] = field(default_factory=list)
    off_support: list[float] = field(default_factory=list)
    off_support_token: list[int] = field(default_factory=list)
    never_emitted: list[float] = field(default_factory=list)
    never_emitted_tokens: list[list[int]] = field(default_factory=list)
    capped: int = 0  # budgets cut to what was left off the rejected token, in the path identity
    proxy_excess: float = 0.0  # largest |sum k - 1| there

    def empty(self) -> Row:
        """The same row without positions."""
        return Row(self.rule, self.marginal, self.temperature, self.candidates, self.dataset)

    def extend(self, other: Row) -> None:
        """Append the positions of the same row of another batch or dump."""
        for name, values in vars(other).items():
            if isinstance(values, list):
                getattr(self, name).extend(values)
        self.capped += other.capped
        self.proxy_excess = max(self.proxy_excess, other.proxy_excess)

    def certified_tv(self) -> list[tuple[float, float]]:
        """Bounds on the total variation by position, rounding included."""
        return self._widened(self.tv_low, self.tv_high)

    def certified_acceptance(self) -> list[tuple[float, float]]:
        """Bounds on the total acceptance by position, rounding included."""
        return self._widened(self.accepted_low, self.accepted_high)

    def _widened(self, low: list[float], high: list[float]) -> list[tuple[float, float]]:
        slack = self.rounding or [0.0] * len(low)
        rows = zip(low, high, slack, strict=True)
        return [(max(a - e, 0.0), min(b + e, 1.0)) for a, b, e in rows]

    def certified_kl(self) -> list[tuple[float, float]]:
        """Bounds on the KL divergence by position, up to rounding.

        Where rounding is bounded by more than float32's resolution, what the total variation implies:
        Pinsker's inequality from below, and nothing from above.
        """
        slack = self.rounding or [0.0] * len(self.kl)
        rows = zip(self.kl_low, self.kl_high, slack, self.certified_tv(), strict=True)
        return [
            (low, high) if e <= _UNDECIDABLE else (2.0 * tv[0] ** 2, math.inf) for low, high, e, tv in rows
        ]

    def undecidable(self) -> list[int]:
        """Positions at which rounding may be all there is: what is printed of them is no estimate."""
        return [i for i, e in zip(self.position, self.rounding, strict=False) if e > _UNDECIDABLE]

    def overall(self) -> Verdict | None:
        """The verdict over all positions; None for the path identity, which decides nothing."""
        return overall(self.verdict) if self.marginal == "operational" else None

    def above_limit(self) -> list[int]:
        """Positions that accept more than the limit, beyond rounding: each proves inexactness."""
        numbers = zip(self.position, self.accepted_low, self.limit, self.rounding, strict=True)
        return [i for i, a, limit, e in numbers if limit is not None and a > limit + 2 * e]


def evaluate(
    pair: Pair,
    evaluation: Evaluation,
    rows: dict[tuple[str, str], Row],
    *,
    positions: Iterable[int],
    backend: Backend,
    clock: Clock,
    candidates: np.ndarray | None = None,
    temperature: float = 1.0,
    dataset: str | None = None,
    source: str = "",
) -> None:
    """Evaluate one batch of positions and append to ``rows``, keyed by rule label and kind of marginal.

    Parameters
    ----------
    pair : Pair
        Arrays ``(B, V)`` of the backend.
    positions : ints
        0-based positions in the dump.
    candidates : integer array (B, n), optional
        Candidates logged with the dump, for the path identity.
    temperature, dataset, source
        Labels of the rows: the sampling temperature, the dump's own dataset name, the dump's path.

    Raises
    ------
    InputError
        A rule whose candidates must differ, at a position with fewer tokens to draw.
    """
    batch = list(positions)
    check_support(evaluation.rules, evaluation.candidates, pair, batch, source)
    with clock("limit"):
        limits = _limits(pair, evaluation, len(batch))
    for rule, limit in zip(evaluation.rules, limits, strict=True):
        n = rule.verifiable(evaluation.candidates)
        common = {"rule": rule, "temperature": temperature, "candidates": n, "dataset": dataset}
        if evaluation.operational:
            with clock("rounds"):
                marginals = operational_marginals(
                    rule, pair.target, pair.draft, n, drawn_from=pair.proposal, budget=evaluation.budget
                )
            row = rows.setdefault((label(rule), "operational"), Row(marginal="operational", **common))
            with clock("divergences"):
                _append(row, marginals, pair.target, batch, limit)
                row.source += [source] * len(batch)
        if evaluation.identity:
            row = rows.get((label(rule), "path-identity")) or Row(marginal="path-identity", **common)
            with clock("rounds"):
                watch = _watched(rule, row)
                emitted = _identity(rule, pair, n, evaluation, batch, candidates, backend, watch)
            if emitted is None:
                continue
            rows[label(rule), "path-identity"] = row
            with clock("divergences"):
                _append_identity(row, emitted, pair.target, batch, limit)
                row.source += [source] * len(batch)


def label(rule: Rule) -> str:
    """The rule's name with the options that are not the default."""
    options = rule.options()
    if not options:
        return rule.name
    try:
        defaults = type(rule)().options()
    except (InputError, TypeError):  # parameters without defaults: all of them tell
        defaults = {}
    changed = [f"{key}={value}" for key, value in options.items() if value != defaults.get(key)]
    return f"{rule.name}[{','.join(changed)}]" if changed else rule.name


def _limits(pair: Pair, evaluation: Evaluation, rows: int) -> list[list[float | None]]:
    """The limit of each rule, once for equal proposals: two of a user's may have one name."""
    known: list[tuple[Any, int, list[float | None]]] = []
    for rule in evaluation.rules:
        n = rule.verifiable(evaluation.candidates)
        limit = next((found for other, m, found in known if m == n and other == rule.proposal), None)
        if limit is None:
            # In float64: rounded to less, a limit could lie below what an exact rule accepts.
            values = rule.proposal.limit(double(pair.target), double(pair.drawn_from), n)
            limit = list[float | None]([None] * rows if values is None else to_numpy(values).tolist())
        known.append((rule.proposal, n, limit))
    return [limit for *_, limit in known]


def _identity(
    rule: Rule,
    pair: Pair,
    n: int,
    evaluation: Evaluation,
    batch: list[int],
    logged: np.ndarray | None,
    backend: Backend,
    watch: Callable[[Any, Any, Any], Any] | None,
) -> Any:
    """Path identity of one candidate list a position; None where the rule has no proxy."""
    xp = array_namespace(pair.target)
    chosen: Any
    if evaluation.candidate_list is not None:
        lists = np.tile(np.asarray(evaluation.candidate_list[:n], np.int64), (len(batch), 1))
        chosen = backend.asarray(lists)
    elif logged is not None:
        chosen = backend.asarray(np.ascontiguousarray(logged[:, :n], np.int64))
    else:
        # One stream a position, so that neither the batch size nor --positions changes the draws.
        uniforms = np.stack([np.random.default_rng((evaluation.seed, i)).random(n) for i in batch])
        chosen = draw_candidates(pair.draft, n, uniforms)
    tokens = xp.zeros(1, dtype=xp.int64, device=pair.target.device)
    if rule.proxy(pair.target[:1, :], pair.draft[:1, :], tokens) is None:
        return None
    return path_identity(pair.target, pair.draft, watch or rule.proxy, chosen, n)


def _watched(rule: Rule, row: Row) -> Callable[[Any, Any, Any], Any] | None:
    """The rule's proxy, noting capped budgets and proxies that miss the sum 1; None where none does."""
    if rule.budget_holds() is not False:
        return None

    def proxy(current: Any, draft: Any, token: Any) -> Any:
        parts = rule.proxy_parts(current, draft, token)
        assert parts is not None
        xp = array_namespace(current)
        row.capped += int(xp.sum(xp.astype(parts.capped, xp.int64)))
        excess = float(xp.max(xp.abs(xp.sum(parts.k, axis=-1) - 1.0)))
        row.proxy_excess = max(row.proxy_excess, excess)
        return parts.k

    return proxy


def _append(row: Row, marginals: Marginals, target: Any, batch: list[int], limit: list[float | None]) -> None:
    xp = array_namespace(target)

    def host(values: Any) -> np.ndarray:
        return to_numpy(values).astype(np.float64)

    # Divergences are summed in float64 whatever the working precision of the rounds.
    placed, goal = double(marginals.placed), double(target)
    gap, rounding = host(marginals.gap), np.minimum(host(marginals.rounding), 1.0)
    if gap.any():
        allowed = (
            goal > 0 if row.rule.stays_in_support else xp.ones(goal.shape, dtype=xp.bool, device=goal.device)
        )
        # Where a row has no gap the estimate is what was placed, and so are the bounds: no row depends on
        # those that it shares a batch with.
        estimate = _estimate(marginals, placed, goal, allowed)
        tv, kl = (host(v) for v in distances(estimate, goal))
        tv_low, tv_high = (np.where(gap > 0, host(v), tv) for v in tv_interval(marginals, target))
        bounds = divergence_bounds(placed, goal, double(marginals.gap), allowed)
        kl_low, kl_high = (np.where(gap > 0, host(v), kl) for v in (bounds.kl_low, bounds.kl_high))
        tv, kl = np.clip(tv, tv_low, tv_high), np.clip(kl, kl_low, kl_high)
    else:
        tv, kl = (host(v) for v in distances(placed, goal))
        kl_low = kl_high = kl
        tv_low = tv_high = tv
    off = xp.where(goal > 0, 0.0, placed)
    silent = (goal > 0) & (placed == 0) & (marginals.gap == 0)[:, None]
    acceptance, unexpanded = host(marginals.acceptance), host(marginals.unexpanded)
    row.position += batch
    row.kl += kl.tolist()
    row.kl_low += kl_low.tolist()
    row.kl_high += kl_high.tolist()
    row.tv += tv.tolist()
    row.tv_low += tv_low.tolist()
    row.tv_high += tv_high.tolist()
    row.gap += gap.tolist()
    row.rounding += rounding.tolist()
    # What rounding puts above 1 in all is 1.
    reached = np.clip(np.cumsum(estimated_acceptance(acceptance, unexpanded), axis=-1), None, 1.0)
    row.acceptance += np.diff(reached, axis=-1, prepend=0.0).tolist()
    placed_acceptance = acceptance.sum(axis=-1)
    error = acceptance.shape[-1] * np.asarray(marginals.acceptance_error or 0.0)
    row.accepted_low += np.clip(placed_acceptance - error, 0.0, 1.0).tolist()
    row.accepted_high += np.clip(placed_acceptance + gap + error, 0.0, 1.0).tolist()
    row.limit += limit
    row.verdict += judge_all(tv_low, tv_high, rounding, resolution(float(xp.finfo(target.dtype).eps)))
    row.expansions += marginals.expansions
    row.exhausted += marginals.exhausted
    row.off_support += host(xp.sum(off, axis=-1)).tolist()
    row.off_support_token += to_numpy(xp.argmax(off, axis=-1)).tolist()
    row.never_emitted += host(xp.sum(xp.where(silent, goal, 0.0), axis=-1)).tolist()
    silent_rows = to_numpy(silent)
    row.never_emitted_tokens += [np.flatnonzero(s)[:10].tolist() for s in silent_rows]


def _append_identity(
    row: Row, emitted: Any, target: Any, batch: list[int], limit: list[float | None]
) -> None:
    if emitted.dtype != array_namespace(emitted).float64:  # shows the noise of the working precision
        row.kl_printed += to_numpy(printed_kl(emitted, target)).astype(np.float64).tolist()
    emitted, target = double(emitted), double(target)
    tv, kl = (to_numpy(v).tolist() for v in distances(emitted, target))
    row.position += batch
    row.kl += kl
    row.kl_low += kl
    row.kl_high += kl
    row.tv += tv
    row.tv_low += tv
    row.tv_high += tv
    row.gap += [0.0] * len(batch)
    row.limit += limit


def double(values: Any) -> Any:
    """The array in float64."""
    xp = array_namespace(values)
    return xp.astype(values, xp.float64, copy=False)


def _estimate(marginals: Marginals, placed: Any, target: Any, allowed: Any) -> Any:
    """Complete the placed mass: the rest is spread like what was placed after a first rejection."""
    xp = array_namespace(placed)
    later = xp.where(allowed, xp.clip(placed - double(marginals.first), 0.0, None), 0.0)
    total = xp.sum(later, axis=-1, keepdims=True)
    shape = xp.where(total > 0, later / xp.where(total > 0, total, 1.0), target)
    return placed + double(marginals.gap)[:, None] * shape
