"""The text before a position, and what of the sampling depends on it: penalties, and stops that are barred.

Every adjustment maps each logit by itself and upwards, so that bounds of logits go through it end by end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.sampling_steps import ban, penalise_counts, penalise_repetition
from resispec_verify.sampling.orders import Order, order_of
from resispec_verify.sampling.settings import LOGGED

__all__ = ["Text", "adjusted", "adjusts", "needs_mask", "needs_text"]

_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")


@dataclass(frozen=True, eq=False)
class Text:
    """What precedes one position.

    Attributes
    ----------
    prompt, output : int array
        Token ids; the output so far, in order.
    allowed : bool array (V,) or None
        The tokens that a grammar allows at the position.
    """

    prompt: np.ndarray | None = None
    output: np.ndarray | None = None
    allowed: np.ndarray | None = None

    def after(self, tokens: np.ndarray) -> Text:
        """The text with more output, without a mask."""
        assert self.output is not None
        return Text(self.prompt, np.concatenate([self.output, tokens]))


def adjusts(sampling: Any) -> bool:
    """Whether anything is done to logits before temperature and filters."""
    return any(
        getattr(sampling, name) is not None
        for name in (*_PENALTIES, "logit_bias", "bad_words", "allowed_tokens", "min_tokens")
    )


def needs_text(sampling: Any) -> bool:
    """Whether the law depends on the tokens before."""
    return any(getattr(sampling, name) is not None for name in (*_PENALTIES, "min_tokens"))


def needs_mask(sampling: Any) -> bool:
    """Whether the law depends on a mask that is logged by position."""
    return sampling.allowed_tokens == LOGGED


def adjusted(logits: np.ndarray, sampling: Any, texts: Sequence[Text | None]) -> np.ndarray:
    """Logits ``(n, V)``, NumPy, with bias, penalties and bans, each row after its text.

    Parameters
    ----------
    sampling : Sampling
    texts : sequence of Text or None
        One a row; what the sampling needs of them must be there.

    Raises
    ------
    InputError
        A token outside the vocabulary, or a row of which nothing is left.
    """
    order, vocab = order_of(sampling.order), logits.shape[-1]
    for step in order.adjustments:
        if getattr(sampling, step) is None:
            continue
        if step == "logit_bias":
            tokens = _inside("logit_bias", [token for token, _ in sampling.logit_bias], vocab)
            bias = np.zeros(vocab, logits.dtype)
            bias[tokens] = [value for _, value in sampling.logit_bias]
            logits = logits + bias
        elif step in _PENALTIES:
            logits = _penalised(logits, step, sampling, order, texts)
        else:
            logits = ban(logits, _banned(step, sampling, texts, vocab))
    empty = np.isneginf(logits).all(axis=-1)
    if empty.any():
        raise InputError(
            f"row {int(np.argmax(empty))}: bias, bad words, masks and min_tokens leave no token; allow one"
        )
    return logits


def _penalised(
    logits: np.ndarray, step: str, sampling: Any, order: Order, texts: Sequence[Text | None]
) -> np.ndarray:
    scope = order.repeats if step == "repetition_penalty" else order.counts
    last_n = order.last_n if sampling.penalty_last_n is None else sampling.penalty_last_n
    counts = np.stack([_counts(text, scope, last_n, logits.shape[-1]) for text in texts])
    value = getattr(sampling, step)
    if step == "repetition_penalty":
        return penalise_repetition(logits, counts > 0, value)
    frequency, presence = (value, 0.0) if step == "frequency_penalty" else (0.0, value)
    return penalise_counts(logits, counts.astype(logits.dtype), frequency=frequency, presence=presence)


def _counts(text: Text | None, scope: str, last_n: int | None, vocab: int) -> np.ndarray:
    """How often each token occurs in the part of the text that a penalty looks at."""
    assert text is not None
    assert text.output is not None
    tokens = text.output
    if scope == "text":
        assert text.prompt is not None
        tokens = np.concatenate([text.prompt, tokens])
    if last_n is not None:
        tokens = tokens[len(tokens) - min(last_n, len(tokens)) :]
    return np.bincount(_inside("history", tokens, vocab), minlength=vocab)


def _banned(step: str, sampling: Any, texts: Sequence[Text | None], vocab: int) -> np.ndarray:
    """Bool ``(n, V)``, or ``(V,)`` where it is the same for all."""
    banned = np.zeros(vocab, bool)
    if step == "bad_words":
        banned[_inside(step, sampling.bad_words, vocab)] = True
        return banned
    if step == "allowed_tokens" and not needs_mask(sampling):
        banned[:] = True
        banned[_inside(step, sampling.allowed_tokens, vocab)] = False
        return banned
    if step == "allowed_tokens":
        masks = [text.allowed for text in texts if text is not None and text.allowed is not None]
        return ~np.stack(masks)
    banned[_inside("stop_tokens", sampling.stop_tokens or (), vocab)] = True
    early = [len(text.output) < sampling.min_tokens for text in texts if text and text.output is not None]
    return banned & np.asarray(early)[:, None]


def _inside(name: str, tokens: Any, vocab: int) -> np.ndarray:
    tokens = np.asarray(tokens, np.int64)
    if tokens.size and (tokens.min() < 0 or tokens.max() >= vocab):
        bad = tokens[(tokens < 0) | (tokens >= vocab)][0]
        raise InputError(f"{name} has token {bad}, outside the vocabulary 0..{vocab - 1}")
    return tokens
