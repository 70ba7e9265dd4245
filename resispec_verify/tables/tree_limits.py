"""What bounds the expected length of a step of an exact rule, estimated from the candidates of one tree.

Let p(s) be the probability that the text of the target goes on with the tokens s, and pi(s) the probability
that s is a path of the tree of candidates. A step of an exact rule that emits at least k
candidates emits the first k tokens of a text of law p and takes them from the tree, so

``P(at least k) <= sum_s min(p(s), pi(s))`` over all s of length k.

A sum of f(s) over all s is estimated from the paths S of one tree by ``sum over S of f(s) / pi(s)``, unbiased
since s is in S with probability pi(s) (Horvitz and Thompson 1952). A smaller number for pi makes its mean
larger, so the bound stays one.

If the rule decides at a node by the candidates of that node, those below a node that was just reached are
fresh draws. With m(x) the mass that it emits of x, and L(x) the most that is accepted below x on average,
what is accepted at and below the node is ``sum m (1 + L)``, where ``sum m <= OT`` and ``m <= min(p, pi)``.
The estimate follows the recorded tree from the leaves up. Let e_j be the chance, given the candidates of a
node, that optimal joint verification emits the j-th; its mean masses m* sum to OT, and

``B = sum_j e_j + sum_j (e_j + (min(p, pi) - m*)(x_j) / pi(x_j)) B_j``, divided among equal candidates,

has the mean ``OT + sum min(p, pi) E[B_j]``, no less than ``sum m (1 + L)``. On every single tree it is at
least the length of `optimal-joint`, so that their difference varies little. See docs/explanation/trees.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resispec_verify.distributions import Sampling
from resispec_verify.kernels.optimal.inclusion import included_without_replacement
from resispec_verify.rules import Greedy, Iid, Proposal, WithoutReplacement
from resispec_verify.rules.shipped.optimal_joint import OptimalJoint
from resispec_verify.topology import Topology

__all__ = ["PrefixTree", "limits_of"]

Floats = NDArray[np.float64]

_BEST = OptimalJoint()
_LEAF = 0


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
    any_rule = 1.0 + _one_node(tree, topology, places, 0, proposal)
    for depth in range(2, topology.levels):
        level = [node for node, d in enumerate(topology.depths) if d == depth]
        any_rule += sum(_shares(tree, topology, places, proposal, level))
    found = _by_node(tree, topology, places, proposal), any_rule
    return found[0] if np.isfinite(found[0]) else None, found[1] if np.isfinite(found[1]) else None


def _by_node(tree: PrefixTree, topology: Topology, places: Sequence[int], proposal: Proposal) -> float:
    """The bound for rules that decide by node: what each node is worth, from the leaves up."""
    shapes: dict[tuple[int, ...], int] = {(): _LEAF}
    shape, below = [0] * topology.nodes, np.zeros(topology.nodes)
    for node in reversed(range(topology.nodes)):
        children = list(topology.children[node])
        alike = [shape[child] for child in children]
        shape[node] = shapes.setdefault(tuple(alike), len(shapes))
        if children:
            accepted, onward = _worth(tree, topology, places, node, proposal, alike)
            with np.errstate(invalid="ignore"):  # a weight above 1e308
                below[node] = accepted + onward @ below[children]
    return 1.0 + float(below[0])


def _worth(
    tree: PrefixTree,
    topology: Topology,
    places: Sequence[int],
    node: int,
    proposal: Proposal,
    alike: Sequence[int],
) -> tuple[float, Floats]:
    """What is accepted at a node at most, and by what the worth of each child counts ``(n,)``.

    Children of one number in `alike` have trees of one shape below them, and are worth the same.
    """
    target, draft = tree.target(places[node]), tree.draft(places[node])
    tokens = tree.tokens[[places[child] for child in topology.children[node]]]
    n = len(tokens)
    if isinstance(proposal, Greedy):
        return float(target[tokens].sum()), target[tokens]
    emitted, masses = np.zeros(n), np.zeros(n)
    accepted = _one_node(tree, topology, places, node, proposal) if not isinstance(proposal, Iid) else 0.0
    if isinstance(proposal, Iid):
        state = _BEST.start(target, draft, n)
        emitted = _BEST.emitted(state, tokens[None])[0]
        masses = _BEST.emitted_law(state, draft, n)[tokens]
        accepted = float(emitted.sum())
    onward = np.zeros(n)
    for j, token in enumerate(tokens.tolist()):
        if alike[j] == _LEAF:
            continue
        group = [i for i in range(n) if alike[i] == alike[j]]
        low, high = _among(draft, token, group, n, proposal)
        most = min(float(target[token]), high)
        twins = sum(int(tokens[i]) == token for i in group)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # below 1e-308
            onward[j] = emitted[j] + np.divide(max(most - masses[j] * len(group) / n, 0.0), low * twins)
    return accepted, onward


def _among(
    draft: Floats, token: int, group: Sequence[int], siblings: int, proposal: Proposal
) -> tuple[float, float]:
    """P(a token is one of the siblings at the places `group`), from below and from above."""
    held, above = _held(draft, token, siblings, proposal)
    if isinstance(proposal, Iid):
        return float(held[len(group) - 1]), float(above[len(group) - 1])
    first, last = group[0], group[-1]
    if len(group) == last + 1:
        return float(held[last]), float(above[last])
    return float(_comes(held, above)[list(group)].sum()), float(
        above[last] - (held[first - 1] if first else 0.0)
    )


def _one_node(
    tree: PrefixTree, topology: Topology, places: Sequence[int], node: int, proposal: Proposal
) -> float:
    """What an exact rule accepts at a node at most."""
    target, draft = tree.target(places[node]), tree.draft(places[node])
    children = topology.children[node]
    if isinstance(proposal, Greedy):  # the ones that are there, however ties were broken
        return float(target[tree.tokens[[places[child] for child in children]]].sum())
    return float(proposal.limit(target, draft, len(children)))


def _shares(
    tree: PrefixTree, topology: Topology, places: Sequence[int], proposal: Proposal, nodes: Sequence[int]
) -> list[float]:
    """Of each different path to `nodes`, all of one depth: ``min(p / pi, 1)``."""
    paths: dict[tuple[int, ...], list[int]] = {}
    for node in nodes:
        line = [node]
        while topology.parents[line[-1]] > 0:
            line.append(topology.parents[line[-1]])
        line.reverse()
        paths.setdefault(tuple(int(tree.tokens[places[n]]) for n in line), line)
    lines = np.asarray(list(paths.values()))  # (paths, depth): the nodes under the root
    most = max(map(len, topology.children))
    target = np.empty(lines.shape)
    held, above = np.empty((2, *lines.shape, most))
    known: dict[int, tuple[Floats, Floats]] = {}
    for at in np.ndindex(lines.shape):
        node = int(lines[at])
        before, token = places[topology.parents[node]], int(tree.tokens[places[node]])
        if node not in known:
            known[node] = _held(tree.draft(before), token, most, proposal)
        target[at] = tree.target(before)[token]
        held[at], above[at] = known[node]
    if isinstance(proposal, Greedy):
        inside = np.ones(len(lines))
    else:
        inside = _inside(topology, set(nodes), proposal, held, above, 0, 0)
    with np.errstate(divide="ignore", invalid="ignore"):  # below 1e-308
        return np.minimum(target.prod(axis=1) / inside, 1.0).tolist()


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
    comes = _comes(held[:, depth, : len(below)], above[:, depth, : len(below)])
    return np.maximum(among, np.sum(comes.T * below, axis=0))


def _comes(held: Floats, above: Floats) -> Floats:
    """P(a token is the m-th sibling) ``(..., m)``, from below: `_held` without replacement.

    It comes (m + 1)-th with ``held[m] - held[m - 1]``, and, not being there before, with at least its q.
    """
    before = np.concatenate([np.zeros_like(above[..., :1]), above[..., :-1]], axis=-1)
    return np.maximum(held - before, held[..., :1] * (1.0 - before))
