"""What the scripts of this folder share: parts of a page between marks, and writing a file or checking it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

END = "<!-- end -->"


def with_part(text: str, name: str, made: str) -> str:
    """A page with what stands between ``<!-- generated: NAME -->`` and the next ``<!-- end -->`` replaced.

    Raises
    ------
    LookupError
        The page has not both marks, the first of them once.
    """
    mark = f"<!-- generated: {name} -->\n"
    before, _, rest = text.partition(mark)
    if text.count(mark) != 1 or END not in rest:
        raise LookupError(f"a page needs {mark.strip()} once, and {END} after it")
    return before + mark + made.rstrip("\n") + "\n" + END + rest.partition(END)[2]


def write_or_check(path: Path, current: str, command: str, alike: Callable[[str], str] = str) -> int:
    """Write a file as it should be; with ``--check`` only say whether it is, and return 1 where it is not.

    Parameters
    ----------
    alike : callable
        What of the text is compared.
    """
    if "--check" not in sys.argv:
        path.write_text(current, encoding="utf-8")
        return 0
    same = path.exists() and alike(path.read_text(encoding="utf-8")) == alike(current)
    print("current" if same else f"{path} is not current; run {command}")
    return 0 if same else 1
