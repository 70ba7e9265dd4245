"""Toy models for loops that take models: the law of the next token depends on the last token alone.

A loop is ``loop(target, draft, prompt, length)`` and gives at least ``length`` new tokens; its models are
tables ``(V, V)`` of probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from resispec_verify.sampler_check.battery import named
from resispec_verify.sampler_check.battery.texts import models
from resispec_verify.sampler_check.battery.trees import tree
from resispec_verify.testing import served_from

# Draws an input gets: a TV of .05 is found with 13,000 or so at alpha 1e-9.
_SETTINGS = {"seconds": 400.0, "batches": (1,)}
SETTINGS = {**_SETTINGS, "draws": 100_000}
#: Two full laws, and two with zeros on either side.
INPUTS = (named("base"), replace(named("zeros"), share=1.0))
#: Texts are slow, some ten milliseconds each: one pair of models, which has everything that the others have.
TEXTS = (replace(models("impossible"), length=5, share=1.0),)
TEXT_SETTINGS = {**_SETTINGS, "draws": 14_000}
#: One set of siblings and one tree.
TREES = (replace(tree("siblings"), share=1.0), replace(tree("binary"), share=1.0))
TREE_SETTINGS = {**_SETTINGS, "draws": 16_000}
# Of torch's way to draw; for judgements of rows where it was seen.
MULTINOMIAL = (
    "torch.multinomial itself draws a token of probability 0 at a float64 uniform of 0, once in 2^53."
)
Loop = Callable[[np.ndarray, np.ndarray, list[int], int], Sequence[int]]


@contextmanager
def randomness(rng: np.random.Generator) -> Iterator[None]:
    """The global generators of torch, NumPy and `random`, seeded from ``rng``, and serving the ends of the
    uniforms where these are tried; torch on one thread.
    """
    threads = torch.get_num_threads()
    with served_from(rng, ordinary="seed", libraries=["torch", "numpy", "random"]), torch.no_grad():
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def texts(loop: Loop) -> Callable[..., np.ndarray]:
    """A sampler of the style "text": the loop, once for each row."""

    def sampler(target: Any, draft: Any, prompt: np.ndarray, length: int, rng: np.random.Generator) -> Any:
        tables = target.table, draft.table
        with randomness(rng):
            return [list(map(int, loop(*tables, row.tolist(), length))) for row in prompt]

    return sampler


def paths_of(parents: np.ndarray) -> np.ndarray:
    """Paths from the root to the leaves of a tree, ``(leaves, 1 + D)``: 0 for the root, 1 and on for nodes.

    -1 after the end of a path, as engines have it.
    """
    found = []
    for leaf in sorted(set(range(len(parents))) - set(parents.tolist())):
        path = [leaf]
        while parents[path[-1]] >= 0:
            path.append(int(parents[path[-1]]))
        found.append([0, *(node + 1 for node in reversed(path))])
    most = max(map(len, found))
    return np.array([path + [-1] * (most - len(path)) for path in found])


class Causal:
    """Called like a causal model of transformers: logits of each new token, and a cache that holds tokens."""

    def __init__(self, laws: np.ndarray) -> None:
        self.logits = torch.from_numpy(laws).log().float()
        self.device = torch.device("cpu")
        self.config = SimpleNamespace(vocab_size=len(laws), max_position_embeddings=1 << 20)

    def __call__(self, input_ids: torch.Tensor, past_key_values: Any = None, **_: Any) -> Any:
        """Logits and the cache."""
        cached = input_ids[:, None, :, None]
        if past_key_values is not None:
            cached = torch.cat([past_key_values[0][0], cached], dim=2)
        return SimpleNamespace(logits=self.logits[input_ids], past_key_values=((cached, cached),))
