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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from resispec_verify.decoding.candidates import Tree, expected_tokens, grow, rows_at
from resispec_verify.distributions import Sampling
from resispec_verify.errors import InputError
from resispec_verify.evidence.given_candidates import NodeOutcome
from resispec_verify.models import Model, TreeModel, check_prompts, tree_model
from resispec_verify.record.loops import draw
from resispec_verify.rules import Rule
from resispec_verify.topology import Topology

__all__ = ["Decoded", "Step", "decode", "decode_steps"]

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


# Ten parameters: each is a choice of the caller, and all but the models and texts are given by name.
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
    _check(target, draft, prompts, rule, topology, tokens, seed)
    steps = partial(
        decode_steps, target, draft, rule=rule, topology=topology, tokens=tokens, sampling=sampling, end=end,
        expected=expected,
    )  # fmt: skip
    return [
        Decoded(number, seed + number, tuple(steps(prompt, seed=seed + number)))
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
    sequence = _Decoding(target, draft, rule, topology, sampling, generator, end, expected)
    target.open(prompt)
    draft.open(prompt)
    emitted = 0
    while emitted < tokens:
        step = sequence.step()
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


@dataclass
class _Decoding:
    """One sequence being decoded; the parameters are those of `decode_steps`."""

    target: TreeModel
    draft: TreeModel
    rule: Rule
    topology: Topology
    sampling: Sampling
    generator: np.random.Generator
    end: int | None
    expected: bool

    def step(self) -> Step:
        """Grow a tree, verify it, and advance both models by what is emitted."""
        clock = time.perf_counter
        started = clock()
        tree = grow(self.draft, self.rule.proposal, self.topology, self.sampling, self.generator)
        grown = clock()
        self.target.grow(tree.tokens[1:], tree.parents[1:])
        inner = [node for node, planned in enumerate(tree.planned) if planned] or [0]
        rows = dict(zip(inner, rows_at("target", self.target, inner), strict=True))
        target_seconds = clock() - grown
        outcomes = _Outcomes(tree, self.rule, rows, self.sampling)
        path, chosen, rest = _walk(tree, outcomes, self.generator)
        if rest is None:
            leaf = path[-1] if path else 0
            if leaf not in rows:
                asked = clock()
                rows[leaf] = rows_at("target", self.target, [leaf])[0]
                target_seconds += clock() - asked
            rest = outcomes.target(leaf)
        tokens = [*(tree.tokens[child] for child in path), draw(rest, self.generator.random())]
        verified = clock()
        length = expected_tokens(tree, outcomes.__getitem__) if self.expected else None
        left = clock()
        self.target.advance(path, tokens)
        target_advanced = clock()
        self.draft.advance(path, tokens)
        finished = clock()
        return Step(
            tuple(tokens[: tokens.index(self.end) + 1] if self.end in tokens else tokens),
            accepted_length=len(tokens),
            expected_length=length,
            nodes=len(tree.tokens),
            offered=tuple(len(tree.children[node]) for node in [0, *path][: len(chosen)]),
            chosen=tuple(chosen),
            draft_seconds=grown - started + finished - target_advanced,
            target_seconds=target_seconds + target_advanced - left,
            verify_seconds=verified - grown - target_seconds,
        )


def _walk(
    tree: Tree, outcomes: _Outcomes, generator: np.random.Generator
) -> tuple[list[int], list[int], np.ndarray | None]:
    """The nodes that are emitted, which child was chosen at each, and the law of the last token.

    The law is None where the path goes to a leaf: then it is the target's.
    """
    path: list[int] = []
    chosen: list[int] = []
    node = 0
    while tree.planned[node]:
        outcome, children = outcomes[node], tree.children[node]
        chosen.append(_pick(outcome, len(children), generator.random()))
        if chosen[-1] < 0:
            # Rounding may leave a chance of 1e-17 to reject all, and nothing to draw from.
            some = outcome.rest is not None and outcome.rest.sum() > 0
            return path, chosen, outcome.rest if some else outcomes.target(node)
        node = children[chosen[-1]]
        path.append(node)
    return path, chosen, None


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


def _pick(outcome: NodeOutcome, children: int, u: float) -> int:
    """The candidate that a uniform number selects; -1 for none."""
    cumulative = np.cumsum(outcome.emitted[:children])
    if outcome.rest is None and children and cumulative[-1] > 0:
        u *= cumulative[-1]  # one of them is emitted for sure, up to rounding
    picked = int(np.searchsorted(cumulative, u, side="right"))
    return picked if picked < children else -1
