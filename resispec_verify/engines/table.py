"""The table of engines, one file of ``known/`` each."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from resispec_verify.errors import InputError, did_you_mean

__all__ = ["LAWS", "Engine", "Setting", "engine_named", "known_engines"]

#: Whether the tokens that come out have the target's law.
LAWS = ("exact", "lossy", "unknown")
KNOWN = Path(__file__).parent / "known"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way in which an engine verifies.

    Attributes
    ----------
    when : mapping or None
        What must hold of the options, see `answers.holds`; the first setting of which all holds is the one.
        None where the options do not tell.
    default : bool
        Whether this is what runs where speculation is turned on and nothing else is said.
    rule, options
        A rule of `resispec-verify rules` with options, or None where there is no such rule.
    law, greedy : str
        One of `LAWS`, by what ``measured`` says; ``greedy`` at temperature 0.
    measured : str
        The command, or the sum by hand, that says so.
    says : str
        What the source says of itself, in short.
    upstream : str
        The file upstream.
    """

    name: str
    when: Mapping[str, Any] | None
    in_words: str
    law: str
    greedy: str
    measured: str
    says: str
    upstream: str
    rule: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    default: bool = False


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine at the version that was read.

    Attributes
    ----------
    programs : tuple of str
        What starts it: the names of programs, and ``-m MODULE``.
    aliases : mapping
        Other names of options; a nested option is written ``outer.inner``, everywhere with underscores.
    json_options, flags : tuple of str
        Options whose value is a JSON object, and options that take no value.
    elsewhere : tuple of str
        Options that name a file with more options.
    decides : mapping
        Options that decide, with their ``default``, the ``values`` that were read, and whether each is a
        ``number``.
    no_bearing, speculative : tuple of str
        Options of speculation that do not decide, and how options of speculation begin: of these, one that is
        in no list is unknown.
    on_if, greedy_if : tuple of mappings
        Speculation is on, and the engine takes the best token, where one of these holds.
    limits : str
        What the answer is for.
    """

    engine: str
    version: str
    read: str
    programs: tuple[str, ...]
    aliases: Mapping[str, str]
    json_options: tuple[str, ...]
    flags: tuple[str, ...]
    elsewhere: tuple[str, ...]
    decides: Mapping[str, Mapping[str, Any]]
    no_bearing: tuple[str, ...]
    speculative: tuple[str, ...]
    on_if: tuple[Mapping[str, Any], ...]
    greedy_if: tuple[Mapping[str, Any], ...]
    limits: str
    settings: tuple[Setting, ...]

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Engine:
        """The engine of one file of ``known/``."""
        values: dict[str, Any] = {f.name: data[f.name] for f in fields(cls) if f.name != "settings"}
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return cls(settings=tuple(Setting(**entry) for entry in data["settings"]), **values)


@functools.cache
def known_engines() -> Mapping[str, Engine]:
    """All engines by name."""
    found = [
        Engine.from_mapping(json.loads(path.read_text("utf-8"))) for path in sorted(KNOWN.glob("*.json"))
    ]
    return {engine.engine: engine for engine in found}


def engine_named(name: str) -> Engine:
    """The engine of this name.

    Raises
    ------
    InputError
        If there is none.
    """
    engines = known_engines()
    if name not in engines:
        near = did_you_mean(name, engines)
        there = f" There are {', '.join(engines)}" if near else f"; there are {', '.join(engines)}"
        raise InputError(f"no engine {name!r} in the table{near}{there}")
    return engines[name]
