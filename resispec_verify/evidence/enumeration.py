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

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.evidence.expansion import Budget, Expansion, eps_of, fair_draws, usable_candidates
from resispec_verify.evidence.marginal import (
    Marginals,
    bound_of_sums,
    magnified,
    of_path_sum,
    rounding_bound,
    stacked,
    summation_error,
    underflow,
    verdict_on,
)
from resispec_verify.evidence.on_device import settled_on_device
from resispec_verify.evidence.tuple_rules import tuple_marginals
from resispec_verify.kernels.elementwise import compiled
from resispec_verify.kernels.elementwise.residuals import ALL, ratio_or_all
from resispec_verify.kernels.elementwise.rows import Rounds
from resispec_verify.kernels.jit import may_compile
from resispec_verify.rules.interface import Rule
from resispec_verify.rules.proposals import Iid, Proposal
from resispec_verify.rules.tuple_rule import TupleRule
from resispec_verify.threads import in_threads
from resispec_verify.verdict import Verdict

__all__ = ["Budget", "Expansion", "operational_marginals"]


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
    iid = rule.depends_on == "nothing" and isinstance(proposal, Iid)
    if iid and compiled.compilable(target, draft, drawn_from):
        found = rule.sum_rounds(target, draft, n, None if declared else drawn_from)
        if found is not None:
            fair = fair_draws(rule, proposal, declared)
            return _of_rounds(found, target, draft, drawn_from, fair)
    # A rule gets copies: one that writes into its arguments is scored on the originals.
    shown, said = (array_namespace(a).asarray(a, copy=True) for a in (target, draft))
    if isinstance(rule, TupleRule):
        return tuple_marginals(rule, shown, said, n, drawn_from, proposal)
    if iid:
        return _token_free(rule, shown, said, n, drawn_from, fair_draws(rule, proposal, declared))
    own = declared and proposal == rule.proposal  # what path sums are for
    walk = _Walk(rule, n, drawn_from, proposal, declared, own and n > 0)
    return _by_position(walk, target, shown, said, budget)


class _Walk(NamedTuple):
    """How the paths of a position are followed.

    Attributes
    ----------
    sums : bool
        The rule's own path sums are for this.
    """

    rule: Rule
    n: int
    drawn_from: Array
    proposal: Proposal
    declared: bool
    sums: bool


def _by_position(walk: _Walk, target: Array, shown: Array, said: Array, budget: Budget) -> Marginals:
    """Rules that depend on what was rejected; ``shown`` and ``said`` are the rule's copies of the laws."""
    rule, n, drawn_from, proposal, declared, sums = walk
    settled: dict[int, Marginals] = {}
    if sums:
        gaps = [1.0] * budget.until_verdict + list(_gaps(budget))
        settled = settled_on_device(rule, shown, said, n, gaps, budget.most_paths)

    def position(i: int) -> Marginals:
        if i in settled:
            return settled[i]
        p, q, s = shown[i, :], said[i, :], drawn_from[i, :]

        def summed(left: Budget) -> Marginals | None:
            return _summed(rule, p, q, n, left) if sums and may_compile() else None

        def attempt(left: Budget) -> Marginals:
            if sums and not may_compile():  # where a path sum would leave nothing
                left = replace(left, gap=0.0)
            return summed(left) or Expansion(rule, p, q, n, s, proposal, left, declared).run()

        here = target[i : i + 1, :]
        found = _until_verdict(summed, here, budget) if budget.until_verdict else None
        return found or _until_decided(attempt, here, budget)

    # Compiled path sums release the interpreter lock; positions are independent of each other and of the
    # number of threads.
    return stacked(in_threads(position, range(target.shape[0])))


def _until_decided(attempt: Callable[[Budget], Marginals], target: Array, budget: Budget) -> Marginals:
    """The best of what one position ``(1, V)`` gives within smaller and smaller gaps."""
    best: Marginals | None = None
    spent, decided = 0, False
    for gap in _gaps(budget):
        left = replace(
            budget, gap=gap, most_paths=budget.most_paths - spent, most_states=budget.most_states - spent
        )
        row = attempt(left)
        spent += row.expansions[0]
        if best is None or float(row.gap[0]) <= float(best.gap[0]):
            best = row
        decided = verdict_on(best, target) is not Verdict.UNDECIDED
        if row.exhausted[0] or decided:
            break
    assert best is not None
    enough = float(best.gap[0]) <= budget.gap or (budget.until_verdict and decided)
    return replace(best, expansions=[spent], exhausted=[not enough])


def _until_verdict(
    summed: Callable[[Budget], Marginals | None], target: Array, budget: Budget
) -> Marginals | None:
    """The first verdict that path sums of one position ``(1, V)`` give within gaps that end at the budget's.

    None where they give none: what was spent on it is little beside what comes next. (The general engine
    looks for its verdict as it goes.)
    """
    wanted, spent = 1.0, 0
    while wanted > budget.gap and spent < budget.most_paths:
        row = summed(replace(budget, gap=wanted, most_paths=budget.most_paths - spent))
        if row is None:
            return None
        spent += row.expansions[0]
        if verdict_on(row, target) is not Verdict.UNDECIDED:
            return replace(row, expansions=[spent], exhausted=[False])
        if row.exhausted[0]:
            return None
        # At first anything that is better will do, then a tenth of what is left.
        left = float(row.gap[0])
        wanted = 0.99 * left if wanted == 1.0 else 0.1 * min(left, wanted)
    return None


def _gaps(budget: Budget) -> Iterator[float]:
    """The gaps to try, one after the other, while the verdict is undecided."""
    yield budget.gap
    if budget.until_decided and budget.gap > 0:
        yield from (budget.gap * 1e-3, budget.gap * 1e-6, 0.0)


def _of_rounds(found: Rounds, target: Array, draft: Array, drawn_from: Array, fair: bool) -> Marginals:
    """The marginals of a rule that sums its own rounds, with the bound on their rounding.

    As `_token_free`, of rounds that divide by the mass they leave and by nothing else.
    """
    rows, n = found.left.shape
    roundings = 2 * summation_error(target.shape[-1]) + 8
    base = bound_of_sums(found.sums[:, 0], found.sums[:, 1], n, roundings, eps_of(target))
    rounding = base
    if not fair:
        error, condition = base + underflow(draft, drawn_from), np.ones_like(base)
        for i in range(n):
            rounding = rounding + magnified(found.weights[:, i], condition, error)
            step = ratio_or_all(np.ones_like(base), found.left[:, i])
            condition = np.clip(condition * step, None, ALL)
            rounding = rounding + magnified(found.weights[:, i + 1], condition, error)
        rounding = rounding + magnified(found.weights[:, n], condition, error)
    return Marginals(
        found.placed,
        first=np.zeros((rows, 1), target.dtype),
        unexpanded=np.zeros((rows, n + 1), target.dtype),
        acceptance=found.accepted,
        rounding=rounding,
        expansions=[n] * rows,
        exhausted=[False] * rows,
    )


def _token_free(rule: Rule, target: Array, draft: Array, n: int, drawn_from: Array, fair: bool) -> Marginals:
    """One state a round, all rows at once: O(n V) a position.

    With ``fair`` candidates what is rejected weighs what the residual is divided by, and nothing is
    magnified; with others that is measured.
    """
    xp = array_namespace(target)
    state = rule.start(target, draft, n)
    weight = xp.ones((*target.shape[:-1], 1), dtype=target.dtype, device=target.device)
    placed = compiled.zeros_beside(target) if is_numpy_array(target) else xp.zeros_like(target)
    acceptance = []
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
