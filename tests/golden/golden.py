"""Keep what every command prints and writes: ``python tests/golden/golden.py [--check] [NAME...]``.

Without ``--check`` the outputs of the cases whose names begin with NAME are written to ``expected/`` where
they differ from what is kept; review the difference. With it they are only compared: text word by word, where
numbers may differ by `CLOSE` of their size (machines sum in another order) and seconds do not count. A new
key of JSON may be right, and is said all the same: what is kept is what is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import math
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from cases import CASES
from inputs import write

EXPECTED = Path(__file__).parent / "expected"
CLOSE = 1e-9  # of a number; sums of at most 49,152 terms of float64 differ by less
NOISE = 1e-12  # below it, a number is rounding
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")
SECONDS = re.compile(r"(?<=[ ,(])\d+\.\d+(?= s\b)")
LEDGER = re.compile(r" \d+\.\d *$", re.MULTILINE)  # the last column of `prove`: seconds
UNREAD = {".svg": "(a picture)", ".safetensors": "(arrays)"}
CLOCKED = {"seconds", "elapsed", "wall_seconds", "created", "version", "runtime"}


def outputs(arguments: list[str]) -> dict[str, str]:
    """What a command leaves behind in a folder of inputs: status, standard output, errors, and files."""
    from resispec_verify.cli import main

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, data in _inputs().items():
            (folder / file).write_bytes(data)
        before = {p.name for p in folder.iterdir()}
        home = Path.cwd()
        out, err = io.StringIO(), io.StringIO()
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
                status = main(arguments)
        finally:
            os.chdir(home)
        # Where the kernels have not been compiled yet any run may say so; that is no part of the answer.
        notes = [line for line in err.getvalue().splitlines() if "compiling kernels" not in line]
        found = {"status": str(status), "out": out.getvalue(), "err": "\n".join(notes)}
        for path in sorted(folder.iterdir()):
            if path.name not in before and path.is_file():
                found[path.name] = UNREAD.get(path.suffix) or path.read_text("utf-8")
        return {part: _timeless(text.replace(name, "FOLDER"), arguments[:1]) for part, text in found.items()}


@functools.cache
def _inputs() -> dict[str, bytes]:
    """All inputs by their names, made once a process; each command gets files of its own."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        return {path.name: path.read_bytes() for path in Path(name).iterdir()}


def _timeless(text: str, command: list[str]) -> str:
    text = SECONDS.sub("-", text)
    return LEDGER.sub(" -", text) if command == ["prove"] else text


def save(name: str, found: dict[str, str]) -> None:
    """Write the outputs of a case as one readable file."""
    parts = [f"$ {' '.join(CASES[name])}\n"]
    for part, text in found.items():
        lines = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
        parts.append(f"=== {part}\n{lines}")
    (EXPECTED / f"{name}.txt").write_text("".join(parts), encoding="utf-8")


def load(name: str) -> dict[str, str]:
    """The outputs that are kept of a case."""
    text = (EXPECTED / f"{name}.txt").read_text(encoding="utf-8")
    found = {}
    for chunk in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
        part, _, body = chunk.partition("\n")
        found[part] = body
    return found


def differences(name: str, found: dict[str, str]) -> list[str]:
    """How the outputs of a case differ from those that are kept."""
    kept = load(name)
    lost = [f"{name}: no {part} any more" for part in kept if part not in found]
    new = [f"{name}: {part} is new" for part in found if part not in kept]
    for part in kept.keys() & found.keys():
        lost += [f"{name}, {part}: {how}" for how in _compare(kept[part], found[part])]
    return lost + new


def _compare(kept: str, found: str) -> list[str]:
    if kept.startswith("{"):
        return _compare_values(_values(kept), _values(found), "")
    mine, theirs = (
        [" ".join(line.split()) for line in text.splitlines() if line.strip(" ─")] for text in (kept, found)
    )
    if len(mine) != len(theirs):
        return [f"{len(mine)} lines before, {len(theirs)} now: {_first(mine, theirs)}"]
    return [f"was {a!r}, is {b!r}" for a, b in zip(mine, theirs, strict=True) if not _same_line(a, b)]


def _values(text: str) -> list[Any]:
    """The JSON of a report, or of a file of one object a line."""
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def _first(mine: list[str], theirs: list[str]) -> str:
    for a, b in zip([*mine, "(nothing)"], [*theirs, "(nothing)"], strict=False):
        if not _same_line(a, b):
            return f"first was {a!r}, is {b!r}"
    return "the rest"


def _same_line(a: str, b: str) -> bool:
    if NUMBER.sub("#", a) != NUMBER.sub("#", b):
        return False
    numbers = zip(NUMBER.findall(a), NUMBER.findall(b), strict=True)
    return all(_same_number(float(x), float(y)) for x, y in numbers)


def _same_number(x: float, y: float) -> bool:
    return x == y or abs(x - y) <= NOISE or math.isclose(x, y, rel_tol=CLOSE)


def _compare_values(kept: Any, found: Any, where: str) -> list[str]:
    if isinstance(kept, dict) and isinstance(found, dict):
        lost = [f"{where}/{key} is gone" for key in kept if key not in found]
        lost += [f"{where}/{key} is new" for key in found if key not in kept]
        for key in kept.keys() & found.keys():
            if key not in CLOCKED:
                lost += _compare_values(kept[key], found[key], f"{where}/{key}")
        return lost
    if isinstance(kept, list) and isinstance(found, list):
        if len(kept) != len(found):
            return [f"{where} had {len(kept)} entries, has {len(found)}"]
        pairs = enumerate(zip(kept, found, strict=True))
        return [line for i, (a, b) in pairs for line in _compare_values(a, b, f"{where}/{i}")]
    if isinstance(kept, float) and isinstance(found, (int, float)) and not isinstance(found, bool):
        return [] if _same_number(kept, found) else [f"{where} was {kept}, is {found}"]
    return [] if kept == found and type(kept) is type(found) else [f"{where} was {kept!r}, is {found!r}"]


def main() -> int:
    """Write or check; returns the exit status."""
    parser = argparse.ArgumentParser(description="Keep what every command prints and writes.")
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("names", nargs="*", metavar="NAME", help="how names of cases begin; default: all")
    asked = parser.parse_args()
    if none := [name for name in asked.names if not any(case.startswith(name) for case in CASES)]:
        parser.error(f"no case begins with {none[0]!r}; they are in tests/golden/cases.py")
    chosen = [case for case in CASES if not asked.names or case.startswith(tuple(asked.names))]
    os.environ["COLUMNS"] = "80"
    EXPECTED.mkdir(exist_ok=True)
    wrong, written = [], []
    for name in chosen:
        found = outputs(CASES[name])
        kept = (EXPECTED / f"{name}.txt").exists()
        if asked.check:
            wrong += differences(name, found) if kept else [f"{name}: nothing is kept"]
        elif not kept or differences(name, found):
            save(name, found)
            written.append(name)
    new = f", {len(written)} written: {', '.join(written)}" if written else ""
    print("\n".join(wrong) or f"{len(chosen) - len(written)} hold{new}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
