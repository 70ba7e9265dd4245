"""Heaviest-first expansion of one position's accept and reject paths, for any rule; and its budget."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.errors import InputError
from resispec_verify.evidence.marginal import (
    Marginals,
    magnified,
    number,
    rounding_bound,
    summation_error,
    underflow,
    verdict_on,
)
from resispec_verify.kernels.elementwise.residuals import ALL
from resispec_verify.kernels.paths.last_round import last_roundings
from resispec_verify.rules.interface import Rule, State
from resispec_verify.rules.proposals import Iid, Proposal, WithoutReplacement
from resispec_verify.verdict import Verdict

__all__ = ["Budget", "Expansion", "eps_of", "fair_draws", "usable_candidates"]

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
    until_verdict : bool
        Stop above ``gap`` as soon as the verdict is decided.
    """

    gap: float = 1e-3
    most_paths: float = 5e8
    most_states: float = 2000
    until_decided: bool = True
    until_verdict: bool = False


def usable_candidates(rule: Rule, candidates: int) -> int:
    """The most of so many candidates that a rule can verify; raises `InputError` where it needs more."""
    n = rule.verifiable(candidates)
    if n < rule.least_candidates:
        raise InputError(f"rule {rule.name!r} needs {rule.least_candidates} candidates, got {candidates}")
    return n


def fair_draws(rule: Rule, proposal: Proposal, declared: bool) -> bool:
    """Whether each token is drawn as often as its test expects, see `Rule.condition`."""
    own = declared and proposal == rule.proposal and isinstance(proposal, (Iid, WithoutReplacement))
    return own and rule.rejects_its_residual


def eps_of(array: Array) -> float:
    """Machine epsilon of an array's precision."""
    return float(array_namespace(array).finfo(array.dtype).eps)


def _host(values: Array) -> np.ndarray:
    return np.asarray(values if isinstance(values, float) else to_numpy(values), np.float64)


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
        target: Array,
        draft: Array,
        n: int,
        drawn_from: Array,
        proposal: Proposal,
        budget: Budget,
        declared: bool,
    ) -> None:
        self.rule, self.n, self.proposal, self.budget = rule, n, proposal, budget
        # Candidates i.i.d. from the declared draft; drawn from it as the rule expects.
        self.honest = declared and isinstance(proposal, Iid)
        self.fair = fair_draws(rule, proposal, declared)
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
        """Expand until the gap or the budget is reached, or the verdict where that is enough."""
        vocab = self.target.shape[-1]
        self._enter(self.rule.start(self.target, self.draft, self.n), 1.0, (), 1.0)
        looked = 0  # states at the last look for a verdict
        while self.heap and (gap := self._gap()) > self.budget.gap:
            room = self.budget.most_states - self.states
            if self.budget.until_verdict:
                if self.states >= 2 * looked:
                    if verdict_on(self._result(), self.target[None, :]) is not Verdict.UNDECIDED:
                        break
                    looked = max(self.states, 1)
                room = min(room, max(2 * looked - self.states, 1))
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
        if not self.fair:
            self.steps.append((weight, condition * number(self.rule.accept_condition(state))))
        if state.round == 0:
            self.first = emitted
        self.placed = self.placed + emitted
        self.acceptance[state.round] += float(self.xp.sum(emitted))
        missing = weight - float(self.xp.sum(law))
        if missing > weight * summation_error(law.shape[-1]) * eps_of(law):  # no further candidate
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
            self.target[None, :], self.drawn_from[None, :], self.n, roundings, eps_of(self.target)
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
