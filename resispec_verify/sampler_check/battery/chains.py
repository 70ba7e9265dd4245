"""Chains: targets and drafts at several positions, each given the token before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from resispec_verify.sampler_check.battery.laws import random_laws, reserved

__all__ = ["CHAINS", "Chain", "chain", "chains"]


@dataclass(frozen=True)
class Chain:
    """Targets and drafts at several positions, each given the token before.

    Attributes
    ----------
    name : str
    target : float64 array (L + 1, V, V)
        ``target[i, x]`` is the law of token i after token x; of the first, all rows are equal.
    draft : float64 array (L, V, V)
    share : float
        Its draws, as a share of the budget of one pair.
    about : str
        What it is, in words.
    """

    name: str
    target: np.ndarray
    draft: np.ndarray
    share: float = 0.25
    about: str = ""

    def shifted(self, offset: int) -> Chain:
        """The same with tokens 0 to ``offset - 1`` reserved, which have no probability."""
        target, draft = (reserved(laws, offset, after=True) for laws in (self.target, self.draft))
        return replace(self, target=target, draft=draft)


#: The chains of the block style.
CHAINS = ("bonus", "certain", "random-3", "random-4")


def chains() -> tuple[Chain, ...]:
    """The chains of the block style."""
    return tuple(map(chain, CHAINS))


@cache
def chain(name: str) -> Chain:
    """The chain with this name."""
    if name == "bonus":
        target = np.array([[[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1], [0.2, 0.8]]])
        draft = np.array([[[0.6, 0.4], [0.6, 0.4]]])
        about = "vocabulary 2, a path of 1; the token after it has another law than the first"
        return Chain(name, target, draft, about=about)
    if name == "certain":
        target = np.array([[[1.0, 0.0, 0.0]] * 3, [[0.2, 0.3, 0.5]] * 3, [[0.5, 0.3, 0.2]] * 3])
        draft = np.array([[[0.2, 0.7, 0.1]] * 3, [[0.4, 0.3, 0.3]] * 3])
        about = "vocabulary 3, a path of 2; the target's first token is certainly 0, the draft's is mostly 1"
        return Chain(name, target, draft, about=about)
    vocab, length, seed = {"random-3": (3, 3, 3), "random-4": (4, 2, 4)}[name]
    target, draft = random_laws(vocab, length + 1, seed)
    return Chain(name, target, draft[:length], about=f"vocabulary {vocab}, a path of {length}, random laws")
