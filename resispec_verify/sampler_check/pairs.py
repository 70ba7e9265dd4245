"""The pairs that a caller from Python may hand to a check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from resispec_verify.distributions import pair_from_probabilities
from resispec_verify.errors import InputError
from resispec_verify.inputs import shown
from resispec_verify.sampler_check.battery import Chain, Input
from resispec_verify.sampler_check.check import named_inputs

__all__ = ["given_inputs"]


def given_inputs(pairs: Sequence[Any] | None) -> list[Input | Chain] | None:
    """Inputs of names of the battery and of ``(target, draft)`` laws ``(V,)``; None, the battery, stays None.

    Raises
    ------
    InputError
        Something else; names its place.
    """
    if pairs is not None and not isinstance(pairs, list | tuple):
        raise InputError(f"pairs must be a list of names and of (target, draft), got {shown(pairs)}")
    return None if pairs is None else [_input(i, pair) for i, pair in enumerate(pairs)]


def _input(number: int, pair: Any) -> Input | Chain:
    if isinstance(pair, Input | Chain):
        return pair
    if isinstance(pair, str):
        return named_inputs([pair])[0]
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise InputError(
            f"pairs[{number}] must be (target, draft), or a name of the battery; got {shown(pair)}"
        )
    try:
        checked = pair_from_probabilities(*pair)
    except InputError as error:
        raise InputError(f"pairs[{number}]: {error}") from None
    if checked.target.ndim != 1:
        raise InputError(f"pairs[{number}]: target must have shape (V,), got {checked.target.shape}")
    return Input(f"pair {number}", np.asarray(checked.target), np.asarray(checked.draft))
