"""What a model is to recording and to decoding, and whether models and prompts go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from resispec_verify.errors import InputError

__all__ = ["Model", "TreeModel", "check_prompts"]


class Model(Protocol):
    """A language model, as far as recording needs one.

    Attributes
    ----------
    vocab : int
        Number of tokens.
    context : int or None
        Longest sequence, if it has a limit.
    """

    @property
    def vocab(self) -> int: ...  # noqa: D102

    @property
    def context(self) -> int | None: ...  # noqa: D102

    def logits(self, tokens: Sequence[int], last: int = 1) -> np.ndarray:
        """Raw next-token logits ``[last, V]`` after each of the `last` final prefixes of `tokens`."""
        ...


class TreeModel(Protocol):
    """A language model, as far as decoding over trees needs one; it keeps what it computed for its path.

    A step over a tree: `grow` it below the last token of the sequence, ask for `logits` of some nodes, `grow`
    further or not, then `advance` the sequence by what was emitted, which drops the tree. Node 0 is the root,
    the last token of the sequence; nodes are numbered as they are grown.
    """

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


def check_prompts(target: Model, draft: Model, prompts: Sequence[Sequence[int]], more: int) -> None:
    """Raise `InputError` unless the models and prompts go together; `more` tokens are fed after a prompt."""
    if target.vocab != draft.vocab:
        raise InputError(
            f"target and draft have vocabularies of {target.vocab} and {draft.vocab} tokens; give a draft "
            "that shares the target's tokenizer"
        )
    if not prompts:
        raise InputError("there are no prompts; give at least one")
    limits = [model.context for model in (target, draft) if model.context is not None]
    limit = min(limits, default=None)
    for number, prompt in enumerate(prompts):
        if not len(prompt):
            raise InputError(f"prompt {number} has no tokens; give at least one")
        outside = [token for token in prompt if not 0 <= token < target.vocab]
        if outside:
            raise InputError(
                f"prompt {number} has token {outside[0]}, outside the vocabulary 0..{target.vocab - 1}"
            )
        if limit is not None and len(prompt) + more > limit:
            raise InputError(
                f"prompt {number} has {len(prompt)} tokens and up to {more} are added, but the context of "
                f"the model is {limit} tokens; shorten the prompt or ask for less"
            )
