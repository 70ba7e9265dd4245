"""Rounds dumps for `replay`: what the reader of rounds gives, with the sampling that `meta` states."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # type: ignore[import]
import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.dumps import load_mapping, open_rounds
from resispec_verify.errors import InputError

__all__ = ["Rounds", "half_ulp", "read_rounds"]


@dataclass(frozen=True)
class Rounds:
    """A rounds dump, opened but not read.

    Attributes
    ----------
    path : str
    rounds : sequence of mappings
        Each with ``draft_tokens [g]``, ``draft_logits [g, V]``, ``target_logits [g + 1, V]``, ``accepted``,
        and perhaps ``u [g]``, ``next_token``, and ``u_next``: the uniform with which the next token was drawn
        by inverting the cumulative sum in token order.
    stated : mapping or tuple of mappings
        The sampling that ``meta`` states, for all rounds or each.
    output : array or None
        ``output_tokens``, if the dump has them.
    """

    path: str
    rounds: Sequence[Mapping[str, Any]]
    stated: Mapping[str, Any] | tuple[Mapping[str, Any], ...]
    output: Any = None

    @property
    def dtype(self) -> str:
        """Storage type of the logits."""
        first = self.rounds[0]
        return "/".join(dict.fromkeys(first[key].dtype.name for key in ("target_logits", "draft_logits")))

    def sampling(self, index: int, options: Mapping[str, Any]) -> Sampling:
        """Sampling of one round: what the dump states, with the given options in its place."""
        stated = self.stated[index] if isinstance(self.stated, tuple) else self.stated
        return Sampling(**{**stated, **options})


def read_rounds(path: str | os.PathLike[str]) -> Rounds:
    """Open a rounds dump; everything is checked, rows that no decision reaches included, and no logits kept.

    Raises
    ------
    InputError
        As `open_rounds`, or a sampling out of range.
    """
    dump = open_rounds(path)
    for i in range(len(dump)):
        dump.logits(i)
    coins = _stored_coins(load_mapping(path).get("rounds"), len(dump))
    entries = [
        {
            "target_logits": entry.target,
            "draft_logits": entry.draft,
            "draft_tokens": entry.draft_tokens,
            "accepted": entry.accepted,
            "next_token": entry.next_token,
            "u": entry.u,
            "u_next": None if entry.u_next is None else np.asarray([entry.u_next]),
            # A coin logged in two bytes was rounded; float32 and wider hold what the engine drew.
            "u_slack": half_ulp(np.ones(1), dtype)[0] if dtype.itemsize == 2 else 0.0,
        }
        for entry, dtype in zip(dump.rounds, coins, strict=True)
    ]
    result = Rounds(str(path), entries, dump.sampling or {}, dump.output_tokens)
    for i in range(len(entries)):
        try:
            result.sampling(i, {})
        except InputError as error:
            raise InputError(f"{path}: meta, sampling of round {i}: {error}") from None
    return result


def _stored_coins(rounds: Any, count: int) -> list[np.dtype]:
    """The type in which each round's uniforms are stored; float64 where that cannot be told."""
    if not isinstance(rounds, (list, tuple)) or len(rounds) != count:
        return [np.dtype(np.float64)] * count
    stored = [entry.get("u") if isinstance(entry, Mapping) else None for entry in rounds]
    return [u.dtype if isinstance(u, np.ndarray) else np.dtype(np.float64) for u in stored]


def half_ulp(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Half a unit in the last place of ``dtype`` at ``values``: the most that storing them has rounded."""
    info = ml_dtypes.finfo(dtype)
    _, exponent = np.frexp(values)
    exponent = np.where(values == 0, info.minexp + 1, np.maximum(exponent, info.minexp + 1))
    return np.where(np.isfinite(values), np.ldexp(1.0, exponent - (info.nmant + 2)), 0.0)
