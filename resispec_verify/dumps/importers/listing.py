"""What one file lists, position by position, whatever format it is in."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resispec_verify.errors import InputError

__all__ = ["Listing"]

MOST_PADDING = 16
FEW = 1 << 22
"""A table of all lists may have this many entries, or this many times as many as there are tokens in them."""


@dataclass
class Listing:
    """Lists of tokens, collected by `add`.

    Attributes
    ----------
    name : str
        Of the file, for errors.
    token : callable
        The id of a text.
    texts : dict
        By sequence, its token ids from the first on, as far as the file says them.
    skipped : int
        Positions without a law that were left out.
    placed : bool
        Whether every row says at which position of its sequence it is.
    notes : list of str
        What is to be known of the laws.
    """

    name: str
    token: Callable[[str, str], int]
    texts: dict[int, list[int]] = field(default_factory=dict)
    skipped: int = 0
    placed: bool = True
    notes: list[str] = field(default_factory=list)
    _ids: array = field(default_factory=lambda: array("i"))
    _logs: array = field(default_factory=lambda: array("f"))
    _ends: array = field(default_factory=lambda: array("q"))
    _rows: array = field(default_factory=lambda: array("q"))
    _tails: array = field(default_factory=lambda: array("d"))
    _longest: int = 0

    def __len__(self) -> int:
        return len(self._ends)

    def add(
        self,
        where: str,
        tokens: Sequence[int | str],
        logs: Sequence[float],
        *,
        sequence: int,
        position: int | None,
        following: int | str | None = None,
        ranked: int = 0,
        tail: float | None = None,
    ) -> None:
        """Add one position.

        Parameters
        ----------
        where : str
            Named in errors.
        tokens, logs : sequences
            Ids or texts, and their log-probabilities.
        sequence, position : int
            Which text, and how many tokens of it come before; None where that is not known.
        following : int or str, optional
            The token that came.
        ranked : int
            How many of the tokens are certainly the most probable ones.
        tail : float, optional
            Probability of all others.
        """
        if not len(tokens):
            raise InputError(f"{where}: lists no token; ask for log-probabilities of the most probable ones")
        if len(tokens) != len(logs):
            raise InputError(f"{where}: has {len(tokens)} tokens and {len(logs)} log-probabilities")
        ids = [self._id(token, where) for token in tokens]
        if len(set(ids)) < len(ids):
            raise InputError(f"{where}: two of its entries are of one token; list it once")
        self._ids.extend(ids)
        self._logs.extend(max(-3e38, value) for value in logs)
        self._ends.append(len(self._ids))
        after = -1 if following is None else self._id(following, where)
        self._rows.extend((sequence, -1 if position is None else position, after, ranked))
        self._tails.append(np.nan if tail is None else tail)
        self._longest = max(self._longest, len(ids))
        self.placed = self.placed and position is not None
        if self._longest * len(self) > max(FEW, MOST_PADDING * len(self._ids)):
            raise InputError(
                f"{where}: the lists have very different lengths; list as many tokens everywhere"
            )

    def _id(self, token: int | str, where: str) -> int:
        return token if isinstance(token, int) else self.token(token, where)

    @property
    def places(self) -> np.ndarray:
        """Sequence, position, the token that came (-1: not known) and how many are ranked; ``(N, 4)``."""
        return np.frombuffer(self._rows, np.int64).reshape(-1, 4) if len(self) else np.empty((0, 4), np.int64)

    def arrays(self, role: str, chosen: np.ndarray) -> dict[str, Any]:
        """The chosen rows under the keys of a file of top-k pairs."""
        ends = np.frombuffer(self._ends, np.int64)
        starts = np.concatenate([[0], ends[:-1]])
        lengths = (ends - starts)[chosen]
        k = int(lengths.max())
        inside = np.arange(k) < lengths[:, None]
        at = np.where(inside, starts[chosen][:, None] + np.arange(k), 0)
        ids = np.where(inside, np.frombuffer(self._ids, np.int32)[at], -1).astype(np.int32)
        logs = np.where(inside, np.frombuffer(self._logs, np.float32)[at], -np.inf).astype(np.float32)
        ranked = self.places[chosen, 3]
        found = {
            f"{role}_top_ids": ids,
            f"{role}_top_logprobs": logs,
            f"{role}_ranked": ranked.astype(np.int32),
        }
        tails = np.frombuffer(self._tails, np.float64)[chosen]
        stated = ~np.isnan(tails)
        if stated.all():
            found[f"{role}_tail"] = tails
        elif stated.any():
            raise InputError(f"{self.name}: some positions state a tail and others do not; state all or none")
        return found
