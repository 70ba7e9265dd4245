"""Speculative decoding over trees: the draft grows a tree, the target verifies it in one forward pass.

One step: the draft grows the tree level by level, the children of a node drawn from its law there by the
rule's own proposal. The target evaluates the whole tree at once. From the root on, the rule's law given the
candidates (`outcome_given_candidates`) says which child is emitted, or that none is; then the last token is
drawn from what the rule leaves, or from the target where the path was accepted to a leaf.

All laws are float64 softmaxes of the models' logits. Prompt i has a generator of its own, of seed
``seed + i``, for its candidates and its verification.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.errors import InputError
from resispec_verify.evidence.given_candidates import NodeOutcome, outcome_given_candidates
from resispec_verify.models.tree_models import TreeModel, tree_model
from resispec_verify.record import arrays
from resispec_verify.record.loops import Model, check_prompts, draw
from resispec_verify.rules import Greedy, Proposal, Rule, TupleRule
from resispec_verify.topology import Topology

__all__ = ["Decoded", "Step", "Tree", "decode", "decode_steps", "expected_tokens", "grow"]

T1 = Sampling()


@dataclass(frozen=True)
class Step:
    """What one pass of the target gave.

    Attributes
    ----------
    tokens : tuple of int
        What was emitted, the final token included. Nothing after an end-of-sequence token.
    accepted_length : int
        Tokens of the verified path and the final one, whether or not an end-of-sequence token cut them: the
        paper's accepted length, from 1 to the levels of the tree.
    expected_length : float or None
        The mean of `accepted_length` given the tree and the two models' laws on it: the same expectation
        over trees, at less variance.
    nodes : int
        Nodes that the target evaluated, the root included.
    offered : tuple of int
        Candidates at each node on the way that has children.
    chosen : tuple of int
        Which of them was emitted, from 0; -1 where all were rejected.
    draft_seconds, target_seconds, verify_seconds : float
        Growing the tree; the target's forward pass and logits; probabilities, the rule and the draws. Without
        what `expected_length` took beyond that.
    """

    tokens: tuple[int, ...]
    accepted_length: int
    expected_length: float | None
    nodes: int
    offered: tuple[int, ...]
    chosen: tuple[int, ...]
    draft_seconds: float
    target_seconds: float
    verify_seconds: float


@dataclass(frozen=True)
class Decoded:
    """One prompt, decoded.

    Attributes
    ----------
    prompt : int
        Its number.
    seed : int
        Of its generator.
    steps : tuple of Step
    """

    prompt: int
    seed: int
    steps: tuple[Step, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        """All that was emitted: at least what was asked for, unless the sequence ended."""
        return tuple(token for step in self.steps for token in step.tokens)

    def acceptance(self, candidates: int) -> tuple[np.ndarray, np.ndarray]:
        """How often each candidate was emitted and reached: two integer arrays ``(candidates,)``.

        A candidate is reached where there is one and none before it is emitted.
        """
        emitted, reached = np.zeros((2, candidates), np.int64)
        for step in self.steps:
            for offered, chosen in zip(step.offered, step.chosen, strict=True):
                last = chosen if chosen >= 0 else offered - 1
                reached[: last + 1] += 1
                if 0 <= chosen < candidates:
                    emitted[chosen] += 1
        return emitted, reached


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


def decode(
    target: TreeModel | Model,
    draft: TreeModel | Model,
    prompts: Sequence[Sequence[int]],
    *,
    rule: Rule,
    topology: Topology,
    tokens: int,
    sampling: Sampling = T1,
    seed: int = 0,
    end: int | None = None,
    expected: bool = False,
) -> list[Decoded]:
    """Decode prompts with a rule over trees of candidates.

    Parameters
    ----------
    target, draft : TreeModel or Model
        Of one vocabulary. A `Model` is made a `TreeModel` by `tree_model`.
    prompts : sequence of sequences of int
        Token ids.
    rule : Rule
        Its proposal says how the children of a node are drawn.
    topology : Topology
        Of the tree at every step.
    tokens : int
        How many to emit for each prompt; the last step is kept whole, so there may be a few more.
    sampling : Sampling
        Temperature and filters of both models; temperature 0 is greedy, ties to the lowest token.
    seed : int
        Prompt i uses ``seed + i``.
    end : int, optional
        The token that ends a sequence.
    expected : bool
        Whether to compute `Step.expected_length`, for which the target's law is needed at every node.

    Returns
    -------
    list of Decoded
        One a prompt.

    Raises
    ------
    InputError
        Vocabularies that differ; a prompt that is empty, of other tokens, or does not fit into the context
        with the tree below its last token; more or fewer children at a node than the rule verifies; a
        negative seed; logits with NaN or +inf, or only -inf.
    """
    target, draft = _as_tree_model(target), _as_tree_model(draft)
    options = {"rule": rule, "topology": topology, "tokens": tokens, "sampling": sampling}
    _check(target, draft, prompts, rule, topology, tokens, seed)
    return [
        Decoded(
            number,
            seed + number,
            tuple(
                decode_steps(target, draft, prompt, seed=seed + number, end=end, expected=expected, **options)
            ),
        )
        for number, prompt in enumerate(prompts)
    ]


def decode_steps(
    target: TreeModel | Model,
    draft: TreeModel | Model,
    prompt: Sequence[int],
    *,
    rule: Rule,
    topology: Topology,
    tokens: int,
    sampling: Sampling = T1,
    seed: int = 0,
    end: int | None = None,
    expected: bool = False,
) -> Iterator[Step]:
    """The steps of one prompt, one at a time: `decode` for a loop that decides itself when to stop.

    Parameters are those of `decode`, but `seed` is the generator's own.
    """
    target, draft = _as_tree_model(target), _as_tree_model(draft)
    _check(target, draft, [prompt], rule, topology, tokens, seed)
    generator = np.random.default_rng(seed)
    target.open(prompt)
    draft.open(prompt)
    emitted = 0
    while emitted < tokens:
        step = _step(target, draft, rule, topology, sampling, generator, end, expected)
        yield step
        emitted += len(step.tokens)
        if end is not None and step.tokens[-1] == end:
            return


def _as_tree_model(model: Any) -> TreeModel:
    return model if hasattr(model, "grow") else tree_model(model)


def _check(
    target: Any,
    draft: Any,
    prompts: Sequence[Sequence[int]],
    rule: Rule,
    topology: Topology,
    tokens: int,
    seed: int,
) -> None:
    if tokens < 1:
        raise InputError(f"{tokens} tokens to decode; give at least 1")
    if seed < 0:
        raise InputError(f"the seed must not be negative, got {seed}")
    # The last step begins with up to tokens - 1 emitted, and the tree is levels - 1 deep below the last.
    check_prompts(target, draft, prompts, tokens + topology.levels - 2)
    for children in topology.children:
        number = len(children)
        most = rule.most_candidates
        if number and (number < rule.least_candidates or (most is not None and number > most)):
            bound = f"at most {most}" if most is not None and number > most else f"{rule.least_candidates}"
            raise InputError(
                f"rule {rule.name!r} verifies {bound} candidates at a node, but the tree has a node with "
                f"{number} children; give a tree with another number of branches"
            )


def _step(
    target: TreeModel,
    draft: TreeModel,
    rule: Rule,
    topology: Topology,
    sampling: Sampling,
    generator: np.random.Generator,
    end: int | None,
    expected: bool,
) -> Step:
    clock = time.perf_counter
    started = clock()
    tree = grow(draft, rule.proposal, topology, sampling, generator)
    grown = clock()
    target.grow(tree.tokens[1:], tree.parents[1:])
    inner = [node for node, planned in enumerate(tree.planned) if planned] or [0]
    rows = dict(zip(inner, _rows("target", target, inner), strict=True))
    target_seconds = clock() - grown
    outcomes = _Outcomes(tree, rule, rows, sampling)

    path: list[int] = []
    offered: list[int] = []
    chosen: list[int] = []
    node, rest = 0, None
    while tree.planned[node] and rest is None:
        outcome, children = outcomes[node], tree.children[node]
        pick = _pick(outcome, len(children), generator.random())
        offered.append(len(children))
        chosen.append(pick)
        if pick >= 0:
            node = children[pick]
            path.append(node)
        elif outcome.rest is not None and outcome.rest.sum() > 0:
            rest = outcome.rest
        else:  # rounding left a chance of 1e-17 to reject all, and nothing to draw from
            rest = outcomes.target(node)
    if rest is None:
        if node not in rows:
            asked = clock()
            rows[node] = _rows("target", target, [node])[0]
            target_seconds += clock() - asked
        rest = outcomes.target(node)
    tokens = [*(tree.tokens[child] for child in path), draw(rest, generator.random())]
    verified = clock()
    length = expected_tokens(tree, outcomes.__getitem__) if expected else None
    left = clock()
    target.advance(path, tokens)
    target_advanced = clock()
    draft.advance(path, tokens)
    finished = clock()
    return Step(
        tuple(tokens[: tokens.index(end) + 1] if end in tokens else tokens),
        accepted_length=len(tokens),
        expected_length=length,
        nodes=len(tree.tokens),
        offered=tuple(offered),
        chosen=tuple(chosen),
        draft_seconds=grown - started + finished - target_advanced,
        target_seconds=target_seconds + target_advanced - left,
        verify_seconds=verified - grown - target_seconds,
    )


def _rows(name: str, model: TreeModel, nodes: Sequence[int]) -> np.ndarray:
    """Logits ``[len(nodes), V]``, checked."""
    rows = np.asarray(model.logits(nodes))
    return arrays.logits(f"{name} logits", rows, rows.dtype)


class _Outcomes(dict[int, NodeOutcome]):
    """What the rule does at each node that has children in the topology, computed when asked for."""

    def __init__(self, tree: Tree, rule: Rule, rows: dict[int, np.ndarray], sampling: Sampling) -> None:
        super().__init__()
        self._tree, self._rule, self._rows, self._sampling = tree, rule, rows, sampling

    def target(self, node: int) -> np.ndarray:
        return self._sampling.probabilities(self._rows[node], dtype=np.float64)

    def __missing__(self, node: int) -> NodeOutcome:
        self[node] = self._tree.outcome(self._rule, self.target(node), node)
        return self[node]


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
        rows = _rows("draft", draft, parents)
        laws = sampling.probabilities(rows, dtype=np.float64)
        # The best tokens in turn are those of the logits, also where only the first has any probability.
        ranked = T1.probabilities(rows, dtype=np.float64) if isinstance(proposal, Greedy) else laws
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


def _pick(outcome: NodeOutcome, children: int, u: float) -> int:
    """The candidate that a uniform number selects; -1 for none."""
    cumulative = np.cumsum(outcome.emitted[:children])
    if outcome.rest is None and children and cumulative[-1] > 0:
        u *= cumulative[-1]  # one of them is emitted for sure, up to rounding
    picked = int(np.searchsorted(cumulative, u, side="right"))
    return picked if picked < children else -1


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
