"""Pairs of models, each a Markov chain, for the style that runs an engine's whole loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from resispec_verify.sampler_check.battery.laws import reserved

__all__ = ["TEXTS", "Models", "models"]


@dataclass(frozen=True)
class Models:
    """A target and a draft that look at the last token only, and the text that is asked of them.

    Attributes
    ----------
    name : str
    target, draft : float64 array (V, V)
        ``target[x]`` is the law of the next token after token x.
    prompt : tuple of int (k,)
    length : int
        New tokens of a text.
    """

    name: str
    target: np.ndarray
    draft: np.ndarray
    prompt: tuple[int, ...]
    length: int
    share: float = 0.125

    def shifted(self, offset: int) -> Models:
        """The same with tokens 0 to ``offset - 1`` reserved, which have no probability."""
        target, draft = (reserved(laws, offset, after=True) for laws in (self.target, self.draft))
        prompt = tuple(token + offset for token in self.prompt)
        return replace(self, target=target, draft=draft, prompt=prompt)


#: The models of the text style, cheap ones first.
TEXTS = ("two", "same", "impossible", "three")


@cache
def models(name: str) -> Models:
    """The models with this name."""
    two = [[0.8, 0.2], [0.3, 0.7]]
    if name == "two":
        return Models(name, np.array(two), np.array([[0.6, 0.4], [0.5, 0.5]]), (0, 1), 9)
    if name == "same":  # every candidate is accepted: rounds are as long as they can be
        return Models(name, np.array(two), np.array(two), (1, 0), 8)
    if name == "impossible":  # after each token another one never comes, and the draft proposes it
        target = [[0.0, 0.4, 0.6], [0.5, 0.5, 0.0], [0.7, 0.0, 0.3]]
        draft = [[0.3, 0.3, 0.4], [0.3, 0.4, 0.3], [0.4, 0.4, 0.2]]
        return Models(name, np.array(target), np.array(draft), (0, 2), 5)
    rng = np.random.default_rng(11)
    target = rng.dirichlet(np.ones(3), size=3)
    draft = 0.5 * target + 0.5 * rng.dirichlet(np.ones(3), size=3)
    return Models(name, target, draft, (2, 1), 6)
