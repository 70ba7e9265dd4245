"""What bounds the expected length of a step of an exact rule, estimated from the candidates of one tree.

Let p(s) be the probability that the text of the target goes on with the tokens s, and pi(s) the probability
that s is a path of the tree of candidates. A step of an exact rule that emits at least k
candidates emits the first k tokens of a text of law p and takes them from the tree, so

``P(at least k) <= sum_s min(p(s), pi(s))`` over all s of length k.

If the rule decides at a node by the candidates of that node, those below a node that was just reached are
fresh draws. There it emits x as a candidate with at most ``min(p(x | s), pi_1(x | s))``, pi_1 the probability
that x is among them, and passes the level with at most their limit OT(s):

``P(at least k + 1) <= sum_s m(s) OT(s)``, ``m(s)`` the product of the ``min(p, pi_1)`` on the way to s.

A sum of f(s) over all s is estimated from the paths S of one tree by ``sum over S of f(s) / pi(s)``, unbiased
since s is in S with probability pi(s) (Horvitz and Thompson 1952). A smaller number for pi, and a larger one
for pi_1, make its mean larger, so the bound stays one. See docs/trees.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resispec_verify.arrays import Array
from resispec_verify.distributions import Sampling
from resispec_verify.kernels.optimal.inclusion import included_without_replacement
from resispec_verify.rules import Greedy, Iid, Proposal, WithoutReplacement
from resispec_verify.topology import Topology

__all__ = ["PrefixTree", "limits_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PrefixTree:
    """The laws at the nodes of one recorded tree, and its candidates.

    Attributes
    ----------
    target_laws, draft_laws : float64 array (rows, V)
    target_row, draft_row : int array (nodes,)
        In which row the law after a node is.
    tokens : int array (nodes,)
    sampling : Sampling
    """

    target_laws: Floats
    draft_laws: Floats
    target_row: NDArray[np.int64]
    draft_row: NDArray[np.int64]
    tokens: NDArray[np.int64]
    sampling: Sampling

    def target(self, node: int) -> Floats:
        """The target ``(V,)`` after a node."""
        return self.target_laws[self.target_row[node]]

    def draft(self, node: int) -> Floats:
        """The draft ``(V,)`` after a node."""
        return self.draft_laws[self.draft_row[node]]


def limits_of(
    tree: PrefixTree, topology: Topology, places: Sequence[int], proposal: Proposal
) -> tuple[float | None, float | None]:
    """Bounds on the expected length: of exact rules that decide node by node, and of all exact rules.

    Parameters
    ----------
    topology : Topology
        The part of the recorded tree that is used.
    places : sequence of int
        Which recorded nodes its nodes are.
    proposal : Proposal
        How the siblings were drawn.

    Returns
    -------
    float or None, twice
        Each has a mean over the candidates that is a bound; None for proposals that have none here, and where
        a path is so unlikely that its probability is 0 in float64.
    """
    if not isinstance(proposal, (Iid, WithoutReplacement, Greedy)):
        return None, None
    if topology.nodes == 1:
        return 1.0, 1.0
    root = _one_node(tree, topology, places, 0, proposal, len(topology.children[0]))
    by_node = any_rule = 1.0 + root
    for depth in range(1, topology.levels):
        level = [node for node, d in enumerate(topology.depths) if d == depth]
        if depth > 1:
            any_rule += sum(share for _, _, share in _shares(tree, topology, places, proposal, level))
        inner = [node for node in level if topology.children[node]]
        most = max((len(topology.children[node]) for node in inner), default=0)
        by_node += sum(
            share * _one_node(tree, topology, places, node, proposal, most)
            for node, share, _ in (_shares(tree, topology, places, proposal, inner) if inner else ())
        )
    found = by_node, any_rule
    return found[0] if np.isfinite(found[0]) else None, found[1] if np.isfinite(found[1]) else None


def _one_node(
    tree: PrefixTree, topology: Topology, places: Sequence[int], node: int, proposal: Array, candidates: int
) -> float:
    target, draft = tree.target(places[node]), tree.draft(places[node])
    if isinstance(proposal, Greedy):  # the ones that are there, however ties were broken
        return float(target[tree.tokens[[places[child] for child in topology.children[node]]]].sum())
    return float(proposal.limit(target, draft, candidates))


def _shares(
    tree: PrefixTree, topology: Topology, places: Sequence[int], proposal: Proposal, nodes: Sequence[int]
) -> list[tuple[int, float, float]]:
    """Of each different path to `nodes`, all of one depth: its end, ``m / pi`` and ``min(p / pi, 1)``."""
    paths: dict[tuple[int, ...], list[int]] = {}
    for node in nodes:
        line = [node]
        while topology.parents[line[-1]] > 0:
            line.append(topology.parents[line[-1]])
        line.reverse()
        paths.setdefault(tuple(int(tree.tokens[places[n]]) for n in line), line)
    lines = np.asarray(list(paths.values()))  # (paths, depth): the nodes under the root
    most = max(map(len, topology.children))
    widest = [0] * topology.levels
    for depth, children in zip(topology.depths, topology.children, strict=True):
        widest[depth] = max(widest[depth], len(children))
    target, passed = np.empty(lines.shape), np.empty(lines.shape)
    held, above = np.empty((2, *lines.shape, most))
    known: dict[int, tuple[Floats, Floats]] = {}
    for at in np.ndindex(lines.shape):
        node = int(lines[at])
        before, token = places[topology.parents[node]], int(tree.tokens[places[node]])
        if node not in known:
            known[node] = _held(tree.draft(before), token, most, proposal)
        target[at] = tree.target(before)[token]
        held[at], above[at] = known[node]
        passed[at] = min(target[at], above[at][widest[at[1]] - 1])
    if isinstance(proposal, Greedy):
        inside = np.ones(len(lines))
    else:
        inside = _inside(topology, set(nodes), proposal, held, above, 0, 0)
    with np.errstate(divide="ignore", invalid="ignore"):  # below 1e-308
        by_node = passed.prod(axis=1) / inside
        any_rule = np.minimum(target.prod(axis=1) / inside, 1.0)
    return list(zip(lines[:, -1].tolist(), by_node.tolist(), any_rule.tolist(), strict=True))


def _held(draft: Floats, token: int, most: int, proposal: Proposal) -> tuple[Floats, Floats]:
    """P(a token is among the first m siblings), m = 1 .. most, from below and from above."""
    if isinstance(proposal, Greedy):
        return np.ones(most), np.ones(most)  # paths are only asked for that are there
    if isinstance(proposal, Iid):
        with np.errstate(divide="ignore"):  # a sure token: log 0
            held = -np.expm1(np.arange(1, most + 1) * np.log1p(-draft[token]))
        return held, held
    return (
        included_without_replacement(draft, token, most),
        included_without_replacement(draft, token, most, above=True),
    )


def _inside(
    topology: Topology,
    ends: set[int],
    proposal: Proposal,
    held: Floats,
    above: Floats,
    node: int,
    depth: int,
) -> Floats:
    """P(a path below a node ends in `ends`), ``(paths,)``; exact for i.i.d. siblings, else from below.

    ``held (paths, depth, m)`` holds the probability that each token of each path is among m siblings, from
    below; ``above`` from above.
    """
    if depth == held.shape[1]:
        return np.full(len(held), float(node in ends))
    below = []
    for child in topology.children[node]:  # no comprehension, which is a frame more: trees have many levels
        below.append(_inside(topology, ends, proposal, held, above, child, depth + 1))
    if not below:
        return np.zeros(len(held))
    if isinstance(proposal, Iid):
        with np.errstate(divide="ignore"):
            return -np.expm1(np.sum([np.log1p(-held[:, depth, 0] * share) for share in below], axis=0))
    # A token that is among the first m stands before a tree at least as good as the worst of theirs.
    least = np.minimum.accumulate(below, axis=0)
    among = np.max([held[:, depth, m] * least[m] for m in range(len(below))], axis=0)
    # It comes (m + 1)-th with held[m] - held[m - 1], and, not being there before, with at least its q.
    before = np.pad(above[:, depth, : len(below) - 1], ((0, 0), (1, 0)))
    comes = np.maximum(held[:, depth, : len(below)] - before, held[:, depth, :1] * (1.0 - before))
    return np.maximum(among, np.sum(comes.T * below, axis=0))
