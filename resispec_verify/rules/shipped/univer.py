"""UniVer: weights are handed down a tree, node by node, and tested from the leaves.

Weng et al., UniVer: A Unified Perspective for Multi-step and Multi-draft Speculative Decoding, arXiv
2605.04543, read by its abstract and in a public implementation of it, a kernel in a fork of SGLang. The
children of a node are the draft's best tokens, K - 1 of them, which are certain, and one that is drawn
from the rest s of the draft. With w the weight of the node (1 at the root), the drawn child u has ``a(u)
= min(1, w p(u) / s(u))``; with ``Z = sum (s - w p)_+``, a certain child k has ``a(k) = w p(k) (1 - a(u))
/ Z``. In order, the weight of a child is its a over 1 less those before it. From the leaves to the root,
a leaf is accepted with its weight, and a node whose children all failed with ``1 - (1 - a(u)) (1 - w) / Z
/ (1 - sum a)``; the next token is drawn from ``norm((w p - s)_+)`` without the certain children, or from
the target after a leaf.

Guarantee: exact over the tree. On one path it is block verification. Assumption: children are as above.
The paper claims the best acceptance rate "under the conditional framework". How it treats children that
are drawn in other ways was not to be had, so the rule is for these alone. Deviation: the implementation
tests the drawn child first; here it is the last. Neither a(u) nor a(k) depends on the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.probabilities import at
from resispec_verify.kernels.elementwise.residuals import normalize
from resispec_verify.rules.tree_rule import Siblings, TreeRule, children_of

__all__ = ["UniVer"]


@dataclass(frozen=True)
class UniVer(TreeRule):
    """UniVer on a tree of the best tokens and a drawn one."""

    name = "univer"
    claims_exact = True
    source = "UniVer (Weng et al. 2026, arXiv 2605.04543), a fork's code"
    place = 330
    siblings: ClassVar[Siblings] = "best-and-one"

    def outcome(
        self, targets: Array, drafts: Array, tokens: Any, parents: tuple[int, ...]
    ) -> tuple[Array, Array]:
        """See `TreeRule.outcome`."""
        xp = array_namespace(targets, drafts, tokens)
        children = children_of(parents)
        weights: list[Any] = [xp.ones(tokens.shape[:-1], dtype=targets.dtype, device=targets.device)]
        weights += [None] * (len(parents) - 1)
        passes, laws = list(weights), [targets[..., node, :] for node in range(len(parents))]
        for node, below in enumerate(children):
            if not below:
                passes[node] = weights[node]
                continue
            given = [tokens[..., child : child + 1] for child in below]
            shares, passes[node], laws[node] = _handed_down(
                weights[node], targets[..., node, :], drafts[..., node, :], given
            )
            left = xp.ones_like(weights[node])
            for child, share in zip(below, shares, strict=True):
                weights[child] = _over(share, left, 0.0)
                left = left - share
        ends: list[Any] = [None] * len(parents)
        left = xp.ones_like(weights[0])
        for node in _leaves_first(children):
            ends[node] = left * passes[node]
            left = left * (1.0 - passes[node])
        return xp.stack(ends, axis=-1), xp.stack(laws, axis=-2)


def _handed_down(weight: Array, p: Array, q: Array, given: list[Any]) -> tuple[list[Any], Array, Array]:
    """What each child has of the node, the node's own test, and what follows it; the last child was drawn."""
    xp = array_namespace(weight, p, q)
    vocab = xp.arange(q.shape[-1], dtype=given[0].dtype, device=q.device)
    certain = xp.zeros(p.shape, dtype=xp.bool, device=p.device)
    for token in given[:-1]:
        certain = certain | (vocab == token)
    rest = xp.where(certain, 0.0, q)
    rest = normalize(rest, rest)
    held = weight[..., None] * p
    missing = xp.sum(xp.clip(rest - held, 0.0, None), axis=-1)
    drawn = xp.clip(_over(at(held, given[-1])[..., 0], at(rest, given[-1])[..., 0], 0.0), None, 1.0)
    failed = _over(1.0 - drawn, missing, 0.0)
    shares = [at(held, token)[..., 0] * failed for token in given[:-1]] + [drawn]
    left = xp.ones_like(weight)
    for share in shares:
        left = left - share
    # Where no child can fail, the test does not matter.
    passes = xp.clip(1.0 - _over(failed * (1.0 - weight), left, 0.0), 0.0, 1.0)
    return shares, passes, normalize(xp.where(certain, 0.0, xp.clip(held - rest, 0.0, None)), p)


def _over(value: Array, by: Array, otherwise: float) -> Array:
    """Value / by where that can be divided by."""
    xp = array_namespace(value, by)
    return xp.where(by > 0, value / xp.where(by > 0, by, 1.0), otherwise)


def _leaves_first(children: list[list[int]]) -> list[int]:
    """The nodes, each after all below it, siblings in order."""
    found, visits = [], [0]
    while visits:
        found.append(visits.pop())
        visits += children[found[-1]]
    return found[::-1]
