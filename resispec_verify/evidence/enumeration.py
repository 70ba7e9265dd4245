"""The operational marginal: what the sampler emits, by enumerating accept and reject paths.

Ways from fast to general, with one result:

1. a rule whose residual ignores the rejected token has one state a round: n rounds on whole batches;
2. a rule may sum its own paths (ResiSpec: one scalar a path, Sequoia: two; `Rule.sum_paths`), on the CPU, or
   for ResiSpec as printed where the arrays live (`evidence.device_paths`);
3. otherwise paths are expanded one batch of rejected tokens at a time, heaviest first, until what is left
   unexpanded, the certified gap, is small enough or the budget is spent.

Rules that decide about all their candidates at once are enumerated over tuples, in `evidence.tuples`.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.backends import to_numpy
from resispec_verify.errors import InputError
from resispec_verify.evidence.device_paths import device_marginals
from resispec_verify.evidence.marginal import (
    Marginals,
    magnified,
    number,
    rounding_bound,
    summation_error,
    tv_interval,
    underflow,
)
from resispec_verify.evidence.tuples import tuple_marginals
from resispec_verify.kernels import compiled
from resispec_verify.kernels.last_round import last_roundings
from resispec_verify.kernels.residuals import ALL
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.proposals import Iid, Proposal, WithoutReplacement
from resispec_verify.rules.tuples import TupleRule
from resispec_verify.verdict import Verdict, judge, resolution

__all__ = ["Budget", "Expansion", "operational_marginals"]

T = TypeVar("T")
R = TypeVar("R")
# Elements of one batch of residuals (tokens x vocab): bounds the memory of an expansion.
_BATCH_ELEMENTS = 1 << 22
# States kept for later expansion; what falls off the end stays in the gap.
_FRONTIER_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class Budget:
    """When to stop expanding one position.

    Attributes
    ----------
    gap : float
        Mass that may stay unexpanded; 0 expands everything.
    most_paths : float
        Path evaluations of a rule that sums its own paths.
    most_states : float
        Residuals evaluated by the general engine.
    until_decided : bool
        Go on below ``gap`` while the verdict is still undecided and the budget lasts.
    """

    gap: float = 1e-3
    most_paths: float = 5e8
    most_states: float = 2000
    until_decided: bool = True


def operational_marginals(
    rule: Rule,
    target: Any,
    draft: Any,
    candidates: int,
    *,
    drawn_from: Any = None,
    proposal: Proposal | None = None,
    budget: Budget | None = None,
) -> Marginals:
    """Marginals that ``rule`` emits at each position.

    Parameters
    ----------
    target, draft : array (B, V)
        The target and the *declared* draft, which the rule divides by.
    candidates : int
        ``n >= 0``; cut to the most that the rule can verify.
    drawn_from : array (B, V), optional
        The distribution candidates are really drawn from, where it is not the declared draft.
    proposal : Proposal, optional
        How they are drawn, where not as the rule expects.
    budget : Budget, optional

    Returns
    -------
    Marginals

    Raises
    ------
    InputError
        Fewer candidates than the rule is defined for.
    """
    budget = budget or Budget()
    n = candidates if rule.most_candidates is None else min(candidates, rule.most_candidates)
    if n < rule.least_candidates:
        raise InputError(f"rule {rule.name!r} needs {rule.least_candidates} candidates, got {n}")
    proposal = proposal or rule.proposal
    declared = drawn_from is None
    own = declared and proposal == rule.proposal
    drawn_from = draft if drawn_from is None else drawn_from
    # A rule gets copies: one that writes into its arguments is scored on the originals.
    shown, said = (array_namespace(a).asarray(a, copy=True) for a in (target, draft))
    if isinstance(rule, TupleRule):
        return tuple_marginals(rule, shown, said, n, drawn_from, proposal)
    if rule.depends_on == "nothing" and isinstance(proposal, Iid):
        return _token_free(rule, shown, said, n, drawn_from, _fair(rule, proposal, declared))

    settled = device_marginals(rule, shown, said, n, list(_gaps(budget)), budget.most_paths) if own else {}

    def position(i: int) -> Marginals:
        if i in settled:
            return settled[i]
        p, q, s = shown[i, :], said[i, :], drawn_from[i, :]
        best: Marginals | None = None
        spent = 0
        for gap in _gaps(budget):
            left = replace(
                budget, gap=gap, most_paths=budget.most_paths - spent, most_states=budget.most_states - spent
            )
            row = _summed(rule, p, q, n, left) if own and n > 0 else None
            row = row or Expansion(rule, p, q, n, s, proposal, left, declared).run()
            spent += row.expansions[0]
            if best is None or float(row.gap[0]) <= float(best.gap[0]):
                best = row
            low, high = tv_interval(best, target[i : i + 1, :])
            most = resolution(_eps(target))
            verdict = judge(float(low[0]), float(high[0]), float(best.rounding[0]), most)
            if row.exhausted[0] or verdict is not Verdict.UNDECIDED:
                break
        assert best is not None
        return replace(best, expansions=[spent], exhausted=[bool(float(best.gap[0]) > budget.gap)])

    # Compiled path sums release the interpreter lock; positions are independent of each other and of the
    # number of threads.
    return _stack(in_threads(position, range(target.shape[0])))


def in_threads(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """``[work(item) for item in items]`` on all cores; an interrupt does not wait for what has begun."""
    pool = ThreadPoolExecutor(max_workers=os.cpu_count())
    try:
        found = list(pool.map(work, items))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return found


def _fair(rule: Rule, proposal: Proposal, declared: bool) -> bool:
    """Whether each token is drawn as often as its test expects, see `Rule.condition`."""
    return declared and proposal == rule.proposal and isinstance(proposal, (Iid, WithoutReplacement))


def _gaps(budget: Budget) -> Iterator[float]:
    """The gaps to try, one after the other, while the verdict is undecided."""
    yield budget.gap
    if budget.until_decided and budget.gap > 0:
        yield from (budget.gap * 1e-3, budget.gap * 1e-6, 0.0)


def _eps(array: Any) -> float:
    return float(array_namespace(array).finfo(array.dtype).eps)


def _host(values: Any) -> np.ndarray:
    return np.asarray(values if isinstance(values, float) else to_numpy(values), np.float64)


def _stack(rows: list[Marginals]) -> Marginals:
    xp = array_namespace(rows[0].placed)

    def stacked(name: str) -> Any:
        return xp.concat([getattr(row, name) for row in rows], axis=0)

    return Marginals(
        *(stacked(name) for name in ("placed", "first", "unexpanded", "acceptance", "rounding")),
        expansions=[e for row in rows for e in row.expansions],
        exhausted=[e for row in rows for e in row.exhausted],
        acceptance_error=[e for row in rows for e in row.acceptance_error or [0.0]],
    )


def _token_free(rule: Rule, target: Any, draft: Any, n: int, drawn_from: Any, fair: bool) -> Marginals:
    """One state a round, all rows at once: O(n V) a position.

    With ``fair`` candidates what is rejected weighs what the residual is divided by, and nothing is
    magnified; with others that is measured.
    """
    xp = array_namespace(target)
    state = rule.start(target, draft, n)
    weight = xp.ones((*target.shape[:-1], 1), dtype=target.dtype, device=target.device)
    placed, acceptance = xp.zeros_like(target), []
    steps: list[tuple[Any, Any]] = []
    condition: Any = 1.0
    for _ in range(n):
        accept = rule.accept(state)
        if compiled.compilable(placed, drawn_from, accept):
            accepted, weight = compiled.accumulate(placed, drawn_from, accept, weight)
        else:
            proposed = weight * drawn_from
            emitted = proposed * accept
            placed = placed + emitted
            accepted = xp.sum(emitted, axis=-1, keepdims=True)
            # Not 1 - accepted: the difference of what is proposed and accepted keeps its digits near 0.
            weight = xp.sum(proposed - emitted, axis=-1, keepdims=True)
        acceptance.append(accepted)
        before, state = state, rule.reject(state, None)
        if not fair:
            step = condition * rule.condition(before, None, state, fair)
            condition = xp.clip(step * xp.ones_like(weight), None, ALL)
            steps.append((weight, condition))
    placed = placed + weight * rule.final(state)
    if not fair:
        steps.append((weight, condition * rule.final_condition(state)))
    rows = target.shape[0]
    base = rounding_bound(target, drawn_from, n, 2 * summation_error(target.shape[-1]) + 8, _eps(target))
    error = base if fair else base + underflow(draft, drawn_from)
    return Marginals(
        placed,
        first=xp.zeros((rows, 1), dtype=target.dtype, device=target.device),  # nothing is left to estimate
        unexpanded=xp.zeros((rows, n + 1), dtype=target.dtype, device=target.device),
        acceptance=xp.concat(acceptance, axis=-1) if n else target[:, :0],
        rounding=sum((magnified(w, c, error[:, None])[:, 0] for w, c in steps), base),
        expansions=[n] * rows,
        exhausted=[False] * rows,
    )


def _summed(rule: Rule, p: Any, q: Any, n: int, budget: Budget) -> Marginals | None:
    """A rule that sums its own paths, on one position, in float64 on the CPU."""
    xp = array_namespace(p)
    host_p, host_q = to_numpy(p).astype(np.float64), to_numpy(q).astype(np.float64)
    placed = rule.sum_paths(host_p, host_q, n, budget.gap, budget.most_paths)
    if placed is None:
        return None

    def row(values: Any) -> Any:
        return xp.asarray(np.asarray(values, np.float64)[None, ...], device=p.device)

    gap = float(placed.unexpanded.sum())
    # Prefix sums are sequential (V roundings, two of them and the pass that collects them), and each of the
    # evaluated paths is one more addition somewhere.
    roundings = 3.0 * p.shape[-1] + placed.paths + 24
    return Marginals(
        row(placed.mass),
        row(np.minimum(host_p, host_q)),
        unexpanded=row(placed.unexpanded),
        acceptance=row(placed.acceptance),
        rounding=row(
            rounding_bound(host_p, host_q, n, roundings, float(np.finfo(np.float64).eps)) + placed.rounding
        ),
        expansions=[placed.paths],
        exhausted=[gap > budget.gap],
        acceptance_error=[placed.acceptance_error],
    )


@dataclass(order=True)
class _Node:
    """A path whose next rejections are not all evaluated, ordered by its heaviest one."""

    key: float  # minus the weight of the heaviest rejection that is left
    tie: int
    state: State = field(compare=False)
    tokens: np.ndarray = field(compare=False)  # what can be rejected next, heaviest first
    weights: np.ndarray = field(compare=False)  # probability of the path and that rejection
    rejected: tuple[int, ...] = field(compare=False)
    condition: float = field(compare=False)  # what the divisions on the path magnify rounding by


class Expansion:
    """Heaviest-first expansion of one position ``(V,)`` for any rule."""

    def __init__(
        self,
        rule: Rule,
        target: Any,
        draft: Any,
        n: int,
        drawn_from: Any,
        proposal: Proposal,
        budget: Budget,
        declared: bool,
    ) -> None:
        self.rule, self.n, self.proposal, self.budget = rule, n, proposal, budget
        # Candidates i.i.d. from the declared draft; drawn from it as the rule expects.
        self.honest = declared and isinstance(proposal, Iid)
        self.fair = _fair(rule, proposal, declared)
        self.target, self.draft, self.drawn_from = target, draft, drawn_from
        self.xp = array_namespace(target)
        self.placed = self.xp.zeros_like(target)
        self.first = self.xp.zeros_like(target)
        self.acceptance = np.zeros(n)
        self.heap: list[_Node] = []
        self.ties = itertools.count()
        self.states = 0
        self.closed_roundings = 0
        self.steps: list[tuple[Any, Any]] = []  # probability and condition of what was divided
        self.abandoned = np.zeros(n + 1)  # by number of rejections
        self.exhausted = False

    def run(self) -> Marginals:
        """Expand until the gap or the budget is reached."""
        vocab = self.target.shape[-1]
        self._enter(self.rule.start(self.target, self.draft, self.n), 1.0, (), 1.0)
        while self.heap and (gap := self._gap()) > self.budget.gap:
            room = self.budget.most_states - self.states
            if room < 1:
                self.exhausted = True
                break
            node = heapq.heappop(self.heap)
            m = int(min(max(1, _BATCH_ELEMENTS // vocab), node.tokens.size, room))
            # No further than needed: the weights left behind would fit in the gap.
            needed = np.searchsorted(np.cumsum(node.weights[:m]), gap - self.budget.gap) + 1
            self._reject(node, min(m, int(needed)))
        return self._result()

    def _gap(self) -> float:
        return float(self.abandoned.sum()) + sum(float(node.weights.sum()) for node in self.heap)

    def _enter(self, state: State, weight: float, rejected: tuple[int, ...], condition: float) -> None:
        """Place what a path emits by itself, and queue what it can reject."""
        if state.round == self.n:
            self._finish(state, weight, condition)
            return
        drawn = tuple(self.xp.asarray(x, device=self.target.device) for x in rejected)
        law = weight * self.proposal.next(self.drawn_from, drawn)
        emitted = law * self.rule.accept(state)
        if state.round == 0:
            self.first = emitted
        self.placed = self.placed + emitted
        self.acceptance[state.round] += float(self.xp.sum(emitted))
        missing = weight - float(self.xp.sum(law))
        if missing > weight * summation_error(law.shape[-1]) * _eps(law):  # no further candidate
            self._finish(state, missing, condition)
        if state.round == self.n - 1 and self.honest:
            closed = self.rule.last_round(state)
            if closed is not None:
                mass, divided = closed
                self.placed = self.placed + weight * mass
                self.states += 1
                self.closed_roundings = last_roundings(mass.shape[-1])
                self.steps.append((weight, condition * float(divided)))
                return
        self._queue(state, to_numpy(law - emitted).astype(np.float64), rejected, condition)

    def _finish(self, state: State, weight: float, condition: float) -> None:
        """Emit what is drawn when no candidate is left."""
        self.placed = self.placed + weight * self.rule.final(state)
        self.steps.append((weight, condition * number(self.rule.final_condition(state))))

    def _queue(
        self, state: State, rejections: np.ndarray, rejected: tuple[int, ...], condition: float
    ) -> None:
        tokens = np.flatnonzero(rejections > 0)
        if tokens.size == 0:
            return
        tokens = tokens[np.argsort(-rejections[tokens], kind="stable")]
        weights = rejections[tokens]
        node = _Node(-weights[0], next(self.ties), state, tokens, weights, rejected, condition)
        heapq.heappush(self.heap, node)
        if len(self.heap) * rejections.size > _FRONTIER_ELEMENTS:
            lightest = max(self.heap)
            self.heap.remove(lightest)
            heapq.heapify(self.heap)
            self.abandoned[lightest.state.round + 1] += lightest.weights.sum()

    def _reject(self, node: _Node, m: int) -> None:
        """Evaluate the ``m`` heaviest rejections that a node has left."""
        tokens, weights = node.tokens[:m], node.weights[:m]
        rest = replace(node, tokens=node.tokens[m:], weights=node.weights[m:])
        if rest.tokens.size:
            heapq.heappush(self.heap, replace(rest, key=-rest.weights[0]))
        asked = None
        if self.rule.depends_on != "nothing":
            asked = self.xp.asarray(tokens, device=self.target.device)
        after = self.rule.reject(node.state, asked)
        states = [after] * m if asked is None else [self._one(after, k) for k in range(m)]
        self.states += m
        step = self.rule.condition(node.state, asked, after, self.fair)
        conditions = np.minimum(node.condition * np.broadcast_to(_host(step).reshape(-1), m), ALL)
        self.steps.append((weights, conditions))
        if node.state.round + 1 == self.n and self.rule.depends_on != "nothing":
            w = self.xp.asarray(weights, dtype=self.target.dtype, device=self.target.device)
            self.placed = self.placed + self.xp.sum(w[:, None] * self.rule.final(after), axis=0)
            return
        for token, weight, state, condition in zip(tokens, weights, states, conditions, strict=True):
            self._enter(state, float(weight), (*node.rejected, int(token)), float(condition))

    def _one(self, states: State, k: int) -> State:
        """The ``k``-th of a batch of states ``(m, V)``."""
        extra = {name: value[k, ...] for name, value in states.extra.items()}
        return replace(states, residual=states.residual[k, :], draft=states.draft[k, :], extra=extra)

    def _result(self) -> Marginals:
        xp, like = self.xp, {"dtype": self.target.dtype, "device": self.target.device}
        unexpanded = self.abandoned.copy()
        for node in self.heap:
            unexpanded[node.state.round + 1] += node.weights.sum()
        # Every evaluated state adds one term to each token.
        roundings = 2 * summation_error(self.target.shape[-1]) + 8 + self.states + self.closed_roundings
        bound = rounding_bound(
            self.target[None, :], self.drawn_from[None, :], self.n, roundings, _eps(self.target)
        )
        error = float(bound[0])
        if not self.fair:
            error += number(underflow(self.draft[None, :], self.drawn_from[None, :]))
        bound = bound + sum(float(np.sum(magnified(w, c, error))) for w, c in self.steps)
        return Marginals(
            self.placed[None, :],
            self.first[None, :],
            unexpanded=xp.asarray(unexpanded[None, :], **like),
            acceptance=xp.asarray(self.acceptance[None, :], **like),
            rounding=bound,
            expansions=[self.states],
            exhausted=[self.exhausted or (not self.heap and self.abandoned.sum() > self.budget.gap)],
        )
