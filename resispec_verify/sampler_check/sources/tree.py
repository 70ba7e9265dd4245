"""A drafted tree of N nodes a row: the style tree. A set of siblings is a tree of depth 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from resispec_verify.errors import InputError
from resispec_verify.evidence.eprocess import FitTest
from resispec_verify.sampler_check.battery.trees import TREES, Tree, depths, tree
from resispec_verify.sampler_check.calls import Caller, SamplerError
from resispec_verify.sampler_check.sources.drawing import draw_siblings
from resispec_verify.sampler_check.sources.drawn import Drawn, rows_within
from resispec_verify.sampler_check.sources.handing import PLAIN, Handing
from resispec_verify.sampler_check.sources.sequences import Sequences, emitted_of
from resispec_verify.sampler_check.sources.style import Style

__all__ = ["TREE", "TreeSource"]


class TreeSource:
    """A drafted tree a row is verified; what is emitted, a path from the root and one more token, is
    continued by the target to D + 1 tokens, D the depth of the tree, and has to have the target's joint law.

    Parameters
    ----------
    tree : Tree
    proposal : {"iid", "without-replacement", "top", "beams"}
        How the children of a node are drawn. "beams": at each depth the most probable of all continuations of
        those above, as many as the root has children; the shape then depends on the draft.
    handing : Handing
    offset : int

    Raises
    ------
    InputError
        The proposal needs more tokens than a draft has.
    """

    kind = "tree"

    def __init__(self, tree: Tree, *, proposal: str = "iid", handing: Handing = PLAIN,
                 offset: int = 0) -> None:  # fmt: skip
        self.name, self.proposal, self.handing = tree.name, proposal, handing
        shifted = tree.shifted(offset) if offset else tree
        self.target, targets = handing.laws(shifted.target)
        self.draft, self.drafts = handing.laws(shifted.draft)
        self.vocab = self.draft.shape[-1]
        self.fixed: np.ndarray | None = None
        parents = tree.parents
        if proposal == "beams":
            parents, self.fixed = _beams(self.drafts, parents.count(-1), max(depths(parents)))
        self.parents = np.array(parents, dtype=np.int64)
        self.depth = np.array(depths(parents), dtype=np.int64)
        self.sequences = Sequences(targets[0, 0], list(targets[1:]), self.name)
        self.law = self.sequences.law
        if proposal in ("without-replacement", "top"):
            self._check_width()

    def _check_width(self) -> None:
        most = int(np.unique(self.parents, return_counts=True)[1].max())
        least = int(np.count_nonzero(self.drafts, axis=-1).min())
        if least < most:
            raise InputError(
                f"{self.name}: a draft with {least} possible tokens has no {most} different candidates; "
                "use the proposal iid"
            )

    def fit(self) -> FitTest:
        """Over all sequences, each token by itself, and each two neighbours."""
        return self.sequences.fit(apart=1)

    @property
    def most_rows(self) -> int:
        """Rows of the largest call."""
        return rows_within(self.vocab * (len(self.parents) + 1))

    def draw(
        self, caller: Caller, rng: np.random.Generator, rows: int, theirs: np.random.Generator | None = None
    ) -> Drawn:
        """One call; ``theirs`` is the generator that the sampler gets, where it is not ``rng``."""
        tokens = self._tokens(rng, rows)
        # The root is row 0; of its laws, those after every token are equal.
        depth = np.concatenate([[0], self.depth])
        last = np.concatenate([np.zeros((rows, 1), dtype=np.int64), tokens], axis=1)
        given = {
            "targets": self.target[depth, last],
            "drafts": self.draft[depth, last],
            "tokens": tokens,
            "parents": self.parents,
        }
        given |= self.handing.coins(theirs or rng, rows, len(self.parents))
        result = self.handing.call(caller, given, theirs or rng)
        deepest = int(self.depth.max())
        emitted, accepted = emitted_of(result, rows, self.vocab, deepest + 1, np.full(rows, deepest))
        if accepted is not None:
            self._check_accepted(emitted, accepted, tokens)
        return Drawn(self.sequences.completed(rng, emitted))

    def _tokens(self, rng: np.random.Generator, rows: int) -> np.ndarray:
        """The tokens of all nodes, ``(rows, N)``."""
        if self.fixed is not None:
            return np.tile(self.fixed, (rows, 1))
        tokens = np.empty((rows, len(self.parents)), dtype=np.int64)
        for parent in np.unique(self.parents):
            children = np.flatnonzero(self.parents == parent)
            laws = self.drafts[0, 0] if parent < 0 else self.drafts[self.depth[parent], tokens[:, parent]]
            laws = np.broadcast_to(laws, (rows, self.vocab))
            tokens[:, children] = draw_siblings(rng, laws, len(children), self.proposal)
        return tokens

    def _check_accepted(self, emitted: np.ndarray, accepted: np.ndarray, tokens: np.ndarray) -> None:
        """The tokens that are said to be accepted must be a path of the tree."""
        on = np.empty(tokens.shape, dtype=bool)
        reached = accepted == 0
        for node, (parent, depth) in enumerate(zip(self.parents, self.depth, strict=True)):
            on[:, node] = tokens[:, node] == emitted[:, depth - 1]
            if parent >= 0:
                on[:, node] &= on[:, parent]
            reached |= on[:, node] & (accepted == depth)
        if not reached.all():
            row = int(np.argmin(reached))
            prefix = emitted[row, : accepted[row]].tolist()
            raise SamplerError(
                f"says that {int(accepted[row])} tokens were accepted, {prefix}, which is no path of the "
                f"tree (row {row}: tokens {tokens[row].tolist()}, parents {self.parents.tolist()})"
            )

    def describe(self, token: int) -> str:
        """A sequence, in words."""
        return self.sequences.describe(token)


def _beams(drafts: np.ndarray, width: int, depth: int) -> tuple[tuple[int, ...], np.ndarray]:
    """Parents and tokens of the most probable ``width`` nodes of each depth below those above; fewer where
    the draft has no more.

    Parameters
    ----------
    drafts : float64 array (D + 1, V, V)
    """
    parents: list[int] = []
    tokens: list[int] = []
    above: list[tuple[float, int, int]] = [(1.0, -1, 0)]  # probability, node, token
    for i in range(depth):
        grown = [
            (probability * drafts[i, last, x], node, x)
            for probability, node, last in above
            for x in range(drafts.shape[-1])
        ]
        best = sorted((one for one in grown if one[0] > 0), key=lambda one: -one[0])[:width]
        above = []
        for probability, node, x in sorted(best, key=lambda one: one[1]):  # siblings together, best first
            above.append((probability, len(parents), x))
            parents.append(node)
            tokens.append(x)
    return tuple(parents), np.array(tokens, dtype=np.int64)


def _sources(one: Tree, settings: Any, handing: Handing) -> list[TreeSource]:
    return [TreeSource(one, proposal=settings.proposal, handing=handing, offset=settings.offset)]


TREE = Style(
    "tree", ("targets", "drafts", "tokens", "parents"), Tree, TREES, tree, _sources,
    options=("uniforms",), proposals=("iid", "without-replacement", "top", "beams"),
)  # fmt: skip
