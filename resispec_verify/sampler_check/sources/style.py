"""What a style of calling samplers says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Style"]


@dataclass(frozen=True)
class Style:
    """One way of calling a sampler.

    Attributes
    ----------
    name : str
    arguments : tuple of str
        What is handed in, before ``rng``.
    takes : type
        Of its inputs.
    names : tuple of str
        Of the inputs of its battery, cheap ones first.
    named : callable (str) -> input
    sources : callable (input, settings, handing) -> list of sources
        Where draws on an input come from; each is tested by itself.
    options : tuple of str
        Flags of the settings that it understands: "ragged", "stop", "flat", "uniforms".
    proposals : tuple of str
        How candidates that are handed in may be drawn; empty where none are, or in one way only.
    rule : bool
        Whether the index of the accepted candidate may be returned, and compared with that of a rule.
    searched : bool
        Whether the search for the worst pair proposes inputs of this style.
    mixed : callable (sources) -> source or None
        Rows of several inputs in one call.
    uniforms : bool
        Always called with uniforms in place of ``rng``.
    """

    name: str
    arguments: tuple[str, ...]
    takes: type
    names: tuple[str, ...]
    named: Callable[[str], Any]
    sources: Callable[[Any, Any, Any], list[Any]]
    options: tuple[str, ...] = ()
    proposals: tuple[str, ...] = ()
    rule: bool = False
    searched: bool = False
    mixed: Callable[[list[Any]], Any] | None = None
    uniforms: bool = False
