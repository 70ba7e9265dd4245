"""Exact, lossy or unknown: what a configuration makes an engine do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from resispec_verify.engines.options import Doubt, speculation_in
from resispec_verify.engines.table import Engine, Setting

__all__ = ["Answer", "Decider", "decide", "holds"]

OFF = ("", "none", "null", "false")
#: Keys under which files of other programs have an engine's command or environment.
WRAPPERS = {"args", "command", "entrypoint", "env", "environment", "extends", "include", "services"}
OPTION_IN_TEXT = re.compile(r"""(^|[\s'"])--?[A-Za-z]""")


@dataclass(frozen=True)
class Decider:
    """An option that decided: its value, and whether it was given or is the default."""

    option: str
    value: str
    given: bool


@dataclass(frozen=True)
class Answer:
    """What a configuration does, and why.

    Attributes
    ----------
    law : str
        ``exact``, ``lossy`` or ``unknown``: whether the tokens that come out have the target's law, at
        temperature 0 if ``greedy``.
    setting : Setting or None
        What runs; None without speculation, and where it cannot be told.
    decided_by : tuple of Decider
        The options that say so.
    why : str
        The reason in words.
    passed_over : tuple of str
        Options that were given and are in no list: they are not known to bear on the law, nor not to.
    """

    engine: Engine
    law: str
    setting: Setting | None
    greedy: bool
    decided_by: tuple[Decider, ...]
    why: str
    passed_over: tuple[str, ...]


def decide(
    engine: Engine, options: Mapping[str, Any], *, temperature: float | None = None, whole: bool = False
) -> Answer:
    """What an engine does with these options.

    Parameters
    ----------
    options : mapping
        From `read_config`, `read_command_line` or both.
    temperature : float, optional
        Of the requests, where the options do not state it or it is another one.
    whole : bool
        Whether the file that the command line names was read too.
    """
    given = {name: value for name, value in options.items() if value is not None}
    passed_over = tuple(
        sorted(
            n
            for n in given
            if not _listed(engine, n) and not _begins(engine, n) and not isinstance(given[n], Doubt)
        )
    )
    greedy = (
        any(holds(engine, given, when) for when in engine.greedy_if)
        if temperature is None
        else temperature == 0
    )

    def answer(law: str, setting: Setting | None, decided_by: Iterable[str], why: str) -> Answer:
        deciders = tuple(_decider(engine, given, name) for name in decided_by)
        return Answer(engine, law, setting, greedy, deciders, why, passed_over)

    if unreadable := _unreadable(engine, given, whole):
        name, why = unreadable
        return answer("unknown", None, [name], why)
    if not any(holds(engine, given, when) for when in engine.on_if):
        return answer("exact", None, [], "these options turn no speculation on: nothing is verified")
    for setting in engine.settings:
        if setting.when is None or not holds(engine, given, setting.when):
            continue
        law = setting.greedy if greedy else setting.law
        decided_by = list(setting.when or _defaults(engine))
        if greedy and temperature is None and setting.law != setting.greedy:
            decided_by += [name for when in engine.greedy_if for name in when if name not in decided_by]
        return answer(law, setting, decided_by, setting.in_words)
    return answer("unknown", None, [], "no setting of the table fits these options")


def holds(engine: Engine, options: Mapping[str, Any], when: Mapping[str, Any]) -> bool:
    """Whether all of this is so.

    Parameters
    ----------
    when : mapping
        By option (``outer.*``: any of that group): a list of values; ``given``; ``above N``, ``below N``,
        ``at most N``; ``contains TEXT``; ``lacks A,B``: neither text. What is not given has its default.
    """
    return all(_holds(engine, options, name, wanted) for name, wanted in when.items())


def _holds(engine: Engine, options: Mapping[str, Any], name: str, wanted: Any) -> bool:
    if name.endswith(".*"):
        return any(_text(value) not in OFF for key, value in options.items() if key.startswith(name[:-1]))
    value = options.get(name, engine.decides.get(name, {}).get("default"))
    if isinstance(wanted, list):
        return _text(value) in wanted
    word, _, rest = wanted.rpartition(" ")
    if wanted == "given":
        return _text(value) not in OFF
    if word == "contains":
        return rest in _text(value)
    if word == "lacks":
        return not any(text in _text(value) for text in rest.split(","))
    number = _number(value)
    if number is None:
        return False
    return {"above": number > float(rest), "below": number < float(rest), "at most": number <= float(rest)}[
        word
    ]


def _unreadable(engine: Engine, given: Mapping[str, Any], whole: bool) -> tuple[str, str] | None:
    """The option or word for which nothing can be said, and why."""
    for name, value in given.items():
        known = engine.decides.get(name)
        if isinstance(value, Doubt):
            return name, value.why
        if name in engine.elsewhere and sum(other in given for other in engine.elsewhere) > 1:
            return name, "the command line names more than one file of options"
        if name in engine.elsewhere and not whole:
            return name, f"{name} names a file with more options; give that file with --config as well"
        if name in engine.json_options:  # else it would have been taken apart
            return name, f"the value of {name} is no JSON object"
        if known is None:
            if not _listed(engine, name) and (why := _suspicion(engine, name, value)):
                return name, why
            continue
        text = _text(value)
        if "$" in text or "`" in text:
            return name, f"the value of {name} is for a shell to find out"
        if known.get("number") and _number(value) is None:
            return name, f"{name} must be a finite number, got {text!r}"
        if not text or ("values" in known and text not in known["values"]):
            return (
                name,
                f"{name} = {text!r} is none of the values that were read at {engine.engine} {engine.version}",
            )
    return None


def _suspicion(engine: Engine, name: str, value: Any) -> str | None:
    """Why an option that is in no list may be one of speculation all the same."""
    read = f"at {engine.engine} {engine.version}"
    parts = [part.lower() for part in name.replace("-", "_").split(".")]
    heads = {known.split(".")[0].lower() for known in _words(engine)} - {"program"}
    if _begins(engine, name) or speculation_in(name):
        return f"{name} is no option of speculation that was read {read}"
    if found := [part for part in parts if part in heads or part in engine.aliases or part in WRAPPERS]:
        return f"{name} is none of the options that were read {read}, and {found[0]!r} may stand for one"
    # argparse takes any beginning of an option for it; --model is complete everywhere
    longer = sorted(head for head in heads if head.startswith(parts[0]))
    if longer and len(parts[0]) > 1 and parts[0] != "model":
        return f"{name} may be short for {longer[0]}"
    if OPTION_IN_TEXT.search(str(value)) or speculation_in(str(value)):
        return f"the value of {name} may have something of speculation in it"
    return None


def _words(engine: Engine) -> set[str]:
    return {*engine.decides, *engine.no_bearing, *engine.elsewhere, *engine.json_options, "program"}


def _listed(engine: Engine, name: str) -> bool:
    """Whether the table says what an option does."""
    groups = [known[:-1] for known in engine.no_bearing if known.endswith(".*")]
    return name in _words(engine) or name.startswith(tuple(groups))


def _begins(engine: Engine, name: str) -> bool:
    return name.startswith(engine.speculative)


def _defaults(engine: Engine) -> list[str]:
    """The options that the settings before the default one ask for."""
    names = [name for setting in engine.settings for name in setting.when or {}]
    return list(dict.fromkeys(names))


def _decider(engine: Engine, given: Mapping[str, Any], name: str) -> Decider:
    value = given.get(name, engine.decides.get(name, {}).get("default"))
    if isinstance(value, Doubt):
        return Decider(name, "unknown", True)
    return Decider(name, "not given" if value is None else _text(value), name in given)


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip().lower()


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None
