"""Rounds dumps: what a real speculative decoder drafted, accepted and emitted, round by round."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from resispec_verify.dumps.checks.companions import check_companions, check_round_companions
from resispec_verify.dumps.checks.whole import check_rows, one_after_another
from resispec_verify.dumps.formats.mapped import refuse_repeats, repeats
from resispec_verify.dumps.kinds.keys import (
    PROPOSAL_KEY,
    ROUNDS_KEY,
    as_rows,
    elsewhere,
    kind,
    refuse_top,
    what,
)
from resispec_verify.dumps.kinds.labels import samplings
from resispec_verify.dumps.kinds.reported import REPORTED_KEY, reported_logprobs
from resispec_verify.dumps.kinds.tree_shapes import has_shape
from resispec_verify.dumps.kinds.values import integer, integers, no_token, prompt_name, uniforms
from resispec_verify.dumps.opening import listing
from resispec_verify.dumps.parts.reduced import differing_widths, placed
from resispec_verify.dumps.rows import Rows, checked_rows, dtype_names, padded
from resispec_verify.errors import InputError

__all__ = ["Round", "RoundLogits", "RoundsDump", "rounds_from_mapping", "unstacked"]

NEEDED = ("draft_tokens", "draft_logits", "target_logits", "accepted")
OPTIONAL = ("u", "u_next", "next_token", "context_len", PROPOSAL_KEY, REPORTED_KEY)


class RoundLogits(NamedTuple):
    """Logits of one round, fresh float32 or float64: target ``[g + 1, vocab]``, draft ``[g, vocab]``."""

    target: np.ndarray
    draft: np.ndarray
    proposal: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Round:
    """One round, its logits opened but not read.

    Attributes
    ----------
    draft_tokens : int64 array (g,)
        Drafted, in order; without the -1s that padded them.
    accepted : int
        How many of them were accepted, 0 to g.
    next_token : int or None
        Emitted after them: from the residual, or the bonus token; None where it is -1.
    u : float64 array (g,) or None
        The uniforms of the decisions; those after a rejection were not used.
    u_next : float or None
        The uniform that `next_token` was drawn with; not read where that is -1.
    context_len : int or None
        Tokens before the round.
    prompt : int, str or None
        Of which of several prompts it is.
    reported : array (accepted + 1,) or None
        Log-probabilities that the engine reported for the tokens that it emitted, as stored; one fewer where
        no next token is logged.
    target, draft, proposal : Rows
        As stored, ``[g + 1, V]`` and ``[g, V]``; rows of padding follow where tokens were padded.
    """

    draft_tokens: np.ndarray
    accepted: int
    next_token: int | None
    u: np.ndarray | None
    u_next: float | None
    context_len: int | None
    prompt: int | str | None
    target: Rows = field(repr=False)
    draft: Rows = field(repr=False)
    proposal: Rows | None = field(default=None, repr=False)
    reported: np.ndarray | None = None

    @property
    def gamma(self) -> int:
        """Tokens drafted."""
        return len(self.draft_tokens)


@dataclass(frozen=True, eq=False, repr=False)
class RoundsDump:
    """A rounds dump, opened and checked but for its logits, which `logits` reads and checks.

    Attributes
    ----------
    path : str
    rounds : tuple of Round
    vocab : int
        Width of a row; drafts of a reduced or padded vocabulary are widened to it.
    dtype : str
        Stored type of the logits.
    context_tokens : int64 array, tuple of them or None
        One for each of several prompts.
    output_tokens : int64 array or None
    sampling : mapping, tuple of mappings or None
        What ``meta["sampling"]`` states, at once or by round.
    meta : object
    """

    path: str
    rounds: tuple[Round, ...]
    vocab: int
    dtype: str
    context_tokens: np.ndarray | tuple[np.ndarray, ...] | None
    output_tokens: np.ndarray | None
    sampling: Mapping[str, Any] | tuple[Mapping[str, Any], ...] | None
    meta: Any

    def __repr__(self) -> str:
        return f"RoundsDump({self.path!r}, rounds={len(self)}, vocab={self.vocab}, dtype={self.dtype!r})"

    def __len__(self) -> int:
        return len(self.rounds)

    def logits(self, index: int) -> RoundLogits:
        """Return the logits of a round, checked.

        Raises
        ------
        InputError
            If a row has NaN or +inf, or only -inf; round, key and row are named.
        """
        one, g = self.rounds[index], self.rounds[index].gamma
        rows = [
            None if array is None else self._read(index, key, array, count)
            for key, array, count in (
                ("target_logits", one.target, g + 1), ("draft_logits", one.draft, g),
                (PROPOSAL_KEY, one.proposal, g),
            )
        ]  # fmt: skip
        return RoundLogits(*rows)  # type: ignore[arg-type]

    def _read(self, index: int, key: str, array: Rows, count: int) -> np.ndarray:
        if not count:
            return np.empty((0, self.vocab), np.float32)
        rows = checked_rows(f"{self.path}: round {index}", key, array, 0, count, unit="row")
        return padded(rows, self.vocab)

    def checked(self) -> RoundsDump:
        """The dump itself, unless the rows of its rounds are not over a vocabulary; as for a `FlatDump`."""
        target, draft = (one_after_another(key, rows) for key, rows in (
            ("target_logits", [one.target for one in self.rounds]),
            ("draft_logits", [one.draft for one in self.rounds]),
        ))  # fmt: skip
        proposals = [one.proposal for one in self.rounds if one.proposal is not None]
        check_rows(self.path, {**target, **draft, **one_after_another(PROPOSAL_KEY, proposals)}, self.meta)
        return self


def unstacked(path: str | os.PathLike[str], mapping: dict) -> dict:
    """Turn rounds saved as arrays with a leading axis of rounds into a list of rounds; copy nothing else.

    Formats that hold only arrays have no lists of dicts: `draft_tokens` ``[R, g]``, `draft_logits`
    ``[R, g, V]``, `target_logits` ``[R, g + 1, V]``, `accepted` ``[R]``, and perhaps `u` ``[R, g]``,
    `next_token`, `u_next` and `context_len` ``[R]``.
    """
    if ROUNDS_KEY in mapping or not {"draft_tokens", "accepted"} <= mapping.keys():
        return mapping
    stacked = {key: mapping[key] for key in (*NEEDED, *OPTIONAL) if mapping.get(key) is not None}
    accepted, prompt = mapping["accepted"], mapping.get("prompt")
    if isinstance(prompt, np.ndarray) and isinstance(accepted, np.ndarray) and prompt.shape == accepted.shape:
        stacked["prompt"] = prompt
    for key, value in stacked.items():
        if not isinstance(value, np.ndarray) or not value.ndim or len(value) != len(accepted):
            raise InputError(
                f"{path}: {key} is {what(value)}; stacked rounds need an uncompressed array with one entry a "
                "round"
            )
    refuse_repeats(f"{path}: accepted", accepted)
    rounds = [{key: np.asarray(value[i]) for key, value in stacked.items()} for i in range(len(accepted))]
    return {ROUNDS_KEY: rounds} | {key: value for key, value in mapping.items() if key not in stacked}


def rounds_from_mapping(
    path: str | os.PathLike[str], mapping: dict, *, pad_vocab: bool = False
) -> RoundsDump:
    """Check what a file holds and return it as a rounds dump; no logits are read.

    ``draft_tokens`` of different lengths may be padded with -1 at the end, and the rows and uniforms with
    anything: what belongs to a -1 is not read. The target's row g is then the one after g tokens.

    Raises
    ------
    InputError
        If it is of another kind, or a round lacks a key, has shapes that do not agree, a token outside the
        vocabulary, a uniform outside [0, 1), or more accepted than drafted tokens. Rounds are named 0-based.
    """
    refuse_top(path, mapping, "rounds with whole rows, or a scalar log of a line a decision, are")
    if kind(mapping) != "rounds":
        raise InputError(
            f"{path}: is a {kind(mapping)} dump, and one of rounds (key {ROUNDS_KEY}) is needed; "
            f"{elsewhere(kind(mapping))}"
        )
    entries = mapping[ROUNDS_KEY]
    if not isinstance(entries, (list, tuple)) or not entries:
        raise InputError(f"{path}: {ROUNDS_KEY} is {what(entries)}; save a list of at least one round")
    rounds: list[Round] = []
    width = 0
    for i, entry in enumerate(entries):
        one = _round(f"{path}: round {i}", entry, mapping, pad_vocab)
        rounds.append(one)
        wide = max(rows.shape[-1] for rows in (one.target, one.draft))
        width = width or wide
        if wide != width:
            raise InputError(
                f"{path}: round {i} has vocabulary {wide} but round 0 has {width}; save one model"
            )
    check_companions(path, {key: value for key, value in mapping.items() if key != ROUNDS_KEY}, {})
    check_round_companions(path, mapping, [one.gamma for one in rounds], {width, rounds[0].draft.shape[-1]})
    known = (2**31) - 1
    context, output = mapping.get("context_tokens"), mapping.get("output_tokens")
    if _several(context):
        context = tuple(
            integers(f"{path}: context_tokens[{i}]", part, None, -1, known) for i, part in enumerate(context)
        )
    elif context is not None:
        context = integers(f"{path}: context_tokens", context, None, -1, known)
    if output is not None:
        output = integers(f"{path}: output_tokens", _joined(output), None, -1, known)
    first = rounds[0]
    meta = mapping.get("meta")
    dtype, stated = dtype_names(first.target, first.draft), samplings(path, meta, len(rounds))
    return RoundsDump(str(path), tuple(rounds), width, dtype, context, output, stated, meta)


def _several(context: Any) -> TypeGuard[list | tuple]:
    """Whether these are the contexts of several prompts, one array each, as the recorder writes them."""
    return isinstance(context, (list, tuple)) and any(
        isinstance(part, (list, np.ndarray)) for part in context
    )


def _joined(tokens: Any) -> Any:
    """Rows of tokens that -1s pad at the end, one a round, as one row; anything else as it is."""
    if not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu" or tokens.ndim != 2:
        return tokens
    rows = [row[: len(row) - _padding(row, len(row))] for row in tokens]
    return np.concatenate([tokens[:0, 0], *rows])


def _round(where: str, entry: object, whole: Mapping, pad_vocab: bool) -> Round:
    if not isinstance(entry, dict):
        raise InputError(f"{where} is {what(entry)}; save a dict with the keys {', '.join(NEEDED)}")
    if has_shape(entry):
        raise InputError(
            f"{where} is one over a tree (it has its shape); open_tree_rounds and replay read those"
        )
    for key in NEEDED:
        if key not in entry:
            raise InputError(f"{where} has no {key} (keys: {listing(entry)}); save {', '.join(NEEDED)}")
    target, draft, proposal = _matrices(where, entry, whole, pad_vocab)
    gamma, last = draft.shape[0], max(target.shape[-1], draft.shape[-1]) - 1

    def optional(key: str, read: Any, *limits: Any) -> Any:
        return None if entry.get(key) is None else read(f"{where}: {key}", entry[key], *limits)

    next_token = drawn = None
    if not no_token(entry.get("next_token")):
        next_token, drawn = optional("next_token", integer, 0, last), optional("u_next", uniforms, 1)
    tokens, coins = entry["draft_tokens"], entry.get("u")
    if padding := _padding(tokens, gamma):
        gamma -= padding
        tokens = tokens[:gamma]
        if isinstance(coins, (list, tuple, np.ndarray)) and len(coins) == gamma + padding:
            coins = coins[:gamma]
    check_round_companions(where, entry, [gamma], set())
    accepted = integer(f"{where}: accepted", entry["accepted"], 0, gamma)
    emitted = accepted + (next_token is not None)
    return Round(
        draft_tokens=integers(f"{where}: draft_tokens", tokens, (gamma,), 0, last),
        accepted=accepted,
        next_token=next_token,
        u=None if coins is None else uniforms(f"{where}: u", coins, gamma),
        u_next=None if drawn is None else float(drawn[0]),
        context_len=optional("context_len", integer, 0, None),
        prompt=prompt_name(where, entry.get("prompt")),
        target=target,
        draft=draft,
        proposal=proposal,
        reported=optional(REPORTED_KEY, reported_logprobs, emitted, draft.shape[0] + 1),
    )


def _matrices(where: str, entry: dict, whole: Mapping, pad_vocab: bool) -> tuple[Rows, Rows, Rows | None]:
    """Target ``[g + 1, V]``, draft and proposal ``[g, V]`` of a round."""
    target, draft = (_matrix(where, key, entry[key]) for key in ("target_logits", "draft_logits"))
    proposal = entry.get(PROPOSAL_KEY)
    proposal = None if proposal is None else _matrix(where, PROPOSAL_KEY, proposal)
    if target.shape[0] != draft.shape[0] + 1:
        raise InputError(
            f"{where}: target_logits is {list(target.shape)} but draft_logits is {list(draft.shape)}; the "
            "target needs one row more than the draft"
        )
    if proposal is not None and proposal.shape != draft.shape:
        raise InputError(
            f"{where}: {PROPOSAL_KEY} is {list(proposal.shape)}, but must be {list(draft.shape)}"
        )
    held = {"target_logits": target, "draft_logits": draft}
    check_companions(where, entry, held if proposal is None else held | {PROPOSAL_KEY: proposal})
    draft, proposal, pad_vocab, _ = placed(where, whole, target, draft, proposal, pad_vocab)
    if draft.shape[-1] != target.shape[-1] and not pad_vocab:
        raise differing_widths(where, target, draft)
    return target, draft, proposal


def _padding(tokens: object, gamma: int) -> int:
    """How many -1s end ``gamma`` drafted tokens: engines pad rounds of different lengths to one."""
    if isinstance(tokens, (list, tuple)) and all(type(token) is int for token in tokens):
        tokens = np.array(tokens, object)
    if not isinstance(tokens, np.ndarray) or tokens.shape != (gamma,) or not gamma:
        return 0
    there = tokens != -1
    return gamma if not there.any() else int(np.argmax(there[::-1]))


def _matrix(where: str, key: str, value: object) -> Rows:
    if isinstance(value, np.ndarray) and value.ndim == 2 and not value.shape[0] and value.shape[1]:
        return value  # a round in which nothing was drafted
    rows = as_rows(where, key, value)
    if rows.ndim != 2 or (isinstance(rows, np.ndarray) and repeats(rows)):
        raise InputError(f"{where}: {key} is {what(rows)}; save a plain matrix [tokens, vocabulary]")
    return rows
