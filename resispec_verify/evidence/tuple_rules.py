"""The operational marginal of a rule that decides about all its candidates at once: over every tuple."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.errors import InputError
from resispec_verify.evidence.marginal import Marginals, magnified, number, rounding_bound, summation_error
from resispec_verify.rules.proposals import Iid, Proposal
from resispec_verify.rules.tuple_rule import TupleRule

__all__ = ["all_tuples", "tuple_marginals"]

# Probabilities of one level of tuples (tuples x vocab) that fit in memory.
_MOST_ELEMENTS = 1 << 24


def tuple_marginals(
    rule: TupleRule, target: Array, draft: Array, candidates: int, drawn_from: Array, proposal: Proposal
) -> Marginals:
    """Marginals at each position; nothing is left unexpanded. Arguments as in `operational_marginals`.

    Raises
    ------
    InputError
        A proposal that does not list its own tuples, on more of them than fit in memory.
    """
    xp = array_namespace(target)
    like = {"dtype": target.dtype, "device": target.device}
    placed, acceptance, evaluated, terms, left = [], [], [], [0], []
    for i in range(target.shape[0]):
        state = rule.start(target[i, :], draft[i, :], candidates)
        law = rule.emitted_law(state, drawn_from[i, :], candidates) if isinstance(proposal, Iid) else None
        if law is not None:
            mass = to_numpy(law).astype(np.float64)
            total = float(mass.sum())
            rest = max(float(to_numpy(drawn_from[i, :]).sum()) - total, 0.0)
            accepted, count = np.full(candidates, total / candidates), 1
            terms.append(3 * len(mass))  # prefix sums over pieces of the vocabulary, up to three a token
        else:
            tokens, weights = all_tuples(proposal, drawn_from[i, :], candidates)
            given = rule.emitted(state, xp.asarray(tokens, device=target.device))
            emitted = weights[:, None] * to_numpy(given).astype(np.float64)
            mass = np.zeros(target.shape[1])
            for column, share in zip(tokens.T, emitted.T, strict=True):
                mass += np.bincount(np.clip(column, 0, None), weights=share, minlength=mass.size)
            rest = max(float((weights - emitted.sum(axis=1)).sum()), 0.0)
            accepted, count = emitted.sum(axis=0), len(tokens)
            terms.append(count)
        left.append((rest, rule.final_condition(state)))
        placed.append(mass + rest * to_numpy(rule.final(state)).astype(np.float64))
        acceptance.append(accepted)
        evaluated.append(count)
    eps = float(xp.finfo(target.dtype).eps)
    rows, vocab = target.shape
    # Row sums in the working precision; then a token collects its tuples one after the other, in float64.
    collected = max(terms) * float(np.finfo(np.float64).eps) / eps
    roundings = 4 * summation_error(vocab) + 24 + collected
    base = to_numpy(rounding_bound(target, drawn_from, candidates, roundings, eps)).astype(np.float64)
    divided = [
        float(magnified(weight, number(condition), bound))
        for (weight, condition), bound in zip(left, base.tolist(), strict=True)
    ]
    return Marginals(
        xp.asarray(np.stack(placed), **like),
        first=xp.zeros((rows, 1), **like),  # nothing is left to estimate
        unexpanded=xp.zeros((rows, candidates + 1), **like),
        acceptance=xp.asarray(np.stack(acceptance), **like),
        rounding=xp.asarray(base + np.asarray(divided), **like),
        expansions=evaluated,
        exhausted=[False] * rows,
    )


def all_tuples(proposal: Proposal, draft: Array, candidates: int) -> tuple[np.ndarray, np.ndarray]:
    """Every tuple that has mass: tokens ``(T, n)``, -1 where there is no further candidate, and ``(T,)``.

    From the proposal itself where it has ``tuples``, else candidate by candidate from ``next``.
    """
    listed = getattr(proposal, "tuples", None)
    if listed is not None:
        return listed(to_numpy(draft).astype(np.float64))
    xp, vocab = array_namespace(draft), draft.shape[-1]
    tokens, weights = np.zeros((1, 0), np.int64), np.ones(1)
    for _ in range(candidates):
        if len(weights) * vocab > _MOST_ELEMENTS:
            raise InputError(
                f"proposal {proposal.name!r} has too many tuples of {candidates} candidates to enumerate "
                f"at a vocabulary of {vocab}; lower the number of candidates, or use the rule's own proposal"
            )
        drawn = tuple(xp.asarray(column, device=draft.device) for column in tokens.T)
        rows = xp.broadcast_to(draft, (len(weights), vocab))
        law = to_numpy(proposal.next(rows, drawn)).astype(np.float64)
        if tokens.shape[1]:
            law = np.where(tokens[:, -1:] < 0, 0.0, law)
        missing = 1.0 - law.sum(axis=1)
        missing[missing <= summation_error(vocab) * float(xp.finfo(draft.dtype).eps)] = 0.0
        law = weights[:, None] * np.concatenate([law, missing[:, None]], axis=1)
        tuples, last = np.nonzero(law)
        weights = law[tuples, last]
        last = np.where(last == vocab, -1, last)
        tokens = np.concatenate([tokens[tuples], last[:, None]], axis=1)
    return tokens, weights
