"""Write the tables of options and of JSON keys on the pages of docs/reference/commands.

    python docs/make_commands.py [--check]

Options are those of the command line, with its own help; keys are those of ``resispec_verify/schemas``. Only
what stands between two marks is written. ``--check`` changes nothing and exits with 1 where a page is not
current.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from written import with_part

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "reference" / "commands"
SCHEMAS = ROOT / "resispec_verify" / "schemas"
#: Words of a help that are code.
CODE = re.compile(r"(?<![\w`-])(--[a-z][a-z-]*|[A-Za-z/_.]+\.py:[A-Za-z]+|package\.module:NAME)")
#: Where a command has more options, the table says what each group of them is for.
MOST_WITHOUT_GROUPS = 15
#: Said once, on the page of all commands.
OF_EVERY_REPORT = {"schema", "command", "results"}
#: How help says what is done where an option is not given.
DEFAULTS = (
    re.compile(r"\s*Default: (?P<default>.+?)\.(?= |$)"),
    re.compile(r" \((?P<default>\d[^(), ]*(?:; [^()]*)?)\)(?=[.,]|$)"),
)


def _cell(text: str) -> str:
    """A text of the terminal as a cell of a table: words of a command line are code."""
    text = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    text = CODE.sub(r"`\1`", text)
    return re.sub(r'"([^"]+)"', r'`"\1"`', text)


def _name(option: Any) -> str:
    """The name of an option and what follows it, in the words of the terminal."""
    hint = str(option.hint)
    many = "..." if "list[" in hint or hint.startswith("tuple") else ""
    name = "PATH" if option.names[0] == "--paths" else str(option.names[0])
    if name.removeprefix("--").isupper():
        return f"`{name.removeprefix('--')}{many}`"
    if option.is_flag():
        return f"`{name}`"
    choices = option.get_choices() or ()
    if choices:
        return f"`{name} {choices[0] if len(choices) == 1 else 'CHOICE'}{many}`"
    (kind,) = re.findall(r"\b(?:int|float|str|Path)\b", hint)
    return f"`{name} {kind.upper()}{many}`"


def _default(option: Any, text: str) -> tuple[str, str]:
    """What is done without the option, and the help without the words that say so."""
    default = option.field_info.default
    if option.required:
        return "required", text
    if default is not None and default is not False and default is not inspect.Parameter.empty:
        return f"{default:g}" if isinstance(default, float) else str(default), text
    for pattern in DEFAULTS:
        found = pattern.findall(text)
        if len(found) == 1:
            return found[0], pattern.sub("", text)
    return "", text


def _row(option: Any) -> str:
    default, text = _default(option, " ".join((option.parameter.help or "").split()))
    choices = [f"`{choice}`" for choice in option.get_choices() or ()]
    cell = _cell(text)
    if len(choices) > 1 and not all(re.search(rf"\b{choice[1:-1]}\b", text) for choice in choices):
        cell = f"{cell} {', '.join(choices[:-1])} or {choices[-1]}."
    return f"| {_name(option)} | {_cell(default)} | {cell} |"


def _title(group: type) -> str:
    """What a group of options is for; one with another default has no words of its own."""
    for one in group.__mro__:
        said = inspect.cleandoc(one.__doc__ or "")
        if said and not said.startswith(f"{one.__name__}("):  # what a dataclass writes by itself
            return " ".join(said.partition("\n\n")[0].split()).rstrip(".")
    raise LookupError(f"{group} says nothing of itself")


def _groups(app: Any) -> dict[str, list[Any]]:
    """The options that the help of a command shows, by what their group is for; first those of no group."""
    title, groups = "", {"": []}
    for argument in app.assemble_argument_collection(parse_docstring=True):
        if argument.names == ("*",):
            title = _title(argument.hint)
        elif argument.show:
            groups.setdefault(title if argument.keys else "", []).append(argument)
    return groups


def _table(app: Any) -> list[str]:
    """One table, in which groups have a line of their own where there are many options."""
    groups = _groups(app)
    many = sum(map(len, groups.values())) > MOST_WITHOUT_GROUPS
    lines = ["", "| option | default | meaning |", "|---|---|---|"]
    for title, options in groups.items():
        lines += [f"| | | **{title}** |"] if many and title else []
        lines += map(_row, options)
    return [*lines, ""]


def options_of(command: str) -> list[str]:
    """The table of the options of a command, or of each of its commands."""
    from resispec_verify.cli import make_app

    app = make_app([command])[command]
    names = [name for name in app if not name.startswith("-")]
    if not names:
        return _table(app)
    return [line for name in names for line in ("", f"### `{command} {name}`", *_table(app[name]))]


def _types(schema: dict[str, Any]) -> list[str]:
    """The types of a key in words of JSON; that it may be null is not said."""
    if "$ref" in schema:
        return ["number"]
    if "enum" in schema:
        return [f"`{value}`" for value in schema["enum"] if value is not None]
    words = [word for part in schema.get("anyOf", ()) for word in _types(part)]
    kinds = schema.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        of = " or ".join(_types(schema["items"])) if kind == "array" and "items" in schema else ""
        words.append(f"array of {of}" if of else kind)
    return [word for word in dict.fromkeys(words) if word != "null"]


def _keys(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, list[str], str]]:
    """Key, types and meaning; of objects within, the keys that have a meaning of their own."""
    for part in schema.get("anyOf", ()):
        yield from _keys(part, prefix)
    if isinstance(schema.get("items"), dict):
        yield from _keys(schema["items"], prefix)
    for key, value in schema.get("properties", {}).items():
        if "description" in value and prefix + key not in OF_EVERY_REPORT:
            yield f"`{prefix}{key}`", _types(value), value["description"]
        yield from _keys(value, "" if key == "results" else f"{prefix}{key}.")


def keys_of(command: str) -> list[str]:
    """The table of the keys of a report; a line for those that share a meaning."""
    schema = json.loads((SCHEMAS / f"{command}-1.json").read_text(encoding="utf-8"))
    lines = ["", "| key | type | meaning |", "|---|---|---|"]
    rows: dict[str, tuple[list[str], list[str]]] = {}
    for key, types, said in _keys(schema):
        names, kinds = rows.setdefault(said, ([], []))
        names.append(key)
        kinds += [kind for kind in types or ["any"] if kind not in kinds]
    for said, (names, kinds) in rows.items():
        lines.append(f"| {', '.join(names)} | {', '.join(kinds)} | {said} |")
    return [*lines, ""]


def current(text: str, command: str) -> str:
    """The page of a command as it should be."""
    for name, made in (("options", options_of), ("json", keys_of)):
        if f"<!-- generated: {name} -->" in text:
            text = with_part(text, name, re.sub(r"\n{3,}", "\n\n", "\n".join(made(command))) + "\n")
    return text


def main() -> int:
    """Write, or check."""
    from resispec_verify.cli import COMMANDS

    stale = []
    for command in COMMANDS:
        page = PAGES / f"{command}.md"
        text = page.read_text(encoding="utf-8")
        made = current(text, command)
        if made != text:
            stale.append(str(page))
            if "--check" not in sys.argv:
                page.write_text(made, encoding="utf-8")
    if "--check" not in sys.argv:
        return 0
    print(f"not current: {', '.join(stale)}; run python docs/make_commands.py" if stale else "current")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
