"""The operational marginal: what the sampler emits, by enumerating accept and reject paths.

Ways from fast to general, with one result:

1. a rule whose residual ignores the rejected token has one state a round: n rounds on whole batches;
2. a rule may sum its own paths (ResiSpec: one scalar a path, Sequoia: two): on the CPU (`Rule.sum_paths`), or
   where the arrays live (`Rule.sum_paths_on_device`, `evidence.on_device`);
3. otherwise paths are expanded one batch of rejected tokens at a time, heaviest first, until what is left
   unexpanded, the certified gap, is small enough or the budget is spent.

Rules that decide about all their candidates at once are enumerated over tuples, in `evidence.tuple_rules`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.evidence.expansion import Budget, Expansion, eps_of, fair_draws, usable_candidates
from resispec_verify.evidence.marginal import (
    Marginals,
    magnified,
    of_path_sum,
    rounding_bound,
    stacked,
    summation_error,
    tv_interval,
    underflow,
)
from resispec_verify.evidence.on_device import settled_on_device
from resispec_verify.evidence.tuple_rules import tuple_marginals
from resispec_verify.kernels.elementwise import compiled
from resispec_verify.kernels.elementwise.residuals import ALL
from resispec_verify.kernels.jit import may_compile
from resispec_verify.rules.interface import Rule
from resispec_verify.rules.proposals import Iid, Proposal
from resispec_verify.rules.tuple_rule import TupleRule
from resispec_verify.verdict import Verdict, judge, resolution

__all__ = ["Budget", "Expansion", "operational_marginals"]

T = TypeVar("T")
R = TypeVar("R")


def operational_marginals(
    rule: Rule,
    target: Array,
    draft: Array,
    candidates: int,
    *,
    drawn_from: Array = None,
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

    Raises
    ------
    InputError
        Fewer candidates than the rule is defined for.
    """
    budget = budget or Budget()
    n = usable_candidates(rule, candidates)
    proposal = proposal or rule.proposal
    declared = drawn_from is None
    drawn_from = draft if declared else drawn_from
    # A rule gets copies: one that writes into its arguments is scored on the originals.
    shown, said = (array_namespace(a).asarray(a, copy=True) for a in (target, draft))
    if isinstance(rule, TupleRule):
        return tuple_marginals(rule, shown, said, n, drawn_from, proposal)
    if rule.depends_on == "nothing" and isinstance(proposal, Iid):
        return _token_free(rule, shown, said, n, drawn_from, fair_draws(rule, proposal, declared))

    own = declared and proposal == rule.proposal  # what path sums are for
    settled: dict[int, Marginals] = {}
    if own:
        settled = settled_on_device(rule, shown, said, n, list(_gaps(budget)), budget.most_paths)

    def position(i: int) -> Marginals:
        if i in settled:
            return settled[i]
        p, q, s = shown[i, :], said[i, :], drawn_from[i, :]

        def attempt(left: Budget) -> Marginals:
            row = None
            if own and n > 0:
                if may_compile():
                    row = _summed(rule, p, q, n, left)
                else:  # where a path sum would leave nothing
                    left = replace(left, gap=0.0)
            return row or Expansion(rule, p, q, n, s, proposal, left, declared).run()

        return _until_decided(attempt, target[i : i + 1, :], budget)

    # Compiled path sums release the interpreter lock; positions are independent of each other and of the
    # number of threads.
    return stacked(in_threads(position, range(target.shape[0])))


def _until_decided(attempt: Callable[[Budget], Marginals], target: Array, budget: Budget) -> Marginals:
    """The best of what one position ``(1, V)`` gives within smaller and smaller gaps."""
    best: Marginals | None = None
    spent = 0
    for gap in _gaps(budget):
        left = replace(
            budget, gap=gap, most_paths=budget.most_paths - spent, most_states=budget.most_states - spent
        )
        row = attempt(left)
        spent += row.expansions[0]
        if best is None or float(row.gap[0]) <= float(best.gap[0]):
            best = row
        low, high = tv_interval(best, target)
        verdict = judge(float(low[0]), float(high[0]), float(best.rounding[0]), resolution(eps_of(target)))
        if row.exhausted[0] or verdict is not Verdict.UNDECIDED:
            break
    assert best is not None
    return replace(best, expansions=[spent], exhausted=[bool(float(best.gap[0]) > budget.gap)])


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


def _gaps(budget: Budget) -> Iterator[float]:
    """The gaps to try, one after the other, while the verdict is undecided."""
    yield budget.gap
    if budget.until_decided and budget.gap > 0:
        yield from (budget.gap * 1e-3, budget.gap * 1e-6, 0.0)


def _token_free(rule: Rule, target: Array, draft: Array, n: int, drawn_from: Array, fair: bool) -> Marginals:
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
        if not fair:
            steps.append((weight, condition * rule.accept_condition(state) * xp.ones_like(weight)))
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
    base = rounding_bound(target, drawn_from, n, 2 * summation_error(target.shape[-1]) + 8, eps_of(target))
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


def _summed(rule: Rule, p: Array, q: Array, n: int, budget: Budget) -> Marginals | None:
    """A rule that sums its own paths, on one position, in float64 on the CPU."""
    host_p, host_q = to_numpy(p).astype(np.float64), to_numpy(q).astype(np.float64)
    found = rule.sum_paths(host_p, host_q, n, budget.gap, budget.most_paths)
    if found is None:
        return None
    marginals = of_path_sum(found, host_p[None, :], host_q[None, :], n, budget.gap)
    xp = array_namespace(p)
    return marginals.mapped(lambda values: xp.asarray(values, device=p.device))
