"""Sequences of tokens, numbered: their law, its tests, and what a sampler emitted of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from resispec_verify.errors import InputError
from resispec_verify.evidence.eprocess import FitTest, Grouping
from resispec_verify.sampler_check.calls import SamplerError, tokens_of
from resispec_verify.sampler_check.sources.drawing import rows_of

__all__ = ["Sequences", "emitted_of"]

# Numbered sequences at most; their law is an array.
_MOST_SEQUENCES = 1 << 20


class Sequences:
    """All sequences of n tokens, and their law.

    Parameters
    ----------
    first : float64 array (V,)
        The law of the first token.
    after : sequence of float64 arrays (V, V)
        Of each further one, given the token before.
    name : str
        Of the input, for messages.
    """

    def __init__(self, first: np.ndarray, after: Sequence[np.ndarray], name: str) -> None:
        self.first, self.after = first, after
        self.vocab, self.length = len(first), len(after) + 1
        if self.vocab**self.length > _MOST_SEQUENCES:
            raise InputError(
                f"{name}: {self.vocab} tokens and {self.length} positions are too many for the joint law, "
                f"whose sequences are at most {_MOST_SEQUENCES}; use fewer, or a smaller offset"
            )
        law = first
        for table in after:
            last = np.arange(len(law)) % self.vocab
            law = (law[:, None] * table[last]).ravel()
        self.law = law

    def fit(self, apart: int) -> FitTest:
        """A test of all sequences, each token by itself, and each two up to ``apart`` positions apart."""
        index, v, n = np.arange(len(self.law)), self.vocab, self.length
        token = [index // v ** (n - 1 - i) % v for i in range(n)]
        found = [Grouping.of("sequences", index, self.law)]
        found += [Grouping.of(f"token {i + 1}", token[i], self.law) for i in range(n)]
        if n > 2:
            found += [
                Grouping.of(f"tokens {i + 1} and {i + 1 + d}", token[i] * v + token[i + d], self.law)
                for d in range(1, apart + 1)
                for i in range(n - d)
            ]
        return FitTest(self.law, [found[0], *(grouping for grouping in found[1:] if grouping.cells > 1)])

    def number(self, tokens: np.ndarray) -> np.ndarray:
        """The numbers of sequences ``(rows, n)``."""
        index = np.zeros(len(tokens), dtype=np.int64)
        for i in range(self.length):
            index = index * self.vocab + tokens[:, i]
        return index

    def tokens(self, numbers: np.ndarray) -> np.ndarray:
        """The sequences of these numbers, ``(rows, n)``."""
        return numbers[:, None] // self.vocab ** np.arange(self.length - 1, -1, -1) % self.vocab

    def completed(self, rng: np.random.Generator, emitted: np.ndarray) -> np.ndarray:
        """The numbers of what was emitted, ``(rows, n)`` with -1 for nothing, continued by the target."""
        tokens = np.empty_like(emitted)
        laws = np.broadcast_to(self.first, (len(emitted), self.vocab))
        for i in range(self.length):
            fresh = rows_of(rng, laws)
            tokens[:, i] = np.where(emitted[:, i] >= 0, emitted[:, i], fresh)
            if i < self.length - 1:
                laws = self.after[i][tokens[:, i]]
        return self.number(tokens)

    def describe(self, number: int) -> str:
        """A sequence, in words."""
        return "sequence " + " ".join(map(str, self.tokens(np.array([number]))[0]))


def emitted_of(
    result: Any, rows: int, vocab: int, columns: int, most: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """What a call of several positions returned: tokens, or those and how many candidates it accepted.

    Parameters
    ----------
    columns : int
    most : int array (rows,)
        How many candidates a row can accept.

    Returns
    -------
    emitted : int64 array (rows, columns)
        Padded with -1.
    accepted : int64 array (rows,) or None

    Raises
    ------
    SamplerError
        No such tokens; nothing emitted, or more than one token after the candidates; or the two contradict
        each other.
    """
    tokens, accepted = result, None
    if isinstance(result, tuple) and len(result) == 2 and not any(map(np.isscalar, result)):
        tokens, accepted = result
        accepted = tokens_of(accepted, rows, columns, what="accepted lengths")
    emitted = tokens_of(tokens, rows, vocab, columns=columns)
    there = emitted >= 0
    if not there[:, 0].all():
        raise SamplerError("emitted nothing in some row; at least one token is always emitted")
    if (there[:, 1:] & ~there[:, :-1]).any():
        raise SamplerError("returned tokens after a -1; -1 stands for nothing from there on")
    count = there.sum(axis=1)
    if (count > most + 1).any():
        row = int(np.argmax(count > most + 1))
        raise SamplerError(
            f"emitted {int(count[row])} tokens for a path of {int(most[row])}; at most one more than the "
            "path can be"
        )
    if accepted is not None and (count != accepted + 1).any():
        row = int(np.argmax(count != accepted + 1))
        raise SamplerError(
            f"says that {int(accepted[row])} tokens were accepted and emits {int(count[row])} (row {row}); "
            "it must emit those and one more"
        )
    return emitted, accepted
