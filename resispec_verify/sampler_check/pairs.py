"""What a caller from Python may hand to a check: a sampler, pairs, settings."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from resispec_verify.distributions import pair_from_probabilities
from resispec_verify.errors import InputError, did_you_mean
from resispec_verify.inputs import shown
from resispec_verify.rules.given import given_rule
from resispec_verify.sampler_check.battery import Chain, Input
from resispec_verify.sampler_check.settings import CheckSettings
from resispec_verify.sampler_check.sources.styles import named_inputs

__all__ = ["given_check", "given_inputs"]


def given_check(
    sampler: Any, pairs: Sequence[Any] | None, settings: dict[str, Any]
) -> tuple[str, CheckSettings, list[Input | Chain] | None]:
    """The sampler's name, the settings, and the inputs; with pairs there is no search unless it is asked for.

    Raises
    ------
    InputError
        No function, settings that there are not or that make no sense, or pairs that are none.
    """
    if not callable(sampler) or isinstance(sampler, type):
        raise InputError(
            f"sampler must be a function, or an instance that can be called; got {shown(sampler)}"
        )
    known = [field.name for field in fields(CheckSettings)]
    if unknown := [name for name in settings if name not in known]:
        near = did_you_mean(unknown[0], known) or f" (there are: {', '.join(known)})"
        raise InputError(f"there is no setting {unknown[0]!r}{near}")
    rule = settings.get("rule")
    given = {"search": pairs is None, **settings, "rule": None if rule is None else given_rule(rule)}
    name = getattr(sampler, "__qualname__", type(sampler).__qualname__)
    chosen = CheckSettings(**given)
    return name, chosen, given_inputs(pairs, chosen.style)


def given_inputs(pairs: Sequence[Any] | None, style: str = "tokens") -> list[Input | Chain] | None:
    """Inputs of names of the battery and of ``(target, draft)`` laws ``(V,)``; None, the battery, stays None.

    Raises
    ------
    InputError
        Something else; names its place.
    """
    if pairs is not None and not isinstance(pairs, list | tuple):
        raise InputError(f"pairs must be a list of names and of (target, draft), got {shown(pairs)}")
    if pairs and any(map(_is_row, pairs)):
        raise InputError(
            "pairs is a list of (target, draft), and here an entry is a row of numbers; write "
            "pairs=[(target, draft)], also for a single pair"
        )
    return None if pairs is None else [_input(i, pair, style) for i, pair in enumerate(pairs)]


def _is_row(value: Any) -> bool:
    """Whether it is a law (V,), as in a pair that was given without the list around it."""
    if isinstance(value, list | tuple):
        return len(value) > 0 and all(isinstance(one, numbers.Real) for one in value)
    return getattr(value, "ndim", None) == 1


def _input(number: int, pair: Any, style: str) -> Input | Chain:
    if isinstance(pair, Input | Chain):
        return pair
    if isinstance(pair, str):
        return named_inputs([pair], style)[0]
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
