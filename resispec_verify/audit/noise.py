"""How far the reference's law of the same text is from itself: alone, in a crowd, cached, computed anew.

An engine's arithmetic depends on what else is in the batch, on what was cached, and on how many tokens were
evaluated together. A sampler that draws from the law of its own batch is lossless; the test must not reject
for that. What counts is the *average* over the draws: where the product of gains was divided for a band above
the average of what the laws really moved, it is no larger than that divided for each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from resispec_verify.audit.gather import Piece
from resispec_verify.audit.interface import Engine, Prompt, RawLaw
from resispec_verify.audit.laws import BeyondReported, coarse_law, distance
from resispec_verify.audit.settings import AuditSettings
from resispec_verify.errors import InputError
from resispec_verify.runs.journal import Journal

__all__ = ["PROBED", "measure_band"]

#: Completions of the control whose laws are asked again.
PROBED = 2
# Of a line of a journal.
BAND = "band"
DREW = "as it drew its own tokens"
MEASURED = {"how", "laws", "mean", "largest", "bound", "used"}
# What a reference reports while it draws is another law, not the same with noise, where it is so far off and
# so many times farther than what it says when it is asked again, on average.
ANOTHER = 0.05
FAR = 4.0
# Standard errors above the mean of what was measured.
ERRORS = 3.0


def measure_band(
    reference: Engine,
    pieces: Sequence[Piece],
    settings: AuditSettings,
    prompts: Sequence[Prompt],
    journal: Journal | None = None,
) -> dict[str, Any]:
    """The band: the largest, over the ways to ask again, of a mean distance and three standard errors of it.

    Parameters
    ----------
    pieces : sequence of Piece
        Of the control, with the laws that were asked while other requests ran.
    journal : Journal, optional
        Keeps the band: measured again after as many completions it would be a second look.

    Returns
    -------
    dict
        ``tv``, ``measured`` (``how``, ``laws``, ``mean``, ``largest``, ``bound``, ``used``) and ``given``.

    Raises
    ------
    EngineError
    """
    for entry in () if journal is None else journal.entries:
        if entry.get("who") == BAND and entry.get("completions") == len(pieces):
            return _kept(entry.get("band"), journal)
    found: dict[str, list[float]] = {
        DREW: [],
        "asked again alone": [],
        "computed anew": [],
    }
    for piece in pieces:
        assert piece.laws is not None
        if piece.own is not None:
            found[DREW] += _distances(piece.own, piece.laws, reference, settings)
    for piece in pieces[:PROBED]:
        prompt = prompts[piece.prompt]
        for how, fresh in (("asked again alone", False), ("computed anew", True)):
            again = reference.laws(prompt, piece.tokens, settings.top, fresh=fresh)
            found[how] += _distances(again, piece.laws or [], reference, settings)
    measured = [_measured(how, np.array(widths)) for how, widths in found.items() if widths]
    others = max((one["mean"] for one in measured if one["how"] != DREW), default=0.0)
    for one in measured:
        # Another law, and not the same one with noise: whether tokens come from it is for the control to say.
        one["used"] = one["how"] != DREW or one["mean"] <= max(ANOTHER, FAR * others)
    widest = max((one["bound"] for one in measured if one["used"]), default=0.0)
    given = settings.band
    band = {
        "tv": min(widest, 0.999) if given is None else given,
        "measured": measured,
        "given": given is not None,
    }
    if journal is not None:
        journal.append({"who": BAND, "completions": len(pieces), "band": band})
    return band


def _kept(band: Any, journal: Journal | None) -> dict[str, Any]:
    """The band of a journal, which may have been edited."""
    if (
        isinstance(band, dict)
        and band.keys() == {"tv", "measured", "given"}
        and isinstance(band["tv"], (int, float))
        and 0 <= band["tv"] < 1
        and isinstance(band["measured"], list)
        and all(isinstance(one, dict) and one.keys() == MEASURED for one in band["measured"])
    ):
        return band
    where = "" if journal is None else f"{journal.path}: "
    raise InputError(f"{where}the band in it is damaged; name another file")


def _distances(
    one: Sequence[RawLaw], other: Sequence[RawLaw], reference: Engine, settings: AuditSettings
) -> list[float]:
    sampling, vocab = settings.sampling, reference.vocab
    found = []
    for a, b in zip(one, other, strict=False):
        with suppress(BeyondReported):
            found.append(distance(coarse_law(a, sampling, vocab), coarse_law(b, sampling, vocab)))
    return found


def _measured(how: str, widths: np.ndarray) -> dict[str, Any]:
    mean = float(widths.mean())
    error = float(widths.std()) / math.sqrt(len(widths))
    return {
        "how": how,
        "laws": len(widths),
        "mean": mean,
        "largest": float(widths.max()),
        "bound": mean + ERRORS * error,
    }
