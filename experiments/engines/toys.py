"""Toy models for loops that take models: the law of the next token depends on the last token alone.

A loop is ``loop(target, draft, prompt, length)`` and gives at least ``length`` new tokens; its models are
tables ``(V, V)`` of probabilities. `text_rows` makes it a sampler of the style "tokens": one pair of laws for
all tokens, and the rows of a call are the tokens of texts, so that what a loop keeps from round to round
shows as dependence.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from resispec_verify.sampler_check.battery import named

#: Draws an input gets: a TV of .05 is found with 12,000 at alpha 1e-9.
SETTINGS = {"draws": 16_000, "seconds": 300.0}
#: Two full laws, and two with zeros on either side.
INPUTS = (named("base"), replace(named("zeros"), share=1.0))
Loop = Callable[[np.ndarray, np.ndarray, list[int], int], Sequence[int]]


@contextmanager
def randomness(rng: np.random.Generator) -> Iterator[None]:
    """The global generators of torch, NumPy and `random`, seeded from ``rng``; torch on one thread."""
    from resispec_verify.adapters.torch_state import seeded

    with seeded(rng):
        np.random.seed(int(rng.integers(2**32)))
        random.seed(int(rng.integers(2**63)))
        yield


def text_rows(loop: Loop, length: int = 8, reserved: int = 0) -> Callable[..., np.ndarray]:
    """A sampler of the style "tokens": runs of rows with the same laws are texts of this length.

    Parameters
    ----------
    loop : callable
    length : int
        New tokens of a text, over several rounds.
    reserved : int
        Tokens 0 to ``reserved - 1`` are not used, because the engine means something else by them.
    """

    def sampler(target: np.ndarray, draft: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        rows, vocab = target.shape
        out = np.empty(rows, dtype=np.int64)
        with randomness(rng):
            for start, stop in _runs(target, draft, length):
                tables = (table(laws[start], vocab, reserved) for laws in (target, draft))
                prompt = [reserved + int(rng.integers(vocab)) for _ in range(2)]
                new = list(loop(*tables, prompt, stop - start))[: stop - start]
                out[start:stop] = np.array(new) - reserved
        return out

    return sampler


def _runs(target: np.ndarray, draft: np.ndarray, length: int) -> Iterator[tuple[int, int]]:
    """Rows that can be one text."""
    start = 0
    for row in range(1, len(target) + 1):
        if row == len(target) or row - start == length or (target[row] != target[start]).any() \
                or (draft[row] != draft[start]).any():  # fmt: skip
            yield start, row
            start = row


def table(law: np.ndarray, vocab: int, reserved: int) -> np.ndarray:
    """The same law after each token, with reserved tokens of probability 0 before it."""
    row = np.concatenate([np.zeros(reserved), law])
    return np.tile(row, (vocab + reserved, 1))


class Causal:
    """Called like a causal model of transformers: logits of each new token, and a cache that holds tokens."""

    def __init__(self, laws: np.ndarray) -> None:
        self.logits = torch.from_numpy(laws).log().float()
        self.device = torch.device("cpu")
        self.config = SimpleNamespace(vocab_size=len(laws), max_position_embeddings=1 << 20)

    def __call__(self, input_ids: torch.Tensor, past_key_values: Any = None, **_: Any) -> Any:
        cached = input_ids[:, None, :, None]
        if past_key_values is not None:
            cached = torch.cat([past_key_values[0][0], cached], dim=2)
        return SimpleNamespace(logits=self.logits[input_ids], past_key_values=((cached, cached),))
