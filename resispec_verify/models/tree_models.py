"""Models that give logits at the nodes of a tree of candidates, and keep what they computed for its path.

A step over a tree: `grow` it below the last token of the sequence, ask for `logits` of some nodes, `grow`
further or not, then `advance` the sequence by what was emitted, which drops the tree. Node 0 is the root,
the last token of the sequence; nodes are numbered as they are grown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from resispec_verify.models.prefix_cache import Windowed
from resispec_verify.record.loops import Model

__all__ = ["Grown", "NodeByNode", "TreeModel", "tree_model"]


class TreeModel(Protocol):
    """A language model, as far as decoding over trees needs one."""

    @property
    def vocab(self) -> int:
        """Number of tokens."""
        ...

    @property
    def context(self) -> int | None:
        """Longest sequence, the path to the deepest node included, if it has a limit."""
        ...

    def open(self, prompt: Sequence[int]) -> None:
        """Begin with a sequence of at least one token; nothing is kept of another."""
        ...

    def grow(self, tokens: Sequence[int], parents: Sequence[int]) -> None:
        """Add nodes below nodes that are there; parents are node numbers, 0 for the root."""
        ...

    def logits(self, nodes: Sequence[int]) -> np.ndarray:
        """Raw next-token logits ``[len(nodes), V]`` after the path to each of the nodes."""
        ...

    def advance(self, path: Sequence[int], tokens: Sequence[int]) -> None:
        """Drop the tree and append `tokens`, the first of which are those of the nodes of `path`.

        `path` is in order and without the root.
        """
        ...


class Grown:
    """The sequence and the tree below its last token: what all tree models keep.

    Attributes
    ----------
    sequence : list of int
        Token ids; the last is the root.
    tokens, parents, depths : list of int
        Of each node, with those of the root: its token, -1, and 0.
    """

    def __init__(self, vocab: int, context: int | None) -> None:
        self.vocab, self.context = vocab, context
        self.open([0])

    def open(self, prompt: Sequence[int]) -> None:
        """Begin with a sequence; see `TreeModel`."""
        self.sequence = [int(token) for token in prompt]
        self._plant()

    def _plant(self) -> None:
        self.tokens, self.parents, self.depths = [self.sequence[-1]], [-1], [0]

    def grow(self, tokens: Sequence[int], parents: Sequence[int]) -> None:
        """Add nodes; see `TreeModel`."""
        for token, parent in zip(tokens, parents, strict=True):
            self.tokens.append(int(token))
            self.parents.append(int(parent))
            self.depths.append(self.depths[parent] + 1)

    def advance(self, path: Sequence[int], tokens: Sequence[int]) -> None:
        """Append what was emitted; see `TreeModel`."""
        self.sequence += [int(token) for token in tokens]
        self._plant()

    def path(self, node: int) -> list[int]:
        """The nodes from the root, which is left out, to a node."""
        found = []
        while node > 0:
            found.append(node)
            node = self.parents[node]
        return found[::-1]


class NodeByNode(Grown):
    """Any `Model` as a tree model: one call of `Model.logits` for each node that is asked for. Slow."""

    def __init__(self, model: Model) -> None:
        super().__init__(model.vocab, model.context)
        self._model = model

    def logits(self, nodes: Sequence[int]) -> np.ndarray:
        """Logits after the path to each node, from `Model.logits` of the whole sequence."""
        paths = ([self.tokens[i] for i in self.path(node)] for node in nodes)
        return np.concatenate([self._model.logits([*self.sequence, *path]) for path in paths])


def tree_model(model: Model) -> TreeModel:
    """The fastest tree model there is for a `Model`: one forward pass a tree where it is a GGUF Llama.

    It shares the weights of `model` but no state; a model that looks at the last tokens only is evaluated
    one forward pass a level, and any other node by node.
    """
    inner = model.model if isinstance(model, Windowed) else model
    llama = getattr(inner, "llama", None)
    if llama is None:
        return NodeByNode(model)
    from resispec_verify.models import llama_trees  # which imports torch

    if isinstance(model, Windowed):
        return llama_trees.WindowedLlamaTree(llama, model.window)
    return llama_trees.LlamaTree(llama)
