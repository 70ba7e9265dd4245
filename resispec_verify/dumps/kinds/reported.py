"""Log-probabilities that an engine reported for the tokens of a round, checked."""

from __future__ import annotations

import numpy as np

from resispec_verify.dumps.kinds.keys import what
from resispec_verify.dumps.rows import FLOATS
from resispec_verify.errors import InputError

__all__ = ["REPORTED_KEY", "reported_logprobs"]

REPORTED_KEY = "reported_logprobs"
# A float32 log-softmax rounds to a little above 0; one in two bytes to no more.
_ABOVE = 1e-5


def reported_logprobs(where: str, value: object, emitted: int, most: int) -> np.ndarray:
    """Return those of the tokens that a round emitted, in the type they are stored in, ``(emitted,)``.

    Parameters
    ----------
    where : str
        "path: round 3: reported_logprobs"; begins errors.
    emitted : int
        Accepted drafts, and the next token where there is one.
    most : int
        How many there may be: what follows the emitted ones is padding, and is not read.

    Raises
    ------
    InputError
        If they are not floating-point numbers, too few or too many, NaN, or above 0.
    """
    if isinstance(value, (list, tuple)) and all(type(item) is float for item in value):
        value = np.asarray(value, np.float64)
    if not isinstance(value, np.ndarray) or value.dtype.newbyteorder("=") not in FLOATS or value.ndim != 1:
        raise InputError(f"{where} is {what(value)}; save one floating-point number for each emitted token")
    if not emitted <= len(value) <= most:
        raise InputError(
            f"{where} has {len(value)} numbers, and {emitted} tokens were emitted; save one for each "
            "accepted draft, and one for the next token"
        )
    numbers = value[:emitted].astype(np.float64)
    wrong = ~(numbers <= _ABOVE)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise InputError(
            f"{where}: {numbers[i]:g} at {i} is no log-probability; save natural logarithms, at most 0"
        )
    return value[:emitted]
