"""What a rule over whole trees really emits, on toy chains: the joint law of a block against the target's.

As for a path, a block is completed to one token more than the tree is deep by the target's own continuation,
and the rule is exact over the tree when that joint law is the target's. Every tree of the shape is
enumerated, in floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from resispec_verify.errors import InputError
from resispec_verify.evidence.path_rules import PathMarginal, joint_law, levels_of
from resispec_verify.inputs import shown
from resispec_verify.rules.tree_rule import TreeRule, children_of

__all__ = ["tree_marginal"]

# Trees of a shape, times nodes, times tokens, that fit in memory.
_MOST_ELEMENTS = 1 << 25


def tree_marginal(
    rule: TreeRule, targets: Sequence[Any], drafts: Sequence[Any], parents: Sequence[int]
) -> PathMarginal:
    """Enumerate every drafted tree of a shape on a toy chain.

    Parameters
    ----------
    rule : TreeRule
    targets : sequence of L + 1 arrays
        Level i is ``(V,) * (i + 1)``: the target's law of token i + 1 after each prefix of i tokens.
    drafts : sequence of L arrays
        The same for the draft, from which the rule's `siblings` are drawn.
    parents : sequence of int
        The shape, L tokens deep: the parent of each node, -1 for the root, node 0; parents come first.

    Returns
    -------
    PathMarginal
        ``accepted`` by the depth of the node at which the tree is left.

    Raises
    ------
    InputError
        Levels or parents that are not so, more children than tokens of mass where siblings differ, or a shape
        with too many trees to enumerate.
    """
    if isinstance(rule, type) or not isinstance(rule, TreeRule):
        raise InputError(f"rule must be a TreeRule, such as rules.Traversal(); got {shown(rule)}")
    parents, depths = _depths(parents)
    length = max(depths)
    if (len(targets), len(drafts)) != (length + 1, length):
        raise InputError(
            f"a tree {length} tokens deep needs {length + 1} target levels and {length} draft levels, got "
            f"{len(targets)} and {len(drafts)}"
        )
    targets = levels_of(targets, "targets")
    vocab = targets[0].shape[-1]
    drafts = levels_of(drafts, "drafts", vocab)
    if vocab ** (len(parents) - 1) * len(parents) * vocab > _MOST_ELEMENTS:
        raise InputError(f"a tree of {len(parents)} nodes over {vocab} tokens is too much to enumerate")
    tokens = np.indices((vocab,) * (len(parents) - 1)).reshape(len(parents) - 1, -1).T
    tokens = np.concatenate([np.zeros((len(tokens), 1), tokens.dtype), tokens], axis=1)
    prefixes = _prefixes(tokens, parents)
    weights = _weights(rule.siblings, tokens, prefixes, parents, drafts)
    drawn = weights > 0
    tokens, weights = tokens[drawn], weights[drawn]
    prefixes = [tuple(column[drawn] for column in prefix) for prefix in prefixes]
    p = np.stack(
        [targets[d][at] + np.zeros((len(tokens), 1)) for d, at in zip(depths, prefixes, strict=True)], 1
    )
    last = np.zeros((len(tokens), vocab))
    q = np.stack(
        [drafts[d][at] + last if d < length else last for d, at in zip(depths, prefixes, strict=True)], 1
    )
    ends, corrections = rule.outcome(p, q, tokens, parents)
    joint, accepted = _completed(weights[:, None] * ends, corrections, prefixes, targets)
    # As for a path, but a law passes through a sum and a division for each child deleted before it.
    roundings = (len(parents) + 1) * (2 * vocab + 8) * (length + 1) + len(tokens)
    off = sum(float(np.abs(1.0 - level.sum(axis=-1)).max()) for level in (*targets, *drafts))
    rounding = off + 0.5 * float(np.finfo(np.float64).eps) * roundings
    return PathMarginal(joint, joint_law(targets), accepted, rounding)


def _completed(
    reach: np.ndarray,
    corrections: np.ndarray,
    prefixes: list[tuple[np.ndarray, ...]],
    targets: list[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """The law of completed blocks, and the mass left at each depth."""
    joint, accepted = np.zeros((targets[0].size,) * len(targets)), np.zeros(len(targets))
    for node, prefix in enumerate(prefixes):
        depth = len(prefix)
        block = np.zeros((targets[0].size,) * (depth + 1))
        emitted = reach[:, node, None] * corrections[:, node, :]
        if depth:
            np.add.at(block, prefix, emitted)
        else:
            block = emitted.sum(axis=0)
        for level in targets[depth + 1 :]:
            block = block[..., None] * level
        joint += block
        accepted[depth] += reach[:, node].sum()
    return joint, accepted


def _depths(parents: Sequence[int]) -> tuple[tuple[int, ...], list[int]]:
    """Parents as a tuple, and the depth of each node."""
    found = tuple(int(parent) for parent in parents)
    if not found or found[0] != -1 or any(not 0 <= u < v for v, u in enumerate(found[1:], start=1)):
        raise InputError(f"parents must begin with -1 and name earlier nodes, got {shown(parents)}")
    depths = [0]
    for parent in found[1:]:
        depths.append(depths[parent] + 1)
    return found, depths


def _prefixes(tokens: np.ndarray, parents: tuple[int, ...]) -> list[tuple[np.ndarray, ...]]:
    """The tokens up to each node, one column each."""
    found: list[tuple[np.ndarray, ...]] = [()]
    for node, parent in enumerate(parents[1:], start=1):
        found.append((*found[parent], tokens[:, node]))
    return found


def _weights(
    siblings: str,
    tokens: np.ndarray,
    prefixes: list[tuple[np.ndarray, ...]],
    parents: tuple[int, ...],
    drafts: list[np.ndarray],
) -> np.ndarray:
    """Probability of each tree, ``(T,)``; see `rules.tree_rule.Siblings`."""
    weights = np.ones(len(tokens))
    for parent, children in enumerate(children_of(parents)):
        prefix = prefixes[parent]
        if not children:
            continue
        law = drafts[len(prefix)][prefix] + np.zeros((len(tokens), 1))
        for child in children:
            total = law.sum(axis=1)
            if ((total <= 0) & (weights > 0)).any():
                raise InputError(f"node {parent} has more children than tokens that the draft can draw")
            mass = np.take_along_axis(law, tokens[:, child, None], axis=1)[:, 0]
            if siblings == "best-and-one" and child != children[-1]:
                weights = weights * (law.argmax(axis=1) == tokens[:, child])
            elif siblings == "iid":
                weights = weights * mass
            else:
                weights = weights * mass / np.where(total > 0, total, 1.0)
            if siblings != "iid":
                law = np.where(np.arange(law.shape[1]) == tokens[:, child, None], 0.0, law)
    return weights
