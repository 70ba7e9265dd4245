"""Models at the nodes of a tree of candidates: the tree that all of them keep, and any model node by node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resispec_verify.models.interface import Model

__all__ = ["Grown", "NodeByNode"]


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
