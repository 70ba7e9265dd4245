"""What is wrong with the words of a command line, in one line, and which were perhaps meant."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from resispec_verify.errors import InputError, did_you_mean

DUMPS = (".pt", ".pth", ".safetensors", ".npz")
MOST_SHOWN = 4


def usage_line(error: CycloptsError, program: str, commands: Any) -> str:
    """The line, with the remedy.

    Parameters
    ----------
    error : CycloptsError
    program : str
    commands : callable
        Makes the whole program, to look for an option that another command has.
    """
    inner = error.__cause__
    if isinstance(inner, InputError):  # a converter's own message is wrapped; it is the better one
        return str(inner)
    chain = [*(error.command_chain or ())]
    said = _said(error, chain, program, commands)
    return f"{said}{' See' if said[-1] == '?' else '; see'} '{' '.join([program, *chain, '--help'])}'"


def _said(error: CycloptsError, chain: list[str], program: str, commands: Any) -> str:
    """What is wrong, without where to look."""
    if isinstance(error, UnknownOptionError):
        return _unknown_option(error, chain, commands)
    if isinstance(error, UnknownCommandError):
        word = (error.unused_tokens or [""])[0]
        return f"unknown command {word!r}{_command_for(word, _names(error.app), program)}"
    if isinstance(error, UnusedCliTokensError):
        word = (error.unused_tokens or [""])[0]
        inside = _names(error.app) if error.app is not None and chain else []
        what = f"unknown command {' '.join([*chain, word])!r}" if inside else f"{word!r} is one word too many"
        return f"{what}{did_you_mean(word, inside)}"
    if isinstance(error, CoercionError) and (choices := _choices(error.target_type)):
        return _bad_choice(error, choices)
    if isinstance(error, RepeatArgumentError):
        return f"{error.token.keyword} is given twice; give it once"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return _missing(error.keyword or error.argument.name, error)
    return " ".join(str(error).split()).rstrip(".")


def _unknown_option(error: UnknownOptionError, chain: list[str], commands: Any) -> str:
    word = (error.token.keyword or error.token.value).partition("=")[0]
    known = _options(error.argument_collection)
    said = f"unknown option {word}"
    near = did_you_mean(word.lstrip("-"), [name.lstrip("-") for name in known])
    if near:
        return f"{said}{near.replace(chr(39), '--', 1).replace(chr(39), '')}"
    app = commands()
    having = [name for name in _names(app) if word in _options(app[name].assemble_argument_collection())]
    if not having or not chain:
        return said
    more = f" and {len(having) - MOST_SHOWN} more" if len(having) > MOST_SHOWN else ""
    return f"{said} of {' '.join(chain)}; it is one of {', '.join(having[:MOST_SHOWN])}{more}"


def _options(arguments: Iterable[Any]) -> list[str]:
    """Long options that help shows; no negative forms of them."""
    shown = [one for one in arguments if one.show and not one.children]
    return [name for one in shown for name in one.names if name[:2] == "--" and name[:8] != "--empty-"]


def _names(app: Any) -> list[str]:
    return [] if app is None else [name for name in app if name[:1] != "-"]


def _command_for(word: str, known: list[str], program: str) -> str:
    """The command that was perhaps meant; for a file, the first that one is given to; else all of them."""
    near = did_you_mean(word, known)
    if near:
        return near
    if Path(word).suffix.lower() in DUMPS:
        return f", which is a dump; write '{program} kl {word}'"
    return f"; commands: {', '.join(known)}"


def _choices(kind: Any) -> list[str]:
    """What a `Literal` allows, alone or beside None."""
    kinds = [kind, *get_args(kind)]
    return [str(value) for one in kinds if get_origin(one) is Literal for value in get_args(one)]


def _bad_choice(error: CoercionError, choices: list[str]) -> str:
    token = error.token
    name = token.keyword if token is not None and token.keyword else None
    name = name or (error.argument.name if error.argument is not None else "it")
    value = "" if token is None else token.value
    return f"{name} must be one of {', '.join(choices)}, got {value!r}{did_you_mean(value, choices)}"


def _missing(name: str, error: MissingArgumentError) -> str:
    """What is not there: an argument, an option that is needed, or the value of one."""
    argument = error.argument
    valueless = error.keyword is not None or bool(argument is not None and argument.tokens)
    if valueless:
        return f"{name} needs a value"
    chain = " ".join(error.command_chain or ())
    return f"{chain} needs {'FILE' if name == '--paths' else name}"
