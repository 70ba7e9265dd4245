"""Traversal verification: a tree is verified from its leaves to its root, and a path is kept as a whole.

Weng et al., Traversal Verification for Speculative Tree Decoding, NeurIPS 2025, arXiv 2505.12398
(Algorithm 1), read by its abstract and in two public implementations of it. Every node has a weight: 1 at
the root, and ``w_c = min(1, w_u p_u(c) / q_u(c))`` at a child c of u. The first leaf in depth-first order
is accepted with its weight, together with all its ancestors, and the next token is drawn from its p. Else
it is deleted, and its parent u is changed: with ``S = sum (w_u p_u - q_u)_+``, ``p_u <- (w_u p_u - q_u)_+
/ S``, ``w_u <- S / (S + 1 - w_u)``, and the deleted token is struck out of q_u. Weights below u follow; a
node whose children are all deleted is a leaf.

Guarantee: exact over the tree (the accepted tokens, the corrected one, and the target's own
continuation). On one path it is block verification. Assumption: siblings are drawn without replacement
from the declared draft. No deviations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.probabilities import at
from resispec_verify.kernels.elementwise.residuals import normalize
from resispec_verify.rules.tree_rule import Siblings, TreeRule, children_of

__all__ = ["Traversal"]


@dataclass(frozen=True)
class Traversal(TreeRule):
    """Traversal verification of one tree."""

    name = "traversal"
    claims_exact = True
    source = "Traversal Verification (Weng et al. 2025, arXiv 2505.12398)"
    place = 310
    siblings: ClassVar[Siblings] = "without-replacement"

    def outcome(
        self, targets: Array, drafts: Array, tokens: Any, parents: tuple[int, ...]
    ) -> tuple[Array, Array]:
        """See `TreeRule.outcome`."""
        xp = array_namespace(targets, drafts, tokens)
        children = children_of(parents)
        ends: list[Any] = [None] * len(parents)
        laws: list[Any] = [None] * len(parents)
        weights: list[Any] = [None] * len(parents)
        weights[0] = xp.ones(tokens.shape[:-1], dtype=targets.dtype, device=targets.device)
        p = {0: targets[..., 0, :]}
        q = {0: drafts[..., 0, :]}
        left, visits = (
            weights[0],
            [(0, 0)],
        )  # not accepted so far; (node, how many of its children are deleted)
        while visits:
            node, deleted = visits.pop()
            if deleted < len(children[node]):
                child = children[node][deleted]
                visits += [(node, deleted + 1), (child, 0)]
                token = tokens[..., child : child + 1]
                weights[child] = _weight(
                    weights[node], at(p[node], token)[..., 0], at(q[node], token)[..., 0]
                )
                p[child], q[child] = targets[..., child, :], drafts[..., child, :]
                continue
            ends[node], laws[node] = left * weights[node], p[node]
            left = left * (1.0 - weights[node])
            if (parent := parents[node]) >= 0:
                token = tokens[..., node : node + 1]
                weights[parent], p[parent] = _rejected(weights[parent], p[parent], q[parent])
                q[parent] = _without(q[parent], token)
        return xp.stack(ends, axis=-1), xp.stack(laws, axis=-2)


def _weight(weight: Array, p: Array, q: Array) -> Array:
    """``min(1, w p / q)``, and 0 for a token that the draft cannot have drawn; ``(...,)``."""
    xp = array_namespace(weight)
    below = weight * p < q
    ratio = xp.where(below, weight * p / xp.where(below, q, 1.0), 1.0)
    return xp.where(q > 0, ratio, 0.0)


def _rejected(weight: Array, p: Array, q: Array) -> tuple[Array, Array]:
    """Weight ``(...,)`` and law ``(..., V)`` of a node after a child of it was deleted."""
    xp = array_namespace(weight)
    excess = xp.clip(weight[..., None] * p - q, 0.0, None)
    room = xp.sum(excess, axis=-1)
    total = room + 1.0 - weight
    # Both are 0 where w p = q: then no child is deleted, and any weight does.
    return xp.where(total > 0, room / xp.where(total > 0, total, 1.0), 1.0), normalize(excess, p)


def _without(q: Array, token: Any) -> Array:
    """The draft's law without that token; itself where nothing is left."""
    xp = array_namespace(q)
    vocab = xp.arange(q.shape[-1], dtype=token.dtype, device=q.device)
    return normalize(xp.where(vocab == token, 0.0, q), q)
