"""A group of options, and the refusal of options that would do nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cyclopts import Parameter

from resispec_verify.errors import InputError

PROGRAM = "resispec-verify"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """A group of options; a subclass adds to them."""


def values_of(*groups: Options) -> dict[str, Any]:
    """The values of all options of these groups, by name."""
    return {name: value for group in groups for name, value in vars(group).items()}


def defaults_of(*groups: Options) -> dict[str, Any]:
    """The values that these groups have where nothing is given."""
    return values_of(*(type(group)() for group in groups))


def command_line(command: str, *groups: Options, files: Sequence[object] = (), **others: Any) -> str:
    """A command with its files, and the options that are not the default."""
    words = words_of(values_of(*groups) | others, defaults_of(*groups))
    return shlex.join([PROGRAM, command, *map(str, files), *words])


def words_of(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Options as words, those left out that have their default; None is one that was not given."""
    words = []
    for name, value in values.items():
        if value is None or value == defaults.get(name):
            continue
        for one in value if isinstance(value, list) else [value]:
            words.append(option_of(name))
            if one is not True:
                exact = not isinstance(one, float) or float(f"{one:g}") != one
                words.append(str(one) if exact else f"{one:g}")
    return words


def check_range(least: float, most: float | None = None, **options: float | None) -> None:
    """Refuse numbers that were given and are less or more."""
    for name, value in options.items():
        if value is not None and not (value >= least and (most is None or value <= most)):
            floor = f"must be at least {least}" if least else "must not be negative"
            wanted = floor if most is None else f"must be in {least}..{most}"
            shown = f"{value:g}" if isinstance(value, float) else value
            raise InputError(f"{option_of(name)} {wanted}, got {shown}")


def check_share(**options: float | None) -> None:
    """Refuse what is no probability: a mass, or a total variation."""
    for name, value in options.items():
        if value is not None and not 0 <= value <= 1:
            raise InputError(f"{option_of(name)} must be in [0, 1], got {value:g}")


def numbers_in(text: str, option: str, wanted: str, kind: Callable[[str], Any] = float) -> list[Any]:
    """The numbers of a text such as "0.6,0.2,0.1"."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} must be {wanted}; got {text!r}") from None


def option_of(name: str) -> str:
    """The option of a field, as it is typed."""
    return f"--{name.replace('_', '-')}"


def refuse_without(needed: str, *groups: Options, **options: object) -> None:
    """Refuse options that were given, and would do nothing, without the option ``needed``."""
    _refuse(groups, options, f"needs {needed}, which is not given; leave it out")


def refuse_by_hand(*groups: Options, **options: object) -> None:
    """Hand-given values are used as they are: an option that would change them is a mistake."""
    _refuse(
        groups, options, "needs a dump: the values of --target and --draft are used as they are; leave it out"
    )


def refuse_beside(other: str, *groups: Options, **options: object) -> None:
    """Refuse options that were given, and would do nothing, beside the option ``other``."""
    _refuse(groups, options, f"would do nothing beside {other}; leave it out")


def refuse_of_lists(path: object, *groups: Options, **options: object) -> None:
    """Refuse options that would change laws of which only the most probable tokens are known."""
    why = f"cannot be applied to {path}: it lists the top k tokens of laws whose tails are unseen; "
    _refuse(groups, options, why + "log the laws that were sampled from, and leave it out")


def _refuse(groups: tuple[Options, ...], options: Mapping[str, object], why: str) -> None:
    values = {**values_of(*groups), **options}
    given = [name for name, value in values.items() if value is not None and value is not False]
    if given:
        raise InputError(f"{', '.join(map(option_of, given))} {why}")
