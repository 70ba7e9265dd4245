"""The commands that the pages print: in blocks of a shell, in jobs of CI, and in code spans of the text."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^(?P<indent> *)(?P<marks>`{3,})(?P<kind>[^\n`]*)\n(?P<text>.*?)^ *(?P=marks)$", re.M | re.S
)
COMMENT = re.compile(r"<!--.*?-->", re.S)
PROGRAM = r"(?:resispec-verify|python3?|pytest|sphinx-build)"
SPAN = re.compile(rf"(?<!`)`(?P<text>{PROGRAM}\s[^`]+)`(?!`)")
INDENTED = re.compile(r"(?<=\n\n)(?: {4}\S.*\n)+")
RUN = re.compile(r"^(?P<indent> *)(?:- )?run: *(?P<text>.*)$")
OPERATORS = frozenset(("&&", "||", "|", "&", ";"))
SHELLS = frozenset(("sh", "bash", "shell", "console"))


@dataclass(frozen=True)
class Printed:
    """One simple command, without what a shell does around it.

    Attributes
    ----------
    words : tuple of str
        As a shell hands them over; ``$NAME`` is left as it is.
    where : str
        Page and line of its block or span.
    inline : bool
        From a code span of the text, which may be no more than a name.
    shown : str
        What the page shows as its output, where a block does.
    status : int or None
        What the page says that ``echo $?`` prints after it.
    """

    words: tuple[str, ...]
    where: str
    inline: bool = False
    shown: str = field(default="", compare=False)
    status: int | None = None

    @property
    def line(self) -> str:
        """The command as one would type it."""
        return shlex.join(self.words)


def pages() -> list[Path]:
    """Every page: of the front, of docs/ with its folders, and of the other folders that have one."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for folder in ("examples", "experiments", "proofs", "tests", "benchmarks"):
        found += sorted((ROOT / folder).rglob("README.md"))
    return [page for page in found if "_build" not in page.parts]


def all_printed() -> list[Printed]:
    """The commands of all pages, in their order, but for tutorials: `docs/run_tutorials.py` follows those."""
    return [
        command
        for page in pages()
        if page.parent.name != "tutorials"
        for command in printed(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))
    ]


def printed(text: str, page: str) -> list[Printed]:
    """The commands of a page."""
    found = []
    for block in FENCE.finditer(text):
        where = f"{page}:{text[: block.start()].count(chr(10)) + 1}"
        kind = block["kind"].strip()
        if kind in SHELLS:
            found += _of_shell(block["text"], where, prompt=kind == "console")
        elif kind == "yaml":
            for script in _scripts(block["text"]):
                found += _of_shell(script, where, prompt=False)
    # Lines are kept so that they can be counted; marks of a block or comment are none of a span.
    prose = COMMENT.sub(_blank, FENCE.sub(_blank, text))
    for block in INDENTED.finditer(prose):
        if re.match(rf" +{PROGRAM}\s", block[0]):
            where = f"{page}:{prose[: block.start()].count(chr(10)) + 1}"
            found += _of_shell(block[0], where, prompt=False)
    for span in SPAN.finditer(prose):
        where = f"{page}:{prose[: span.start()].count(chr(10)) + 1}"
        found += [
            Printed(words, where, inline=True) for words in simple_commands(" ".join(span["text"].split()))
        ]
    return found


def arguments_with_outputs() -> set[tuple[str, ...]]:
    """Of the blocks that ``docs/regenerate.py`` runs again: the arguments of ``resispec-verify``."""
    maker = runpy.run_path(str(ROOT / "docs" / "regenerate.py"))
    texts = [page.read_text(encoding="utf-8") for page in maker["pages"]()]
    return {
        tuple(shlex.split(found["arguments"])) for text in texts for found in maker["BLOCK"].finditer(text)
    }


def simple_commands(text: str) -> list[tuple[str, ...]]:
    """The words of each command of a line, split where a shell does; redirections are dropped."""
    reader = shlex.shlex(text, posix=True, punctuation_chars="&|;<>")
    reader.whitespace_split = True
    found, words = [], []
    tokens = list(reader)
    while tokens:
        token = tokens.pop(0)
        if token in OPERATORS:
            found.append(tuple(words))
            words = []
        elif token and not token.strip("<>&"):
            if words and words[-1] in ("1", "2"):
                words.pop()
            if tokens:
                tokens.pop(0)
        else:
            words.append(token)
    found.append(tuple(words))
    return [words for words in found if words]


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def _scripts(text: str) -> Iterator[str]:
    """What the steps of a job run."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        step = RUN.match(line)
        if not step:
            continue
        if step["text"].strip() != "|":
            yield step["text"]
            continue
        deeper = []
        for below in lines[number + 1 :]:
            if below.strip() and len(below) - len(below.lstrip()) <= len(step["indent"]) + 1:
                break
            deeper.append(below.strip())
        yield "\n".join(deeper)


def _of_shell(text: str, where: str, *, prompt: bool) -> list[Printed]:
    found: list[Printed] = []
    for command, shown in _entries(text.splitlines(), prompt):
        if command.split("#")[0].split() == ["echo", "$?"]:
            assert found, f"{where}: `echo $?` follows a command"
            if shown.strip():
                last = found[-1]
                found[-1] = Printed(last.words, last.where, last.inline, last.shown, int(shown))
            continue
        found += [Printed(words, where, shown=shown) for words in simple_commands(command)]
    return found


def _entries(lines: list[str], prompt: bool) -> Iterator[tuple[str, str]]:
    """Each command with its continuations, and the lines below it that are not commands."""
    lines = [line.rstrip() for line in lines]
    while lines:
        line = lines.pop(0)
        if not line.strip():
            continue
        if prompt:
            assert line.lstrip().startswith("$ "), f"a block of a console begins with `$ `: {line}"
            line = line.lstrip()[2:]
        while lines and (line.endswith("\\") or not _closed(line)):
            line = line[:-1] + lines.pop(0) if line.endswith("\\") else f"{line}\n{lines.pop(0)}"
        shown = []
        while prompt and lines and not lines[0].lstrip().startswith("$ "):
            shown.append(lines.pop(0))
        yield line, "\n".join(shown)


def _closed(text: str) -> bool:
    try:
        simple_commands(text)
    except ValueError:
        return False
    return True
