"""The smallest request that shows a rejection: one prompt, few tokens, repeated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from resispec_verify.audit.gather import Gatherer, OutOfTime
from resispec_verify.audit.interface import Engine, Prompt, RawLaw, Sampling
from resispec_verify.audit.laws import BeyondReported, CoarseLaw, coarse_law
from resispec_verify.audit.settings import AuditSettings
from resispec_verify.audit.stream import Stream

__all__ = ["smallest_request"]

# The first token is not speculative, so that two are the fewest that can show anything.
LENGTHS = (2, 3, 4, 8, 16, 32, 64)
# Tokens of one length at least; else as many as the rejection looked at.
TOKENS = 400
# Evidence at which a request shows it: it explains a verdict and decides none.
ENOUGH = math.log(1000.0)
# Seeds of these requests begin so far after those of the run.
LATER = 1_000_000


def smallest_request(
    stream: Stream,
    engine: Engine,
    reference: Engine,
    prompts: Sequence[Prompt],
    settings: AuditSettings,
    until: float,
) -> dict[str, Any] | None:
    """Repeat short requests of the prompt with most evidence until they show the fault by themselves.

    Parameters
    ----------
    stream : Stream
        The one that was rejected.
    until : float
        `time.monotonic` at which to give up.

    Returns
    -------
    dict or None
        ``prompt``, ``tokens`` a request, ``requests`` it took, their ``seeds``, the most different
        ``tokens_off``, and the ``request`` itself as it is sent, where it is one. None where repetitions of
        each length, 400 tokens or as many as the rejection was looked at with, showed nothing.

    Raises
    ------
    EngineError
    """
    gains = stream.gain_by_prompt()
    which = max(gains, key=lambda prompt: gains[prompt], default=0)
    later = replace(settings, seed=min(settings.seed + LATER, 2**31 - 1 - settings.tokens))
    gatherer = Gatherer("smallest", engine, reference, later, [prompts[which]])
    gatherer.until = until
    try:
        for length in LENGTHS:
            if length <= settings.length and (found := _shown(gatherer, stream, length)):
                prompt = prompts[which]
                asked = engine.request(prompt, length, later.seed, settings.sampling)
                return {"prompt": prompt, **found, "seeds": [later.seed, later.seed + found["requests"] - 1],
                        "request": asked}  # fmt: skip
    except OutOfTime:
        pass
    return None


def _shown(gatherer: Gatherer, stream: Stream, length: int) -> dict[str, Any] | None:
    """Repetitions of one length, until they show it."""
    alone = Stream(stream.test.band, stream.test.slack)
    sampling, vocab = gatherer.settings.sampling, getattr(gatherer.reference, "vocab", None)
    with closing(gatherer.pieces(length)) as pieces:
        for piece in pieces:
            laws = [_known(raw, sampling, vocab) for raw in piece.laws or []]
            alone.add(piece.request, 0, piece.tokens, laws, piece.starts)
            requests = piece.request + 1
            if alone.log_evidence >= ENOUGH:
                return {"tokens": length, "requests": requests, "tokens_off": alone.tokens_off(4)}
            if requests * length >= max(TOKENS, stream.test.draws):
                return None
    return None


def _known(raw: RawLaw, sampling: Sampling, vocab: int | None) -> CoarseLaw | None:
    try:
        return coarse_law(raw, sampling, vocab)
    except BeyondReported:
        return None
