"""What a rule does at one node, given the candidates that were drawn there: one law, no randomness.

The operational marginal averages this over the candidates. A decoder draws from it; a recorded tree is
walked with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.evidence.expansion import usable_candidates
from resispec_verify.rules.interface import Rule
from resispec_verify.rules.tuple_rule import TupleRule

__all__ = ["NodeOutcome", "outcome_given_candidates"]


class NodeOutcome(NamedTuple):
    """What is emitted at a node, given its candidates.

    Attributes
    ----------
    emitted : float64 array (n,)
        Probability that the i-th candidate is the one emitted; what is missing to 1 is the probability that
        all are rejected.
    rest : array (V,) or None
        The law drawn from when all are rejected; None where that cannot happen.
    """

    emitted: np.ndarray
    rest: Any


def outcome_given_candidates(rule: Rule, target: Array, draft: Array, candidates: Array) -> NodeOutcome:
    """The law of what a rule emits at one node, given the candidates.

    Parameters
    ----------
    rule : Rule
    target, draft : array (V,)
        Probabilities: the target and the declared draft.
    candidates : sequence of n integers
        In the order drawn. Those beyond what the rule can verify are never emitted.

    Returns
    -------
    NodeOutcome

    Raises
    ------
    InputError
        Fewer candidates than the rule is defined for.
    """
    xp = array_namespace(target, draft)
    drawn = [int(token) for token in candidates]
    n = usable_candidates(rule, len(drawn))
    emitted = np.zeros(len(drawn))
    if isinstance(rule, TupleRule):
        state = rule.start(target, draft, n)
        tuples = xp.asarray([drawn[:n]], dtype=xp.int64, device=target.device)
        emitted[:n] = to_numpy(rule.emitted(state, tuples))[0]
        left = 1.0 - float(emitted.sum())
        return NodeOutcome(emitted, rule.final(state) if left > 0 else None)
    state = rule.start(target, draft, n)
    left = 1.0
    for i, token in enumerate(drawn[:n]):
        accepted = float(xp.reshape(rule.accept(state), (-1,))[token])
        emitted[i] = left * accepted
        left *= 1.0 - accepted
        if left <= 0:
            return NodeOutcome(emitted, None)
        alone = state.residual.ndim == 1
        if rule.depends_on == "nothing":
            state = rule.reject(state, None)
        else:
            shape = (1,) if alone else (*state.residual.shape[:-1], 1)
            state = rule.reject(state, xp.full(shape, token, dtype=xp.int64, device=target.device))
    return NodeOutcome(emitted, xp.reshape(rule.final(state), (-1,)))
