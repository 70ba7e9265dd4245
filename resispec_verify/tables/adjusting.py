"""Penalties, bias and bans on the rows of a flat dump, by the text that it has before each position."""

from __future__ import annotations

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.dumps import Batch, FlatDump
from resispec_verify.errors import InputError
from resispec_verify.sampling.orders import ADJUSTMENTS, order_of
from resispec_verify.sampling.text import Text, adjusted, adjusts, needs_mask, needs_text

__all__ = ["adjusted_batch", "adjusted_rows", "check_adjusting"]


def check_adjusting(dump: FlatDump, sampling: Sampling, kind: str) -> None:
    """Raise `InputError` where the dump lacks what the sampling needs, or its rows are of the wrong kind."""
    for one in dict.fromkeys((sampling, sampling.draft_sampling)):
        if one.repetition_penalty is not None and kind != "logits":
            raise InputError(
                f"{dump.path}: a repetition penalty goes by signs of logits, and these are {kind}; log the "
                "logits, or rows that have the penalty, and leave it out"
            )
        if needs_text(one) and dump.history is None:
            raise InputError(
                f"{dump.path}: penalties and min_tokens need the tokens before each position, and the dump "
                "has none; save them as history, -1 padded [N, L] or a list a position, and prompt_len"
            )
        if needs_text(one) and one.history == "block-start":
            raise InputError(
                f"{dump.path}: history 'block-start' is for dumps of rounds; in a flat one, save as history "
                "what the penalties saw"
            )
        if needs_text(one) and dump.prompt_len is None and _looks_at_output(one):
            raise InputError(
                f"{dump.path}: the order {one.order} tells prompt and output apart, and the dump does not; "
                "save prompt_len, how many tokens of each history are the prompt"
            )
        if needs_mask(one) and dump.allowed is None:
            raise InputError(
                f"{dump.path}: allowed_tokens is 'logged', and the dump has no allowed_tokens; save a bool "
                "array [N, V]"
            )


def _looks_at_output(sampling: Sampling) -> bool:
    order = order_of(sampling.order)
    return (
        (sampling.repetition_penalty is not None and order.repeats == "output")
        or (sampling.presence_penalty is not None and order.counts == "output")
        or (sampling.frequency_penalty is not None and order.counts == "output")
        or sampling.min_tokens is not None
    )


def adjusted_batch(
    dump: FlatDump, batch: Batch, positions: np.ndarray, sampling: Sampling, proposal: Sampling | None
) -> Batch:
    """The rows of these positions with what their samplings do before temperature and filters.

    Parameters
    ----------
    proposal : Sampling or None
        Of the candidates; None: the draft's. Candidates that are drawn from the draft's own logits have its
        penalties, bias and bans, unless their sampling has some of its own.

    Raises
    ------
    InputError
        A row of which nothing is left, or a token outside the vocabulary.
    """
    declared = sampling.draft_sampling
    own = proposal is not None and adjusts(proposal) and not _alike(proposal, declared)
    if not (adjusts(sampling) or adjusts(declared) or own):
        return batch

    def rows(values: np.ndarray | None, one: Sampling, name: str) -> np.ndarray | None:
        return None if values is None else adjusted_rows(dump, values, positions, one, name)

    drawn = proposal or declared
    target, draft = rows(batch.target, sampling, "target"), rows(batch.draft, declared, "draft")
    assert target is not None
    assert draft is not None
    given = batch.draft if own and batch.proposal is None else batch.proposal
    return Batch(target, draft, rows(given, drawn, "proposal"))


def _alike(one: Sampling, other: Sampling) -> bool:
    """Whether two do the same before temperature and filters."""
    names = (*ADJUSTMENTS, "stop_tokens", "penalty_last_n", "order")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def adjusted_rows(
    dump: FlatDump, values: np.ndarray, positions: np.ndarray, sampling: Sampling, name: str
) -> np.ndarray:
    """Logits ``(n, V)`` of these positions with what the sampling does before temperature and filters.

    Raises
    ------
    InputError
        As `adjusted_batch`; ``name`` says which rows.
    """
    if not adjusts(sampling):
        return values
    try:
        return adjusted(values.astype(np.float64), sampling, [_text(dump, int(i)) for i in positions])
    except InputError as error:
        raise InputError(f"{dump.path}: {name}, positions from {positions[0]} on: {error}") from None


def _text(dump: FlatDump, i: int) -> Text:
    allowed = None if dump.allowed is None else np.asarray(dump.allowed[i])
    if dump.history is None:
        return Text(None, None, allowed)
    tokens = dump.history[i]
    length = len(tokens) if dump.prompt_len is None else int(dump.prompt_len[i])
    return Text(tokens[:length], tokens[length:], allowed)
