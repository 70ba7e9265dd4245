"""Options of an engine, from its configuration file or its command line, as one flat mapping.

A nested option is ``outer.inner``; dashes are underscores. Files and command lines come from anywhere: they
are parsed as data, nothing in them is run or expanded, and no file that they name is opened.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resispec_verify.engines.table import Engine, known_engines
from resispec_verify.errors import InputError

__all__ = ["Doubt", "engine_of", "read_command_line", "read_config"]

MOST_BYTES = 1 << 20  # a configuration has some kilobytes
DEEPEST = 20  # and some levels
NUMBER = re.compile(r"-?\d*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)
#: What a word of speculation has in it, with underscores for dashes; "spec" is no part of "special".
SPECULATION = re.compile(
    r"specul|(?<![a-z])spec(?![a-z])|draft|eagle|medusa|(?<![a-z])mtp|ngram|lookahead|prompt_lookup|dflash|dspark"
    r"|simulate_|synth|relaxed|assistant_|rejection|accept_|acceptance|llama_arg_"
)
OPTION = re.compile(r"--?[A-Za-z][\w.-]*(=|$)")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
OPERATORS = ";&|<>"
#: A word that a shell leaves as it is, and that is no file of options (@FILE) and no assignment.
PLAIN = re.compile(r"[\w./:+,%-]+")
#: A value in which a shell or an argument parser may find other words: $X, @FILE, {x,--option}.
EXPANDS = re.compile(r"[$`]|^@|[{,]-")
LONGEST_INTEGER = 1024  # bits, which is what a float holds
#: Variables known to bear on no verification, if they are not emptied.
HARMLESS = {
    "CUDA_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_TOKEN",
    "HIP_VISIBLE_DEVICES",
    "NCCL_DEBUG",
    "OMP_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
}


@dataclass(frozen=True)
class Doubt:
    """In place of an option's value: why nothing can be said while this word is there."""

    why: str


def read_config(engine: Engine, path: Path) -> dict[str, Any]:
    """The options of a configuration file: JSON, YAML or TOML, by its suffix.

    Raises
    ------
    InputError
        If the file cannot be read, is too large, is of another format, or holds no names with one value each.
    """
    load = _loader(path)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{path} has more than {MOST_BYTES} bytes, which is no configuration of an engine")
    try:
        found = load(data.decode("utf-8"))
        if not isinstance(found, Mapping):
            raise InputError(f"must hold names with values, got {type(found).__name__}")
        options = _merged(engine, _flat(engine, found, ""))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be a configuration") from None
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} is not {path.suffix[1:].upper()}: {reason}; correct it") from None
    why = "the file names another one with more options, and no file that it names is opened"
    return {name: Doubt(why) if name in engine.elsewhere else value for name, value in options.items()}


def engine_of(text: str) -> Engine | None:
    """The engine that a command line starts, or None."""
    program = _program(_split(text)[1])[0]
    return next((e for e in known_engines().values() if program in e.programs), None)


def read_command_line(engine: Engine, text: str) -> dict[str, Any]:
    """The options of a command line, with ``program`` and the variables that are set before it.

    Raises
    ------
    InputError
        If it is no single command, starts another engine, or states an option that decides in two ways.
    """
    variables, words, one_line = _split(text)
    other = engine_of(text)
    if other is not None and other is not engine:
        raise InputError(f"the command line starts {other.engine}, not {engine.engine}; name one of them")
    program, tokens = _program(words)
    pairs: list[tuple[str, Any]] = []
    if program not in engine.programs:  # a wrapper, a container or a script may add what it likes
        why = f"{program} is no program of {engine.engine} that was read"
        pairs.append((f"the program {program}", Doubt(why)))
    if not one_line:
        why = "only one command is read; write it on one line, or end its lines with a backslash"
        pairs.append(("a new line", Doubt(why)))
    pairs += [*_environment(engine, variables), ("program", program), *_pairs(engine, tokens)]
    return _merged(engine, pairs)


def _split(text: str) -> tuple[list[tuple[str, str]], list[str], bool]:
    """Variables set before a command, the words of the command, and whether it is all on one line."""
    text = text.replace("\\\r\n", " ").replace("\\\n", " ").strip()
    try:
        tokens, on_a_line = _words(text, " \t\r\n"), _words(text, " \t\r")
    except ValueError as error:
        raise InputError(
            f"the command line cannot be split into words: {error}; quote it as for a shell"
        ) from None
    if operators := [token for token in tokens if token and not token.strip(OPERATORS)]:
        raise InputError(f"the command line must be one command, without {operators[0]!r}")
    one_line = tokens == on_a_line
    variables = []
    while tokens and ASSIGNMENT.match(tokens[0]):
        name, _, value = tokens.pop(0).partition("=")
        variables.append((name, value))
    if not tokens or not Path(tokens[0]).name:
        raise InputError("the command line is empty; give the command that starts the engine")
    return variables, tokens, one_line


