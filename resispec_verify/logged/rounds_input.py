"""Rounds dumps for `replay`: what the reader of rounds gives, with the sampling that `meta` states."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # type: ignore[import]
import numpy as np

from resispec_verify.arrays import Array
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import FlatDump, Round, RoundsDump, load_mapping, open_rounds
from resispec_verify.errors import InputError
from resispec_verify.logged.emitted import Emitted, emitted, end_of_text
from resispec_verify.logged.texts import texts_of
from resispec_verify.sampling.text import Text, needs_mask, needs_text
from resispec_verify.tables.input_kind import kind_of_rows, refuse_applied

__all__ = ["Rounds", "check_sampling", "half_ulp", "is_constant", "read_rounds", "stored_coins"]


@dataclass(frozen=True)
class Rounds:
    """A rounds dump, opened but not read.

    Attributes
    ----------
    path : str
    rounds : sequence of mappings
        Each with ``draft_tokens [g]``, ``draft_logits [g, V]``, ``target_logits [g + 1, V]``, ``accepted``,
        and perhaps ``proposal_logits [g, V]``, ``u [g]``, ``next_token``, and ``u_next``: the uniform with
        which the next token was drawn by inverting the cumulative sum in token order. ``stopped`` where the
        text ends with the accepted drafts, and the log says nothing of what was decided after them.
    stated : mapping or tuple of mappings
        The sampling that ``meta`` states, for all rounds or each.
    emitted : Emitted
        What each round emitted, held against ``output_tokens``.
    kind : str
        What the rows are: "logits", "probabilities" or "log-probabilities".
    stops : frozenset of int
        Tokens that end a text.
    constant : tuple of int
        Rounds that hold a target's row of equal values: hardly a model's.
    """

    path: str
    rounds: Sequence[Mapping[str, Any]]
    stated: Mapping[str, Any] | tuple[Mapping[str, Any], ...]
    emitted: Emitted
    kind: str = "logits"
    stops: frozenset[int] = frozenset()
    constant: tuple[int, ...] = ()

    @property
    def dtype(self) -> str:
        """Storage type of the logits."""
        first = self.rounds[0]
        return "/".join(dict.fromkeys(first[key].dtype.name for key in ("target_logits", "draft_logits")))

    @property
    def candidates(self) -> int:
        """Most tokens drafted at one position."""
        return 1

    @property
    def longest(self) -> int:
        """Most tokens drafted in a round."""
        return max(len(entry["draft_tokens"]) for entry in self.rounds)

    def sampling(self, index: int, options: Mapping[str, Any]) -> Sampling:
        """Sampling of one round: what the dump states, with the given options in its place."""
        stated = self.stated[index] if isinstance(self.stated, tuple) else self.stated
        return Sampling(**{**stated, **options})


def read_rounds(
    path: str | os.PathLike[str],
    *,
    kind: str | None = None,
    stops: Collection[int] = (),
    options: Mapping[str, Any] | None = None,
) -> Rounds:
    """Open a rounds dump; everything is checked, rows that no decision reaches included, and no logits kept.

    Parameters
    ----------
    kind : {"logits", "probabilities", "log-probabilities"}, optional
        What the rows are. Default: logits, refused where they look like probabilities.
    stops : collection of int
        Tokens that end a text, beside those of ``meta["eos_token_id"]``.
    options : mapping, optional
        Fields of `Sampling` that will replace what the dump states.

    Raises
    ------
    InputError
        As `open_rounds`, a sampling out of range, rows that are not what they are said to be, or a
        temperature or filter that they may have already.
    """
    dump = open_rounds(path)
    constant = tuple(i for i in range(len(dump)) if is_constant(dump.logits(i).target))
    parts, said = _Parts(dump), kind
    kind = kind_of_rows(str(path), parts, kind)
    ends = frozenset({*stops, *end_of_text(path, dump.meta)})
    coins = stored_coins(load_mapping(path).get("rounds"), len(dump))
    text = emitted(dump.rounds, dump.output_tokens, ends)
    # Where next tokens are logged, the last round of a text that has none was cut after its accepted drafts.
    cut = [last and any(one.next_token is not None for one in dump.rounds) for last in text.ends]
    entries = [
        {
            "target_logits": entry.target,
            "draft_logits": entry.draft,
            "proposal_logits": entry.proposal,
            "draft_tokens": entry.draft_tokens,
            "accepted": entry.accepted,
            "reported": entry.reported,
            "next_token": entry.next_token,
            "u": entry.u,
            "u_next": None if entry.u_next is None else np.asarray([entry.u_next]),
            # A coin logged in two bytes was rounded; float32 and wider hold what the engine drew.
            "u_slack": half_ulp(np.ones(1), dtype)[0] if dtype.itemsize == 2 else 0.0,
            "stopped": _stopped(entry, ends, last),
            "text": Text(),
        }
        for entry, dtype, last in zip(dump.rounds, coins, cut, strict=True)
    ]
    stated = dump.sampling or {}
    options = options or {}
    result = Rounds(str(path), entries, stated, text, kind, ends, constant)
    for i in range(len(entries)):
        try:
            result.sampling(i, {})
        except InputError as error:
            raise InputError(f"{path}: meta, sampling of round {i}: {error}") from None
    used = [result.sampling(i, options) for i in range(len(entries))]
    asked = used if options else None
    check_sampling(str(path), used, kind)
    if any(needs_text(one) or needs_text(one.draft_sampling) for one in used):
        for entry, before in zip(entries, texts_of(dump, text), strict=True):
            entry["text"] = before
    refuse_applied(parts, said, asked, stated if isinstance(stated, tuple) else (stated,))
    return result


def check_sampling(path: str, used: Sequence[Sampling], kind: str) -> None:
    """Raise `InputError` where a sampling cannot be followed through rounding, or not from such rows."""
    for one in dict.fromkeys(each for sampling in used for each in (sampling, sampling.draft_sampling)):
        if one.repetition_penalty is not None and kind != "logits":
            raise InputError(
                f"{path}: a repetition penalty goes by signs of logits, and these are {kind}; log the "
                "logits, or rows that have the penalty, and leave it out"
            )
        if needs_mask(one):
            raise InputError(
                f"{path}: allowed_tokens is 'logged', and masks are read with flat dumps only; log logits "
                "that have the mask, and leave it out"
            )
        for name in ("typical_p", "xtc_probability"):
            if getattr(one, name) is not None:
                raise InputError(
                    f"{path}: replay has no bounds yet for {name}, under the rounding of "
                    f"logs; use kl on flat "
                    "rows, or log the rows after it"
                )


@dataclass(frozen=True)
class _Parts:
    """The rows of each round as the guards for flat dumps take them, read anew each time; no padding."""

    dump: RoundsDump

    def __iter__(self) -> Iterator[FlatDump]:
        for i in range(len(self.dump)):
            rows = self.dump.logits(i)
            yield FlatDump(self.dump.path, rows.target, rows.draft if len(rows.draft) else rows.target)


def _stopped(entry: Round, stops: Collection[int], cut: bool) -> bool:
    """Whether the text ended with the accepted drafts, or may have, and nothing is said of what follows."""
    k = entry.accepted
    if entry.next_token is not None or not 0 < k < entry.gamma:
        return False
    return cut or int(entry.draft_tokens[k - 1]) in stops


def is_constant(rows: Array) -> bool:
    """Whether some row holds one value alone, and could hold others."""
    values = np.asarray(rows, np.float64)
    return values.shape[-1] > 1 and bool((values == values[:, :1]).all(axis=-1).any())


def stored_coins(rounds: Array, count: int) -> list[np.dtype]:
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
