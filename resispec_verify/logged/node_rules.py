"""The law of one emitted token given the tokens before it and how far its round had come.

A round walks from depth to depth. Let the history hold the text so far and which of its tokens were accepted
candidates; it says at which depth the next token is emitted. Given it, the token has a law ``mu``:

- where a candidate is tested at this depth alone (`Rule`, and typical acceptance): the rule's marginal at one
  position, over the candidate and the coin. Those before were accepted for what they are, and those after are
  drawn later: neither moves the candidate's own law.
- at the last depth, after all drafts: the law of the bonus token.
- block verification: the target. With ``w_k`` of the prefix, a continuation is accepted beyond it with
  probability ``sum min(q, w_k p)``, and is not with ``S_k = sum (w_k p - q)_+``; so a token y follows with
  ``min(q, w_k p)(y) + (w_k p - q)_+(y)``, out of ``w_k`` (Sun et al. 2024, the lemma behind their theorem 1;
  see docs/howto/weigh-rollouts.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.evidence.enumeration import Budget, operational_marginals
from resispec_verify.kernels.elementwise.probabilities import one_hot
from resispec_verify.logged.replay import replayable
from resispec_verify.rules import Block, PathRule, Rule
from resispec_verify.rules.proposals import Greedy, Iid
from resispec_verify.rules.shipped.easd import entropy
from resispec_verify.rules.shipped.medusa import Medusa
from resispec_verify.rules.shipped.relaxed import Relaxed

__all__ = ["Laws", "Typical", "laws_of", "laws_of_round", "node_rule"]

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Laws:
    """What is known of the laws of some tokens.

    Attributes
    ----------
    placed : float64 array (B, V)
        Mass that is certain, up to rounding.
    gap, rounding : float64 array (B,)
        Mass that may lie anywhere, and a bound on the rounding of ``placed`` in total variation.
    inside : bool
        Whether the gap lies where the target is positive.
    """

    placed: np.ndarray
    gap: np.ndarray
    rounding: np.ndarray
    inside: bool = True

    def beside(self, after: np.ndarray) -> Laws:
        """The same with one law ``(V,)`` more, known but for the rounding of its own sum."""
        return Laws(
            np.concatenate([self.placed, after[None, :]]),
            np.append(self.gap, 0.0),
            np.append(self.rounding, 8 * _EPS),
            self.inside,
        )


@dataclass(frozen=True)
class Typical(Rule):
    """Medusa's typical acceptance at one depth of its path."""

    delta: float = Medusa.delta
    alpha: float = Medusa.alpha
    correction: str = Medusa.correction

    name = "medusa"
    claims_exact = False
    source = Medusa.source
    depends_on = "nothing"
    most_candidates = 1
    rejects_its_residual = False

    def accept(self, state: Any) -> Array:
        """1 where the target's probability is above the threshold, else 0."""
        xp, p = array_namespace(state.residual), state.residual
        threshold = xp.clip(self.alpha * xp.exp(-entropy(p)), None, self.delta)
        return xp.astype(p > threshold, p.dtype)

    def reject(self, state: Any, tokens: Array) -> Any:
        """The target, or its best token."""
        return replace(state, residual=self.correct(state.residual), round=state.round + 1)

    def correct(self, target: Array) -> Array:
        """The law of the token after the accepted ones."""
        if self.correction == "target":
            return target
        xp = array_namespace(target)
        return one_hot(xp.argmax(target, axis=-1), target.shape[-1], dtype=target.dtype)


def node_rule(rule: Rule | PathRule, where: str, *, rounds: bool) -> Rule | Block:
    """The rule as laws of single tokens are made from it.

    Parameters
    ----------
    where : str
        Begins errors.
    rounds : bool
        Whether rounds are logged, or single positions.

    Raises
    ------
    InputError
        A rule whose tokens have no law of their own in such a log.
    """
    if isinstance(rule, Medusa):
        return Typical(rule.delta, rule.alpha, rule.correction)
    if rounds:
        return replayable(rule, where)
    if not isinstance(rule, Rule):
        raise InputError(f"{where}: verifies paths of several tokens; its weights need a rounds dump")
    return rule


def laws_of(
    rule: Rule,
    target: np.ndarray,
    draft: np.ndarray,
    candidates: int,
    drawn_from: np.ndarray | None,
    budget: Budget,
    *,
    sampled: bool = False,
) -> Laws:
    """The rule's marginals at positions ``(B, V)``; ``sampled`` says that candidates are drawn from their
    rows also where the rule expects the best tokens.
    """
    proposal = Iid() if sampled and isinstance(rule.proposal, Greedy) else None
    found = operational_marginals(
        rule, target, draft, candidates, drawn_from=drawn_from, proposal=proposal, budget=budget
    )
    return Laws(
        np.asarray(found.placed, np.float64),
        np.asarray(found.gap, np.float64),
        np.asarray(found.rounding, np.float64),
        rule.stays_in_support,
    )


def laws_of_round(
    rule: Rule | Block,
    p: np.ndarray,
    q: np.ndarray,
    tokens: np.ndarray,
    drawn_from: np.ndarray | None,
    budget: Budget,
) -> Laws:
    """The laws of the tokens that one round emitted.

    Parameters
    ----------
    p : float64 array (m, V)
        The target's rows of the m emitted tokens.
    q : float64 array (m or m - 1, V)
        The draft's; one less where the last token followed all drafts.
    tokens : int array (m,)
        What was emitted.
    drawn_from : float64 array, optional
        What the drafts were really drawn from; as q.
    """
    tested = len(q)
    if isinstance(rule, Block):
        laws = _of_block(p[:tested], q, tokens)
    elif tested:
        laws = laws_of(rule, p[:tested], q, 1, drawn_from, budget, sampled=True)
    else:
        nothing = np.zeros(0)
        laws = Laws(np.empty((0, p.shape[-1])), nothing, nothing, rule.stays_in_support)
    return laws if tested == len(p) else laws.beside(_bonus(rule, p[-1]))


def _of_block(p: np.ndarray, q: np.ndarray, tokens: np.ndarray) -> Laws:
    placed, weight = np.empty_like(p), 1.0
    for i, (target, draft) in enumerate(zip(p, q, strict=True)):
        reached = weight * target
        if weight > 0:
            placed[i] = (np.minimum(draft, reached) + np.clip(reached - draft, 0.0, None)) / weight
        else:  # the prefix cannot have been accepted: the token before says so
            placed[i] = target
        x = int(tokens[i])
        weight = min(1.0, float(reached[x] / draft[x])) if draft[x] > 0 else 0.0
    # Two products, a difference, a sum and a quotient: 5 roundings of each token's mass.
    return Laws(placed, np.zeros(len(p)), np.full(len(p), 8 * _EPS))


def _bonus(rule: Rule | Block, target: np.ndarray) -> np.ndarray:
    """The law ``(V,)`` of the token after all drafts."""
    if isinstance(rule, Typical):
        return np.asarray(rule.correct(target))
    if isinstance(rule, Relaxed):  # the kernel emits its best token there too
        return np.eye(1, len(target), int(np.argmax(target)))[0]
    return target