def _words(text: str, whitespace: str) -> list[str]:
    """The words of a shell, and its operators where they are not quoted."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = whitespace, True, ""
    return list(lexer)


def _program(words: list[str]) -> tuple[str, list[str]]:
    """The name of the program, and the words after it."""
    program = Path(words[0]).name
    if re.fullmatch(r"python[\d.]*", program) and words[1:2] == ["-m"] and len(words) > 2:
        return f"-m {words[2]}", words[3:]
    return program, words[1:]


def _environment(engine: Engine, variables: list[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    """Variables that are known; of the others nobody read what they do."""
    for name, value in variables:
        if name in engine.decides:
            yield name, value
        elif name not in HARMLESS or not value[:1].isalnum():  # no devices: "" and -1
            yield name, Doubt(f"what the variable {name} does was not read")


def _pairs(engine: Engine, tokens: list[str]) -> Iterator[tuple[str, Any]]:
    """Options with their values, and words that stand alone if they are not plain ones."""
    while tokens:
        token = tokens.pop(0)
        if not _is_option(token):
            if not PLAIN.fullmatch(token):
                yield f"the word {token}", Doubt(f"the word {token} may stand for others, or for none")
            elif speculation_in(token):
                yield f"the word {token}", Doubt(f"the word {token} may be one of speculation")
            continue
        if not OPTION.match(token):
            yield f"the word {token}", Doubt(f"the word {token} is no option by itself")
            continue
        written, equals, value = token.partition("=")
        name = _name(engine, written.lstrip("-"))
        if name.startswith("no_") and name[3:] in engine.flags:
            yield name[3:], False
            continue
        given: Any = value if equals else True
        if not equals and name not in engine.flags and tokens and not _is_option(tokens[0]):
            given = tokens.pop(0)
        if isinstance(given, str) and EXPANDS.search(given):
            yield name, Doubt(f"the value of {name} is for a shell to find out")
            continue
        yield from _expanded(engine, name, given)


def speculation_in(text: str) -> bool:
    """Whether a word or a value may be one of speculation, in whatever case."""
    return SPECULATION.search(text.lower().replace("-", "_")) is not None


def _is_option(token: str) -> bool:
    return token.startswith("-") and token != "-" and not NUMBER.fullmatch(token)


def _name(engine: Engine, written: str) -> str:
    """The name of an option as the table has it."""
    head, dot, rest = written.replace("-", "_").partition(".")
    return engine.aliases.get(head, head) + dot + rest


def _expanded(engine: Engine, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of an option whose value is a JSON object, or the option itself."""
    if name not in engine.json_options or not isinstance(value, str):
        yield name, value
        return
    try:
        found = json.loads(value, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"the value of {name} must be a JSON object: {reason}") from None
    if found is not None and not isinstance(found, Mapping):
        raise InputError(f"the value of {name} must be a JSON object, got {type(found).__name__}")
    yield from _flat(engine, found or {}, f"{name}.")


def _flat(engine: Engine, found: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    """All options of a mapping, nested ones by their path."""
    if before.count(".") > DEEPEST:
        raise InputError(f"{before[:40]}... is nested too deeply to be a configuration")
    for key, value in found.items():
        name = before + str(key).replace("-", "_") if before else _name(engine, str(key))
        if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
            raise InputError(f"{name[:40]!r} is a number of too many digits; correct it")
        if isinstance(value, Mapping):
            yield from _flat(engine, value, f"{name}.")
        elif value is not None and not isinstance(value, bool | int | float | str):
            yield name, str(value)  # a list: no option that decides has one
        else:
            yield from _expanded(engine, name, value)


def _merged(engine: Engine, pairs: Any) -> dict[str, Any]:
    """One value an option; an option that decides must not be stated in two ways."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if isinstance(found.get(name), Doubt):
            continue
        decisive = name in {*engine.decides, *engine.no_bearing, *engine.elsewhere}
        if decisive and name in found and found[name] != value and not isinstance(value, Doubt):
            raise InputError(f"{name} is given twice, as {found[name]!r} and as {value!r}; give it once")
        found[name] = value
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, whose names must differ."""
    found = dict(pairs)
    _differ(name for name, _ in pairs)
    return found


def _differ(names: Iterable[Any]) -> None:
    """Raise where a name comes twice."""
    seen = set()
    for name in names:
        if name in seen:
            raise InputError(f"{name!r} is given twice; give it once")
        seen.add(name)


def _loader(path: Path) -> Callable[[str], Any]:
    """What reads a file of this suffix."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        return lambda text: json.loads(text, object_pairs_hook=_once)
    if suffix == ".toml":
        try:
            import tomllib
        except ImportError:
            raise InputError(f"{path}: TOML needs Python 3.11 or later; write the options as JSON") from None
        return tomllib.loads
    if suffix in (".yaml", ".yml"):
        return _yaml
    raise InputError(f"{path} must be named .json, .yaml, .yml or .toml: the suffix says how it is read")


def _yaml(text: str) -> Any:
    """YAML without tags that make objects."""
    try:
        import yaml
    except ImportError:
        raise InputError("YAML needs PyYAML: pip install pyyaml, or write the options as JSON") from None

    class Loader(yaml.SafeLoader):
        """Refuses names that come twice, of which PyYAML would keep the last, and values that grow."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise InputError("aliases (*name) are not read; write the value out")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            _differ(self.construct_object(key, deep=deep) for key, _ in node.value)
            return super().construct_mapping(node, deep=deep)

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
    ) as error:  # of tags: !!int "", !!bool "x"
        raise ValueError(f"a value is not what its tag says ({type(error).__name__})") from None
