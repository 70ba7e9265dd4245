"""A tree of candidates as it is drawn from a draft, and what a rule is expected to emit of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.evidence.given_candidates import NodeOutcome, outcome_given_candidates
from resispec_verify.models import TreeModel
from resispec_verify.record.arrays import logits
from resispec_verify.record.loops import draw
from resispec_verify.rules import Greedy, Proposal, Rule, TupleRule
from resispec_verify.topology import Topology

__all__ = ["Tree", "expected_tokens", "grow", "rows_at"]


@dataclass
class Tree:
    """A tree of candidates as it was drawn: fewer nodes than its topology where the draft ran out of tokens.

    Attributes
    ----------
    tokens, parents : list of int
        Of each node; 0 and -1 for the root.
    children : list of lists of int
        In the order drawn.
    planned : list of int
        How many children the topology has at each node.
    drafts : dict
        The draft's law ``(V,)`` at each node that has children in the topology.
    """

    tokens: list[int] = field(default_factory=lambda: [0])
    parents: list[int] = field(default_factory=lambda: [-1])
    children: list[list[int]] = field(default_factory=lambda: [[]])
    planned: list[int] = field(default_factory=list)
    drafts: dict[int, np.ndarray] = field(default_factory=dict)

    def outcome(self, rule: Rule, target: np.ndarray, node: int) -> NodeOutcome:
        """What the rule does at a node that has children in the topology."""
        candidates = [self.tokens[child] for child in self.children[node]]
        if isinstance(rule, TupleRule):  # which take a missing candidate as -1
            candidates += [-1] * (self.planned[node] - len(candidates))
        return outcome_given_candidates(rule, target, self.drafts[node], candidates)


def grow(
    draft: TreeModel,
    proposal: Proposal,
    topology: Topology,
    sampling: Sampling,
    generator: np.random.Generator,
) -> Tree:
    """Grow a tree in the draft, level by level, and return what was drawn.

    One call of `TreeModel.logits` a level. Where the proposal has no further candidate, the topology's other
    children of that node are left out, and all below them.
    """
    tree = Tree()
    shape = [0]  # the topology's node of each node
    tree.planned.append(len(topology.children[0]))
    level = [0]
    while parents := [node for node in level if tree.planned[node]]:
        rows = rows_at("draft", draft, parents)
        laws = sampling.probabilities(rows, dtype=np.float64)
        # The best tokens in turn are those of the logits, also where only the first has any probability.
        ranked = Sampling().probabilities(rows, dtype=np.float64) if isinstance(proposal, Greedy) else laws
        first = len(tree.tokens)
        for node, law, drawn_from in zip(parents, laws, ranked, strict=True):
            tree.drafts[node] = law
            drawn = _candidates(proposal, drawn_from, tree.planned[node], generator)
            for token, place in zip(drawn, topology.children[shape[node]], strict=False):
                tree.children[node].append(len(tree.tokens))
                tree.tokens.append(token)
                tree.parents.append(node)
                tree.children.append([])
                tree.planned.append(len(topology.children[place]))
                shape.append(place)
        level = list(range(first, len(tree.tokens)))
        draft.grow(tree.tokens[first:], tree.parents[first:])
    return tree


def _candidates(proposal: Proposal, law: np.ndarray, count: int, generator: np.random.Generator) -> list[int]:
    """Up to `count` candidates in the order drawn."""
    drawn: list[int] = []
    for _ in range(count):
        next_law = proposal.next(law, tuple(np.asarray(token) for token in drawn))
        if not next_law.any():
            break
        drawn.append(draw(next_law, generator.random()))
    return drawn


def expected_tokens(tree: Tree, outcome: Callable[[int], NodeOutcome]) -> float:
    """The mean accepted length, final token included, of one tree given its candidates.

    The sum over its nodes, the root included, of the probability that each is reached: the product, on the
    way to it, of the probabilities that the rule emits that child.

    Parameters
    ----------
    tree : Tree
    outcome : callable
        From a node with children to what the rule does there; asked only where the rule can arrive.
    """
    reached = np.zeros(len(tree.tokens))
    reached[0] = 1.0
    for node, children in enumerate(tree.children):
        if children and reached[node] > 0:
            reached[children] = reached[node] * outcome(node).emitted[: len(children)]
    return float(reached.sum())


def rows_at(name: str, model: TreeModel, nodes: Sequence[int]) -> np.ndarray:
    """Logits ``[len(nodes), V]`` of a model at nodes, checked; `name` is named in errors."""
    rows = np.asarray(model.logits(nodes))
    return logits(f"{name} logits", rows, rows.dtype)
