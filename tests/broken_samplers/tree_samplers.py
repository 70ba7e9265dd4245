"""Samplers of the tree style: exact ones, and faults by keyword."""

from __future__ import annotations

import numpy as np
from samplers import EMPTY, at, one_hot, pick, residual


def tree_speculative(
    targets, drafts, tokens, parents, rng, *, without_replacement=False, updates_residual=True, descends=False
):
    """SpecInfer (i.i.d.) or Sequoia (without replacement) from the root down, sibling by sibling.

    Faults: siblings that were drawn without replacement tested as i.i.d. (leave ``without_replacement``
    out), a residual that stays as it was after a rejection, children of a rejected node that are tested too.
    """
    rows, nodes = tokens.shape
    out = np.full((rows, nodes + 1), EMPTY)
    row, emitted, here = np.arange(rows), np.zeros(rows, int), np.zeros(rows, int)
    rest, declared = targets[:, 0].copy(), drafts[:, 0].copy()
    rejected = np.zeros((rows, nodes + 1), bool)
    for node in range(1, nodes + 1):
        x, parent = tokens[:, node - 1], parents[node - 1] + 1
        tried = here == parent
        if descends:
            tried |= rejected[:, parent]
        accept = tried & (rng.random(rows) * at(declared, x) < at(rest, x))
        rejected[:, node] = tried & ~accept
        left = residual(rest, declared) if updates_residual else rest
        if without_replacement:
            kept = np.where(one_hot(x, targets.shape[-1]) > 0, 0.0, declared)
            total = kept.sum(axis=-1, keepdims=True)
            declared = np.where((tried & ~accept)[:, None], kept / np.where(total > 0, total, 1.0), declared)
        rest = np.where(accept[:, None], targets[:, node], np.where(tried[:, None], left, rest))
        declared = np.where(accept[:, None], drafts[:, node], declared)
        out[row[accept], emitted[accept]] = x[accept]
        emitted += accept
        here = np.where(accept, node, here)
    out[row, emitted] = pick(rng, rest)
    return out[:, : 1 + depth_of(parents)]


def depth_of(parents) -> int:
    depth = []
    for parent in parents:
        depth.append(1 if parent < 0 else depth[parent] + 1)
    return max(depth)


def sequoia_tree(targets, drafts, tokens, parents, rng):
    return tree_speculative(targets, drafts, tokens, parents, rng, without_replacement=True)


def residual_not_updated(targets, drafts, tokens, parents, rng):
    """The residual stays the target between siblings."""
    return tree_speculative(targets, drafts, tokens, parents, rng, updates_residual=False)


def children_of_a_rejected_node(targets, drafts, tokens, parents, rng):
    return tree_speculative(targets, drafts, tokens, parents, rng, descends=True)


def tree_match(targets, drafts, tokens, parents, rng):
    """The target's own draw, as long as it is a child: exact, however the tree was made."""
    return matched(targets, tokens, parents, rng)[0]


def tree_match_with_lengths(targets, drafts, tokens, parents, rng):
    """The same, with the accepted lengths."""
    return matched(targets, tokens, parents, rng)


def tree_match_counts_the_last(targets, drafts, tokens, parents, rng):
    """Accepted lengths that count the token after the accepted ones."""
    out, accepted = matched(targets, tokens, parents, rng)
    return out, np.minimum(accepted + 1, depth_of(parents))


def tree_match_names_another_path(targets, drafts, tokens, parents, rng):
    """Says that one more token was accepted than were, and draws another one for it."""
    out, accepted = matched(targets, tokens, parents, rng)
    short = (accepted == 0) & (depth_of(parents) > 0)
    out[short, 1] = 0
    return out, np.where(short, 1, accepted)


def matched(targets, tokens, parents, rng):
    rows, nodes = tokens.shape
    out = np.full((rows, 1 + depth_of(parents)), EMPTY)
    row, emitted, here = np.arange(rows), np.zeros(rows, int), np.zeros(rows, int)
    x = pick(rng, targets[:, 0])
    for node in range(1, nodes + 1):
        hit = (here == parents[node - 1] + 1) & (x == tokens[:, node - 1])
        out[row[hit], emitted[hit]] = x[hit]
        emitted += hit
        here = np.where(hit, node, here)
        x = np.where(hit, pick(rng, targets[:, node]), x)
    out[row, emitted] = x
    return out, emitted
