"""The styles, by name. A new one is a file with a `Style`, and its line here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resispec_verify.errors import InputError, did_you_mean
from resispec_verify.sampler_check.sources.block import BLOCK, RAGGED
from resispec_verify.sampler_check.sources.handing import Handing
from resispec_verify.sampler_check.sources.mixed import AND, ROWS_OF
from resispec_verify.sampler_check.sources.style import Style
from resispec_verify.sampler_check.sources.text import TEXT
from resispec_verify.sampler_check.sources.tokens import CANDIDATES, TOKENS, UNIFORMS
from resispec_verify.sampler_check.sources.tree import TREE

__all__ = ["STYLES", "arguments_of", "handing_of", "inputs_of", "inputs_of_witness", "named_inputs"]

STYLES: dict[str, Style] = {style.name: style for style in (TOKENS, CANDIDATES, UNIFORMS, BLOCK, TREE, TEXT)}


def inputs_of(style: str) -> tuple[Any, ...]:
    """The fixed inputs of a style, cheap ones first."""
    return tuple(map(STYLES[style].named, STYLES[style].names))


def named_inputs(names: Sequence[str], style: str = "tokens") -> list[Any]:
    """Fixed inputs of a style by name.

    Raises
    ------
    InputError
        The style has no input of that name.
    """
    there = STYLES[style].names
    if unknown := [name for name in names if name not in there]:
        more = did_you_mean(unknown[0], there) or f"; there are {', '.join(there)}"
        raise InputError(f"no input named {unknown[0]!r} for the style {style}{more}")
    return [STYLES[style].named(name) for name in names]


def inputs_of_witness(witness: dict[str, Any], style: str) -> list[str] | None:
    """The names of the fixed inputs of a style that lead to a witness again; None where it is on none.

    Rows of two inputs come again where both are given: two that have one width are always mixed.
    """
    name, there = str(witness.get("input", "")).removesuffix(RAGGED), STYLES[style].names
    for names in ([name], name.removeprefix(ROWS_OF).split(AND)):
        if all(one in there for one in names):
            return names
    return None


def handing_of(settings: Any) -> Handing:
    """How `CheckSettings` want laws and uniforms to be handed over.

    Raises
    ------
    InputError
        The library of the arrays is not there, or has no device.
    """
    uniforms = settings.uniforms or STYLES[settings.style].uniforms
    return Handing(settings.give, settings.dtype, settings.arrays, uniforms)


def arguments_of(settings: Any) -> tuple[str, ...]:
    """The names of what a sampler is called with."""
    style = STYLES[settings.style]
    lengths = ("lengths",) if settings.flat else ()
    return (*style.arguments, *lengths, "uniforms" if settings.uniforms or style.uniforms else "rng")
